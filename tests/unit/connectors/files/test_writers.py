"""JsonLinesBolt, ParquetBolt, PrintBolt: what they write, and what stands there after a second attempt."""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import pickle
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt import TopologyBuilder
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.bolts import JsonLinesBolt, ParquetBolt, PrintBolt
from sparkbolt.connectors.message_parts import encoded, encoded_part
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from tests.hypotheses import examples


def context(micro_batch_id: int, component: str = "sink", index: int = 0) -> TopologyContext:
    return TopologyContext("t", component, index, 2, 1, Config(), micro_batch_id=micro_batch_id)


def tup(**values: Any) -> Tuple:
    return Tuple.of(Origin("count", 0, "default", tuple(values)), list(values.values()))


def write_json(path: Path, micro_batch_id: int, rows: list[dict[str, Any]], index: int = 0) -> None:
    bolt = pickle.loads(pickle.dumps(JsonLinesBolt(path)))
    bolt.prepare(context(micro_batch_id, index=index))
    for row in rows:
        bolt.execute(tup(**row), None)
    bolt.flush()


def write_parquet(path: Path, micro_batch_id: int, rows: list[dict[str, Any]], index: int = 0) -> None:
    bolt = pickle.loads(pickle.dumps(ParquetBolt(path)))
    bolt.prepare(context(micro_batch_id, index=index))
    for row in rows:
        bolt.execute(pa.RecordBatch.from_pylist([row]), None)
    bolt.flush()


def read_json(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for name in sorted(os.listdir(path)) for line in (path / name).read_text().splitlines()]


def read_parquet(path: Path) -> list[dict[str, Any]]:
    return [row for name in sorted(os.listdir(path)) for row in pq.read_table(path / name).to_pylist()]


WRITERS = [(write_json, read_json, "jsonl"), (write_parquet, read_parquet, "parquet")]
attempts = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.lists(st.integers(0, 9), max_size=3)), max_size=12
)


@pytest.mark.parametrize(("write", "read", "suffix"), WRITERS)
@settings(deadline=None, max_examples=examples(25))
@given(attempts=attempts)
def test_last_attempt_of_a_micro_batch_and_task_replaces_earlier_ones(
    tmp_path_factory: pytest.TempPathFactory, write: Any, read: Any, suffix: str, attempts: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("out")
    model: dict[tuple[int, int], list[int]] = {}
    for micro_batch_id, index, values in attempts:
        write(path, micro_batch_id, [{"n": value} for value in values], index)
        model[micro_batch_id, index] = values
    assert [row["n"] for row in read(path)] == [value for key in sorted(model) for value in model[key]]
    assert sorted(os.listdir(path)) == [f"part-{n:06d}-sink-{i}.{suffix}" for n, i in sorted(model) if model[n, i]]


@pytest.mark.parametrize(("write", "read", "suffix"), WRITERS)
def test_only_unfinished_files_of_the_task_are_removed(tmp_path: Path, write: Any, read: Any, suffix: str) -> None:
    mine = tmp_path / f".part-000003-sink-0.{suffix}.77-0a1b2c3d.tmp"
    others = [
        tmp_path / f".part-000003-{owner}.{suffix}.77-0a1b2c3d.tmp" for owner in ("sink-1", "a-sink-0", "sink-00")
    ]
    for name in (mine, *others):
        name.touch()
    write(tmp_path, 4, [{"n": 1}])
    assert not mine.exists()
    assert all(name.exists() for name in others)


@pytest.mark.parametrize("make", [JsonLinesBolt, ParquetBolt])
def test_rehearsal_writes_files_below_its_directory_and_leaves_the_real_ones(tmp_path: Path, make: Any) -> None:
    write, suffix = (write_json, "jsonl") if make is JsonLinesBolt else (write_parquet, "parquet")
    real, rehearsal = tmp_path / "out", tmp_path / "rehearsal"
    write(real, 0, [{"n": 1}])
    before = (real / f"part-000000-sink-0.{suffix}").read_bytes()
    bolt, current = make(real), context(0)
    current.rehearsal_directory = str(rehearsal)
    bolt.prepare(current)
    bolt.execute(tup(n=2) if make is JsonLinesBolt else pa.RecordBatch.from_pylist([{"n": 2}]), None)
    bolt.flush()
    assert os.listdir(real) == [f"part-000000-sink-0.{suffix}"]
    assert (real / f"part-000000-sink-0.{suffix}").read_bytes() == before
    (read,) = [read for _, read, ending in WRITERS if ending == suffix]
    assert read(Path(current.output_path(real))) == [{"n": 2}]
    assert current.output_path(real) == f"{rehearsal}{real}"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_no_tuples_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def full(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(5)), outputs=["n"]), max_attempts=1)
    builder.set_bolt("out", JsonLinesBolt(tmp_path / "out")).shuffle_grouping("numbers")
    engine = LocalEngine(builder.build())
    for _ in range(5):
        engine.step()
        engine.now_ms += 1000
    assert engine.ledger.metrics.of("numbers").given_up == 0
    monkeypatch.undo()
    while not engine.coordinator.finished:
        engine.step()
        engine.now_ms += 1000
    assert engine.ledger.metrics.of("numbers").acked == 5
    assert sum(len(file.read_text().splitlines()) for file in (tmp_path / "out").iterdir()) == 5


def test_rows_of_an_unfinished_micro_batch_are_not_written_with_the_next(tmp_path: Path) -> None:
    bolt, current = JsonLinesBolt(tmp_path), context(1)
    bolt.prepare(current)
    bolt.execute(tup(n=1), None)  # type: ignore[arg-type]
    current.micro_batch_id = 2
    bolt.execute(tup(n=2), None)  # type: ignore[arg-type]
    bolt.flush()
    assert read_json(tmp_path) == [{"n": 2}]


def test_json_holds_bytes_times_and_numpy_numbers(tmp_path: Path) -> None:
    at = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    write_json(tmp_path, 0, [{"b": b"\xff\x00", "at": at, "n": np.int64(7), "pair": (1, None), "text": "né\n"}])
    assert read_json(tmp_path) == [
        {"b": "/wA=", "at": "2024-02-29T12:00:00+00:00", "n": 7, "pair": [1, None], "text": "né\n"}
    ]


def test_messages_of_kafka_and_rabbitmq_have_the_same_json_as_json_lines() -> None:
    value = {"day": dt.date(2024, 2, 29), "n": np.int64(7), "b": b"a", "at": np.datetime64("2024-02-29T12:00", "ns")}
    assert encoded(value) == b'{"day":"2024-02-29","n":7,"b":"YQ==","at":"2024-02-29T12:00:00"}'


def test_all_sinks_write_decimals_and_uuids_as_text_in_json(tmp_path: Path) -> None:
    row = {"price": Decimal("12.50"), "id": uuid.UUID(int=7)}
    expected = {"price": "12.50", "id": "00000000-0000-0000-0000-000000000007"}
    write_json(tmp_path, 0, [row])
    assert read_json(tmp_path) == [expected] == [json.loads(encoded(row) or b"")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({1, 2}, "JSON cannot hold {1, 2} of type set: emit a str, a number, a list or a dict of those"),
        (Decimal("NaN"), "JSON has no NaN and no infinity: emit None instead"),
        ([float("inf")], "JSON has no NaN and no infinity: emit None instead"),
        ({(1, 2): 3}, "keys must be str, int, float, bool or None, not tuple: emit a dict whose keys are all str"),
        ("\ud800", "is not valid Unicode, because of '\\ud800': emit bytes instead"),
    ],
)
def test_a_refusal_of_json_names_the_field_and_what_to_emit_instead(value: Any, said: str) -> None:
    of_row = pytest.raises((TypeError, ValueError), match="^field 'bad': .*" + re.escape(said))
    with of_row:
        encoded({"good": 1, "bad": value})
    with of_row:
        encoded_part("bad", tup(good=1, bad=value))


@pytest.mark.parametrize(
    ("keys", "said"),
    [({1: "a", "1": "b"}, "1 and '1'"), ({None: 1, "null": 2}, "None and 'null'"), ({True: 1, "true": 2}, "True and ")],
)
def test_an_object_with_two_equal_keys_fails_its_tuple_alone(tmp_path: Path, keys: Any, said: str) -> None:
    bolt = JsonLinesBolt(tmp_path)
    bolt.prepare(context(0))
    with pytest.raises(TypeError, match=f"^field 'n': JSON cannot hold {said}.* as keys of one object"):
        bolt.execute(tup(n=[{"deep": keys}]), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value", [
        float("nan"), {1, 2}, object(), "\ud800", pd.NaT, np.datetime64("NaT"), np.timedelta64(5, "ns"),
        np.datetime64("2024-02-29T12:00:00.123456789"), np.datetime64(10**9, "D"),
    ],
)  # fmt: skip
def test_a_value_that_json_cannot_hold_fails_its_tuple_alone(tmp_path: Path, value: object) -> None:
    bolt = JsonLinesBolt(tmp_path)
    bolt.prepare(context(0))
    bolt.execute(tup(n=1), None)  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError)):
        bolt.execute(tup(n=value), None)  # type: ignore[arg-type]
    bolt.flush()
    assert read_json(tmp_path) == [{"n": 1}]


def test_parquet_types_widen_and_a_frame_that_does_not_fit_fails_alone(tmp_path: Path) -> None:
    bolt = ParquetBolt(tmp_path)
    bolt.prepare(context(0))
    word = pa.array(["a", "b"]).dictionary_encode()
    for column in (pa.nulls(2), pa.array([1, 2]), pa.array([0.5, 1.5])):
        bolt.execute(pa.RecordBatch.from_arrays([column, word], names=["n", "word"]), None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="one type"):
        bolt.execute(pa.RecordBatch.from_pylist([{"n": "x"}]), None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"'n' has floats, and integers beyond 2\*\*53"):
        bolt.execute(pa.RecordBatch.from_pylist([{"n": 2**53 + 1}]), None)  # type: ignore[arg-type]
    bolt.execute(pa.RecordBatch.from_pylist([{"other": True}]), None)  # type: ignore[arg-type]
    bolt.flush()
    (name,) = os.listdir(tmp_path)
    table = pq.read_table(tmp_path / name)
    assert table.schema.types == [pa.float64(), pa.string(), pa.bool_()]
    assert table["n"].to_pylist() == [None, None, 1.0, 2.0, 0.5, 1.5, None]


@pytest.mark.parametrize("bolt", [JsonLinesBolt("out"), ParquetBolt("out")])
def test_writers_keep_nothing_durable_and_are_never_fused(bolt: Any) -> None:
    builder = TopologyBuilder("writers")
    builder.set_spout("rows", GeneratorSpout(list, outputs=["n"]))
    builder.set_bolt("write", bolt).shuffle_grouping("rows")
    lane = lay_out(builder.build(), 2)
    assert lane.fused_into == {}
    assert [level.stateful for level in lane.levels] == [False]


def test_print_writes_one_line_per_tuple(capsys: pytest.CaptureFixture[str]) -> None:
    bolt = PrintBolt()
    bolt.execute(tup(word="to\nbe", n=2), None)  # type: ignore[arg-type]
    bolt.flush()
    assert capsys.readouterr().out == "count[0] {'word': 'to\\nbe', 'n': 2}\n"


@pytest.mark.parametrize(
    ("kind", "nest"),
    [
        (pa.dictionary(pa.int8(), pa.string()), str),
        (pa.dictionary(pa.uint8(), pa.string(), ordered=True), str),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), lambda n: [str(n)]),
        (pa.large_list(pa.dictionary(pa.int8(), pa.string())), lambda n: [str(n)]),
        (pa.list_(pa.dictionary(pa.int8(), pa.string()), 1), lambda n: [str(n)]),
        (pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))]), lambda n: {"a": str(n)}),
        (pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string())), lambda n: [("a", str(n))]),
    ],
)
def test_a_parquet_column_of_a_dictionary_type_holds_any_number_of_values(
    tmp_path: Path, kind: Any, nest: Callable[[int], Any]
) -> None:
    bolt = ParquetBolt(tmp_path, schema=pa.schema([("v", kind)]))
    bolt.prepare(context(0))
    rows = [{"v": nest(n)} for n in range(300)]
    for row in rows:
        bolt.execute(pa.RecordBatch.from_pylist([row], schema=pa.schema([("v", kind)])), None)  # type: ignore[arg-type]
    bolt.flush()
    assert read_parquet(tmp_path) == rows
