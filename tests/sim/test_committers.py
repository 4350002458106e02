"""Committers in the simulator: each micro-batch leaves the topology once, and bugs that are planted are found."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from sparkbolt import Bolt, Committer, Config, Topology, TopologyBuilder
from sparkbolt.driver.commits import Commits
from sparkbolt.driver.effects import Commit
from sparkbolt.driver.transaction import Transaction
from sparkbolt.sim.faults import KINDS, Step
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver, simulate

pytestmark = pytest.mark.slow

SEEDS = 8


class Check(Bolt):
    """Fails each seventh number once, and each fiftieth for ever."""

    outputs = ["n"]

    def execute(self, tup, collector):
        collector.emit([tup["n"]], anchors=[tup])
        if (tup["n"] % 7 == 0 and tup.attempt == 1) or tup["n"] % 50 == 0:
            collector.fail(tup)
        else:
            collector.ack(tup)


class Nowhere(Committer):
    """Rows go nowhere: the checkers see them on their way."""

    def commit(self, txid, rows):
        pass


def _numbers(*, transactional: bool = True) -> Topology:
    builder = TopologyBuilder("numbers", Config(transactional=transactional, max_attempts=3))
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(1, 60)), outputs=["n"]))
    builder.set_bolt("check", Check(), parallelism=2).fields_grouping("numbers", ["n"])
    builder.set_bolt("out", Nowhere(), parallelism=2).fields_grouping("check", ["n"])
    builder.set_bolt("too", Nowhere()).shuffle_grouping("check")
    return builder.build()


def stories(*, transactional: bool = True) -> list[str]:
    topology = _numbers(transactional=transactional)
    found = []
    for seed in range(0, 8 * SEEDS, 8):  # seeds that compare state
        report = simulate(topology, seed=seed, repeat=False)
        if not report.ok:
            found.append(report.story)
    return found


@pytest.mark.parametrize("transactional", [True, False])
def test_each_micro_batch_is_delivered_once_whatever_dies(transactional: bool):
    assert stories(transactional=transactional) == []


@pytest.mark.parametrize("kind", KINDS[Step.COMMITTING])
def test_a_fault_in_a_commit_changes_nothing(kind: str):
    report = simulate(_numbers(), seed=3, repeat=False, history=[f"{n}:committing:{kind}:1" for n in range(3)])
    assert report.ok, report.story
    assert report.history


def test_a_commit_before_the_verdict_is_found(monkeypatch: pytest.MonkeyPatch):
    stage = Commits.stage

    def eager(self: Commits, micro_batch_id: int, kept: Any) -> Iterator[Any]:
        yield from stage(self, micro_batch_id, kept)
        yield from self.settle(micro_batch_id)

    monkeypatch.setattr(Commits, "stage", eager)
    assert any("before it was committed" in story for story in stories())


def test_a_txid_that_is_used_twice_is_found(monkeypatch: pytest.MonkeyPatch):
    settle = Commits.settle

    def twice(self: Commits, last_commit: int) -> Iterator[Any]:
        due = [(place, rows) for place, rows in self._staged.items() if place[0] <= last_commit]
        yield from settle(self, last_commit)
        for (txid, component), rows in due:
            yield Commit(component, txid, lambda rows=rows: [pickle.loads(row) for row in rows])

    monkeypatch.setattr(Commits, "settle", twice)
    assert any("after those of" in story for story in stories())


def test_rows_lost_with_their_driver_are_detected(monkeypatch: pytest.MonkeyPatch):
    begin = Commits.__init__

    def forgetful(self: Commits, *arguments: Any) -> None:
        begin(self, *arguments)
        self._waiting.clear()

    monkeypatch.setattr(Commits, "__init__", forgetful)
    report = simulate(_numbers(), seed=3, repeat=False, history=["0:committing:driver-dies:1"])
    assert "has never got" in report.story or "has not got" in report.story


def test_rows_written_by_an_aborted_execution_are_detected(monkeypatch: pytest.MonkeyPatch):
    judge, settle = Transaction.judge, Transaction.settle
    aborted: list[Any] = []

    def remembering(self: Transaction, plan: Any, feedback: Any) -> Any:
        exclusion = judge(self, plan, feedback)
        if exclusion is not None:
            aborted[:] = feedback.kept
        return exclusion

    def mixing(self: Transaction, feedback: Any) -> None:
        settle(self, feedback)
        feedback.kept += aborted
        aborted.clear()

    monkeypatch.setattr(Transaction, "judge", remembering)
    monkeypatch.setattr(Transaction, "settle", mixing)
    assert stories()


def test_a_driver_for_tests_shows_what_is_committed():
    with TopologyTestDriver(_numbers()) as driver:
        for n in (1, 50, 2):
            driver.feed("numbers", [n], message_id=n)
        driver.run_until_idle()
        assert sorted(row["n"] for row in driver.committed("out")) == [1, 2]
        assert [failure.message_id for failure in driver.failed("numbers")] == [50]
        driver.restart()
        driver.feed("numbers", [3], message_id=3)
        driver.run_until_idle()
        assert sorted(row["n"] for row in driver.committed("out")) == [1, 2, 3]
