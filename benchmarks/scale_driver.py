"""What the driver's side costs by size: sources, kafka_partitions, failures, open trees, a backlog, files.

What do a poll, a plan and a promotion cost, by how much there is to know? No Spark and no worker here: verdicts are
made up, as the acker would give them.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.ledger import LINE_BYTES, XOR
from benchmarks.scale_growth import FLAT, Axis, Cost, repeated_s, spent_s
from sparkbolt import BasicBolt, Config, PartitionedSpout, Range, RetryPolicy, TopologyBuilder
from sparkbolt.api.causes import Cause
from sparkbolt.api.reports import Fail, Promotion
from sparkbolt.api.retry import at_once
from sparkbolt.base.ids import U64, tree_key
from sparkbolt.connectors.files.file_planner import FilePlanner
from sparkbolt.connectors.kafka import kafka_spout
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.offset_planner import Look, PartitionLog, TopicIds
from sparkbolt.driver.coordinator import EXPIRED_PER_PLAN_MAX
from sparkbolt.driver.effects import Effect, Execute
from sparkbolt.driver.ledger.ledger import Ledger, SpoutInfo
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import TextSpout
from sparkbolt.spouts.kafka import KafkaSpout
from sparkbolt.wire.acker import judge
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.wire.verdicts import Feedback, Partials

CORES = 2
LATER_MS = 3_600_000
RECORDS = 2
"""Records of a range."""
SOURCE, SINK = "source", "sink"


class Swallow(BasicBolt):
    def execute(self, tup, collector):
        """Nothing comes of it."""


class Driver(LocalEngine):
    """The driver's side of a topology with one spout and one bolt; micro-batches return what a function makes up."""

    def __init__(self, spout: PartitionedSpout, **settings: Any) -> None:
        config = Config(message_timeout_secs=3600, micro_batch_target_ms=10_000)
        builder = TopologyBuilder("scale", config)
        builder.set_spout(SOURCE, spout, parallelism=CORES, **settings)
        builder.set_bolt(SINK, Swallow()).shuffle_grouping(SOURCE)
        super().__init__(builder.build())
        self.spout: Any = self.coordinator.spouts[SOURCE]
        self._report: Callable[[MicroBatchPlan], Partials] = all_acked

    def poll(self) -> Any:
        """What a request of Spark's costs: the offset of the next plan, and when something is due if there is none."""
        offset = self.perform_all(self.machine.next_offset())
        if offset is None:
            self.next_due_ms()
        return offset

    def step(self, report: Callable[[MicroBatchPlan], Partials] | None = None) -> Promotion | None:
        """A whole micro-batch, if there is anything to do."""
        self._report = report or self._report
        return super().step()

    def perform(self, effect: Effect) -> Any:
        """Perform an effect of the machine; no worker executes anything."""
        if not isinstance(effect, Execute):
            return super().perform(effect)
        self.machine.planner.shares(effect.plan, CORES)
        return Feedback(judge([self._report(effect.plan)]))


def keys_of(plan: MicroBatchPlan) -> U64:
    """The key of each record of a plan, if there is one at each position; each first record of a new range."""
    parts = [
        np.arange(entry.reserved if entry.positions or entry.letters else 1, dtype=np.uint64)
        + np.uint64(entry.first_key)
        for entry in plan.reserving
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def all_acked(plan: MicroBatchPlan) -> Partials:
    """Every tree is complete."""
    keys = keys_of(plan)
    return Partials(init_keys=keys, init_xors=np.zeros(len(keys), dtype=np.uint64))


def all_open(plan: MicroBatchPlan) -> Partials:
    """Every tree stays open."""
    keys = keys_of(plan)
    return Partials(init_keys=keys, init_xors=np.full(len(keys), XOR, dtype=np.uint64))


def all_failed(plan: MicroBatchPlan) -> Partials:
    """There is a record at each position, and every tree fails."""
    keys = np.concatenate(
        [np.arange(entry.reserved, dtype=np.uint64) + np.uint64(entry.first_key) for entry in plan.entries]
    )
    fails = [Fail(key, SINK, 0, Cause.EXCEPTION, "ValueError: no price", plan.micro_batch_id) for key in keys.tolist()]
    return Partials(init_keys=keys, init_xors=np.full(len(keys), XOR, dtype=np.uint64), fails=fails)


# Sources.


class Sources(PartitionedSpout):
    """So many sources; a range of each of the first ``wanted`` at every request."""

    outputs = ["word"]

    def __init__(self, count: int) -> None:
        self.names = [f"source-{number:06}" for number in range(count)]
        self.wanted = 0

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        starts = [(name, progress.get(name, 0)) for name in self.names[: self.wanted]]
        return [Range(place % CORES, name, start, start + RECORDS) for place, (name, start) in enumerate(starts)]

    def read(self, range_: Range) -> Iterator[Any]:
        yield from ()


def sources(count: int) -> dict[str, Cost]:
    """Polls and micro-batches of a spout with so many sources."""
    driver = Driver(Sources(count))
    driver.spout.wanted = count
    whole = spent_s(lambda: driver.step(all_acked))
    driver.spout.wanted = 0
    idle = repeated_s(driver.poll)
    driver.spout.wanted = 1
    one = repeated_s(lambda: driver.step(all_acked))
    driver.spout.wanted = count
    driver.step(all_open)
    driver.spout.wanted = 1
    beside = repeated_s(lambda: driver.step(all_acked))
    failing = Driver(Sources(count), retry=WAIT)
    failing.spout.wanted = count
    failing.step(all_failed)
    failing.spout.wanted = 0
    waiting = repeated_s(failing.poll)
    return {
        "a poll without news": Cost(idle),
        "a poll, a retry waits in each": Cost(waiting),
        "a micro-batch of all sources": Cost(whole),
        "a micro-batch of one source": Cost(one),
        "the same, a tree open in each": Cost(beside),
    }


# Kafka.


class StillWatcher:
    """A watcher that asks no broker: ``look`` is what a benchmark says."""

    def __init__(self, *arguments: Any) -> None:
        self.look = Look()
        self.told = 0

    def open(self, wait_secs: float) -> None:
        """Ask nobody."""

    def want(self) -> None:
        """Ask nobody."""

    def tell(self, offsets: Mapping[Any, Any], *, soon: bool = False) -> int:
        self.told += len(offsets)
        return 0

    def close(self) -> None:
        """Nothing is open."""


class Brokerless(KafkaSpout):
    """A ``KafkaSpout`` whose brokers are made up."""

    def open(self, context: Any) -> None:
        with (
            patch.object(kafka_spout, "Cluster", lambda *_, **__: None),
            patch.object(kafka_spout, "Watcher", StillWatcher),
        ):
            super().open(context)

    def show(self, count: int, end: int) -> None:
        """Let a topic have so many kafka_partitions, with so many messages each."""
        places = [KafkaPartition("orders", number) for number in range(count)]
        logs = {place: PartitionLog(0, end) for place in places}
        watcher: Any = self._watcher
        watcher.look = Look(logs, dict.fromkeys(places, 0), ids=TopicIds({"orders": "Xk5q"}))


def kafka_partitions(count: int) -> dict[str, Cost]:
    """Polls and micro-batches of a ``KafkaSpout``, and what it is told of its sources when it begins."""
    driver = Driver(Brokerless("localhost:1", "orders", group="scale", max_bytes=1 << 36))
    driver.coordinator.rates[SOURCE].budget = 100 * count
    driver.spout.show(count, end=1)
    whole = spent_s(lambda: driver.step(all_acked))
    driver.spout._positions.clear()
    begins = spent_s(lambda: driver.perform_all(driver.coordinator.spout_steps.tell_sources([SOURCE], changed=False)))
    return {
        "a poll without news": Cost(repeated_s(driver.poll)),
        "a micro-batch of all": Cost(whole),
        "a start, all told": Cost(begins),
        "lag": Cost(repeated_s(driver.spout.lag)),
    }


# Failures.

WAIT = RetryPolicy(max_retries=5, min_backoff=timedelta(seconds=60), max_backoff=timedelta(seconds=600))


class OneLog(PartitionedSpout):
    """One range of one source."""

    outputs = ["word"]

    def __init__(self, count: int) -> None:
        self.count = count

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        return [] if progress else [Range(0, "log", 0, self.count)]

    def read(self, range_: Range) -> Iterator[Any]:
        yield from ()


def failures(count: int) -> dict[str, Cost]:
    """So many messages of one micro-batch fail; they are retried, or they become dead letters."""
    retried = Driver(OneLog(count), retry=WAIT)
    promotion = spent_s(lambda: retried.step(all_failed))
    waiting = repeated_s(retried.poll)
    retried.now_ms += LATER_MS
    drained = spent_s(lambda: drain(retried))
    assert retried.coordinator.retries == 0, "every message is retried once"
    lettered = Driver(OneLog(count), max_attempts=1, dead_letters="checkpoint:")
    lettered.step(all_failed)
    assert lettered.coordinator.retries == count, "every message waits for its dead letter"
    letters = spent_s(lambda: drain(lettered))
    assert lettered.ledger.metrics.of(SOURCE).dead_letters == count
    return {
        "the promotion of the failures": Cost(promotion),
        "a poll while they wait": Cost(waiting),
        "all retries": Cost(drained),
        "all dead letters": Cost(letters),
    }


def drain(driver: Driver) -> None:
    while driver.step(all_acked) is not None:
        driver.now_ms += 1


# Open trees.

FEW = 1_000
_TASK = 1


def open_trees(count: int) -> dict[str, Cost]:
    """A ledger with so many open trees."""
    info = [SpoutInfo("lines", (_TASK,), True, at_once(3))]
    ledger = Ledger(info, rotations=3, task_owner=lambda task: ("lines", task - _TASK))
    feedback = _stage(ledger, 0, count, 0)
    opened = spent_s(lambda: (ledger.promote(0), ledger.touch(feedback.verdicts.open_keys)))
    small = [_small(ledger, count) for _ in range(5)]
    nbytes = ledger.nbytes
    snapshot: list[bytes] = []
    written = spent_s(lambda: snapshot.append(ledger.snapshot()))
    restored = spent_s(lambda: Ledger.restore(snapshot[0], info, task_owner=lambda task: ("lines", task - _TASK)))
    turned = min(spent_s(ledger.expire) for _ in range(5))
    for _ in range(3):
        ledger.expire()
    over = repeated_s(lambda: ledger.expiring(EXPIRED_PER_PLAN_MAX))
    return {
        "opening them": Cost(opened),
        "their columns": Cost(float(nbytes), "bytes"),
        f"a promotion of {FEW:,} others": Cost(min(small)),
        "a snapshot": Cost(written),
        "a start from it": Cost(restored),
        "a rotation": Cost(turned),
        "a poll, all timed out": Cost(over),
    }


def _stage(ledger: Ledger, first: int, opened: int, completed: int) -> Feedback:
    number = ledger.last_promoted + 1
    started, done = _keys(first, opened), _keys((number - 1) * FEW, completed)
    part = Partials(
        init_keys=started,
        init_xors=np.full(opened, XOR, dtype=np.uint64),
        ack_keys=done,
        ack_xors=np.full(completed, XOR, dtype=np.uint64),
    )
    start, end = first * LINE_BYTES, (first + opened) * LINE_BYTES
    plan = MicroBatchPlan(number, life=0, now_ms=number, entries=(Entry(_TASK, start, "text", start, end),))
    feedback = Feedback(judge([part]))
    ledger.stage(plan, feedback)
    return feedback


def _small(ledger: Ledger, count: int) -> float:
    number = ledger.last_promoted + 1
    _stage(ledger, count + (number - 1) * FEW, FEW, FEW)
    return spent_s(lambda: ledger.promote(number))


def _keys(first: int, count: int) -> U64:
    spaced = np.arange(first, first + count, dtype=np.uint64) * np.uint64(LINE_BYTES)
    return spaced + np.uint64(tree_key(_TASK, 0))


# A backlog, and files.


def backlog(lines: int) -> dict[str, Cost]:
    """The plan of a micro-batch, by how much there is to read; the file has a size and no content."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "lines.txt")
        path.touch()
        os.truncate(path, lines * LINE_BYTES)
        text = Driver(TextSpout(str(path)))
        of_file = repeated_s(lambda: planned(text))
    kafka = Driver(Brokerless("localhost:1", "orders", group="scale"))
    kafka.spout.show(8, end=lines // 8)
    of_kafka = repeated_s(lambda: planned(kafka))
    return {
        "a plan of a text": Cost(of_file, growth=FLAT),
        "a plan of eight kafka_partitions": Cost(of_kafka, growth=FLAT),
    }


def planned(driver: Driver) -> None:
    """Plan what comes next, and take the plan back."""
    assert driver.poll() is not None
    driver.coordinator.in_force = None


def files(count: int) -> dict[str, Cost]:
    """Plans of so many small files, and as many that come while they are followed."""
    with tempfile.TemporaryDirectory() as directory:
        for number in range(count):
            Path(directory, f"{number:06}.txt").write_text("a line\n")
        planner = FilePlanner([directory], follow=False, parallelism=CORES, clock=lambda: 0.0)
        fixed = spent_s(lambda: read_out(planner, count))
        planner.close()
        seconds = itertools.count()
        follower = FilePlanner([directory], follow=True, parallelism=CORES, clock=lambda: float(next(seconds)))
        follower.next_ranges({}, 1)
        followed = repeated_s(lambda: follower.next_ranges({}, 1))
        for number in range(count):
            Path(directory, f"{number:06}.more.txt").write_text("another line\n")
        met = spent_s(lambda: follower.next_ranges({}, 1))
        follower.close()
    return {
        "all plans": Cost(fixed),
        "a look at followed files": Cost(followed),
        "as many new files are met": Cost(met),
    }


def read_out(planner: FilePlanner, count: int) -> None:
    progress: dict[str, int] = {}
    while len(progress) < count:
        progress |= {range_.source: range_.end for range_ in planner.next_ranges(progress, 1 << 20)}


AXES = (
    Axis("sources", (1_000, 10_000, 30_000, 100_000), sources, rounds=1),
    Axis("kafka_partitions", (100, 300, 1_000, 3_000, 10_000), kafka_partitions),
    Axis("failures", (1_000, 10_000, 30_000, 100_000), failures, rounds=1),
    Axis("open trees", (10_000, 100_000, 1_000_000, 3_000_000, 10_000_000), open_trees, rounds=1),
    Axis("lines of backlog", (1_000_000, 10_000_000, 100_000_000), backlog),
    Axis("files", (300, 1_000, 3_000, 10_000), files, rounds=1),
)
