"""SqlBolt against a real PostgreSQL: bad rows, types, two tasks at the same rows, and a server that is killed."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import psycopg
import pytest

from sparkbolt import Config, TopologyBuilder
from sparkbolt.bolts import Lookup, SqlBolt
from sparkbolt.connectors.lookup.lookup_sources import RefusedLookupError
from sparkbolt.connectors.sql import sql_rows
from sparkbolt.connectors.sql.sql_rows import RowRefusedError, SqlRow, WriterSettings
from sparkbolt.connectors.sql.sql_table import TableSettings
from sparkbolt.connectors.sql.sql_writer import WHOLE, Author, SqlWriter
from sparkbolt.connectors.txid_note import CommitRefusedError
from sparkbolt.errors import Unavailable
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver
from tests.services import PostgreSQL
from tests.services.proxy import Proxy

pytestmark = pytest.mark.service


def ask(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description is not None else []


@pytest.fixture
def schema(postgresql: str) -> str:
    name = f"s{uuid.uuid4().hex[:12]}"
    ask(postgresql, f"CREATE SCHEMA {name}")
    return name


def writer(
    url: str, schema: str, table: str, *more: Any, task: int = 1, wait_secs: float = 30.0, **others: Any
) -> SqlWriter:
    settings = TableSettings(f"{schema}.{table}", *more, **others)
    whole = WriterSettings(url, settings, f"{schema}.sparkbolt_commits", 1000, wait_secs)
    return SqlWriter(whole, Author("c" * 32, "out", task, "shop"))


def numbered(*numbers: int) -> list[SqlRow]:
    return [SqlRow(number + 1, {"id": number, "name": f"n{number}"}) for number in numbers]


def test_only_the_bad_rows_of_ten_thousand_are_refused(postgresql: str, schema: str) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, name text NOT NULL, n smallint)")
    bad = {17: {"name": None}, 18: {"n": 1 << 20}, 4999: {"name": "a\0b"}, 9999: {"id": 0}, 5000: {"n": {"a": 1}}}
    rows = [SqlRow(i + 1, {"id": i, "name": "x", "n": 1, **bad.get(i, {})}) for i in range(10_000)]
    for _ in range(2):
        refused = writer(postgresql, schema, "orders").write(0, rows)
        assert set(refused) == set(bad)
    assert "NotNullViolation" in str(refused[17])
    assert "DETAIL: Key (id)=(0) already exists." in str(refused[9999])
    assert ask(postgresql, f"SELECT count(*) FROM {schema}.orders") == [(10_000 - len(bad),)]


def test_a_created_table_returns_the_python_values(postgresql: str, schema: str) -> None:
    values = {
        "flag": True, "whole": 7, "real": 0.5, "text": "é", "raw": b"\0", "exact": decimal.Decimal("1.10"),
        "day": dt.date(2026, 1, 2), "id": uuid.UUID(int=5), "nested": {"a": [1, None]}, "listed": [1, 2],
        "at": dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "local": dt.datetime(2026, 1, 2), "empty": None,
        "long": dt.timedelta(seconds=90), "time": dt.time(1, 2),
    }  # fmt: skip
    own = writer(postgresql, schema, "every", create=True)
    assert own.write(0, [SqlRow(1, values), SqlRow(2, dict.fromkeys(values))]) == {}
    [row] = ask(postgresql, f"SELECT {', '.join(values)} FROM {schema}.every WHERE whole = 7")
    assert dict(zip(values, row, strict=True)) == values
    assert ask(postgresql, f"SELECT count(*) FROM {schema}.every WHERE nested IS NULL AND listed IS NULL") == [(1,)]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_two_instants_of_a_november_night_are_stored_in_utc_whatever_the_zone_of_the_session(
    postgresql: str, schema: str, zone: str
) -> None:
    ask(postgresql, f"CREATE ROLE {schema} SUPERUSER LOGIN; ALTER ROLE {schema} SET timezone = '{zone}'")
    url = postgresql.replace("//sparkbolt@", f"//{schema}@")
    ask(postgresql, f"CREATE TABLE {schema}.events (a timestamp, b timestamptz, c text, n int UNIQUE)")
    night = [dt.datetime(2026, 11, 1, 1, 30, 0, 7, tzinfo=ZoneInfo("America/New_York"), fold=fold) for fold in (0, 1)]
    plain = [dt.datetime(2026, 11, 1, hour, 30, 0, 7) for hour in (5, 6)]
    values = [{**dict.fromkeys("abc", at), "n": n} for n, at in enumerate(night + plain)]
    assert writer(url, schema, "events").write(0, [SqlRow(row["n"] + 1, row) for row in values]) == {}
    for place, at in enumerate(plain * 2):
        [row] = ask(postgresql, f"SELECT * FROM {schema}.events WHERE n = {place}")
        aware = at.replace(tzinfo=dt.UTC)
        assert row[:2] == (at, aware)
        assert str(row[2]).removesuffix("+00") == str(at)
    ask(postgresql, f"DELETE FROM {schema}.events WHERE n > 1")
    for column in ("a", "b"):
        for n, keys in enumerate(zip(night, plain, strict=True)):
            for key in keys:
                assert Lookup.sql(url, f"{schema}.events", column, "n").many([key]) == {key: n}


def test_a_time_with_a_zone_is_stored_in_utc_and_one_that_depends_on_the_day_fails_alone(
    postgresql: str, schema: str
) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.times (a time, b timetz)")
    east, there = dt.timezone(dt.timedelta(hours=2)), ZoneInfo("America/New_York")
    times = [dt.time(5, 30, tzinfo=east), dt.time(5, 30, tzinfo=there), dt.time(5, 30)]
    refused = writer(postgresql, schema, "times").write(0, [SqlRow(n, {"a": at}) for n, at in enumerate(times, 1)])
    assert "depends on the day" in str(refused.pop(1))
    assert refused == {}
    assert ask(postgresql, f"SELECT a FROM {schema}.times ORDER BY a") == [(dt.time(3, 30),), (dt.time(5, 30),)]
    assert writer(postgresql, schema, "times").write(1, [SqlRow(1, {"b": times[0]})]) == {}
    assert ask(postgresql, f"SELECT b FROM {schema}.times WHERE b IS NOT NULL") == [(times[0],)]


@pytest.mark.parametrize(
    ("kind", "lost", "kept"),
    [
        ("integer", 1.5, 2.0),
        ("date", dt.datetime(2026, 1, 2, 3), None),
        ("timestamptz", pd.NaT, None),
        ("numeric", np.datetime64("NaT"), 0.1234567890123456),
        ("double precision", 2**53 + 1, float("nan")),
    ],
)  # fmt: skip
def test_a_value_that_the_column_would_alter_is_refused(
    postgresql: str, schema: str, kind: str, lost: Any, kept: Any
) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.t (v {kind})")
    given = [SqlRow(edge, {"v": value}) for edge, value in enumerate((lost, kept), 1)]
    assert list(writer(postgresql, schema, "t").write(0, given)) == [0]
    [(found,)] = ask(postgresql, f"SELECT v FROM {schema}.t")
    assert str(found) == str(kept) or found == kept


@pytest.mark.parametrize("column", ["z int NOT NULL", "name text GENERATED ALWAYS AS ('a') STORED",
                                    "name int GENERATED ALWAYS AS IDENTITY"])  # fmt: skip
def test_a_table_that_can_accept_no_row_of_the_bolt_is_waited_for(postgresql: str, schema: str, column: str) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.t (id int, {column})")
    if "name" not in column:
        ask(postgresql, f"ALTER TABLE {schema}.t ADD COLUMN name text")
    with pytest.raises(Unavailable, match=r"has no default|fills its column 'name' by itself"):
        writer(postgresql, schema, "t").write(0, numbered(*range(50)))


def test_upsert_and_merge_are_one_statement_of_the_server(postgresql: str, schema: str) -> None:
    ask(
        postgresql, f"CREATE TABLE {schema}.users (id bigint PRIMARY KEY, n bigint, low int, mail text, at timestamptz)"
    )
    ways = (("n", "add"), ("low", "min"))
    own = writer(postgresql, schema, "users", "merge", ("id",), ways, "at")
    for number, (hour, n, low, mail) in enumerate([(5, 1, 9, "new"), (3, 2, 4, "old"), (6, None, None, None)]):
        at = dt.datetime(2026, 1, 1, hour, tzinfo=dt.UTC)
        own.write(number, [SqlRow(1, {"id": 1, "n": n, "low": low, "mail": mail, "at": at})])
    at = dt.datetime(2026, 1, 1, 6, tzinfo=dt.UTC)
    assert ask(postgresql, f"SELECT * FROM {schema}.users") == [(1, 3, 4, "new", at)]


def test_two_concurrent_attempts_write_each_row_once(postgresql: str, schema: str) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint, name text)")

    def attempt(_: int) -> dict[int, RowRefusedError]:
        return writer(postgresql, schema, "orders").write(0, numbered(*range(3000)))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(attempt, range(4))) == [{}] * 4
    assert ask(postgresql, f"SELECT count(*), count(DISTINCT id) FROM {schema}.orders") == [(3000, 3000)]


def test_tasks_that_update_the_same_rows_do_not_lock_each_other_out(postgresql: str, schema: str) -> None:
    def count(task: int) -> None:
        own = writer(postgresql, schema, "counts", "merge", ("id",), (("n", "add"),), create=True, task=task)
        for number in range(5):
            ids = range(200) if task % 2 else range(199, -1, -1)
            assert own.write(number, [SqlRow(i + 1, {"id": i, "n": 1}) for i in ids]) == {}

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    assert ask(postgresql, f"SELECT count(*), min(n), max(n) FROM {schema}.counts") == [(200, 20, 20)]


def test_a_missing_permission_is_reported_and_no_row_is_refused(postgresql: str, schema: str) -> None:
    ask(postgresql, f"CREATE ROLE {schema} LOGIN; CREATE TABLE {schema}.orders (id bigint, name text)")
    ask(postgresql, f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {schema}; GRANT SELECT ON {schema}.orders TO {schema}")
    own = writer(postgresql.replace("//sparkbolt@", f"//{schema}:secret@"), schema, "orders")
    with pytest.raises(Unavailable, match="permission denied for table orders") as caught:
        own.write(0, numbered(1))
    assert "secret" not in str(caught.value)
    ask(postgresql, f"GRANT INSERT ON {schema}.orders TO {schema}")
    assert own.write(1, numbered(1)) == {}


def test_deferred_constraint_in_a_trial_refuses_only_its_row_and_nothing_is_written(
    postgresql: str, schema: str
) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED, name text)")
    assert set(writer(postgresql, schema, "orders").try_rows(0, numbered(1, 2, 2, 3))) == {2}
    assert ask(postgresql, f"SELECT count(*) FROM {schema}.orders") == [(0,)]
    own = writer(postgresql, schema, "orders", task=WHOLE)
    with pytest.raises(CommitRefusedError, match=r"refuses the commit of txid 0 as a whole.*Key \(id\)=\(2\)"):
        own.commit(0, [row.values for row in numbered(1, 2, 2)])
    assert own.commit(0, [row.values for row in numbered(1, 2)])
    assert ask(postgresql, f"SELECT count(*) FROM {schema}.orders") == [(2,)]


def test_drivers_that_commit_the_same_txid_at_once_write_it_once(postgresql: str, schema: str) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint, name text)")
    values = [row.values for row in numbered(*range(2000))]

    def commit(_: int) -> bool:
        own = writer(postgresql, schema, "orders", task=WHOLE)
        while True:
            try:
                return own.commit(3, values)
            except Unavailable:
                continue

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(commit, range(4))) == [False, False, False, True]
    assert ask(postgresql, f"SELECT count(*), count(DISTINCT id) FROM {schema}.orders") == [(2000, 2000)]


def test_rows_are_written_once_while_connections_are_cut_again_and_again(postgresql: str, schema: str) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint, name text)")
    port = int(postgresql.rsplit(":", 1)[1].split("/")[0])
    with Proxy(port) as proxy:
        own = writer(postgresql.replace(f":{port}/", f":{proxy.port}/"), schema, "orders")
        done = threading.Event()

        def cut() -> None:
            moments = random.Random(7)
            while not done.wait(moments.uniform(0.02, 0.3)):
                proxy.cut()

        cutting = threading.Thread(target=cut)
        cutting.start()
        try:
            for number in range(40):
                assert own.write(number, numbered(*range(number * 50, number * 50 + 50))) == {}
        finally:
            done.set()
            cutting.join()
        assert proxy.cuts > 3
    assert ask(postgresql, f"SELECT count(*), count(DISTINCT id) FROM {schema}.orders") == [(2000, 2000)]


def test_a_server_that_is_killed_and_comes_back_has_each_row_once(tmp_path: Path) -> None:
    with PostgreSQL(tmp_path / "postgresql") as server:
        server.ask("CREATE TABLE orders (id bigint, name text)")
        own = writer(server.address, "public", "orders", wait_secs=60.0)
        written = threading.Event()

        def write() -> None:
            for number in range(200):
                assert own.write(number, numbered(*range(number * 20, number * 20 + 20))) == {}
                if number >= 20:
                    written.set()

        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(write)
            assert written.wait(30)
            for _ in range(3):
                server.kill()
                server.start()
            writing.result(60)
        assert server.ask("SELECT count(*), count(DISTINCT id) FROM orders") == [(4000, 4000)]
        server.stop()
        impatient = writer(server.address, "public", "orders", task=2, wait_secs=0.2)
        with pytest.raises(Unavailable, match=r"is unavailable: OperationalError: .*refused"):
            impatient.write(0, numbered(1))
        server.start()
        assert impatient.write(1, numbered(1)) == {}


def refuse(url: str, schema: str, code: str, when: str) -> None:
    """A trigger that raises an error code for some rows, as ``RAISE`` and extensions do."""
    body = f"BEGIN IF {when} THEN RAISE 'no' USING ERRCODE = '{code}'; END IF; RETURN NEW; END"
    ask(url, f"CREATE OR REPLACE FUNCTION {schema}.no() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    ask(
        url,
        f"CREATE OR REPLACE TRIGGER no BEFORE INSERT ON {schema}.orders FOR EACH ROW EXECUTE FUNCTION {schema}.no()",
    )


@pytest.mark.parametrize(
    "code",
    [
        "XX000",
        "57014",
        "08006",
        "42P01",
    ],
)
def test_a_row_is_refused_alone_with_any_error_code(postgresql: str, schema: str, code: str) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, name text)")
    refuse(postgresql, schema, code, "NEW.id = 2")
    own = writer(postgresql, schema, "orders", wait_secs=0.1)
    assert list(own.write(0, numbered(1, 2, 3))) == [1]
    assert list(own.write(1, numbered(2))) == [0], "a retry has no other rows beside it"
    assert list(own.try_rows(2, numbered(2, 4))) == [0], "a transactional topology tries it"
    sql_rows._taken.clear()
    assert list(own.write(3, numbered(2))) == [0], "a new process has a row of the table to compare it with"
    assert ask(postgresql, f"SELECT id FROM {schema}.orders ORDER BY id") == [(1,), (3,)]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("code", ["53100", "55P03", "XX000", "42501"])
def test_a_table_that_accepts_no_row_at_all_is_waited_for(postgresql: str, schema: str, code: str, known: bool) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, name text)")
    own = writer(postgresql, schema, "orders", wait_secs=0.1)
    if known:
        assert own.write(0, numbered(0)) == {}
    refuse(postgresql, schema, code, "true")
    for number in range(1, 4):
        with pytest.raises(Unavailable, match="no"):
            own.write(number, numbered(1) if known else numbered(*range(1, 40)))
    refuse(postgresql, schema, code, "false")
    assert own.write(4, numbered(1)) == {}


def test_a_table_that_is_locked_is_waited_for_and_a_row_that_is_locked_fails_alone(
    postgresql: str, schema: str
) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, name text)")
    own = writer(f"{postgresql}?options=-c%20lock_timeout%3D50", schema, "orders", "upsert", ("id",), wait_secs=0.1)
    assert own.write(0, numbered(1, 2, 3)) == {}
    with psycopg.connect(postgresql.replace("+psycopg", "")) as other:
        other.execute(f"SELECT * FROM {schema}.orders WHERE id = 2 FOR UPDATE")
        assert list(own.write(1, numbered(1, 2, 3))) == [1]
        other.execute(f"LOCK TABLE {schema}.orders")
        with pytest.raises(Unavailable, match="lock timeout"):
            own.write(2, numbered(3))


def test_a_commit_waits_for_a_row_with_an_error_code_that_may_mean_an_outage_and_names_it(
    postgresql: str, schema: str
) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, name text)")
    refuse(postgresql, schema, "55P03", "NEW.id = 2")
    own, values = writer(postgresql, schema, "orders", task=WHOLE), [row.values for row in numbered(1, 2, 3)]
    for _ in range(2):
        with pytest.raises(Unavailable, match="is unavailable"):
            own.commit(1, values)
    with pytest.raises(
        Unavailable, match=r"refused {'id': 2, 'name': 'n2'}: LockNotAvailable: no.*nothing of txid 1 is"
    ):
        own.commit(1, values)
    refuse(postgresql, schema, "55P03", "false")
    assert own.commit(1, values)


def test_a_topology_sets_aside_a_row_refused_with_an_internal_error(postgresql: str, schema: str) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, name text)")
    refuse(postgresql, schema, "XX000", "NEW.id = 2")
    builder = TopologyBuilder("shop", Config(max_attempts=2))
    builder.set_spout("in", GeneratorSpout(list, outputs=["id", "name"], count=0))
    bolt = SqlBolt(postgresql, f"{schema}.orders", wait_secs=0.1, commits=f"{schema}.sparkbolt_commits")
    builder.set_bolt("out", bolt).shuffle_grouping("in")
    with TopologyTestDriver(builder.build()) as driver:
        driver._engine._environment.rehearsal_directory = None  # else nothing would be written
        for number in (1, 2, 3):
            driver.feed("in", [number, "x"], message_id=number)
        driver.advance(dt.timedelta(seconds=300))
        assert sorted(driver.acked("in")) == [1, 3]
        assert [failed.message_id for failed in driver.failed("in")] == [2]


def test_a_lookup_finds_rows_by_keys_of_each_type_and_waits_for_the_server(postgresql: str, schema: str) -> None:
    ask(postgresql, f"CREATE TABLE {schema}.users (id bigint PRIMARY KEY, name text, token uuid, at timestamptz)")
    at, token = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), uuid.UUID(int=7)
    row = {"id": 1, "name": "ann", "token": token, "at": at}
    assert writer(postgresql, schema, "users").write(0, [SqlRow(1, row)]) == {}
    for key, value in row.items():
        assert Lookup.sql(postgresql, f"{schema}.users", key, "id").many([value]) == {value: 1}
    whole = Lookup.sql(postgresql, f"{schema}.users", "id")
    assert whole.many([1, 2, 1 << 40]) == {1: row}
    with pytest.raises(RefusedLookupError, match="id 'ann': UndefinedFunction"):
        whole.many([1, "ann"])
    assert whole.many([1]) == {1: row}
    with pytest.raises(Unavailable, match="connection failed"):
        Lookup.sql("postgresql+psycopg://sparkbolt@127.0.0.1:9/postgres", "users", "id").many([1])
