"""Sinks that commit tables: what fits the columns, what fails alone, and what the driver puts together."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.api.committers import take_rows
from sparkbolt.api.components import TopologyContext
from sparkbolt.bolts import JsonLinesBolt, ParquetBolt, SparkSink
from sparkbolt.connectors.tables.table_committer import joined, typed
from sparkbolt.connectors.tables.table_schema import TableSchema
from sparkbolt.errors import Unavailable
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver, simulate


class Two(BasicBolt):
    outputs = {"default": ["n"], "more": ["n"]}

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"]], stream="more")


class NowhereSink(SparkSink):
    """Where there is no session."""

    def commit_table(self, txid: int, table: Any) -> None:
        assert table.num_rows


def context(**options: Any) -> TopologyContext:
    return TopologyContext("t", "sink", 0, 2, 1, Config(transactional=True), **options)


def kept(bolt: Any, *frames: Any) -> list[Any]:
    bolt.prepare(context())
    for frame in frames:
        bolt.execute(pa.RecordBatch.from_pylist(frame), None)
    return [pickle.loads(row) for row in take_rows(bolt)]


def fitted(schema: str, value: Any) -> Any:
    return TableSchema(f"x {schema}").fit(pa.RecordBatch.from_pylist([{"x": value}])).column(0)[0].as_py()


NOON = dt.datetime(2026, 1, 2, 12)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("tinyint", 7),
        ("long", -(2**63)),
        ("double", 3),
        ("double", 0.1),
        ("decimal(10, 2)", Decimal("1.5")),
        ("decimal(10)", 12),
        ("string", "a"),
        ("varchar(3)", "a"),
        ("binary", b"a"),
        ("boolean", True),
        ("date", NOON.date()),
        ("timestamp", NOON.replace(tzinfo=dt.UTC)),
        ("timestamp_ntz", NOON),
        ("array<int>", [1, None]),
        ("struct<a: long, `b c`: array<string>>", {"a": 1, "b c": ["x"]}),
        ("int", None),
    ],
)
def test_a_value_that_fits_its_column_is_unchanged(schema: str, value: Any) -> None:
    assert fitted(schema, value) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("tinyint", 128),
        ("int", 1.5),
        ("int", "1"),
        ("int", True),
        ("string", 1),
        ("string", b"a"),
        ("boolean", 1),
        ("decimal(10, 2)", Decimal("1.505")),
        ("date", NOON),
        ("timestamp", NOON),
        ("timestamp_ntz", NOON.replace(tzinfo=dt.UTC)),
        ("timestamp", 5),
        ("array<int>", ["a"]),
        ("int not null", None),
    ],
)
def test_a_value_of_the_wrong_type_is_a_type_error_that_names_its_field(schema: str, value: Any) -> None:
    with pytest.raises(TypeError, match="'x'"):
        fitted(schema, value)


def test_fields_without_a_column_are_refused_and_missing_fields_are_null() -> None:
    schema = TableSchema("a long, b string")
    assert schema.fit(pa.RecordBatch.from_pylist([{"a": 1}])).to_pylist() == [{"a": 1, "b": None}]
    with pytest.raises(TypeError, match="'c' is none of the columns"):
        schema.fit(pa.RecordBatch.from_pylist([{"c": 1}]))


def test_columns_that_follow_the_values_widen_and_none_becomes_text() -> None:
    tables = [pa.Table.from_pylist([{"n": 1, "x": None}]), pa.Table.from_pylist([{"n": 0.5, "m": "a"}])]
    whole = typed(joined(tables, None))
    assert whole.schema.types == [pa.float64(), pa.string(), pa.string()]
    assert whole.to_pylist() == [{"n": 1.0, "x": None, "m": None}, {"n": 0.5, "x": None, "m": "a"}]
    with pytest.raises(TypeError, match="schema="):
        joined([*tables, pa.Table.from_pylist([{"n": "a"}])], None)


@pytest.mark.parametrize(("first", "last"), [(-(2**53) - 1, 1.5), (1.5, 2**63 - 1)])
def test_an_integer_that_no_float_holds_does_not_become_one(first: float, last: float) -> None:
    sink = NowhereSink("two", print)
    sink.prepare(context())
    for value in (first, 2, None):
        sink.execute(pa.RecordBatch.from_pylist([{"n": value}]), None)
    with pytest.raises(TypeError, match=r"'n' has floats, and integers beyond 2\*\*53, which no float holds"):
        sink.execute(pa.RecordBatch.from_pylist([{"n": last}]), None)
    rows = [pickle.loads(row) for row in take_rows(sink)]
    assert joined(sink.tables(rows), None)["n"].to_pylist() == [first, 2, None]
    with pytest.raises(TypeError, match="schema= with a type that holds them all"):
        joined(sink.tables([*rows, *kept(sink, [{"n": last}])]), None)


def test_neither_rows_of_another_task_nor_an_aborted_run_affect_a_sink() -> None:
    sink = SparkSink("a", print)
    sink.prepare(context())
    sink.execute(pa.RecordBatch.from_pylist([{"n": 1}]), None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one type"):
        sink.execute(pa.RecordBatch.from_pylist([{"n": "x"}]), None)  # type: ignore[arg-type]
    take_rows(sink)  # as the engine does when the micro-batch runs again
    sink.execute(pa.RecordBatch.from_pylist([{"n": "x"}]), None)  # type: ignore[arg-type]
    assert len(take_rows(sink)) == 1


def engine_with(sink: Any, rows: list[Any], **config: Any) -> LocalEngine:
    builder = TopologyBuilder("t", Config(max_attempts=1, **config))
    builder.set_spout("rows", GeneratorSpout(lambda: rows, outputs=["n", "name"]))
    declarer = builder.set_bolt("sink", sink)
    if not isinstance(sink, SparkSink):
        declarer.shuffle_grouping("rows")
    return LocalEngine(builder.build())


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize("make", [lambda out, schema: NowhereSink("rows", print, schema=schema), ParquetBolt])
def test_a_tuple_that_does_not_fit_fails_alone(
    tmp_path: Path, make: Any, with_schema: bool, transactional: bool
) -> None:
    schema = "n long, name string" if with_schema else None
    sink = make(tmp_path, schema=schema) if make is ParquetBolt else make(tmp_path, schema)
    rows = [[n if n not in (3, 50) else "x", "a"] for n in range(100)]
    engine = engine_with(sink, rows, transactional=transactional)
    while not engine.coordinator.finished:
        engine.step()
        engine.now_ms += 1000
    assert (engine.ledger.metrics.of("rows").acked, engine.ledger.metrics.of("rows").given_up) == (98, 2)


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("date", NOON.date(), NOON),
        ("timestamp", NOON.replace(tzinfo=dt.UTC), NOON),
        ("timestamp_ntz", NOON, NOON.replace(tzinfo=dt.UTC)),
        ("float", 0.5, 1e39),
        ("double", 0.5, (1 << 53) + 1),
        ("binary", b"a", "a"),
        ("struct<a: long>", {"a": 1}, {"a": 1, "b": None}),
        ("array<date>", [NOON.date()], [NOON]),
        ("map<string, long>", {"k": 1}, {"k": 1, None: 2}),
    ],
)
def test_a_value_that_would_lose_something_fails_alone_whatever_stands_beside_it(
    tmp_path: Path, kind: str, good: Any, bad: Any, transactional: bool
) -> None:
    sink = ParquetBolt(tmp_path, schema=f"n {kind}, name string")
    rows = [[value, str(n)] for n, value in enumerate([good, bad, good, bad, None])]
    engine = engine_with(sink, rows, transactional=transactional)
    while not engine.coordinator.finished:
        engine.step()
        engine.now_ms += 1000
    assert (engine.ledger.metrics.of("rows").acked, engine.ledger.metrics.of("rows").given_up) == (3, 2)
    read = [row for file in tmp_path.iterdir() for row in pq.read_table(file).to_pylist()]
    assert {row["name"]: dict(row["n"]) if kind.startswith("map") and row["n"] else row["n"] for row in read} == {
        "0": good,
        "2": good,
        "4": None,
    }


def test_the_sink_subscribes_itself_and_takes_further_streams() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("a", GeneratorSpout(list, outputs=["n"]))
    for name in ("b", "c"):
        builder.set_bolt(name, Two()).shuffle_grouping("a")
    builder.set_bolt("sink", SparkSink(("b", "more"), print), parallelism=2).fields_grouping("c", ["n"])
    subscriptions = builder.build().component("sink").subscriptions
    assert [(one.source, one.stream) for one in subscriptions] == [("b", "more"), ("c", "default")]


def test_the_function_gets_the_rows_and_the_txid() -> None:
    class Session:
        sparkContext = SimpleNamespace(master="yarn")  # noqa: N815

        def __init__(self) -> None:
            self.settings = {"spark.sql.timestampType": "TIMESTAMP_LTZ"}
            self.conf = SimpleNamespace(get=self.settings.__getitem__, set=self.settings.__setitem__)

        def createDataFrame(self, table: Any) -> Any:  # noqa: N802
            assert self.settings == {"spark.sql.timestampType": "TIMESTAMP_NTZ"}
            return table

    class Function:
        def begin(self, context: TopologyContext) -> None:
            seen.append(context.checkpoint_id)

        def __call__(self, batch_df: Any, batch_id: int) -> None:
            seen.append((batch_df.to_pylist(), batch_id))

    seen: list[Any] = []
    sink = SparkSink("a", Function(), schema="n long, local timestamp_ntz")
    local = dt.datetime(2026, 3, 8, 2, 30)
    rows = kept(sink, [{"n": 1, "local": local}], [{"n": None, "local": local}])
    session = Session()
    sink.begin(context(checkpoint_id="c0ffee", spark=session))
    sink.commit(7, rows)
    sink.commit(8, [])
    assert session.settings == {"spark.sql.timestampType": "TIMESTAMP_LTZ"}
    assert seen == ["c0ffee", ([{"n": 1, "local": local}, {"n": None, "local": local}], 7)]


def test_files_of_a_transactional_topology_are_named_by_txid_and_component(tmp_path: Path) -> None:
    lines = JsonLinesBolt(tmp_path / "json")
    lines.begin(context())
    for _ in range(2):
        lines.commit(12, [b'{"n":1}', b'{"n":2}'])
    assert os.listdir(tmp_path / "json") == ["part-000012-sink.jsonl"]
    text = (tmp_path / "json/part-000012-sink.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == [{"n": 1}, {"n": 2}]
    bolt = ParquetBolt(tmp_path / "parquet")
    rows = kept(bolt, [{"n": 1}])
    bolt.begin(context())
    for _ in range(2):
        bolt.commit(3, [*rows, *kept(ParquetBolt(tmp_path), [{"n": "x"}]), *rows])
    assert sorted(os.listdir(tmp_path / "parquet")) == ["part-000003-sink.parquet", "part-000003.1-sink.parquet"]
    assert pq.read_table(tmp_path / "parquet/part-000003-sink.parquet").to_pylist() == [{"n": 1}, {"n": 1}]


def test_tasks_of_a_transactional_topology_write_nothing(tmp_path: Path) -> None:
    for bolt in (JsonLinesBolt(tmp_path / "json"), ParquetBolt(tmp_path / "parquet")):
        bolt.prepare(context())
        bolt.flush()
    assert not os.listdir(tmp_path)


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bolt = JsonLinesBolt(tmp_path)
    bolt.begin(context())

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match="make room"):
        bolt.commit(1, [b"{}"])
    monkeypatch.undo()
    assert not os.listdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("transactional", [True, False])
def test_a_test_driver_shows_the_rows_and_a_simulation_finds_nothing_wrong(tmp_path: Path, transactional: bool) -> None:
    builder = TopologyBuilder("t", Config(transactional=transactional, max_attempts=2))
    rows = [[n if n % 7 else "x", "a"] for n in range(40)]
    builder.set_spout("rows", GeneratorSpout(lambda: rows, outputs=["n", "name"]), parallelism=2)
    sink = SparkSink("rows", print, schema="n long, name string")
    builder.set_bolt("sink", sink, parallelism=2)
    builder.set_bolt("json", JsonLinesBolt(tmp_path / "json"), parallelism=2).shuffle_grouping("rows")
    builder.set_bolt("parquet", ParquetBolt(tmp_path / "parquet"), parallelism=2).shuffle_grouping("rows")
    topology = builder.build()
    with TopologyTestDriver(topology) as driver:
        driver.feed("rows", {"n": 5, "name": "b"}, message_id=1)
        driver.run_until_idle()
        assert driver.unsent("sink") == [{"txid": 1, "row": {"n": 5, "name": "b"}}]
        name = "part-000001-json.jsonl" if transactional else "part-000000-json-0.jsonl"
        assert [path.name for path in driver.output_path(tmp_path / "json").iterdir()] == [name]
    for seed in range(6):
        report = simulate(topology, seed=seed)
        assert report.ok, report.story
    assert not list(tmp_path.iterdir())
