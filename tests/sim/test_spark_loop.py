"""Spark's loop in the simulator, and what the engine does with its beginnings, restarts and late commits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.sim.checkers.acks import Checkers
from sparkbolt.sim.checkers.base import Facts
from sparkbolt.sim.faults import Fault, history_of
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.spark_loop import ConcurrentLogError, MicroBatchLoop, SparkLog
from sparkbolt.sim.subject import Subject, subject_of
from sparkbolt.sim.world import World
from tests.sim.random_topologies import Messages

RECORD = Path(__file__).parent / "spark_calls.json"


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


def test_a_beginning_that_is_given_as_an_end_is_logged_and_run_and_no_news_afterwards() -> None:
    query, log = Asked(None, None, 1), SparkLog()
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


def test_what_is_logged_and_not_committed_runs_again_before_anything_is_asked() -> None:
    log = SparkLog({0: '{"n": 0}', 1: '{"n": 1}'}, {0})
    query = Asked(None)
    loop = MicroBatchLoop(log, query)
    loop.trigger(), loop.trigger()
    assert query.calls == ["partitions 0 1", "run 1", "commit 1", "committed 1", "latest 1"]


def test_what_another_driver_has_written_ends_the_query() -> None:
    log = SparkLog()
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
def test_data_that_comes_after_the_start_is_read(then: str) -> None:
    run = run_seed(small(), 0, history_of("0:ask:no-news:0" + then))
    assert not run.violations
    assert len(run.happened) == 1 + bool(then)


@pytest.mark.parametrize("number", [0, 1])
def test_a_driver_that_loaded_its_ledger_too_early_begins_again(number: int) -> None:
    run = run_seed(small(), 0, history_of(f"{number}:staged:commit-is-late:0"), state=True)
    assert not run.violations
    assert [fault.kind for fault in run.happened] == ["commit-is-late"]


# What Spark really asks, recorded by tests/spark/test_loop.py.


class EndedError(Exception):
    """The record of a query has come to its end."""


class Replayed:
    """A source that is asked what Spark has asked, and answers what was answered then."""

    def __init__(self, calls: list[list[Any]], log: SparkLog) -> None:
        self.left = list(calls)
        self.log = log

    def _take(self, *asked: Any) -> list[Any]:
        if not self.left:
            raise EndedError
        call = self.left.pop(0)
        assert call[: len(asked)] == [*asked], f"Spark has called {call}, the loop calls {asked}"
        return call

    def _raises(self) -> bool:
        return bool(self.left) and self.left[0][0] == "raised"

    def initial_offset(self) -> Mapping[str, Any]:
        self._take("initialOffset")
        return {"n": "before"}

    def latest_offset(self, start: Mapping[str, Any]) -> Mapping[str, Any]:
        _, _, end, last_commit = self._take("latestOffset", start["n"])
        assert last_commit == self.log.last_commit
        if end == "raised":
            raise EndedError
        return {"n": end}

    def spark_partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        self._take("partitions", start["n"], end["n"])

    def commit(self, end: Mapping[str, Any]) -> None:
        self._take("commit", end["n"])

    def run_micro_batch(self, micro_batch_id: int, parts: None) -> None:
        self._take("run", micro_batch_id)
        if self._raises():
            self._take("raised", micro_batch_id)
            raise EndedError

    def at(self, step: str, micro_batch_id: int) -> None:
        """Nothing of Spark's is seen there."""


def _trigger_for_ever(loop: MicroBatchLoop[None]) -> None:
    while True:
        loop.trigger()


def replay(record: list[dict[str, Any]]) -> None:
    """Compare the loop with what Spark has asked, query by query, each from the logs that it found."""
    for query in record:
        log = SparkLog({number: json.dumps({"n": end}) for number, end in query["offsets"]}, set(query["commits"]))
        source = Replayed(query["calls"], log)
        loop = MicroBatchLoop(log, source)
        with pytest.raises(EndedError):
            _trigger_for_ever(loop)
        assert not source.left, f"Spark has called {source.left[0]}, the loop is at its end"


def test_the_loop_asks_what_spark_has_asked() -> None:
    record = json.loads(RECORD.read_text())
    replay(record)
    calls = [call for query in record for call in query["calls"]]
    assert ["latestOffset", 0, 0, 0] in calls, "an idle query"
    assert any(call[0] == "raised" for call in calls), "a micro-batch that was not committed"
    assert any(call[0] == "latestOffset" and call[2] == "raised" for call in calls), "a commit that came late"
