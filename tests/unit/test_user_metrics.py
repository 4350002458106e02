"""User metrics count once for each committed micro-batch, and outlive the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from sparkbolt import (
    BasicBolt,
    Bolt,
    Config,
    Count,
    PartitionedSpout,
    Range,
    Spout,
    Topology,
    TopologyBuilder,
    WindowedBolt,
)
from sparkbolt.api.metric_handles import TaskMetrics
from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.api.user_metrics import SERIES_MAX
from sparkbolt.driver.driver_metrics import DriverMetrics
from sparkbolt.driver.ledger.ledger_files import compact
from sparkbolt.errors import UnknownNameError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout, TextSpout
from sparkbolt.testing import TopologyTestDriver

NUMBERS = 20
RUNS: Counter[int] = Counter()


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    RUNS.clear()


class Numbers(PartitionedSpout):
    """Some numbers, five in each micro-batch."""

    outputs = ["n"]

    def open(self, context: Any) -> None:
        self.planned = context.metrics.counter("planned")

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        at = progress.get("all", 0)
        if at >= NUMBERS:
            return []
        self.planned.inc(5)
        return [Range(0, "all", at, at + 5)]

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("all") == NUMBERS

    def prepare(self, context: Any) -> None:
        self.records = context.metrics.counter("records_read")

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for position in range(range_.start, range_.end):
            self.records.inc()
            yield position, [position]


class Measured(Bolt):
    """Counts what it executes in every kind of metric."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.seen = context.metrics.counter("seen", "Numbers by parity", ["parity"])
        self.last = context.metrics.gauge("last")
        self.sizes = context.metrics.histogram("sizes", buckets=(5, 10))
        self.calls = context.metrics.timer("calls")
        self.never = context.metrics.counter("never")

    def execute(self, tup: Any, collector: Any) -> None:
        n = tup["n"]
        with self.calls.time():
            self.seen.labels(parity=("even", "odd")[n % 2]).inc()
            self.last.set(n)
            self.sizes.observe(n)
        collector.emit([n], anchors=tup)
        collector.ack(tup)


class Total(BasicBolt):
    """A stateful bolt that keeps its handles in attributes of several kinds."""

    outputs = ["total"]

    def prepare(self, context: Any) -> None:
        self.total = 0
        self.added = context.metrics.counter("added")
        self.handles = {"by_kind": [context.metrics.counter("kinds", "", ["kind"])]}

    def execute(self, tup: Any, collector: Any) -> None:
        self.total += tup["n"]
        self.added.inc(tup["n"])
        self.handles["by_kind"][0].labels("int").inc()
        collector.emit([self.total])


def topology(*, transactional: bool = False, last: BasicBolt | Bolt | None = None) -> Topology:
    builder = TopologyBuilder("numbers", Config(transactional=transactional, max_attempts=3))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("measured", Measured()).shuffle_grouping("numbers")
    builder.set_bolt("total", Total()).global_grouping("measured")
    if last is not None:
        builder.set_bolt("last", last).global_grouping("total")
    return builder.build()


def run(engine: LocalEngine) -> LocalEngine:
    while not engine.coordinator.finished:
        if engine.step() is None:
            engine.now_ms = max(engine.now_ms + 1, engine.next_due_ms() or 0)
    return engine


def check_all_counted(engine: LocalEngine, read_again: int = 0) -> None:
    counts = engine.metrics()
    assert counts.value("seen") == counts.value("sizes") == counts.value("calls") == NUMBERS
    assert counts.value("seen", {"parity": "odd"}) == NUMBERS / 2
    assert counts.value("last") == NUMBERS - 1
    assert counts.value("sizes_sum") == counts.value("added") == sum(range(NUMBERS))
    assert counts.value("kinds", {"kind": "int"}) == NUMBERS
    assert counts.value("never") == 0
    assert counts.value("planned") == NUMBERS
    assert counts.value("records_read") == NUMBERS + read_again
    assert counts.value("seen", component="measured") == NUMBERS


def test_every_kind_is_counted_in_spouts_and_bolts() -> None:
    engine = run(LocalEngine(topology()))
    engine.close()
    check_all_counted(engine)


def test_an_attempt_that_is_repeated_counts_once() -> None:
    engine = LocalEngine(topology())
    while not engine.coordinator.finished:
        end = engine.perform_all(engine.machine.next_offset())
        if end is None:
            engine.now_ms = max(engine.now_ms + 1, engine.next_due_ms() or 0)
            continue
        number = -1
        for attempt in range(3):  # as if Spark ran the query again before its commit
            states = {dest: dict(store) for dest, store in engine.stores.items()}
            number = engine.run_until_staged(end)
            if attempt < 2:
                engine.stores = {dest: type(engine.stores[dest])(states.get(dest, {})) for dest in engine.stores}
                engine.worker.abandon()
                engine.worker = type(engine.worker)(engine._environment)
        engine.last_commit = number
        engine.perform_all(engine.machine.committed(number))
    engine.close()
    check_all_counted(engine)


def test_a_stage_that_dies_leaves_nothing_to_the_next_one() -> None:
    engine = LocalEngine(topology())
    assert engine.step() is not None
    end = engine.perform_all(engine.machine.next_offset())
    assert end is not None
    plan = engine.machine.confirmed(end)
    recorder = engine.worker.recorder
    engine.worker.bolt(engine.lane.topology.tasks("measured")[0]).bolt.seen.labels("odd").inc(1000)  # type: ignore[attr-defined]
    engine.perform_all(engine.machine.ran(plan.micro_batch_id))
    engine.last_commit = plan.micro_batch_id
    engine.perform_all(engine.machine.committed(plan.micro_batch_id))
    assert recorder is engine.worker.recorder
    check_all_counted(run(engine))
    engine.close()


class FailsFirst(Bolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        RUNS[tup["total"]] += 1
        if tup["total"] in (3, 36) and RUNS[tup["total"]] == 1:
            collector.fail(tup)
        else:
            collector.ack(tup)


def test_an_execution_that_a_transaction_repeats_counts_once() -> None:
    engine = run(LocalEngine(topology(transactional=True, last=FailsFirst())))
    engine.close()
    assert sum(RUNS.values()) > NUMBERS
    check_all_counted(engine, read_again=2)  # the messages that the repeats leave out


class FlushFails(BasicBolt):
    """Its ``flush`` raises once, so that its work is repeated without the rows."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.total = 0
        self.got = context.metrics.counter("got")

    def execute(self, tup: Any, collector: Any) -> None:
        self.total += tup["n"]
        self.got.inc()

    def flush(self) -> None:
        RUNS[0] += 1
        if RUNS[0] == 1:
            raise ValueError("not now")


def test_work_that_a_failed_flush_takes_back_is_not_counted() -> None:
    builder = TopologyBuilder("flushing", Config(max_attempts=3))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("flush", FlushFails()).global_grouping("numbers")
    engine = run(LocalEngine(builder.build()))
    engine.close()
    assert engine.metrics().value("got") == NUMBERS


def test_counts_survive_a_restart_from_the_log_and_from_a_snapshot() -> None:
    engine = LocalEngine(topology())
    engine.step()
    engine.restart()
    engine.step()
    compact(engine.files, engine.last_commit, engine.ledger.snapshot())
    engine.restart()
    run(engine)
    engine.restart()
    engine.close()
    counts = engine.metrics()
    assert counts.value("seen") == counts.value("records_read") == NUMBERS
    assert counts.value("last") == NUMBERS - 1
    assert counts.value("sizes_sum") == sum(range(NUMBERS))


def test_what_a_spout_records_in_the_driver_goes_with_a_micro_batch_once() -> None:
    metrics = DriverMetrics()
    counter = TaskMetrics(metrics.recorder, "queue", 0).counter("polls")

    def staged(number: int) -> float:
        counts: dict[str, ComponentMetrics] = {}
        metrics.stage(number, counts)
        return counts["queue"].user["polls"].series[()][0]

    counter.inc(3)
    assert staged(0) == 3
    counter.inc(2)
    assert staged(0) == 5  # the query died before its commit
    counter.inc()
    assert staged(1) == 1


class Queue(Spout):
    outputs = ["n"]

    def open(self, context: Any) -> None:
        self.left = list(range(5))
        self.emitted = context.metrics.counter("emitted_numbers")
        self.done = context.metrics.counter("done")

    def next_tuple(self, collector: Any) -> None:
        if self.left:
            self.emitted.inc()
            collector.emit([self.left.pop()], message_id=len(self.left))

    def ack(self, message_id: Any) -> None:
        self.done.inc()

    @property
    def exhausted(self) -> bool:
        return not self.left


def test_a_spout_of_the_driver_counts_and_shows_what_it_has_counted_last() -> None:
    builder = TopologyBuilder("queue")
    builder.set_spout("queue", Queue())
    builder.set_bolt("measured", Measured()).shuffle_grouping("queue")
    engine = run(LocalEngine(builder.build()))
    counts = engine.metrics()
    assert (counts.value("emitted_numbers"), counts.value("done"), counts.value("seen")) == (5, 5, 5)
    assert engine.metrics().value("done") == 5
    engine.close()


class Windows(WindowedBolt):
    outputs = ["size"]

    def prepare(self, context: Any) -> None:
        self.sizes = context.metrics.histogram("window_sizes", buckets=(1, 5, 10))

    def execute(self, window: Any, collector: Any) -> None:
        self.sizes.observe(len(window))


def test_windowed_bolts_count_too() -> None:
    builder = TopologyBuilder("windows")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("windows", Windows().with_tumbling_window(Count(5))).global_grouping("numbers")
    engine = run(LocalEngine(builder.build()))
    engine.close()
    assert engine.metrics().value("window_sizes") == NUMBERS / 5
    assert engine.metrics().value("window_sizes_sum") == NUMBERS


class Users(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.users = context.metrics.counter("users", "", ["user"])

    def execute(self, tup: Any, collector: Any) -> None:
        self.users.labels(tup["n"]).inc()


def test_too_many_label_sets_are_counted_together_and_said_once() -> None:
    builder = TopologyBuilder("users")
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(3 * SERIES_MAX)), outputs=["n"]))
    builder.set_bolt("users", Users(), parallelism=2).shuffle_grouping("numbers")
    engine, notes = LocalEngine(builder.build()), []
    while not engine.coordinator.finished:
        promotion = engine.step()
        if promotion is None:
            engine.now_ms = max(engine.now_ms + 1, engine.next_due_ms() or 0)
        else:
            notes += [report for report in promotion.reports if report.is_note]
    engine.close()
    assert engine.metrics().value("users") == 3 * SERIES_MAX
    assert engine.metrics().value("users", {"user": "_other"}) == 2 * SERIES_MAX
    [note] = notes
    assert note.text.startswith("the metrics of 'users' have more than 1,000 label sets")


def test_a_topology_without_metrics_sends_and_stores_nothing() -> None:
    builder = TopologyBuilder("plain")
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(5)), outputs=["n"]))
    builder.set_bolt("ticks", FailsNever()).shuffle_grouping("numbers")
    engine = run(LocalEngine(builder.build()))
    engine.close()
    assert all(b'"user"' not in entry for entry in engine.log)
    assert engine.worker.recorder.take() == {}


class FailsNever(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def test_the_test_driver_returns_values() -> None:
    builder = TopologyBuilder("driver")
    builder.set_spout("lines", TextSpout("no/*.txt"))
    builder.set_bolt("words", Words(), parallelism=2).shuffle_grouping("lines")
    with TopologyTestDriver(builder) as driver:
        with pytest.raises(UnknownNameError, match="a bolt declares its metrics in prepare, which runs before its fir"):
            driver.metric("words")
        driver.feed("lines", {"line": "to be or not to be"})
        driver.feed("lines", {"line": "words"})
        driver.run_until_idle()
        assert driver.metric("words") == 7
        assert driver.metric("words", labels={"long": True}) == 1
        assert driver.metric("empty_lines") == 0
        with pytest.raises(UnknownNameError, match="did you mean 'words'"):
            driver.metric("word")
        driver.restart()
        assert driver.metric("words") == 7


class Words(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.words = context.metrics.counter("words", "Words", ["long"])
        self.empty = context.metrics.counter("empty_lines")

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup["line"]:
            self.empty.inc()
        for word in tup["line"].split():
            self.words.labels(long=len(word) > 3).inc()
