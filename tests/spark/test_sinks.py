"""Sinks on Spark: each number once in every file and table, although some fail and the program is killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from sparkbolt import Config, TopologyBuilder
from sparkbolt.bolts import SparkSink
from sparkbolt.core.model.metrics import TopologyMetrics
from sparkbolt.errors import EngineError, Unavailable
from sparkbolt.spouts import GeneratorSpout
from tests.patience import PATIENCE_SECS
from tests.spark.killed_programs import run_to
from tests.spark.sunk import FAILS_ALWAYS

pytestmark = [pytest.mark.spark]

NUMBERS = 1500
MANY = 1000
MOMENTS = ["staging:1", "staged:2", "before:table:3", "written:table:4", "written:folder:5", "written:iceberg:6"]
MOMENTS += ["committed:7"]
ANY_MOMENTS = ["staged:2"]


def write_numbers(directory: Path) -> list[int]:
    """Write the numbers; returns those that must arrive."""
    (directory / "numbers.txt").write_text("".join(f"{number}\n" for number in range(1, NUMBERS)))
    return [number for number in range(1, NUMBERS) if number % FAILS_ALWAYS]


def run(directory: Path, moment: str, *, transactional: bool = True) -> dict[str, int]:
    """Run the program to its end, or to its kill; what it said at its end."""
    arguments = [str(directory / name) for name in ("numbers.txt", "out", "checkpoint")]
    return run_to(moment, "tests.spark.sunk", *arguments, moment, str(transactional))


def in_json(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in out.glob("*.jsonl") for line in file.read_text().splitlines()]


def in_folder(out: Path) -> list[dict[str, Any]]:
    return ds.dataset(out, format="parquet").to_table(columns=["number", "name"]).to_pylist()


def in_delta(out: Path) -> list[dict[str, Any]]:
    return DeltaTable(out).to_pyarrow_table().to_pylist()


def in_iceberg(out: Path) -> list[dict[str, Any]]:
    with load_catalog("default", type="sql", uri=f"sqlite:///{out.parent}/catalog.db") as catalog:
        return catalog.load_table("shop.numbers").scan().to_arrow().to_pylist()


SINKS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "json": in_json,
    "parquet": in_folder,
    "folder": in_folder,
    "delta": in_delta,
    "iceberg": in_iceberg,
}


@pytest.mark.timeout(PATIENCE_SECS)
@pytest.mark.parametrize(
    "moments",
    [pytest.param(ANY_MOMENTS, marks=pytest.mark.lesser), pytest.param(MOMENTS, marks=pytest.mark.campaign)],
)
def test_each_number_is_once_in_each_sink_over_failures_and_kill_9(moments: list[str], tmp_path: Path) -> None:
    expected = write_numbers(tmp_path)
    for moment in moments:
        run(tmp_path, moment)
    said = run(tmp_path, "never")
    for name, read in SINKS.items():
        rows = read(tmp_path / "out" / name)
        assert sorted(row["number"] for row in rows) == expected, name
        assert all(row["name"] == f"name {row['number']}" for row in rows)
    assert said == {"acked": len(expected), "aside": NUMBERS - 1 - len(expected), "open": 0}
    assert not list((tmp_path / "checkpoint/commits").iterdir())


@pytest.mark.campaign
def test_without_transactional_each_number_is_there_at_least_once(tmp_path: Path) -> None:
    expected = write_numbers(tmp_path)
    run(tmp_path, "written:folder:3", transactional=False)
    run(tmp_path, "never", transactional=False)
    for name, read in SINKS.items():
        numbers = [row["number"] for row in read(tmp_path / "out" / name)]
        assert set(numbers) >= set(expected), name
        assert len(numbers) > len(set(numbers)), f"{name}: nothing came twice, so this test shows nothing"


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
    set_aside: list[Any]


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
        return Sunk(directory, running.metrics(), running.set_aside)
    finally:
        running.stop()


def test_many_rows_reach_the_function_as_few_do(sunk: Sunk) -> None:
    told = [line.split() for line in (sunk.directory / "places").read_text().splitlines()]
    assert {schema for _, _, schema in told} == {"struct<n:int,name:string>"}
    assert any(files == "1" for _, files, _ in told), "no micro-batch was so large that a file was used"
    files = sorted(str(path) for path in (sunk.directory / "many").rglob("*.parquet"))
    assert sorted(ds.dataset(files, format="parquet").to_table()["n"].to_pylist()) == list(range(MANY))


def test_a_function_whose_target_is_away_is_called_again_and_a_bad_row_fails_alone(sunk: Sunk) -> None:
    counts = sunk.metrics.components["few"]
    assert (counts.acked, counts.set_aside) == (3, 2)
    assert len(sunk.set_aside) == 2
    written = ds.dataset(f"{sunk.directory}/few", format="parquet").to_table().to_pylist()
    assert sorted(written, key=lambda row: row["n"]) == [
        {"n": 1, "name": "a"},
        {"n": 3, "name": None},
        {"n": 5, "name": "e"},
    ]
    assert len(set((sunk.directory / "calls").read_text().splitlines())) == 1, "the same rows, the same batch_id"
