"""Transactional topologies in the simulator: nothing of a failed tree is left, and bugs that are planted are found."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbolt import Bolt, Config, Topology, TopologyBuilder
from sparkbolt.driver.transaction import Transaction
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import simulate
from tests.topologies import Sum

pytestmark = pytest.mark.slow

SEEDS = 4


class Check(Bolt):
    """Fails each seventh number once, and each fiftieth for ever."""

    outputs = ["n"]

    def execute(self, tup, collector):
        if (tup["n"] % 7 == 0 and tup.attempt == 1) or tup["n"] % 50 == 0:
            collector.fail(tup)
        else:
            collector.emit([tup["n"]], anchors=[tup])
            collector.ack(tup)


def _sums() -> Topology:
    builder = TopologyBuilder("sums", Config(transactional=True, max_attempts=3))
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(1, 60)), outputs=["n"]))
    builder.set_bolt("sum", Sum(), parallelism=2).fields_grouping("numbers", ["n"])
    builder.set_bolt("check", Check(), parallelism=2).fields_grouping("sum", ["n"])
    return builder.build()


def _stories() -> list[str]:
    reports = [simulate(_sums(), seed=seed) for seed in range(SEEDS)]
    return [report.story for report in reports if not report.ok]


def test_failed_tree_leaves_nothing_behind_whatever_dies():
    assert _stories() == []


def test_an_execution_that_is_staged_although_trees_failed_is_found(monkeypatch: pytest.MonkeyPatch):
    def never(self: Transaction, plan: Any, feedback: Any) -> None:
        return None

    monkeypatch.setattr(Transaction, "judge", never)
    assert _stories()


def test_an_abort_that_forgets_a_tree_is_found(monkeypatch: pytest.MonkeyPatch):
    settle = Transaction.settle

    def forgetful(self: Transaction, feedback: Any) -> None:
        settle(self, feedback)
        verdicts = feedback.verdicts
        gone = {fail.key for fail in verdicts.failed[:1]}
        verdicts.failed = verdicts.failed[1:]
        verdicts.init_failed = verdicts.init_failed[[key not in gone for key in verdicts.init_failed.tolist()]]

    monkeypatch.setattr(Transaction, "settle", forgetful)
    assert _stories()
