"""Functions of ``SparkSink`` on Spark: mistakes, many rows, and targets that are away; ``test_kill`` kills drivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from sparkbolt import Config, TopologyBuilder
from sparkbolt.bolts import SparkSink
from sparkbolt.errors import EngineError, Unavailable
from sparkbolt.spouts import GeneratorSpout

pytestmark = [pytest.mark.spark]


def sink_of(rows: list[list[Any]], function: Any, **options: Any) -> Any:
    builder = TopologyBuilder("sink", Config(max_attempts=1))
    builder.set_spout("rows", GeneratorSpout(lambda: rows, outputs=["n", "name"]))
    builder.set_bolt("sink", SparkSink("rows", function, **options))
    return builder.build()


def test_a_mistake_in_the_function_stops_the_topology_and_keeps_the_rows(tmp_path: Path) -> None:
    out = str(tmp_path / "out")

    def mistaken(batch_df: Any, batch_id: int) -> None:
        batch_df.select("nosuch").write.parquet(out)

    def right(batch_df: Any, batch_id: int) -> None:
        batch_df.write.mode("append").parquet(out)

    rows = [[1, "a"], [2, "b"]]
    running = sink_of(rows, mistaken).start(checkpoint=tmp_path / "state", master="local[2]")
    with pytest.raises(EngineError, match=r"commit of 'sink' raised .*nosuch.*rows of txid 1 are in the checkpoint"):
        running.await_finished()
    running.stop()
    running = sink_of(rows, right).start(checkpoint=tmp_path / "state", master="local[2]")
    running.await_finished()
    running.stop()
    assert sorted(row["n"] for row in ds.dataset(out, format="parquet").to_table().to_pylist()) == [1, 2]


def test_many_rows_reach_the_function_as_few_do(tmp_path: Path) -> None:
    count, places = 1_000, tmp_path / "places"  # large ones, so that also a slow machine reads enough of them at once

    def write(batch_df: Any, batch_id: int) -> None:
        with places.open("a") as file:
            file.write(f"{batch_df.count()} {len(batch_df.inputFiles())} {batch_df.schema.simpleString()}\n")
        batch_df.write.parquet(f"{tmp_path}/out/{batch_id}")

    builder = TopologyBuilder("many", Config())
    builder.set_spout("rows", GeneratorSpout(lambda: ([n, "x" * 40_000] for n in range(count)), outputs=["n", "name"]))
    builder.set_bolt("sink", SparkSink("rows", write, schema="n int not null, name string"))
    running = builder.build().start(checkpoint=tmp_path / "state", master="local[2]")
    running.await_finished()
    running.stop()
    told = [line.split() for line in places.read_text().splitlines()]
    assert {schema for _, _, schema in told} == {"struct<n:int,name:string>"}
    assert any(files == "1" for _, files, _ in told), "no micro-batch was so large that a file was used"
    written = ds.dataset(sorted(str(path) for path in (tmp_path / "out").rglob("*.parquet")), format="parquet")
    assert sorted(written.to_table()["n"].to_pylist()) == list(range(count))


def test_a_function_whose_target_is_away_is_called_again_and_a_bad_row_fails_alone(tmp_path: Path) -> None:
    out, calls = str(tmp_path / "out"), tmp_path / "calls"

    def away_at_first(batch_df: Any, batch_id: int) -> None:
        with calls.open("a") as file:
            file.write(f"{batch_id} {batch_df.schema.simpleString()}\n")
        if len(calls.read_text().splitlines()) < 3:
            raise Unavailable("the target is away")
        batch_df.write.mode("append").parquet(out)

    rows = [[1, "a"], ["two", "b"], [3, None], [2**40, "d"], [5, "e"]]
    topology = sink_of(rows, away_at_first, schema="n int not null, name string")
    running = topology.start(checkpoint=tmp_path / "state", master="local[2]")
    running.await_finished()
    counts = running.metrics().components["rows"]
    assert (counts.acked, counts.set_aside) == (3, 2)
    reasons = [failed.story for failed in running.set_aside]
    assert len(reasons) == 2
    running.stop()
    written = ds.dataset(out, format="parquet").to_table().to_pylist()
    assert sorted(written, key=lambda row: row["n"]) == [
        {"n": 1, "name": "a"},
        {"n": 3, "name": None},
        {"n": 5, "name": "e"},
    ]
    assert len(set(calls.read_text().splitlines())) == 1, "the same rows came again with the same batch_id"
