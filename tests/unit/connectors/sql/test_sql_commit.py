"""SqlBolt in a transactional topology, on SQLite: rows are tried on executors and committed once by the driver."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import sqlalchemy as sa

from sparkbolt import Config
from sparkbolt.api.committers import take_rows
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.bolts import SqlBolt
from sparkbolt.connectors.sql.sql_rows import RowRefusedError
from sparkbolt.errors import CheckpointError, Unavailable
from tests.unit.connectors.sql.sqlite import CHECKPOINT, Settled, query


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


def context(task: int = 3) -> TopologyContext:
    config = Config(transactional=True)
    return TopologyContext("shop", "out", 0, 1, task, config, checkpoint_id=CHECKPOINT, micro_batch_id=4)


def tup(**values: Any) -> Tuple:
    return Tuple.of(Origin("in", 0, "default", tuple(values)), list(values.values()), ((1, 2),))


def kept(bolt: SqlBolt, *tuples: Tuple) -> tuple[Settled, list[Any]]:
    """What becomes of tuples on an executor, and the rows that go to the driver."""
    bolt = cloudpickle.loads(cloudpickle.dumps(bolt))
    bolt.prepare(context())
    settled = Settled()
    for one in tuples:
        bolt.execute(one, settled)
    bolt.flush()
    return settled, [pickle.loads(row) for row in take_rows(bolt)]


def driver(bolt: SqlBolt) -> SqlBolt:
    """The bolt of another start of the driver."""
    bolt = cloudpickle.loads(cloudpickle.dumps(bolt))
    bolt.begin(context())
    return bolt


def numbered(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in numbers]


def test_executors_write_nothing_and_a_row_that_would_be_refused_fails_alone(url: str) -> None:
    query(url, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    tuples = [tup(id=1, name="a"), tup(id=2, name=None), tup(id=1, name="again"), tup(id=3, name="c")]
    settled, rows = kept(SqlBolt(url, "orders"), *tuples)
    assert rows == [{"id": 1, "name": "a"}, {"id": 3, "name": "c"}]
    assert settled.acked == [tuples[0], tuples[3]]
    assert [one for one, _ in settled.failed] == tuples[1:3]
    assert "refused {'id': 2, 'name': None}: IntegrityError: NOT NULL" in settled.failed[0][1]
    assert query(url, "SELECT * FROM orders") == []


def test_trial_costs_no_attempt_while_the_database_is_unavailable(tmp_path: Path) -> None:
    settled, rows = kept(SqlBolt(f"sqlite:///{tmp_path}/none/shop.db", "orders", wait_secs=0.01), tup(id=1))
    assert rows == []
    assert isinstance(settled.failed[0][1], Unavailable)


def test_a_value_that_cannot_be_pickled_fails_its_tuple_alone(url: str) -> None:
    settled, rows = kept(SqlBolt(url, "orders", trial=False), tup(id=lambda: 1), tup(id=2))
    assert rows == [{"id": 2}]
    assert "its row cannot be sent to the driver" in settled.failed[0][1]


def test_a_txid_is_committed_once_in_whichever_life(url: str) -> None:
    bolt = SqlBolt(url, "orders", create=True, chunk_rows=2)
    for _ in range(2):
        own = driver(bolt)
        for _ in range(2):
            own.commit(4, numbered(1, 2, 3))
        own.end()
    driver(bolt).commit(7, numbered(4))
    assert query(url, "SELECT id FROM orders ORDER BY id") == [(1,), (2,), (3,), (4,)]
    noted = "SELECT checkpoint, component, task, topology, micro_batch, rows_written FROM sparkbolt_commits"
    assert query(url, noted) == [(CHECKPOINT, "out", 0, "shop", 7, 1)]


def test_upsert_and_merge_work_in_a_commit(url: str) -> None:
    query(url, "CREATE TABLE users (id INTEGER PRIMARY KEY, n INTEGER, at INTEGER, low INTEGER)")
    merged = driver(SqlBolt(url, "users", "merge", keys=["id"], combine={"n": "add", "low": "min"}, newest="at"))
    merged.commit(0, [{"id": 1, "n": 1, "at": 5, "low": 4}] * 3)
    merged.commit(1, [{"id": 1, "n": 2, "at": 3, "low": 2}, {"id": 1, "n": 1}])
    merged.commit(1, [{"id": 1, "n": 2, "at": 3, "low": 2}, {"id": 1, "n": 1}])
    assert query(url, "SELECT * FROM users") == [(1, 6, 5, 2)]
    replaced = driver(SqlBolt(url, "users", "upsert", keys=["id"]))
    replaced.commit(2, [{"id": 1, "n": 0}, {"id": 2, "n": 8}, {"id": 2, "n": 9}])
    assert query(url, "SELECT id, n, at FROM users ORDER BY id") == [(1, 0, 5), (2, 9, None)]


@pytest.mark.parametrize("late", [(4, numbered(8, 9)), (5, numbered(8))])
def test_txid_already_passed_by_another_driver_is_not_written_and_reported(url: str, late: tuple[int, Any]) -> None:
    bolt = SqlBolt(url, "orders", create=True)
    driver(bolt).commit(5, numbered(1, 2))
    with pytest.raises(CheckpointError, match=r"txid 5 with 2 rows, .* delete the row of sparkbolt_commits"):
        driver(bolt).commit(*late)
    assert query(url, "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]


def test_a_row_that_is_refused_at_commit_is_named_and_nothing_is_written(url: str) -> None:
    query(url, "CREATE TABLE orders (id INTEGER, name TEXT CHECK (name <> 'n70'))")
    own = driver(SqlBolt(url, "orders"))
    with pytest.raises(RowRefusedError, match=r"refused {'id': 70, 'name': 'n70'}: .*CHECK.*nothing of txid 3 is"):
        own.commit(3, numbered(*range(100)))
    assert query(url, "SELECT count(*) FROM orders") == [(0,)]
    query(url, "DROP TABLE orders")
    query(url, "CREATE TABLE orders (id INTEGER, name TEXT)")
    own.commit(3, numbered(*range(100)))
    assert query(url, "SELECT count(*) FROM orders") == [(100,)], "someone has mended the table"


def test_a_commit_does_not_itself_wait_for_an_unavailable_database(tmp_path: Path) -> None:
    own = driver(SqlBolt(f"sqlite:///{tmp_path}/none/shop.db", "orders", create=True))
    with pytest.raises(Unavailable, match="is unavailable: OperationalError: unable to open"):
        own.commit(0, numbered(1))
    (tmp_path / "none").mkdir()
    own.commit(0, numbered(1))
    assert query(f"sqlite:///{tmp_path}/none/shop.db", "SELECT id FROM orders") == [(1,)]


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_commit_with_an_unknown_result_is_looked_up(
    url: str, carried_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = driver(SqlBolt(url, "orders", create=True))
    own.commit(0, numbered(1))
    real, lost = sa.engine.RootTransaction.commit, [carried_out]

    def commit(self: Any) -> None:
        if not lost:
            return real(self)
        real(self) if lost.pop() else self.rollback()
        raise sa.exc.OperationalError("COMMIT", {}, Exception("gone"), connection_invalidated=True)

    monkeypatch.setattr(sa.engine.RootTransaction, "commit", commit)
    with pytest.raises(Unavailable, match="gone"):
        own.commit(1, numbered(2))
    own.commit(1, numbered(2))
    assert query(url, "SELECT id FROM orders ORDER BY id") == [(1,), (2,)]
