"""SqlBolt on SQLite: what is in the table after a repeat, a bad row, another order, a commit whose end nobody saw."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
import sqlalchemy as sa

from sparkbolt import Config, TopologyBuilder
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.bolts import SqlBolt
from sparkbolt.connectors.sql.sql_link import Trouble, trouble_of
from sparkbolt.connectors.sql.sql_rows import SqlRow, WriterSettings
from sparkbolt.connectors.sql.sql_table import TableSettings
from sparkbolt.connectors.sql.sql_writer import Author, SqlWriter
from sparkbolt.errors import Unavailable
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver
from tests.unit.connectors.sql.sqlite import CHECKPOINT, Settled, query


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


def writer(url: str, table: TableSettings, checkpoint: str = CHECKPOINT, **others: Any) -> SqlWriter:
    settings = WriterSettings(url, table, "sparkbolt_commits", 1000, others.pop("wait_secs", 1.0))
    return SqlWriter(settings, Author(checkpoint, "out", 7, "shop"), **others)


def rows(*edges_and_values: tuple[int, dict[str, Any]]) -> list[SqlRow]:
    return [SqlRow(edge, values) for edge, values in edges_and_values]


def numbered(*numbers: int) -> list[SqlRow]:
    return rows(*((number, {"id": number, "name": f"n{number}"}) for number in numbers))


ORDERS = TableSettings("orders", create=True)


def tup(edge: int = 0, **values: Any) -> Tuple:
    return Tuple.of(Origin("in", 0, "default", tuple(values)), list(values.values()), ((1, edge),) if edge else ())


def flushed(bolt: SqlBolt, micro_batch: int, *tuples: Tuple) -> Settled:
    bolt = cloudpickle.loads(cloudpickle.dumps(bolt))
    context = TopologyContext("shop", "out", 0, 1, 1, Config(), checkpoint_id=CHECKPOINT, micro_batch_id=micro_batch)
    bolt.prepare(context)
    settled = Settled()
    for one in tuples:
        bolt.execute(one, settled)
    assert not settled.acked, "nothing is acked before it is committed"
    bolt.flush()
    return settled


def test_tuples_are_rows_and_are_acked_when_they_are_committed(url: str) -> None:
    bolt = SqlBolt(url, "orders", columns={"id": "id", "size": lambda tup: len(tup["name"])}, create=True)
    one, two = tup(1, id=1, name="ann"), tup(2, id=2, name="bo")
    assert flushed(bolt, 0, one, two).acked == [one, two]
    assert query(url, "SELECT * FROM orders ORDER BY id") == [(1, 3), (2, 2)]


def test_a_topology_writes_and_one_refused_row_fails_alone(url: str) -> None:
    query(url, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    builder = TopologyBuilder("shop", Config(max_attempts=1))
    builder.set_spout("in", GeneratorSpout(list, outputs=["id", "name"], count=0))
    builder.set_bolt("out", SqlBolt(url, "orders"), parallelism=2).shuffle_grouping("in")
    with TopologyTestDriver(builder.build()) as driver:
        driver._engine._environment.rehearsal_directory = None  # else nothing would be written
        for number in range(3000):
            driver.feed("in", [number, None if number == 1234 else "x"], message_id=number)
        driver.run_until_idle()
        assert sorted(driver.acked("in")) == [number for number in range(3000) if number != 1234]
        [failed] = driver.failed("in")
    assert failed.message_id == 1234
    assert "refused {'id': 1234, 'name': None}: IntegrityError: NOT NULL constraint failed" in failed.reason
    assert query(url, "SELECT count(*), min(id), max(id) FROM orders") == [(2999, 0, 2999)]


@pytest.mark.slow
def test_a_micro_batch_that_runs_again_writes_nothing_twice(url: str) -> None:
    for _ in range(3):
        assert writer(url, ORDERS).write(4, numbered(1, 2, 3)) == {}
    assert query(url, "SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,)]
    assert writer(url, ORDERS).write(5, numbered(1)) == {}, "another micro-batch is another matter"
    assert query(url, "SELECT count(*) FROM orders") == [(4,)]


def test_a_repeated_micro_batch_with_other_tuples_writes_the_missing_ones(url: str) -> None:
    """A bolt before this one may have failed for a tuple in one run and not in the other."""
    writer(url, ORDERS).write(4, numbered(1, 2))
    writer(url, ORDERS).write(4, numbered(2, 3))
    writer(url, ORDERS).write(4, numbered(1, 2, 3))
    assert query(url, "SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,)]


def test_a_refused_row_is_retried_in_a_repeated_micro_batch(url: str) -> None:
    query(url, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT CHECK (name <> 'n2'))")
    assert set(writer(url, ORDERS).write(4, numbered(1, 2, 3))) == {1}
    assert set(writer(url, ORDERS).write(4, numbered(1, 2, 3))) == {1}
    assert query(url, "SELECT id FROM orders") == [(1,), (3,)]


def test_a_new_checkpoint_writes_its_micro_batches_although_their_numbers_were_used_before(url: str) -> None:
    writer(url, ORDERS).write(0, numbered(1))
    writer(url, ORDERS, checkpoint="f" * 32).write(0, numbered(1))
    assert query(url, "SELECT count(*) FROM orders") == [(2,)]
    assert (
        query(url, "SELECT topology, component, task, micro_batch, rows_written FROM sparkbolt_commits")
        == [("shop", "out", 7, 0, 1)] * 2
    )


def test_untracked_rows_of_a_repeat_count_as_written(url: str) -> None:
    for _ in range(2):
        writer(url, ORDERS).write(4, rows((0, {"id": 1}), (0, {"id": 2})))
    assert query(url, "SELECT count(*) FROM orders") == [(2,)]


def test_an_attempt_older_than_the_written_data_writes_nothing_and_says_what_to_do(url: str) -> None:
    writer(url, ORDERS).write(5, numbered(1))
    with pytest.raises(Unavailable, match=r"another driver goes on .* delete the rows of sparkbolt_commits"):
        writer(url, ORDERS).write(4, numbered(2))
    assert query(url, "SELECT id FROM orders") == [(1,)]


def test_a_commit_with_an_unknown_result_is_looked_up_and_not_repeated(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer(url, ORDERS).write(0, numbered(1))
    real, lost = sa.engine.RootTransaction.commit, [True, False]

    def commit(self: Any) -> None:
        """Carry it out, or not, and lose the connection in either case; later ones work."""
        if len(query(url, "SELECT name FROM sqlite_master WHERE name = 'orders'")) and lost:
            if lost.pop(0):
                real(self)
            else:
                self.rollback()
            raise sa.exc.OperationalError("COMMIT", {}, Exception("gone"), connection_invalidated=True)
        real(self)

    monkeypatch.setattr(sa.engine.RootTransaction, "commit", commit)
    waits: list[float] = []
    one = writer(url, ORDERS, sleep=waits.append)
    one._has_commits = True
    assert one.write(1, numbered(2)) == {}
    assert one.write(2, numbered(3)) == {}
    assert query(url, "SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,)]
    assert waits


def test_an_unavailable_database_is_waited_for_and_costs_its_tuples_no_attempt(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/none/shop.db"
    now = [0.0]

    def sleep(secs: float) -> None:
        now[0] += secs

    one = writer(url, ORDERS, clock=lambda: now[0], sleep=sleep, wait_secs=5.0)
    with pytest.raises(Unavailable, match=r"is unavailable: OperationalError: unable to open database file"):
        one.write(0, numbered(1))
    assert 5 <= now[0] < 8
    before = now[0]
    with pytest.raises(Unavailable):
        one.write(1, numbered(1))
    assert now[0] == before, "it was away, so the next tuples are not kept waiting"
    (tmp_path / "none").mkdir()
    assert one.write(2, numbered(1)) == {}
    settled = flushed(SqlBolt(f"sqlite:///{tmp_path}/no/shop.db", "orders", wait_secs=0.01), 0, tup(1, id=1))
    assert isinstance(settled.failed[0][1], Unavailable)


def test_a_locked_file_is_waited_for(url: str) -> None:
    other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    settings = WriterSettings(url, ORDERS, "sparkbolt_commits", 1000, 60.0, {"connect_args": {"timeout": 0}})

    def sleep(secs: float) -> None:
        other.rollback()

    one = SqlWriter(settings, Author(CHECKPOINT, "out", 7, "shop"), sleep=sleep)
    assert one.write(0, numbered(1)) == {}
    other.close()


def test_a_created_table_that_is_renamed_is_not_created_again(url: str) -> None:
    assert writer(url, ORDERS).write(0, numbered(1)) == {}
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("ALTER TABLE orders RENAME TO old_orders")
    for one in (writer(url, ORDERS), writer(url, ORDERS)):
        with pytest.raises(Unavailable, match="is gone, and rows were written to it: was it renamed or dropped"):
            one.write(1, numbered(2))
    assert writer(url, ORDERS, "d" * 32).write(0, numbered(9)) == {}, "another checkpoint begins with its own table"
    connection.execute("DROP TABLE orders")
    connection.execute("ALTER TABLE old_orders RENAME TO orders")
    connection.close()
    assert one.write(1, numbered(2)) == {}
    assert query(url, "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]


def test_a_table_that_is_renamed_under_a_running_task_is_not_created_again(url: str) -> None:
    one = writer(url, ORDERS)
    assert one.write(0, numbered(1)) == {}
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("ALTER TABLE orders RENAME TO old_orders")
    connection.close()
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"no such table|is gone, and rows were written to it"):
            one.write(1, numbered(2))
    assert query(url, "SELECT name FROM sqlite_master WHERE name = 'orders'") == []


def test_upsert_replaces_what_the_tuple_has_and_the_last_one_of_a_key_wins(url: str) -> None:
    table = TableSettings("orders", "upsert", ("id",), create=True)
    writer(url, table).write(0, rows((1, {"id": 1, "name": "a", "n": 1}), (2, {"id": 1, "name": "b", "n": None})))
    writer(url, table).write(1, rows((3, {"id": 2, "name": "c", "n": 3}), (4, {"id": 2, "n": 4}), (5, {"id": 3})))
    assert query(url, "SELECT id, name, n FROM orders ORDER BY id") == [(1, "b", None), (2, "c", 4), (3, None, None)]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1, 2)])
def test_upsert_with_newest_gives_the_same_row_in_any_order(url: str, order: tuple[int, ...]) -> None:
    table = TableSettings("orders", "upsert", ("id",), newest="at", create=True)
    for number, at in enumerate(order):
        writer(url, table).write(number, rows((number, {"id": 1, "name": f"n{at}", "at": at})))
    assert query(url, "SELECT name, at FROM orders") == [("n3", 3)]


def test_merge_combines_the_old_row_and_the_new_one(url: str) -> None:
    ways = {"total": "add", "low": "min", "high": "max", "born": "first"}
    table = TableSettings("visits", "merge", ("user",), tuple(ways.items()), create=True)
    visits = [("2026", 3, 5, 5, "ann@old"), ("2027", None, 2, None, None), ("2028", 4, 9, 9, "ann@new")]
    for number, (born, total, low, high, mail) in enumerate(visits):
        values = {"user": "ann", "born": born, "total": total, "low": low, "high": high, "mail": mail}
        writer(url, table).write(number, rows((1, values)))
    assert query(url, "SELECT born, total, low, high, mail FROM visits") == [("2026", 7, 2, 9, "ann@new")]


def test_merge_also_accumulates_tuples_of_one_micro_batch(url: str) -> None:
    table = TableSettings("counts", "merge", ("word",), (("n", "add"),), create=True)
    writer(url, table).write(0, rows(*((i, {"word": "be", "n": 1}) for i in range(1, 5001))))
    assert query(url, "SELECT * FROM counts") == [("be", 5000)]


def test_a_value_that_the_driver_does_not_accept_fails_its_row_alone(url: str) -> None:
    query(url, "CREATE TABLE orders (id INTEGER)")
    refused = writer(url, ORDERS).write(0, rows((1, {"id": 1}), (2, {"id": 1 << 70}), (3, {"id": {"a": 1}})))
    assert list(refused) == [1, 2]
    assert "OverflowError" in str(refused[1])
    assert "ProgrammingError" in str(refused[2])
    assert query(url, "SELECT id FROM orders") == [(1,)]


def test_a_table_that_is_missing_is_named_with_the_statement_that_makes_it(url: str) -> None:
    own = writer(url, TableSettings("orders", "upsert", ("id",)))
    with pytest.raises(
        Unavailable, match=r"create it, .* CREATE TABLE orders \( id BIGINT NOT NULL, .* or give create"
    ):
        own.write(0, numbered(1))
    query(url, "CREATE TABLE orders (id INTEGER, name TEXT)")
    with pytest.raises(Unavailable, match=r"no unique index on id.*: CREATE UNIQUE INDEX ON orders \(id\)"):
        own.write(1, numbered(1))
    query(url, "CREATE UNIQUE INDEX one ON orders (id)")
    assert own.write(2, numbered(1)) == {}, "it goes on by itself"
    query(url, "DROP TABLE orders")
    with pytest.raises(Unavailable, match="no such table"):
        own.write(3, numbered(1))
    with pytest.raises(Unavailable, match="create it"):
        own.write(4, numbered(1))


def test_a_missing_column_is_named_and_is_found_once_it_exists(url: str) -> None:
    query(url, "CREATE TABLE orders (id INTEGER)")
    own = writer(url, TableSettings("orders"))
    with pytest.raises(Unavailable, match=r"no column 'name' .*ALTER TABLE orders ADD COLUMN name TEXT"):
        own.write(0, numbered(1))
    refused = own.write(1, rows((1, {"id": 1}), (2, {"id": 2, "name": "b"})))
    assert list(refused) == [1], "a stream with other fields fails alone"
    query(url, "ALTER TABLE orders ADD COLUMN name TEXT")
    assert own.write(2, numbered(3)) == {}


def test_a_trigger_may_fill_a_column_and_a_row_for_which_it_does_not_fails_alone(url: str) -> None:
    query(url, "CREATE TABLE orders (id INTEGER, name TEXT, z INTEGER)")
    query(
        url,
        "CREATE TRIGGER no BEFORE INSERT ON orders WHEN NEW.id = 2 BEGIN "
        "SELECT RAISE(ABORT, 'NOT NULL constraint failed: orders.z'); END",
    )
    assert list(writer(url, ORDERS).write(0, numbered(1, 2, 3))) == [1]
    assert list(writer(url, ORDERS).write(1, numbered(2))) == [0], "a retry has no other rows beside it"


def test_rehearsal_records_rows_and_connects_to_nothing(tmp_path: Path) -> None:
    builder = TopologyBuilder("shop")
    builder.set_spout("in", GeneratorSpout(list, outputs=["id"], count=0))
    builder.set_bolt("out", SqlBolt(f"sqlite:///{tmp_path}/none/shop.db", "orders")).shuffle_grouping("in")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("in", [1], message_id=1)
        driver.run_until_idle()
        assert driver.acked("in") == [1]
        assert driver.unsent("out") == [{"table": "orders", "mode": "append", "row": {"id": 1}}]


@pytest.mark.parametrize(
    ("state", "trouble"),
    [("40P01", Trouble.AWAY), ("57P01", Trouble.AWAY), ("53100", Trouble.AWAY), ("25006", Trouble.AWAY),
     ("42P01", Trouble.TABLE), ("42501", Trouble.TABLE), ("23505", Trouble.ROW), ("22003", Trouble.ROW)],
)  # fmt: skip
def test_an_error_of_a_server_is_of_a_row_the_table_or_the_database(state: str, trouble: Trouble) -> None:
    cause = Exception()
    cause.sqlstate = state  # type: ignore[attr-defined]
    assert trouble_of(sa.exc.DBAPIError("INSERT", {}, cause)) is trouble
    assert trouble_of(sa.exc.DBAPIError("INSERT", {}, SimpleNamespace(), connection_invalidated=True)) is Trouble.AWAY


def test_a_value_that_cannot_even_be_shown_fails_alone(url: str) -> None:
    table = TableSettings("numbers", "append", create=True)
    refused = writer(url, table).write(0, rows((1, {"n": 1}), (2, {"n": 10**5000}), (3, {"n": 3})))
    assert list(refused) == [1]
    assert query(url, "SELECT n FROM numbers") == [(1,), (3,)]
