"""SqlBolt and Lookup against a real MariaDB whose zone is New York's: values, zones, bad rows and outages."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import make_url

from sparkbolt.bolts import Lookup
from sparkbolt.connectors.sql.sql_rows import SqlRow, WriterSettings
from sparkbolt.connectors.sql.sql_table import TableSettings
from sparkbolt.connectors.sql.sql_writer import Author, SqlWriter
from sparkbolt.errors import Unavailable
from tests.services.mariadb import ask

pytestmark = pytest.mark.service

NEW_YORK = ZoneInfo("America/New_York")
NIGHT = [dt.datetime(2026, 11, 1, 1, 30, 0, 123456, tzinfo=NEW_YORK, fold=fold) for fold in (0, 1)]
"""One instant before clocks are set back, and the one that they show an hour later, too."""
IN_UTC = [dt.datetime(2026, 11, 1, hour, 30, 0, 123456) for hour in (5, 6)]


@pytest.fixture
def url(mariadb: str) -> str:
    name = f"d{uuid.uuid4().hex[:12]}"
    ask(mariadb, f"CREATE DATABASE {name}")
    return make_url(mariadb).set(database=name).render_as_string()


def writer(url: str, table: str, *, options: Any = None, **others: Any) -> SqlWriter:
    settings = WriterSettings(url, TableSettings(table, **others), "sparkbolt_commits", 1000, 0.1, options or {})
    return SqlWriter(settings, Author("c" * 32, "out", 1, "shop"))


def rows(*values: dict[str, Any]) -> list[SqlRow]:
    return [SqlRow(edge, one) for edge, one in enumerate(values, 1)]


def numbered(*numbers: int) -> list[SqlRow]:
    return rows(*({"id": number} for number in numbers))


def test_a_created_table_returns_the_python_values_and_instants_in_utc(url: str) -> None:
    values = {
        "flag": True, "whole": 7, "real": 0.5, "text": "é", "raw": b"\0", "exact": decimal.Decimal("1.10"),
        "day": dt.date(2026, 1, 2), "local": IN_UTC[0], "empty": None, "long": dt.timedelta(seconds=90.5),
    }  # fmt: skip
    own = writer(url, "every", create=True)
    given = {**values, "nested": {"a": [1]}, "id": uuid.UUID(int=5), "clock": dt.time(5, 30, tzinfo=dt.UTC)}
    assert own.write(0, rows(*({**given, "at": at} for at in NIGHT))) == {}
    assert ask(url, f"SELECT {', '.join(f'`{name}`' for name in values)} FROM every") == [tuple(values.values())] * 2
    assert ask(url, "SELECT at FROM every ORDER BY at") == [(at,) for at in IN_UTC]
    assert ask(url, "SELECT nested, clock FROM every")[0] == ('{"a": [1]}', dt.timedelta(hours=5, minutes=30))


def test_two_instants_of_a_november_night_stay_two_in_every_column(url: str) -> None:
    ask(url, "CREATE TABLE events (a datetime(6), b timestamp(6), c time(6), d varchar(40))")
    values = [{"a": at, "b": at, "c": dt.time(1, 30, tzinfo=dt.timezone(at.utcoffset() or dt.timedelta())), "d": at}
              for at in NIGHT]  # fmt: skip
    assert writer(url, "events").write(0, rows(*values)) == {}
    instants = [decimal.Decimal(f"{at.timestamp():.6f}") for at in NIGHT]
    found = ask(url, "SELECT a, unix_timestamp(b), c, d FROM events ORDER BY a")
    assert found == [
        (at, instant, dt.timedelta(hours=hour, minutes=30), str(at))
        for at, instant, hour in zip(IN_UTC, instants, (5, 6), strict=True)
    ]


def test_a_lookup_finds_instants_for_every_form_of_their_zone(url: str) -> None:
    ask(url, "CREATE TABLE events (a datetime(6), b timestamp(6), hour int)")
    values = [{"a": at, "b": at, "hour": hour} for at, hour in zip(NIGHT, (5, 6), strict=True)]
    assert writer(url, "events").write(0, rows(*values)) == {}
    for column in ("a", "b"):
        for keys in (NIGHT, IN_UTC, [at.astimezone(dt.UTC) for at in NIGHT]):
            for key, hour in zip(keys, (5, 6), strict=True):  # Python says that both keys of the night are equal
                assert Lookup.sql(url, "events", column, "hour").many([key]) == {key: hour}


def refuse(url: str, number: int, when: str) -> None:
    raising = f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = 'no'"
    ask(url, f"CREATE OR REPLACE TRIGGER no BEFORE INSERT ON numbers FOR EACH ROW IF {when} THEN {raising}; END IF")


@pytest.mark.parametrize("number", [1205, 1213, 1114, 1142, 3024, 1644])
def test_a_row_fails_alone_with_any_error_and_a_table_that_accepts_no_row_is_waited_for(url: str, number: int) -> None:
    ask(url, "CREATE TABLE numbers (id bigint PRIMARY KEY)")
    own = writer(url, "numbers")
    refuse(url, number, "NEW.id = 2")
    assert list(own.write(0, numbered(1, 2, 3))) == [1]
    assert list(own.write(1, numbered(2))) == [0], "a retry has no other rows beside it"
    if number != 1644:  # that is what a trigger raises for a row
        refuse(url, number, "true")
        with pytest.raises(Unavailable, match="no"):
            own.write(2, numbered(4))
    assert ask(url, "SELECT id FROM numbers") == [(1,), (3,)]


def test_a_missing_table_a_missing_permission_and_a_read_only_server_are_waited_for(url: str) -> None:
    ask(url, "CREATE TABLE numbers (id bigint PRIMARY KEY)")
    own = writer(url, "numbers")
    assert own.write(0, numbered(1)) == {}
    read_only = {"connect_args": {"init_command": "SET SESSION tx_read_only = 1"}}
    with pytest.raises(Unavailable, match="READ ONLY transaction"):
        writer(url, "numbers", options=read_only).write(1, numbered(2))
    name = make_url(url).database
    ask(url, f"CREATE USER {name}@127.0.0.1")
    ask(url, f"GRANT CREATE, SELECT ON {name}.* TO {name}@127.0.0.1")
    ask(url, f"GRANT ALL ON {name}.sparkbolt_commits TO {name}@127.0.0.1")
    with pytest.raises(Unavailable, match="INSERT command denied"):
        writer(url.replace("//root@", f"//{name}@"), "numbers").write(1, numbered(2))
    ask(url, "DROP TABLE numbers")
    with pytest.raises(Unavailable, match="doesn't exist"):
        own.write(1, numbered(2))


def test_a_session_is_strict_and_a_table_without_transactions_is_waited_for(url: str) -> None:
    ask(url, "CREATE TABLE names (id smallint, name varchar(3))")
    lax = {"connect_args": {"init_command": "SET sql_mode = ''"}}
    given = rows({"id": 1, "name": "abc"}, {"id": 99999, "name": "a"}, {"id": 2, "name": "abcd"})
    assert list(writer(url, "names", options=lax).write(0, given)) == [1, 2]
    assert ask(url, "SELECT * FROM names") == [(1, "abc")]
    ask(url, "ALTER TABLE names ENGINE=MyISAM")
    with pytest.raises(Unavailable, match=r"has no transactions.* ALTER TABLE names ENGINE=InnoDB"):
        writer(url, "names").write(1, given)


@pytest.mark.parametrize(
    ("kind", "lost", "kept"),
    [
        ("int", 1.5, 2.0),
        ("datetime", dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime(2026, 1, 2)),
        ("date", IN_UTC[0], dt.date(2026, 1, 2)),
        ("json", {"a": float("nan")}, {"a": 1}),
    ],
)  # fmt: skip
def test_a_value_that_the_column_would_alter_is_refused(url: str, kind: str, lost: Any, kept: Any) -> None:
    ask(url, f"CREATE TABLE t (v {kind})")
    assert list(writer(url, "t").write(0, rows({"v": lost}, {"v": kept}))) == [0]
    [(found,)] = ask(url, "SELECT v FROM t")
    assert str(found).replace('"', "'") == str(kept) or found == kept
