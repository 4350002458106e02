"""Retries, by policy, on the local engine: the traps of Storm's first PartitionManager, and what happens here instead.

The numbers in brackets are those of the traps as Storm's own tests of it would count them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import (
    BadRecord,
    BasicBolt,
    Bolt,
    Config,
    PartitionedSpout,
    Range,
    RetryPolicy,
    Spout,
    Topology,
    TopologyBuilder,
)
from sparkbolt.api.reports import SourceView
from sparkbolt.driver.ledger.ledger import FailedTree
from sparkbolt.errors import SourceUnavailable
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spark.error_log import ErrorLog
from tests.unit.lives import next_life, next_plan

MS = timedelta(milliseconds=1)
PATIENT = RetryPolicy(max_retries=3, min_backoff=100 * MS, max_backoff=10_000 * MS, jitter=0)
FOR_EVER = RetryPolicy(min_backoff=100 * MS, max_backoff=1000 * MS, jitter=0)
SOURCE = "log/0"


class World:
    """What a test has seen, and what is to go wrong; the classes below are pickled, so it is one for all."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """By number: (attempt, time) of each tuple that the bolt got."""
        self.told: list[dict[str, SourceView]] = []
        self.done: list[list[tuple[int, int]]] = []
        self.reads: Counter[int] = Counter()
        self.calls: list[tuple[str, Any]] = []
        self.fails: Callable[[int, int], bool] = lambda number, attempt: False
        self.away: Callable[[int, int], bool] = lambda position, reads: False


WORLD = World()


@pytest.fixture(autouse=True)
def _new_world() -> None:
    WORLD.__init__()  # type: ignore[misc]


class Log(PartitionedSpout):
    """The numbers from 0 on, ten a micro-batch."""

    outputs = ["n"]
    first_budget = 10

    def __init__(self, count: int = 50, **members: Any) -> None:
        self.count = count
        vars(self).update(members)

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get(SOURCE, 0)
        end = min(self.count, start + 10)
        return [Range(0, SOURCE, start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get(SOURCE, 0) >= self.count

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        WORLD.told.append(dict(sources))
        WORLD.done.append(sources[SOURCE].done(5) if SOURCE in sources else [])

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        for number in range(range_.start, range_.end):
            WORLD.reads[number] += 1
            if WORLD.away(number, WORLD.reads[number]):
                raise SourceUnavailable("the broker does not answer")
            yield from self.records(number)

    def records(self, number: int) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        yield number, [number]


class Forgetful(Log):
    """Gives each record once."""

    def records(self, number: int) -> Iterator[tuple[int, Sequence[Any]]]:
        if WORLD.reads[number] == 1:
            yield number, [number]


class See(BasicBolt):
    """Notes what it gets, and fails what the world says."""

    transient = ("context",)

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        WORLD.seen[tup["n"]].append((tup.attempt, self.context.now_ms))
        if WORLD.fails(tup["n"], tup.attempt):
            raise ValueError("on purpose")


def topology(spout: Any, bolt: Any = None, **settings: Any) -> Topology:
    builder = TopologyBuilder("retries", Config(**{"dead_letters": "log:", **settings}))
    builder.set_spout("log", spout)
    builder.set_bolt("see", bolt or See()).global_grouping("log")
    return builder.build()


class Run:
    """An engine whose clock goes on by 10 ms a micro-batch, and from one due time to the next when it is idle."""

    def __init__(self, topology: Topology) -> None:
        self.engine = LocalEngine(topology, now_ms=1_000_000)
        self.failed: list[FailedTree] = []
        self.acked_at: dict[int, int] = {}
        self.waits = 0

    def step(self) -> bool:
        self.engine.now_ms += 10
        promotion = self.engine.step()
        self.failed += promotion.failed if promotion is not None else []
        return promotion is not None

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(500):
            if condition():
                return
            if not self.step():
                due = self.engine.next_due_ms()
                assert due is not None, "nothing is to come, and it did not come to that"
                self.waits += 1
                self.engine.now_ms = max(self.engine.now_ms, due - 10)
        raise AssertionError(f"it never came to that: {self.engine.ledger.metrics}")

    def to_the_end(self) -> None:
        self.until(lambda: self.engine.coordinator.finished)

    @property
    def finished(self) -> int:
        return self.engine.ledger.finished.get("log", {}).get(SOURCE, 0)

    @property
    def planned(self) -> int:
        return self.engine.ledger.progress.get("log", {}).get(SOURCE, 0)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        metrics = self.engine.ledger.metrics.of("log")
        return metrics.failed, metrics.retried, metrics.given_up, metrics.waiting


# The traps.


def test_progress_waits_for_all_tuples_of_a_message() -> None:
    """[pm-17] In Storm the first ack of a message's tuples advances its offset, and a later fail gives all again."""

    class Several(Log):
        def records(self, number: int) -> Iterator[tuple[int, Sequence[Any]]]:
            yield number, [number]
            yield number, [1000 + number]

    WORLD.fails = lambda number, attempt: number == 1007 and attempt == 1
    run = Run(topology(Several(20), retry=PATIENT))
    run.until(lambda: run.planned == 20)
    assert run.finished == 7
    run.to_the_end()
    assert [attempt for attempt, _ in WORLD.seen[7]] == [attempt for attempt, _ in WORLD.seen[1007]] == [1, 2]
    assert run.finished == 20


def test_a_failed_message_no_longer_in_the_source_is_reported_and_skipped() -> None:
    """[pm-15] Storm asks for it for ever: each fetch is out of range, and it is never cleaned."""

    WORLD.fails = lambda number, attempt: number == 4
    run = Run(topology(Forgetful(20), retry=FOR_EVER))
    reports: list[str] = []
    while not run.engine.coordinator.finished:
        run.engine.now_ms += 50
        promotion = run.engine.step()
        reports += [report.text for report in promotion.reports] if promotion is not None else []
    assert f"the record at {SOURCE}@4 is gone: it could not be given again" in reports
    assert run.finished == 20


def test_a_message_that_yields_no_tuple_is_finished_at_once() -> None:
    """[pm-19] In Storm it stays pending for ever."""

    class Empty(Log):
        def records(self, number: int) -> Iterator[tuple[int, Sequence[Any]]]:
            yield from ()

    run = Run(topology(Empty(20)))
    run.to_the_end()
    assert run.finished == 20


def test_a_restart_resumes_after_the_planned_records_and_skips_nothing_even_at_position_0() -> None:
    """[pm-02, pm-06, pm-07] Storm distrusts a stored 0, and skips a backlog that is longer than maxOffsetBehind."""
    WORLD.fails = lambda number, attempt: number == 0 and attempt < 3
    run = Run(topology(Log(300), retry=FOR_EVER))
    for _ in range(3):
        run.step()
    assert run.finished == 0
    run.engine.restart()
    run.to_the_end()
    assert run.finished == 300
    assert [attempt for attempt, _ in WORLD.seen[0]] == [1, 2, 3]
    assert all(len(times) == 1 for number, times in WORLD.seen.items() if number > 0)


def test_a_spout_is_told_of_its_sources_after_each_promotion_and_after_a_restart() -> None:
    WORLD.fails = lambda number, attempt: number == 12 and attempt == 1
    run = Run(topology(Log(30), retry=PATIENT))
    run.until(lambda: run.planned == 30)
    assert WORLD.told[0] == {}
    views = [told[SOURCE] for told in WORLD.told[1:]]
    assert [(view.planned, view.finished, view.waiting, view.open) for view in views] == [
        (10, 10, 0, 0),
        (20, 12, 1, 0),
        (30, 12, 1, 0),
    ]
    assert WORLD.done[1:] == [[], [(13, 20)], [(13, 30)]]
    before = len(WORLD.told)
    run.engine.restart()
    run.step()
    again = WORLD.told[before][SOURCE]
    assert (again.planned, again.finished, again.waiting, again.open) == (30, 12, 1, 0)
    assert WORLD.done[before] == [(13, 30)]
    run.to_the_end()
    assert WORLD.told[-1][SOURCE].finished == 30


# What is told, and what is read.


@pytest.mark.parametrize("members", [{}, {"tracked": False}, {"dead_letters": print}])
def test_positions_missing_at_reading_are_counted_once(members: dict[str, Any]) -> None:
    class Cut(Log):
        def records(self, number: int) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
            if number == 3:
                yield BadRecord(3, "3 to 6 are gone", skipped=4)
            elif not 3 < number < 7:
                yield number, [number]

    run = Run(topology(Cut(20, **members), retry=FOR_EVER))
    run.to_the_end()
    assert sorted(WORLD.seen) == [0, 1, 2, *range(7, 20)]
    assert run.engine.ledger.metrics.of("log").skipped == 4


@pytest.mark.parametrize("members", [{}, {"tracked": False}, {"once": True}])
def test_an_unavailable_source_costs_no_attempt_and_loses_nothing(members: dict[str, Any]) -> None:
    WORLD.away = lambda position, reads: position == 14 and reads <= 6
    run = Run(topology(Log(40, **members), retry=RetryPolicy(max_retries=0, min_backoff=100 * MS, jitter=0)))
    run.until(lambda: run.planned == 20)
    assert run.finished in (13, 14)
    assert not run.engine.ledger.messages.takes_more("log", SOURCE, None)
    run.to_the_end()
    assert set(WORLD.seen) == set(range(40))
    assert run.finished == 40
    away = [tree for tree in run.failed if tree.fail.cause == "away"]
    assert [tree.outcome for tree in away] == ["retry"] * 6
    assert {tree.attempt for tree in away} == {1}
    dues = [(tree.due_ms or 0) - (tree.ended_ms or 0) for tree in away]
    assert dues == [100, 200, 400, 800, 1600, 3200], "each time in a row waits longer"
    assert max(WORLD.reads[number] for number in range(20, 40)) == 1, "nothing new was asked for meanwhile"


def announced(built: Topology) -> LocalEngine:
    """The topology's engine, at its end, when its log lines were written."""
    error_log, engine = ErrorLog(built.config), LocalEngine(built)
    while not engine.coordinator.finished:
        engine.now_ms += 50
        promotion = engine.step()
        if promotion is not None:
            error_log.promotion(promotion)
    return engine


def test_an_unavailable_source_logs_one_error_line_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    WORLD.away = lambda position, reads: position == 14 and reads <= 6
    announced(topology(Log(20), retry=PATIENT))
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert lines == [
        f"log: {SOURCE} is unavailable from 14 on: the broker does not answer; the next try is in 0.1 s, and "
        "nothing new is read from it until it answers"
    ]


def test_data_missed_from_an_unavailable_source_is_lost_and_reported_without_tracking() -> None:
    WORLD.away = lambda position, reads: position == 14
    run = Run(topology(Log(20), acker_tasks=0))
    reports: list[str] = []
    while not run.engine.coordinator.finished:
        promotion = run.engine.step()
        reports += [report.text for report in promotion.reports] if promotion is not None else []
    assert reports == [f"{SOURCE} is unavailable from 14 on: the broker does not answer"]
    assert run.engine.ledger.metrics.of("log").errors == 1
    assert set(WORLD.seen) == set(range(14))


def test_message_of_a_read_once_spout_is_not_retried_when_it_fails() -> None:
    WORLD.fails = lambda number, attempt: number == 3
    run = Run(topology(Log(20, once=True), retry=FOR_EVER))
    run.to_the_end()
    assert len(WORLD.seen[3]) == 1
    assert run.counts == (1, 0, 1, 0)


def test_a_policy_comes_from_set_spout_else_from_the_spout_else_from_the_topology() -> None:
    once, twice, thrice = (RetryPolicy(max_retries=retries) for retries in (1, 2, 3))

    def policy(of_spout: Any, of_topology: Any, **keyword: Any) -> Any:
        builder = TopologyBuilder("policies", Config(retry=of_topology))
        builder.set_spout("log", Log(1, **({"retry": of_spout} if of_spout else {})), **keyword)
        return builder.build().component("log").config.retry

    assert policy(twice, thrice, retry=once) is once
    assert policy(twice, thrice) is twice
    assert policy(None, thrice) is thrice
    assert policy(twice, None, retry=None) is None
    assert policy(None, None) is None


# A ``Spout``: its records are in its host.


class Inbox(Spout):
    """Hands out numbers, each once."""

    outputs = ["n"]

    def __init__(self, count: int = 10, **members: Any) -> None:
        self.count = count
        vars(self).update(members)

    def open(self, context: Any) -> None:
        self.next = 0

    def next_tuple(self, collector: Any) -> None:
        if self.next < self.count:
            self.next += 1
            collector.emit([self.next - 1], message_id=self.next - 1)

    def ack(self, message_id: Any) -> None:
        WORLD.calls.append(("ack", message_id))

    def fail(self, message_id: Any) -> None:
        WORLD.calls.append(("fail", message_id))

    @property
    def exhausted(self) -> bool:
        return self.next >= self.count


def test_retries_waiting_in_a_spout_host_count_as_pending_and_keep_the_topology_running() -> None:
    WORLD.fails = lambda number, attempt: number < 3 and attempt == 1
    run = Run(topology(Inbox(retry=PATIENT), max_spout_pending=3))
    run.step()
    [buffer] = run.engine.coordinator.buffers.values()
    assert (buffer.pending, buffer.room) == (3, 0)
    assert run.engine.coordinator.retries == run.engine.ledger.metrics.of("log").waiting == 3
    assert run.engine.coordinator.drained
    assert not run.engine.coordinator.finished
    run.to_the_end()
    assert len(WORLD.calls) == 10


class Hold(Bolt):
    """Holds everything."""

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        WORLD.seen[tup["n"]].append((tup.attempt, 0))
        if WORLD.fails(tup["n"], tup.attempt):
            self.held.append(tup)
        else:
            collector.ack(tup)


def test_a_tree_that_times_out_is_given_again_by_the_policy() -> None:
    WORLD.fails = lambda number, attempt: attempt == 1
    run = Run(topology(Inbox(2, retry=PATIENT), Hold(), message_timeout_secs=3))
    run.to_the_end()
    assert [attempt for attempt, _ in WORLD.seen[0]] == [1, 2]
    assert {tree.fail.cause for tree in run.failed} == {"timeout"}
    assert sorted(WORLD.calls) == [("ack", 0), ("ack", 1)]


def test_a_restarted_query_retries_open_trees_without_counting_an_attempt() -> None:
    WORLD.fails = lambda number, attempt: number == 1
    run = Run(topology(Inbox(2, retry=PATIENT), Hold()))
    run.step()
    new = next_life(run.engine.coordinator)
    [entry] = next_plan(new, run.engine.now_ms).entries
    assert ([record.values for record in new.records_of(entry)], entry.attempt) == ([[1]], 1)
    [buffer] = new.buffers.values()
    assert not buffer.fails
