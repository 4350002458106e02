"""``flush``: once a task and micro-batch, behind all that the task got, and heard like everything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    ColumnBolt,
    Config,
    Count,
    Grouping,
    PartitionedSpout,
    Range,
    Reject,
    Spout,
    TopologyBuilder,
    WindowedBolt,
)
from sparkbolt.observe.histogram import ERROR_MAX
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.worker.emissions import NOWHERE, Rows
from sparkbolt.worker.results import Counters, Settlements, Work

FLUSHED: list[tuple[int, int, list[int]]] = []
"""(micro-batch, task, what it had gathered) of each flush."""


@pytest.fixture(autouse=True)
def _nothing_flushed() -> None:
    FLUSHED.clear()


class Numbers(PartitionedSpout):
    """Three sources of thirty numbers each; each micro-batch reads some of each."""

    outputs = ["n"]
    first_budget = 15

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        starts = {source: progress.get(source, 0) for source in "abc"}
        return [Range("abc".index(source) % 2, source, at, min(at + 5, 30)) for source, at in starts.items() if at < 30]

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for position in range(range_.start, range_.end):
            yield position, ["abc".index(range_.source) * 30 + position]

    def finished(self, progress: Mapping[str, int]) -> bool:
        return all(progress.get(source) == 30 for source in "abc")


class Fed(Spout):
    outputs = ["n"]

    def next_tuple(self, collector: Any) -> None:
        """The driver feeds it."""


class Gathering(BasicBolt):
    """Writes, as a file would be, what came under the name of the micro-batch and the task."""

    outputs = ["sum"]
    stateless = True

    def prepare(self, context: Any) -> None:
        self.context = context
        self.gathered: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.gathered.append(tup["n"])

    def flush(self) -> Iterator[list[int]]:
        FLUSHED.append((self.context.micro_batch_id, self.context.task, self.gathered))
        yield [sum(self.gathered)]
        self.gathered = []


class Anywhere(Gathering):
    flush_anywhere = True


class Totals(BasicBolt):
    outputs = ["total"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["sum"]])


def run(bolt: BasicBolt, parallelism: int, cores: int = 2) -> tuple[LocalEngine, list[list[int]]]:
    builder = TopologyBuilder("flushing")
    builder.set_spout("numbers", Numbers(), parallelism=2)
    builder.set_bolt("write", bolt, parallelism=parallelism).shuffle_grouping("numbers")
    builder.set_bolt("sink", Totals()).shuffle_grouping("write")
    emitted: list[list[int]] = []

    def capture(component: str, index: int, stream: str, columns: Any) -> None:
        if component == "sink":
            emitted.extend(list(row) for row in zip(*columns, strict=True))

    engine = LocalEngine(builder.build(), cores=cores, capture=capture)
    while engine.step() is not None:
        pass
    assert engine.ledger.metrics.of("numbers").acked == 90
    return engine, emitted


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("cores", [1, 3])
def test_no_two_flushes_of_a_stateless_bolt_have_the_same_name(parallelism: int, cores: int) -> None:
    engine, emitted = run(Gathering(), parallelism, cores)
    assert "write" not in engine.lane.fused_into
    names = [(micro_batch_id, task) for micro_batch_id, task, _ in FLUSHED]
    assert len(set(names)) == len(names)
    assert sorted(n for _, _, gathered in FLUSHED for n in gathered) == list(range(90))
    assert all(gathered for _, _, gathered in FLUSHED)
    assert sorted(emitted) == sorted([sum(gathered)] for _, _, gathered in FLUSHED)


class Between(Anywhere):
    """Sits between two fused bolts: gets rows while its producer is flushed, and is flushed behind it."""

    outputs = ["n"]

    def flush(self) -> Iterator[list[int]]:
        for n in self.gathered:
            yield [n]
        self.gathered = []


def test_tuples_emitted_in_flush_of_a_fused_bolt_reach_a_fused_bolt_before_its_flush() -> None:
    builder = TopologyBuilder("flushing")
    builder.set_spout("numbers", Numbers(), parallelism=2)
    builder.set_bolt("z", Between(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("a", Between(), parallelism=2).shuffle_grouping("z")
    builder.set_bolt("write", Anywhere()).shuffle_grouping("a")
    builder.set_bolt("sink", Totals()).shuffle_grouping("write")
    engine = LocalEngine(builder.build())
    while engine.step() is not None:
        pass
    assert set(engine.lane.fused_into) == {"z", "a", "write", "sink"}
    assert sorted(n for _, _, gathered in FLUSHED for n in gathered) == list(range(90))
    assert len(FLUSHED) == 18


# What a flush emits is anchored where it says so.


class Batching(Bolt):
    """Holds its tuples, and emits one for all of them in flush, anchored to them."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []
        self.collector: Any = None

    transient = ("collector",)

    def execute(self, tup: Any, collector: Any) -> None:
        self.collector = collector
        self.held.append(tup)

    def flush(self) -> None:
        self.collector.emit([len(self.held)], anchors=self.held)
        for tup in self.held:
            self.collector.ack(tup)
        self.collector.report_error("flushed")
        self.held = []


class Judge(Bolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] == 3:
            collector.fail(tup, "three")
        else:
            collector.ack(tup)


def test_tuples_emitted_in_flush_keep_the_trees_of_their_anchors_open() -> None:
    builder = TopologyBuilder("batching", Config(max_attempts=1))
    builder.set_spout("numbers", Fed())
    builder.set_bolt("batch", Batching()).shuffle_grouping("numbers")
    builder.set_bolt("judge", Judge()).shuffle_grouping("batch")
    with TopologyTestDriver(builder.build()) as driver:
        for n in range(3):
            driver.feed("numbers", [n], message_id=n)
        driver.run_until_idle()
        assert driver.acked("numbers") == []
        assert [(tree.message_id, tree.reason) for tree in driver.failed("numbers")] == [(n, "three") for n in range(3)]
        driver.feed("numbers", [4], message_id=4)
        driver.run_until_idle()
        assert driver.acked("numbers") == [4]
        assert [error.text for error in driver.errors()] == ["flushed", "flushed"]


class Raising(BasicBolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"]])

    def flush(self) -> Iterator[list[int]]:
        yield [7]
        raise OSError("the disk is full")


def test_a_flush_that_raises_fails_what_the_task_got() -> None:
    builder = TopologyBuilder("raising", Config(max_attempts=1))
    builder.set_spout("numbers", Fed())
    builder.set_bolt("raise", Raising()).shuffle_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("numbers", [1], message_id=1)
        driver.run_until_idle()
        assert [tree.reason for tree in driver.failed("numbers")] == ["OSError: the disk is full"]
        assert driver.emitted("raise") == [[1], [7]]


# What it gets, and what it costs.


class Plain(BasicBolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None: ...

    def flush(self, collector: Any) -> None:
        collector.emit([7])


class ByHand(Bolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.ack(tup)

    flush = Plain.flush


class Awaiting(AsyncBolt):
    outputs = ["n"]

    async def execute(self, tup: Any, collector: Any) -> None: ...

    flush = Plain.flush


class Blocks(ColumnBolt):
    outputs = ["n"]

    def execute(self, batch: Any, collector: Any) -> None: ...

    def flush(self, collector: Any) -> None:
        collector.emit([[7]])


class Windowed(WindowedBolt):
    outputs = ["n"]

    def execute(self, window: Any, collector: Any) -> None: ...

    flush = Plain.flush


class WithAnOption(Gathering):
    """Has a parameter of its own, which is not the collector."""

    def execute(self, tup: Any, collector: Any) -> None: ...

    def flush(self, number: int = 7) -> Iterator[list[int]]:
        yield [number]


@pytest.mark.slow
@pytest.mark.parametrize(
    "bolt", [Plain(), ByHand(), Awaiting(), Blocks(), Windowed().with_tumbling_window(Count(1)), WithAnOption()]
)
def test_flush_gets_the_collector_if_it_takes_one(bolt: Any) -> None:
    builder = TopologyBuilder("flushing")
    builder.set_spout("numbers", Fed())
    builder.set_bolt("write", bolt).shuffle_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("numbers", [1], message_id=1)
        driver.run_until_idle()
        assert driver.emitted("write") == [[7]]
        assert driver.errors() == []


def test_the_tuples_of_a_micro_batch_share_the_time_of_their_flush_in_percentiles() -> None:
    environment: Any = SimpleNamespace(wall_ms=lambda: 0, clock=lambda: 0.0, process=lambda: None)
    counters = Counters(environment, "level 1")
    got = [Settlements(executed=30), Settlements(executed=10), Settlements(late_acks=[])]
    for done, elapsed_ms in zip(got, (30.0, 30.0, 400.0), strict=True):
        rows = Rows(NOWHERE, done.executed, [], None, None)
        counters.worked(Work(1, "write", 0, rows, [("numbers", "default")], None, done, elapsed_ms=elapsed_ms))
    counters.end([])
    latency = counters.measured.execute["write"]
    assert (latency.count, latency.sum_ms, latency.max_ms) == (40, 460.0, 13.0)
    assert latency.percentile(0.5) == pytest.approx(11.0, rel=ERROR_MAX)
    (flow,) = counters.measured.flows.values()
    assert flow.execute_ms == latency.sum_ms


class Writing(BasicBolt):
    """Writes what it has gathered, unless there is a 2 in it."""

    outputs = ["written"]

    def prepare(self, context: Any) -> None:
        self.gathered: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.gathered.append(tup["n"])

    def flush(self) -> Iterator[list[Any]]:
        if 2 in self.gathered:
            raise ValueError("no 2")
        yield [self.gathered]
        self.gathered = []


class TakingOut(Writing):
    def flush(self) -> Iterator[list[Any]]:
        gathered, self.gathered = self.gathered, []
        if 2 in gathered:
            raise ValueError("no 2")
        yield [gathered]


@pytest.mark.parametrize("writing", [Writing(), TakingOut()])
def test_a_flush_that_raises_undoes_what_its_micro_batch_has_changed(writing: BasicBolt) -> None:
    written = [[1], [3], [4]]
    builder = TopologyBuilder("writing", Config(max_attempts=1))
    builder.set_spout("numbers", Fed())
    builder.set_bolt("write", writing).global_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        for number in (1, 2, 3, 4):
            driver.feed("numbers", [number], message_id=number)
            driver.run_until_idle()
        assert driver.emitted("write") == [[one] for one in written]
        assert [[number] for number in driver.acked("numbers")] == written


PREPARED: list[int] = []


class Parity(Grouping):
    def prepare(self, context: Any, stream: str, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose_tasks(self, sender_task: int, values: Sequence[Any]) -> Sequence[int]:
        return [self.targets[values[0] % 2]]


class Sums(BasicBolt):
    """Counts and sums in an attribute, a large dict and a key-value state; the flush after a negative number raises."""

    outputs = ["count", "sum", "of_state", "tables"]

    def prepare(self, context: Any) -> None:
        PREPARED.append(context.task)
        self.count, self.table, self.bad = 0, dict.fromkeys(range(2000), 0), False

    def init_state(self, state: Any) -> None:
        self.state = state

    def execute(self, tup: Any, collector: Any) -> None:
        n = tup["n"]
        if n == 13:
            raise Reject("no 13")
        self.count += 1
        self.table[n] = self.table.get(n, 0) + n
        self.state.put("sum", self.state.get("sum", 0) + n)
        self.bad = self.bad or n < 0

    def flush(self) -> Iterator[list[int]]:
        if self.bad:
            raise ValueError("a negative number")
        yield [self.count, sum(self.table.values()), self.state.get("sum"), len(self.table)]


def test_attributes_dicts_and_key_value_state_are_undone_and_other_tasks_count_once() -> None:
    PREPARED.clear()
    builder = TopologyBuilder("sums", Config(max_attempts=1))
    builder.set_spout("numbers", Fed())
    builder.set_bolt("sum", Sums(), parallelism=2).grouping("numbers", Parity())
    with TopologyTestDriver(builder.build()) as driver:
        for numbers in ([2, 3], [-4, 5, 13], [-6, -7], [8, 9]):
            for number in numbers:
                driver.feed("numbers", [number], message_id=number)
            driver.run_until_idle()
        emitted = [[1, 2, 2, 2000], [1, 3, 3, 2000], [2, 8, 8, 2000], [2, 10, 10, 2000], [3, 17, 17, 2000]]
        assert sorted(driver.emitted("sum")) == sorted(emitted)
        reasons = {tree.message_id: tree.reason for tree in driver.failed("numbers")}
        negative = "ValueError: a negative number"
        assert reasons == {-4: negative, 13: "no 13", -6: negative, -7: negative}
        assert [error.text for error in driver.errors()].count(negative) == 3
    assert sorted(PREPARED) == [2, 3], "the instances go on"


class HoldingOne(Bolt):
    """Holds a tuple until the next one; the flush after a 2 raises."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []
        self.last = 0

    def execute(self, tup: Any, collector: Any) -> None:
        for one in self.held:
            collector.emit([one["n"]], anchors=one)
            collector.ack(one)
        self.held, self.last = [tup], tup["n"]

    def flush(self) -> None:
        if self.last == 2:
            raise ValueError("no 2")


def test_a_tuple_that_was_held_before_a_flush_that_raises_is_held_again_and_acked_once() -> None:
    builder = TopologyBuilder("holding", Config(max_attempts=1))
    builder.set_spout("numbers", Fed())
    builder.set_bolt("hold", HoldingOne()).global_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        for number in (1, 2, 3, 4):
            driver.feed("numbers", [number], message_id=number)
            driver.run_until_idle()
        assert driver.emitted("hold") == [[1], [3]]
        assert driver.acked("numbers") == [1, 3]
        assert [tree.message_id for tree in driver.failed("numbers")] == [2]


class Shown(WindowedBolt):
    """Writes its windows in flush, which raises for the first time in the second micro-batch."""

    outputs = ["numbers"]

    def prepare(self, context: Any) -> None:
        self.context, self.gathered = context, []

    def execute(self, window: Any, collector: Any) -> None:
        self.gathered.append([tup["n"] for tup in window.get()])

    def flush(self) -> Iterator[list[Any]]:
        gathered, self.gathered = self.gathered, []
        if self.context.micro_batch_id == 1:
            raise OSError("the disk is full")
        for one in gathered:
            yield [one]


@pytest.mark.parametrize("length", [Count(6), timedelta(seconds=2)])
def test_a_tuple_that_is_retried_after_a_flush_that_raises_is_in_one_window(length: Any) -> None:
    builder = TopologyBuilder("windows", Config(max_attempts=2))
    builder.set_spout("numbers", Numbers(), parallelism=2)
    builder.set_bolt("show", Shown().with_tumbling_window(length)).global_grouping("numbers")
    shown: list[int] = []

    def capture(component: str, index: int, stream: str, columns: Any) -> None:
        if component == "show":
            shown.extend(n for numbers in columns[0] for n in numbers)

    engine = LocalEngine(builder.build(), capture=capture)
    while not engine.coordinator.finished:
        engine.step()
        engine.now_ms += 700
    counts = Counter(shown)
    assert engine.ledger.metrics.of("numbers").acked == 90
    assert set(counts.values()) == {1}, "no tuple is in two windows"
    if isinstance(length, Count):
        assert len(counts) == 90


# When it is called.


def test_a_bolt_that_allows_it_is_fused_and_flushed_once_per_range() -> None:
    engine, emitted = run(Anywhere(), 1)
    assert engine.lane.fused_into["write"] == "numbers"
    assert len(FLUSHED) == 18
    assert sorted(n for _, _, gathered in FLUSHED for n in gathered) == list(range(90))
    assert sorted(emitted) == sorted([sum(gathered)] for _, _, gathered in FLUSHED)


class Holding(Bolt):
    """Keeps its tuples for ever, and counts its flushes."""

    def prepare(self, context: Any) -> None:
        self.context = context
        self.held: list[Any] = []

    transient = ("context",)

    def execute(self, tup: Any, collector: Any) -> None:
        self.held.append(tup)

    def flush(self) -> None:
        FLUSHED.append((self.context.micro_batch_id, self.context.task, []))


def test_flush_is_not_called_if_the_task_received_nothing() -> None:
    builder = TopologyBuilder("holding", Config(max_attempts=1))
    builder.set_spout("numbers", Fed())
    builder.set_bolt("hold", Holding(), parallelism=2).fields_grouping("numbers", ["n"])
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("numbers", [1], message_id=1)
        driver.run_until_idle()
        assert len(FLUSHED) == 1
        driver.advance(timedelta(seconds=40))  # those who hold what times out are asked in a micro-batch without rows
        assert [tree.cause for tree in driver.failed("numbers")] == ["timeout"]
        assert len(FLUSHED) == 1
