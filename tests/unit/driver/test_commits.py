"""The rows of committers, from the micro-batch that made them to their ``commit``."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from sparkbolt import BasicBolt, Committer, Config, Spout, TopologyBuilder
from sparkbolt.api.components import BoltBase
from sparkbolt.driver.commits import Commits
from sparkbolt.driver.effects import Commit, Remove, Write
from sparkbolt.errors import CheckpointError
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.layout.lane import lay_out
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.wire.verdicts import KeptRows


class Nowhere(Committer):
    """Rows go nowhere."""

    def commit(self, txid, rows):
        pass


class Outside:
    """What has come outside; raises for one txid, once."""

    def __init__(self, raises: int = -1) -> None:
        self.came: list[tuple[str, int, list[Any]]] = []
        self.raises = raises

    def __call__(self, component: str, txid: int, rows: Any) -> None:
        if txid == self.raises:
            self.raises = -1
            raise OSError("away")
        self.came.append((component, txid, rows()))


class Performed:
    """The commits of a life, with their effects performed."""

    def __init__(self, commits: Commits, files: MemoryFiles, outside: Callable[[str, int, Any], None]) -> None:
        self._commits, self._files, self._outside = commits, files, outside

    @property
    def waits(self) -> bool:
        return self._commits.waits

    def stage(self, micro_batch_id: int, kept: list[KeptRows]) -> None:
        self._perform(self._commits.stage(micro_batch_id, kept))

    def settle(self, last_commit: int) -> None:
        self._perform(self._commits.settle(last_commit))

    def _perform(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            match effect:
                case Write(name, data):
                    self._files.write(name, data)
                case Remove(name):
                    self._files.remove(name)
                case Commit(component, txid, rows):
                    self._outside(component, txid, rows)


def commits(
    files: MemoryFiles, outside: Callable[[str, int, Any], None], *names: str, bolt: BoltBase | None = None
) -> Performed:
    builder = TopologyBuilder("t")
    builder.set_spout("s", GeneratorSpout(list, outputs=["n"]))
    for name in names or ("b", "a"):
        builder.set_bolt(name, bolt or Nowhere()).shuffle_grouping("s")
    return Performed(Commits(lay_out(builder.build(), 2), files), files, outside)


def kept(component: str, task: int, *rows: Any) -> KeptRows:
    return KeptRows(component, task, [pickle.dumps(row) for row in rows])


def test_rows_are_delivered_after_the_commit_task_by_task_and_leave_no_file():
    files, outside = MemoryFiles(), Outside()
    one = commits(files, outside)
    one.stage(0, [kept("a", 0, 1, 2), kept("a", 1, 3), kept("b", 0, {"n": 4})])
    one.settle(-1)
    assert outside.came == []
    assert sorted(files.files) == ["commits/0.a", "commits/0.b"]
    one.settle(0)
    assert outside.came == [("b", 1, [{"n": 4}]), ("a", 1, [1, 2, 3])], "txids begin at 1"
    assert files.files == {}
    assert not one.waits


def test_rows_of_a_run_that_did_not_count_are_gone_with_their_committer():
    files, outside = MemoryFiles(), Outside()
    commits(files, outside, "b", "a").stage(0, [kept("a", 0, 1), kept("b", 0, 2)])
    without = commits(files, outside, "b")
    without.stage(0, [kept("b", 0, 3)])
    assert sorted(files.files) == ["commits/0.b"]
    without.settle(0)
    assert outside.came == [("b", 1, [3])]


def test_a_target_with_a_txid_column_that_defaults_to_0_gets_the_first_micro_batch():
    done, written = 0, []

    def commit(component: str, txid: int, rows: Any) -> None:
        nonlocal done
        if done < txid:  # the rule of docs/exactly-once.md
            written.extend(rows())
            done = txid

    files = MemoryFiles()
    for micro_batch in (0, 1):
        one = commits(files, commit)
        one.stage(micro_batch, [kept("a", 0, micro_batch)])
        one.settle(micro_batch)
    assert (written, done) == ([0, 1], 2)


def test_a_repeated_micro_batch_replaces_its_rows_even_if_it_has_none():
    files, outside = MemoryFiles(), Outside()
    one = commits(files, outside)
    one.stage(0, [kept("a", 0, 1), kept("b", 0, 2)])
    one.stage(0, [kept("b", 0, 3)])
    one.settle(0)
    assert outside.came == [("b", 1, [3])]
    one.stage(1, [kept("a", 0, 4)])
    again = commits(files, outside)  # the driver died before Spark had committed it
    again.stage(1, [])
    again.settle(1)
    assert outside.came == [("b", 1, [3])]
    assert files.files == {}


def test_next_life_commits_the_leftovers_of_the_last_one_in_txid_order():
    files, outside = MemoryFiles(), Outside(raises=3)
    one = commits(files, outside)
    one.stage(2, [kept("a", 0, 1), kept("b", 0, 2)])
    with pytest.raises(OSError, match="away"):
        one.settle(2)
    one.stage(11, [kept("a", 0, 3)])  # as if it had gone on
    another = commits(files, outside)
    assert another.waits
    another.settle(1)
    assert outside.came == []
    another.settle(11)
    assert outside.came == [("b", 3, [2]), ("a", 3, [1]), ("a", 12, [3])]


def test_committed_rows_are_not_committed_again_if_another_committer_raises():
    files, outside = MemoryFiles(), Outside()

    def picky(component: str, txid: int, rows: Any) -> None:
        if component == "a":
            raise OSError("away")
        outside(component, txid, rows)

    one = commits(files, picky)
    one.stage(0, [kept("a", 0, 1), kept("b", 0, 2)])
    with pytest.raises(OSError, match="away"):
        one.settle(0)
    commits(files, outside).settle(0)
    assert outside.came == [("b", 1, [2]), ("a", 1, [1])]


class TwoArgumentsError(Exception):
    def __init__(self, text, place):
        super().__init__(text)


class Numbers(Spout):
    outputs = ["n"]

    def next_tuple(self, collector):
        """The driver feeds it."""


class Unreadable(Nowhere):
    """Its row for 2 is one that ``pickle`` writes and cannot read."""

    def row(self, tup):
        return {"n": [TwoArgumentsError("a", "b") if tup["n"] == 2 else tup["n"]]}


@pytest.mark.parametrize("transactional", [False, True])
def test_a_row_that_cannot_be_read_back_fails_its_tuple_alone(transactional: bool):
    builder = TopologyBuilder("rows", Config(transactional=transactional))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("out", Unreadable()).global_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        for number in (1, 2, 3):
            driver.feed("numbers", [number], message_id=number)
        driver.run_until_idle()
        assert driver.acked("numbers") == [1, 3]
        [failure] = driver.failed("numbers")
        assert "its row can be pickled, and reading it back raises TypeError" in failure.reason


class Plain(BasicBolt):
    """A bolt that commits nothing."""

    def execute(self, tup, collector):
        pass


@pytest.mark.parametrize(("name", "bolt"), [("b", Nowhere()), ("a", Plain())])
def test_rows_of_a_removed_component_are_not_dropped(name: str, bolt: BoltBase):
    files = MemoryFiles()
    commits(files, Outside(), "a").stage(0, [kept("a", 0, 1)])
    with pytest.raises(CheckpointError, match=r"'a'.*start it once as it was"):
        commits(files, Outside(), name, bolt=bolt).settle(0)
    assert list(files.files) == ["commits/0.a"]


@pytest.mark.parametrize("damage", ["cut", "bit", "other", "gone"])
def test_a_damaged_file_is_named(damage: str):
    files = MemoryFiles()
    one = commits(files, Outside(), "a")
    one.stage(0, [kept("a", 0, 1, 2, 3)])
    again = commits(files, Outside(), "a")
    data = bytearray(files.files["commits/0.a"])
    data[-3] ^= 1
    damaged = {"cut": files.files["commits/0.a"][:-5], "bit": bytes(data), "other": b"nothing"}
    files.files["commits/0.a"] = damaged.get(damage, b"")
    if damage == "gone":
        del files.files["commits/0.a"]
    with pytest.raises(CheckpointError, match=r"commits/0\.a is missing or damaged"):
        again.settle(0)
