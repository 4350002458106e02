"""DeltaBolt: one commit of the table for each micro-batch, whatever is repeated."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.bolts import DeltaBolt
from sparkbolt.connectors.tables.table_committer import _packed
from sparkbolt.errors import CheckpointError, Unavailable


def begun(table: Path | str, component: str = "table", **options: Any) -> DeltaBolt:
    bolt = DeltaBolt(table, **options)
    bolt.begin(TopologyContext("t", component, 0, 1, 1, Config(), checkpoint_id="c0ffee"))
    return bolt


def rows(*values: dict[str, Any]) -> list[bytes]:
    return [_packed(pa.RecordBatch.from_pylist(list(values)))]


def read(table: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=str)


def test_a_micro_batch_is_one_version_and_a_repeat_writes_nothing(tmp_path: Path) -> None:
    bolt = begun(tmp_path / "t")
    bolt.commit(3, rows({"n": 1}, {"n": 2}))
    bolt.commit(7, rows({"n": 3}))
    for again in (bolt, begun(tmp_path / "t")):
        again.commit(7, rows({"n": 3}))
    assert read(tmp_path / "t") == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert DeltaTable(tmp_path / "t").version() == 1
    assert DeltaTable(tmp_path / "t").history()[0]["sparkbolt.txid"] == "7"


def test_components_and_checkpoints_share_a_table(tmp_path: Path) -> None:
    for component in ("a", "b"):
        begun(tmp_path / "t", component).commit(0, rows({"n": component}))
    assert read(tmp_path / "t") == [{"n": "a"}, {"n": "b"}]


def test_an_older_driver_that_still_writes_does_not_write_a_second_time(tmp_path: Path) -> None:
    old = begun(tmp_path / "t")
    old.commit(0, rows({"n": 0}))
    current = old.look

    def overtaken(columns: pa.Schema) -> Any:
        found = current(columns)
        begun(tmp_path / "t").commit(1, rows({"n": 1}))
        return found

    old.look = overtaken  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="cannot be written"):
        old.commit(1, rows({"n": 1}))
    old.look = current  # type: ignore[method-assign]
    old.commit(1, rows({"n": 1}))
    assert read(tmp_path / "t") == [{"n": 0}, {"n": 1}]


def test_a_table_is_created_with_its_schema_and_partitions(tmp_path: Path) -> None:
    schema = "id long not null, at timestamp, local timestamp_ntz, price decimal(10, 2), day date, tags array<string>"
    bolt = begun(tmp_path / "t", schema=schema, partition_by="day")
    bolt.prepare(TopologyContext("t", "table", 0, 1, 1, Config()))
    noon = dt.datetime(2026, 1, 2, 12)
    row = {
        "id": 1,
        "at": noon.replace(tzinfo=dt.UTC),
        "local": noon,
        "price": Decimal("1.5"),
        "day": noon.date(),
        "tags": ["a"],
    }
    kept = bolt._schema.fit(pa.RecordBatch.from_pylist([row]))  # type: ignore[union-attr]
    bolt.commit(0, [_packed(kept)])
    assert read(tmp_path / "t") == [row]
    assert DeltaTable(tmp_path / "t").metadata().partition_columns == ["day"]


def test_inferred_columns_are_cast_to_the_table_or_the_error_says_what_to_do(tmp_path: Path) -> None:
    begun(tmp_path / "t").commit(0, rows({"n": 1.5, "name": "a"}))
    bolt = begun(tmp_path / "t")
    bolt.commit(1, rows({"n": 2}))
    assert read(tmp_path / "t")[1] == {"n": 2.0, "name": None}
    with pytest.raises(TypeError, match="schema_mode='merge'"):
        bolt.commit(2, rows({"n": 2.5, "more": True}))
    with pytest.raises(TypeError, match=r"column 'n' of table .* is double, and the rows have string there"):
        bolt.commit(2, rows({"n": "x"}))
    with pytest.raises(
        TypeError, match=r"column 'name' of table .* is (large_)?string.*, and the rows have int64 there"
    ):
        bolt.commit(2, rows({"n": 2.5, "name": 1}))
    begun(tmp_path / "t", schema_mode="merge").commit(2, rows({"n": 2.5, "more": True}))
    assert DeltaTable(tmp_path / "t").schema().to_json().count('"name":"more"') == 1


def test_a_txid_behind_that_of_the_table_writes_nothing_and_reports_it(tmp_path: Path) -> None:
    begun(tmp_path / "t").commit(5, rows({"n": 1}))
    begun(tmp_path / "t").commit(5, rows({"n": 1}))
    with pytest.raises(CheckpointError, match=r"has txid 5, and this is txid 4"):
        begun(tmp_path / "t").commit(4, rows({"n": 2}))
    assert read(tmp_path / "t") == [{"n": 1}]


def test_unavailable_storage_is_waited_for(tmp_path: Path) -> None:
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "r",
        "max_retries": "0",
        "retry_timeout": "1s",
    }
    with pytest.raises(Unavailable, match="error sending request"):
        begun("s3://bucket/t", storage_options=options).commit(0, rows({"n": 1}))
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot be written"):
        begun(tmp_path / "file" / "t").commit(0, rows({"n": 1}))
