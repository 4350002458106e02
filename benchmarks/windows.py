"""Windows: what a tuple costs, what a micro-batch reads and writes, how many tuples a second.

Does a window cost what comes, or what it holds; and how fast is it on Spark?

What does not need Spark is measured without it: one process runs the very tasks, frames and segments, on a store that
counts the bytes that are put and got.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import PARALLELISM, Options, in_turn, start, steady_rate
from sparkbolt import Config, Count, PartitionedSpout, Range, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.worker.state.task_state import DictStore

FEW, MANY = 1_000, 1_000_000
TARGET_MS = 3000
STEP = 10_000
STEPS = 12
WARM = 2
MIB = 1 << 20
SPARK_TUPLES = 12_000_000
KEYS_FEW, KEYS_MANY, TOUCHED = 1_000, 100_000, 1_000
_SOURCE = "readings"


class Readings(PartitionedSpout):
    """Emits (sensor, value, at): ``at`` is a millisecond later every ``a_ms`` tuples."""

    outputs = ["sensor", "value", "at"]
    first_budget = 200_000

    def __init__(
        self, total: int, *, fill: int = 0, step: int | None = None, sensors: int = 1000, a_ms: int = 1
    ) -> None:
        self.total, self.fill, self.step = total, fill, step
        self.sensors, self.a_ms = sensors, a_ms

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start_ = progress.get(_SOURCE, 0)
        if start_ >= self.total:
            return []
        size = self.fill - start_ if start_ < self.fill else (self.step or budget)
        return [Range(0, _SOURCE, start_, min(self.total, start_ + size))]

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get(_SOURCE, 0) >= self.total

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for positions, columns in self.read_columns(range_):
            yield from zip(
                positions.tolist(), zip(*(column.to_pylist() for column in columns), strict=True), strict=True
            )

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]]]:
        positions = np.arange(range_.start, range_.end, dtype=np.int64)
        columns = positions * 7919 % self.sensors, positions % 1009 * 0.5, 1_000_000_000 + positions // self.a_ms
        yield positions, [pa.array(column) for column in columns]


class Size(WindowedBolt):
    """Looks at no tuple."""

    outputs = ["end", "size"]

    def execute(self, window, collector):
        collector.emit([window.end_ms, len(window)])


class RunningSum(WindowedBolt):
    """Looks at what is new and what has expired."""

    outputs = ["end", "sum"]

    def prepare(self, context):
        self.total = 0.0

    def execute(self, window, collector):
        new, expired = window.get_new().column("value"), window.get_expired().column("value")
        self.total += (pc.sum(new).as_py() or 0.0) - (pc.sum(expired).as_py() or 0.0)
        collector.emit([window.end_ms, self.total])


class WholeSum(WindowedBolt):
    """Looks at a column of the whole window."""

    outputs = ["end", "sum"]

    def execute(self, window, collector):
        collector.emit([window.end_ms, pc.sum(window.column("value")).as_py()])


class CountingStore(DictStore):
    """A store that knows how many bytes were put and got."""

    put_bytes = 0
    got_bytes = 0

    def get(self, key: str, default: Any = None) -> Any:
        value = super().get(key, default)
        self.got_bytes += len(value or b"")
        return value

    def put(self, key: str, value: bytes) -> None:
        self.put_bytes += len(value)
        super().put(key, value)


def topology(bolt: WindowedBolt, spout: PartitionedSpout, parallelism: int = 1) -> Topology:
    """One spout, one windowed bolt."""
    builder = TopologyBuilder("windows", Config(micro_batch_target_ms=TARGET_MS, message_timeout_secs=300))
    builder.set_spout("readings", spout, parallelism=parallelism)
    builder.set_bolt("count", bolt, parallelism=parallelism).fields_grouping("readings", ["sensor"])
    return builder.build()


class Steps:
    """Micro-batches of ``STEP`` tuples behind a window that is full, in one process."""

    def __init__(
        self, bolt: WindowedBolt, held: int, *, fresh: bool = False, step: int = STEP, sensors: int = 1000
    ) -> None:
        fill = held + step
        self._fresh = fresh
        spout = Readings(fill + STEPS * step, fill=fill, step=step, sensors=sensors)
        self._engine = LocalEngine(topology(bolt, spout))
        self.store = CountingStore()
        for dest in self._engine.lane.dests.values():
            self._engine.stores[dest] = self.store
        self._step()
        self.seconds: list[float] = []
        self.put: list[int] = []
        self.got: list[int] = []
        for _ in range(STEPS - 1):
            self.store.put_bytes = self.store.got_bytes = 0
            self.seconds.append(self._step())
            self.put.append(self.store.put_bytes)
            self.got.append(self.store.got_bytes)

    def _step(self) -> float:
        self._engine.now_ms += 1000
        if self._fresh:
            self._engine.restart()  # as in a worker that has never seen the task
        gc.collect()
        gc.freeze()
        gc.disable()  # as workers do: garbage is collected between frames, and what is kept is not looked at
        began = time.perf_counter()
        try:
            assert self._engine.step() is not None
            return time.perf_counter() - began
        finally:
            gc.enable()
            gc.unfreeze()

    @property
    def typical_s(self) -> float:
        return statistics.median(self.seconds[WARM:])


def by_count(held: int) -> WindowedBolt:
    return Size().with_window(Count(held), slide=Count(10))


def by_event_time(held: int) -> WindowedBolt:
    length = timedelta(milliseconds=held)
    return Size().with_window(length, slide=timedelta(milliseconds=100)).with_timestamp_field("at")


def by_event_time_and_count(held: int) -> WindowedBolt:
    return Size().with_window(timedelta(milliseconds=held), slide=Count(10)).with_timestamp_field("at")


def by_key(bolt: WindowedBolt) -> WindowedBolt:
    return bolt.with_window(Count(10), slide=Count(5)).with_key("sensor")


def without_spark(options: Options) -> Iterator[Figure]:
    """What needs no Spark."""
    shapes: list[tuple[str, Callable[[int], WindowedBolt]]] = [
        ("count by count", by_count),
        ("time by time", by_event_time),
        ("time by count", by_event_time_and_count),
    ]
    for name, make in shapes:
        few, many = in_turn(
            options.rounds,
            lambda make=make: Steps(make(FEW), FEW).typical_s / STEP * 1e6,
            lambda make=make: Steps(make(MANY), MANY).typical_s / STEP * 1e6,
        )
        yield Figure("windows", f"{name}: a tuple, {FEW:,} held", few, "us")
        yield Figure("windows", f"{name}: a tuple, {MANY:,} held", many, "us")
        yield Figure(
            "windows", f"{name}: a million held against a thousand", ratios(many, few), "times", Aim("at most", 1.5)
        )
    running = (
        RunningSum().with_window(timedelta(milliseconds=MANY), slide=timedelta(seconds=5)).with_timestamp_field("at")
    )
    steps = Steps(running, MANY, fresh=True)
    facts = {"held": MANY, "new": STEP, "fires": "twice in each micro-batch", "worker": "another one each time"}
    put, got = (tuple(size / MIB for size in sizes[WARM:]) for sizes in (steps.put, steps.got))
    yield Figure("windows", "state written by a micro-batch, most", (max(put),), "MiB", Aim("at most", 5), facts)
    yield Figure("windows", "state read by a micro-batch, most", (max(got),), "MiB")
    yield Figure("windows", "state written by a micro-batch, typical", put, "MiB")
    yield Figure("windows", "state read by a micro-batch, typical", got, "MiB")
    few, many = in_turn(
        options.rounds,
        lambda: Steps(by_key(Size()), 2 * KEYS_FEW, step=TOUCHED, sensors=KEYS_FEW).typical_s * 1000,
        lambda: Steps(by_key(Size()), 2 * KEYS_MANY, step=TOUCHED, sensors=KEYS_MANY).typical_s * 1000,
    )
    yield Figure("windows", f"{TOUCHED:,} of {KEYS_FEW:,} keys touched", few, "ms")
    yield Figure("windows", f"{TOUCHED:,} of {KEYS_MANY:,} keys touched", many, "ms")
    yield Figure("windows", f"{KEYS_MANY:,} keys against {KEYS_FEW:,}", ratios(many, few), "times", Aim("at most", 1.5))


def on_spark(bolt: WindowedBolt) -> float:
    """Tuples a second through a windowed bolt, tracked, in the steady middle."""
    running, marks = start(topology(bolt, Readings(SPARK_TUPLES, a_ms=100), PARALLELISM))
    try:
        running.await_finished(300)
    finally:
        running.close()
    return steady_rate(marks)


def figures(options: Options) -> Iterator[Figure]:
    """Measure: first without Spark, then with it."""
    yield from without_spark(options)
    sliding = WholeSum().with_window(timedelta(seconds=10), slide=timedelta(seconds=1)).with_timestamp_field("at")
    tumbling, by_time = in_turn(
        options.rounds,
        lambda: on_spark(WholeSum().with_tumbling_window(Count(10_000))),
        lambda: on_spark(sliding),
    )
    facts = {"tuples": SPARK_TUPLES, "micro_batch_target_ms": TARGET_MS, "looks at": "a column of the window"}
    aim = Aim("at least", 300_000)
    yield Figure("windows", "tumbling count window (10,000)", tumbling, "tuples/s", aim, facts)
    yield Figure("windows", "sliding time window (10 s by 1 s)", by_time, "tuples/s", aim, facts)
