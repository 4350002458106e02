"""What is kept over a restart, and how long trees may take."""

from __future__ import annotations

from typing import Any

from sparkbolt import BasicBolt, Bolt, TopologyBuilder
from tests.contract.parts import Messages
from tests.contract.tracking import Collected, same


class Pairs(Bolt):
    """Holds even numbers until the next odd one comes; notes and emits again meanwhile."""

    outputs = ["n", "with"]

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        for held in self.held:
            collector.emit([held["n"], tup["n"]], anchors=held)
        if tup["n"] % 2 == 0:
            self.held.append(tup)
            return
        collector.emit([tup["n"], None], anchors=[*self.held, tup])
        for held in self.held:
            collector.ack(held)
        self.held = []
        collector.ack(tup)


class Counting(BasicBolt):
    """A durable attribute, and one that is not."""

    outputs = ["count", "since_start"]
    transient = ["since_start"]

    def prepare(self, context: Any) -> None:
        self.count = 0
        self.since_start = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.count += 1
        self.since_start += 1
        collector.emit([self.count, self.since_start])


class Remembering(Bolt):
    """Counts by key in a ``KeyValueState``."""

    outputs = ["key", "count"]
    transient = ["state"]

    def init_state(self, state: Any) -> None:
        self.state = state

    def execute(self, tup: Any, collector: Any) -> None:
        key = f"{tup['n'] % 3}"
        self.state.put(key, self.state.get(key, 0) + 1)
        collector.emit([key, self.state.get(key)], anchors=tup)
        collector.ack(tup)


class InOrder(BasicBolt):
    """Notes a number that comes after a larger one of the same task."""

    outputs = ["wrong"]

    def prepare(self, context: Any) -> None:
        self.last: dict[Any, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        source = (tup.source_component, tup.source_task)
        if tup["n"] <= self.last.get(source, -1):
            collector.emit([tup["n"]])
        self.last[source] = tup["n"]


KEPT = 12


def kept(builder: TopologyBuilder, directory: str) -> None:
    """Add bolts that keep what they have over a restart: one number in phases 1 and 2, then the others."""
    builder.set_spout("numbers", Messages(directory, KEPT, per_micro_batch=3, limits=[0, 1, 1]))
    builder.set_bolt("pairs", Pairs()).global_grouping("numbers")
    builder.set_bolt("counting", Counting()).global_grouping("numbers")
    builder.set_bolt("remembering", Remembering(), parallelism=2).fields_grouping("numbers", ["n"])
    builder.set_bolt("relay", Counting(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("same", same, parallelism=2, fuse=False).shuffle_grouping("numbers")
    builder.set_bolt("in_order", InOrder()).global_grouping("same")
    collected = builder.set_bolt("collected", Collected(directory))
    for source in ("pairs", "counting", "remembering", "relay", "in_order"):
        collected.global_grouping(source)


# Time.


class Waits(Bolt):
    """Message 0 is forgotten; message 1 gets its time anew at each tick until the third age, then it is acked."""

    outputs = ["now_ms"]

    def __init__(self, released_after_ms: int) -> None:
        self.released_after_ms = released_after_ms

    def prepare(self, context: Any) -> None:
        self.context = context
        self.held: Any = None
        self.since_ms = 0

    transient = ["context"]

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            if tup["n"] == 1:
                self.held, self.since_ms = tup, self.context.now_ms
            return
        collector.emit([self.context.now_ms])
        if self.held is not None:
            collector.reset_timeout(self.held)
            if self.context.now_ms - self.since_ms > self.released_after_ms:
                collector.ack(self.held)
                self.held = None


TIMEOUT_SECS = 8


def timed(builder: TopologyBuilder, directory: str) -> None:
    """Add a bolt with ticks that keeps its tuples longer than the timeout; from phase 1 on."""
    builder.set_spout("timed", Messages(directory, 2, limits=[0]), max_attempts=1)
    builder.set_bolt("waits", Waits(1500 * TIMEOUT_SECS), tick_tuple_freq_secs=1).global_grouping("timed")
    builder.set_bolt("waited", Collected(directory)).global_grouping("waits")
