"""Functions of ``SparkSink`` on Spark: mistakes, many rows, and targets that are away; ``test_kill`` kills drivers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from sparkbolt import Config, TopologyBuilder
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.bolts import SparkSink
from sparkbolt.errors import EngineError, Unavailable
from sparkbolt.spouts import GeneratorSpout
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]

MANY = 1000


def sink_of(rows: list[list[Any]], function: Any, **options: Any) -> Any:
    builder = TopologyBuilder("sink", Config(max_attempts=1))
    builder.set_spout("rows", GeneratorSpout(lambda: rows, outputs=["n", "name"]))
    builder.set_bolt("sink", SparkSink("rows", function, **options))
    return builder.build()


def test_a_mistake_in_the_function_stops_the_topology_and_keeps_the_rows(spark: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")

    def mistaken(batch_df: Any, batch_id: int) -> None:
        batch_df.select("nosuch").write.parquet(out)

    def right(batch_df: Any, batch_id: int) -> None:
        batch_df.write.mode("append").parquet(out)

    rows = [[1, "a"], [2, "b"]]
    running = sink_of(rows, mistaken).start(spark=spark, checkpoint=tmp_path / "state")
    with pytest.raises(EngineError, match=r"commit of 'sink' raised .*nosuch.*rows of txid 1 are in the checkpoint"):
        running.await_finished()
    running.stop()
    running = sink_of(rows, right).start(spark=spark, checkpoint=tmp_path / "state")
    running.await_finished()
    running.stop()
    assert sorted(row["n"] for row in ds.dataset(out, format="parquet").to_table().to_pylist()) == [1, 2]


@dataclass
class Sunk:
    """What two sinks of one topology have left."""

    directory: Path
    metrics: TopologyMetrics
    given_up: list[Any]


@pytest.fixture(scope="module")
def sunk(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Sunk:
    """A sink of many rows, and one of a few rows, two of them bad, whose target is away at first."""
    directory = tmp_path_factory.mktemp("sunk")
    places, calls = directory / "places", directory / "calls"

    def write(batch_df: Any, batch_id: int) -> None:
        with places.open("a") as file:
            file.write(f"{batch_df.count()} {len(batch_df.inputFiles())} {batch_df.schema.simpleString()}\n")
        batch_df.write.mode("overwrite").parquet(f"{directory}/many/{batch_id}")

    def away_at_first(batch_df: Any, batch_id: int) -> None:
        with calls.open("a") as file:
            file.write(f"{batch_id} {batch_df.schema.simpleString()}\n")
        if len(calls.read_text().splitlines()) < 3:
            raise Unavailable("the target is away")
        batch_df.write.mode("append").parquet(f"{directory}/few")

    def large() -> Iterator[list[Any]]:
        return ([n, "x" * 40_000] for n in range(MANY))  # so that also a slow machine reads enough of them at once

    def few() -> list[list[Any]]:
        return [[1, "a"], ["two", "b"], [3, None], [2**40, "d"], [5, "e"]]

    builder = TopologyBuilder("sinks", Config(max_attempts=1))
    for name, rows, function in (("many", large, write), ("few", few, away_at_first)):
        builder.set_spout(name, GeneratorSpout(rows, outputs=["n", "name"]))
        builder.set_bolt(f"{name}-sink", SparkSink(name, function, schema="n int not null, name string"))
    running = builder.build().start(spark=spark, checkpoint=directory / "state")
    try:
        assert running.await_finished(PATIENCE_SECS)
        return Sunk(directory, running.metrics(), running.given_up)
    finally:
        running.stop()


def test_many_rows_reach_the_function_in_the_same_form_as_few(sunk: Sunk) -> None:
    told = [line.split() for line in (sunk.directory / "places").read_text().splitlines()]
    assert {schema for _, _, schema in told} == {"struct<n:int,name:string>"}
    assert any(files == "1" for _, files, _ in told), "no micro-batch was so large that a file was used"
    files = sorted(str(path) for path in (sunk.directory / "many").rglob("*.parquet"))
    assert sorted(ds.dataset(files, format="parquet").to_table()["n"].to_pylist()) == list(range(MANY))


def test_a_function_with_an_unavailable_target_is_retried_and_a_bad_row_fails_alone(sunk: Sunk) -> None:
    counts = sunk.metrics.components["few"]
    assert (counts.acked, counts.given_up) == (3, 2)
    assert len(sunk.given_up) == 2
    written = ds.dataset(f"{sunk.directory}/few", format="parquet").to_table().to_pylist()
    assert sorted(written, key=lambda row: row["n"]) == [
        {"n": 1, "name": "a"},
        {"n": 3, "name": None},
        {"n": 5, "name": "e"},
    ]
    assert len(set((sunk.directory / "calls").read_text().splitlines())) == 1, "the same rows, the same batch_id"
