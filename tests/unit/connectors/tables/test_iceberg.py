"""IcebergBolt: one snapshot of the table for each micro-batch, whatever is repeated."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.bolts import IcebergBolt
from sparkbolt.connectors.tables.table_committer import _packed
from sparkbolt.errors import CheckpointError, Unavailable

TABLE = "shop.orders"


def properties(lake: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}/warehouse"}


BEGUN: list[IcebergBolt] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    while BEGUN:
        BEGUN.pop().end()


def begun(lake: Path, component: str = "table", **options: Any) -> IcebergBolt:
    bolt = IcebergBolt(TABLE, **{"properties": properties(lake), **options})
    BEGUN.append(bolt)
    bolt.begin(TopologyContext("t", component, 0, 1, 1, Config(), checkpoint_id="c0ffee"))
    return bolt


def rows(*values: dict[str, Any]) -> list[bytes]:
    return [_packed(pa.RecordBatch.from_pylist(list(values)))]


@contextmanager
def opened(lake: Path) -> Iterator[Table]:
    """The table as it is now."""
    with load_catalog("default", **properties(lake)) as catalog:
        yield catalog.load_table(TABLE)


def read(lake: Path) -> list[dict[str, Any]]:
    with opened(lake) as table:
        return sorted(table.scan().to_arrow().to_pylist(), key=str)


def test_a_micro_batch_is_one_snapshot_and_a_repeat_writes_nothing(tmp_path: Path) -> None:
    bolt = begun(tmp_path)
    bolt.commit(3, rows({"n": 1}, {"n": 2}))
    bolt.commit(7, rows({"n": 3}))
    for again in (bolt, begun(tmp_path)):
        again.commit(7, rows({"n": 3}))
    assert read(tmp_path) == [{"n": 1}, {"n": 2}, {"n": 3}]
    with opened(tmp_path) as table:
        snapshots = table.metadata.snapshots
    assert [one.summary.additional_properties["sparkbolt.txid"] for one in snapshots] == ["3", "7"]  # type: ignore[union-attr]


def test_a_repeat_is_known_after_snapshots_have_expired(tmp_path: Path) -> None:
    begun(tmp_path).commit(1, rows({"n": 0}))
    begun(tmp_path).commit(2, rows({"n": 1}))
    with opened(tmp_path) as table:
        table.maintenance.expire_snapshots().older_than(dt.datetime.now() + dt.timedelta(days=1)).commit()
    with opened(tmp_path) as table:
        assert len(table.metadata.snapshots) == 1
    begun(tmp_path).commit(2, rows({"n": 1}))
    with pytest.raises(CheckpointError, match=r"has txid 2, and this is txid 1"):
        begun(tmp_path).commit(1, rows({"n": 0}))
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]


def test_an_older_driver_that_still_writes_does_not_write_a_second_time(tmp_path: Path) -> None:
    begun(tmp_path).commit(1, rows({"n": 0}))
    old = begun(tmp_path)
    current = old.look

    def overtaken(columns: pa.Schema) -> Any:
        table = current(columns)
        begun(tmp_path).commit(2, rows({"n": 1}))
        return table

    old.look = overtaken  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="cannot be written"):
        old.commit(2, rows({"n": 1}))
    old.look = current  # type: ignore[method-assign]
    old.commit(2, rows({"n": 1}))
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]


def test_a_table_is_created_with_its_schema_and_partitions(tmp_path: Path) -> None:
    schema = "id long not null, at timestamp, local timestamp_ntz, price decimal(10, 2), day date, tags array<string>"
    bolt = begun(tmp_path, schema=schema, partition_by="day")
    bolt.prepare(TopologyContext("t", "table", 0, 1, 1, Config()))
    noon = dt.datetime(2026, 1, 2, 12)
    row: dict[str, Any] = {"id": 1, "at": noon.replace(tzinfo=dt.UTC), "local": noon}
    row |= {"price": Decimal("1.5"), "day": noon.date(), "tags": ["a"]}
    kept = bolt._schema.fit(pa.RecordBatch.from_pylist([row]))  # type: ignore[union-attr]
    bolt.commit(1, [_packed(kept)])
    bolt.commit(2, [_packed(kept)])
    assert read(tmp_path) == [row, row]
    with opened(tmp_path) as table:
        assert [field.name for field in table.spec().fields] == ["day"]
        assert table.schema().find_field("id").required


def test_an_unavailable_catalog_is_waited_for(tmp_path: Path) -> None:
    at_once = {**properties(tmp_path), "uri": f"sqlite:///{tmp_path}/catalog.db?timeout=0"}
    bolt = begun(tmp_path, properties=at_once)
    bolt.commit(1, rows({"n": 0}))
    with closing(sqlite3.connect(tmp_path / "catalog.db", timeout=0)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match=r"table shop.orders cannot be written \(.*locked"):
            bolt.commit(2, rows({"n": 1}))
    bolt.commit(2, rows({"n": 1}))
    nowhere = {"type": "rest", "uri": "http://127.0.0.1:9"}
    away = IcebergBolt(TABLE, properties=nowhere)
    away.begin(TopologyContext("t", "table", 0, 1, 1, Config(), checkpoint_id="c0ffee"))
    with pytest.raises(Unavailable, match="cannot be written"):
        away.commit(1, rows({"n": 0}))
    assert read(tmp_path) == [{"n": 0}, {"n": 1}]
