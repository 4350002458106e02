"""What a column would alter fails alone; what it holds is written as it is."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from sparkbolt.connectors.sql.sql_rows import SqlRow, WriterSettings
from sparkbolt.connectors.sql.sql_table import TableSettings
from sparkbolt.connectors.sql.sql_values import check_of
from sparkbolt.connectors.sql.sql_writer import Author, SqlWriter
from tests.unit.connectors.sql.sqlite import CHECKPOINT, query

NAN = float("nan")
NOON = dt.datetime(2026, 1, 2, 12)


FINE = dt.datetime(2026, 1, 2, 12, 0, 0, 500_000)
IN_ULM = dt.timezone(dt.timedelta(hours=2))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


def refused(url: str, values: list[Any], **others: Any) -> list[int]:
    """Write values into the column ``v`` of the table ``t``; which ones are refused."""
    return written(url, [(1, value) for value in values], **others)


def written(url: str, pairs: list[tuple[Any, Any]], **others: Any) -> list[int]:
    """Write rows with the columns ``k`` and ``v`` into the table ``t``; which ones are refused."""
    settings = WriterSettings(url, TableSettings("t", **others), "commits", 1000, 1.0)
    rows = [SqlRow(number, {"k": key, "v": value}) for number, (key, value) in enumerate(pairs, 1)]
    return list(SqlWriter(settings, Author(CHECKPOINT, "out", 7, "shop")).write(0, rows))


@pytest.mark.parametrize(
    ("kind", "values", "lost"),
    [
        ("integer", [1.5, 2.0, Decimal("2.5"), Decimal(3), "4.5", np.float64(1.5)], [0, 2, 4, 5]),
        ("numeric(6,2)", [Decimal("1.234"), Decimal("1.20"), 1.5, 0.125, Decimal("1.2300")], [0, 3]),
        ("decimal(20,4)", [Decimal("12345678901234567.8912"), Decimal("1.10"), 2**53 + 1], [0, 2]),
        ("double", [Decimal("0.1"), Decimal("0.12345678901234567890"), 2**53 + 1, 7], [1, 2]),
        ("date", [NOON, dt.datetime(2026, 1, 2), dt.date(2026, 1, 2), pd.NaT, dt.datetime(2026, 1, 2, tzinfo=IN_ULM)],
         [0, 3, 4]),
        ("datetime", [NOON, np.datetime64("NaT", "ns"), np.datetime64("2026-01-02T12:00:00.000000001"),
                      pd.Timestamp("2026-01-02 12:00:00.000000001"), pd.NaT], [1, 2, 3, 4]),
        ("double", [NAN, 1.0, np.float32("nan"), Decimal("nan")], [0, 2, 3]),
        ("json", [{"a": NAN}, {"a": [1]}, [NAN], {1: "a", "1": "b"}, {1: "a", 2: "b"}], [0, 2, 3]),
        ("varchar(3)", ["abc", "abc  "], [1]),
    ],
)  # fmt: skip
def test_a_value_that_the_column_would_alter_fails_alone(
    url: str, kind: str, values: list[Any], lost: list[int]
) -> None:
    query(url, f"CREATE TABLE t (k integer, v {kind})")
    assert refused(url, values) == lost
    assert query(url, "SELECT count(v) FROM t") == [(len(values) - len(lost),)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (postgresql.TIMESTAMP(precision=0), FINE),
        (mysql.DATETIME(), FINE),
        (mysql.DATETIME(), "2026-01-02 12:00:00.5"),
        (mysql.TIME(), dt.timedelta(microseconds=1)),
        (sa.Time(), dt.timedelta(days=1)),
        (sa.Time(), NOON),
        (sa.Date(), "2026-01-02 12:00"),
        (postgresql.INTERVAL(precision=0), dt.timedelta(microseconds=1)),
        (postgresql.ARRAY(sa.Integer()), [1, 1.5]),
        (postgresql.DOMAIN("d", sa.Integer()), 1.5),
        (postgresql.MONEY(), Decimal("1.234")),
        (mysql.DOUBLE(6, 2), 1.234),
    ],
)
def test_what_a_server_would_cut_or_round_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises(TypeError):
        check_of(kind, "any").check(value)


def test_a_sum_takes_no_nan_and_goes_on(url: str) -> None:
    query(url, "CREATE TABLE t (k integer PRIMARY KEY, v double)")
    assert refused(url, [1.0, NAN, 2.0], mode="merge", combine=(("v", "add"),)) == [1]
    assert query(url, "SELECT v FROM t") == [(3.0,)]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("text", [5, "5"]),
        ("text", ["5", 5]),
        ("text collate nocase", ["b", "B"]),
        ("text collate rtrim", ["b ", "b"]),
        ("integer", ["7", 7, 7.0, True, 7]),
    ],
)
def test_the_last_row_of_a_key_wins_although_python_has_several_keys(url: str, kind: str, keys: list[Any]) -> None:
    query(url, f"CREATE TABLE t (k {kind} PRIMARY KEY, v integer)")
    assert written(url, [(key, number) for number, key in enumerate(keys)], mode="upsert") == []
    assert query(url, "SELECT max(v) FROM t") == [(len(keys) - 1,)]
