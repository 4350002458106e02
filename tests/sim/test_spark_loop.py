"""Spark's loop in the simulator, and what the engine does with its beginnings, restarts and late commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.sim.checkers.acks import Checkers
from sparkbolt.sim.checkers.base import Facts
from sparkbolt.sim.faults import Fault, history_of
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.spark_loop import ConcurrentLogError, MicroBatchLoop, SimulatedLog
from sparkbolt.sim.subject import Subject, subject_of
from sparkbolt.sim.world import World
from tests.sim.random_topologies import Messages


class Asked:
    """A source that notes what it is asked; its ends are given by a test, None for no news."""

    def __init__(self, *ends: int | None) -> None:
        self.ends = list(ends)
        self.calls: list[str] = []

    def initial_offset(self) -> Mapping[str, Any]:
        self.calls.append("initial")
        return {"n": -1}

    def latest_offset(self, start: Mapping[str, Any]) -> Mapping[str, Any]:
        self.calls.append(f"latest {start['n']}")
        end = self.ends.pop(0)
        return start if end is None else {"n": end}

    def spark_partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        self.calls.append(f"partitions {start['n']} {end['n']}")

    def commit(self, end: Mapping[str, Any]) -> None:
        self.calls.append(f"source commit {end['n']}")

    def run_micro_batch(self, micro_batch_id: int, parts: None) -> None:
        self.calls.append(f"run {micro_batch_id}")

    def at(self, step: str, micro_batch_id: int) -> None:
        self.calls.append(f"{step} {micro_batch_id}")


def test_a_start_returned_as_an_end_is_logged_and_run_once() -> None:
    query, log = Asked(None, None, 1), SimulatedLog()
    loop = MicroBatchLoop(log, query)
    assert [loop.trigger() for _ in range(3)] == [True, False, True]
    assert log.offsets == {0: '{"n": -1}', 1: '{"n": 1}'}
    assert query.calls == [
        *(
            "initial",
            "latest -1",
            "log 0",
            "logged 0",
            "initial",
            "partitions -1 -1",
            "run 0",
            "commit 0",
            "committed 0",
        ),
        "latest -1",
        *("latest -1", "log 1", "source commit -1", "logged 1", "partitions -1 1", "run 1", "commit 1", "committed 1"),
    ]


def test_logged_uncommitted_micro_batch_runs_again_before_any_request() -> None:
    log = SimulatedLog({0: '{"n": 0}', 1: '{"n": 1}'}, {0})
    query = Asked(None)
    loop = MicroBatchLoop(log, query)
    loop.trigger(), loop.trigger()
    assert query.calls == ["partitions 0 1", "run 1", "commit 1", "committed 1", "latest 1"]


def test_write_by_another_driver_ends_the_query() -> None:
    log = SimulatedLog()
    loop, other = MicroBatchLoop(log, Asked(0)), MicroBatchLoop(log, Asked(0))
    other.trigger()
    with pytest.raises(ConcurrentLogError):
        loop.trigger()


# The engine in that loop.


class Pass(BasicBolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"]])


def small(messages: int = 12) -> Subject:
    builder = TopologyBuilder("small", Config(message_timeout_secs=5))
    builder.set_spout("m", Messages(), parallelism=2)
    builder.set_bolt("pass", Pass(), fuse=False).shuffle_grouping("m")
    return subject_of(builder.build(), {"m": [[number] for number in range(messages)]})


def world(subject: Subject, faults: str = "") -> World:
    history: tuple[Fault, ...] = history_of(faults)
    return World(subject, 0, history, micro_batches=2, checkers=Checkers(Facts(subject, {})))


def test_a_first_start_without_data_runs_one_micro_batch_that_reads_nothing_and_waits() -> None:
    found = world(small(0))
    assert found.run() is None
    assert not found.checkers.violations
    assert found.executions == 1
    assert set(found.durable.log.offsets) == {0}


@pytest.mark.parametrize(
    "then", ["", ",0:planned:driver-dies:0", ",0:staged:driver-dies:0", ",0:committed:query-dies:0"]
)
def test_data_that_arrives_after_the_start_is_read(then: str) -> None:
    run = run_seed(small(), 0, history_of("0:ask:no-news:0" + then))
    assert not run.violations
    assert len(run.happened) == 1 + bool(then)


@pytest.mark.parametrize("number", [0, 1])
def test_a_driver_that_loaded_its_ledger_too_early_starts_over(number: int) -> None:
    run = run_seed(small(), 0, history_of(f"{number}:staged:commit-is-late:0"), state=True)
    assert not run.violations
    assert [fault.kind for fault in run.happened] == ["commit-is-late"]
