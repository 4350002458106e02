"""A topology that has something of each kind in its checkpoint when it is left in the middle.

Its classes and this module keep their names: the checkpoint beside it names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sparkbolt import (
    BasicBolt,
    Bolt,
    Config,
    Count,
    PartitionedSpout,
    Range,
    Reject,
    RetryPolicy,
    Sliding,
    Topology,
    TopologyBuilder,
    Tuple,
    WindowedBolt,
    milliseconds,
    seconds,
)
from sparkbolt.windows import TupleWindow, WindowCollector
from tests.contract.parts import note

FIRST = 30
"""How many numbers are read before the topology is left."""
ALL = 60
REJECTED = 3
LATE = FIRST - 1
"""It fails twice, so that it waits for its next attempt when the topology is left."""


class Numbers(PartitionedSpout):
    """The numbers below ``limit``."""

    outputs = ["n", "rest", "at"]

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("numbers", 0)
        end = min(self.limit, start + min(budget, 10))
        return [Range(0, "numbers", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= ALL

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position in range(range_.start, range_.end):
            yield position, [position, position % 4, 1000 * position]


class Holds(Bolt):
    """Keeps tuples until the last number comes: in a list, and by key in a dict."""

    outputs = ["held"]

    def prepare(self, context: Any) -> None:
        self.held: list[Tuple] = []
        self.by_rest: dict[int, Tuple] = {}

    def execute(self, tup: Tuple, collector: Any) -> None:
        if tup["n"] < 4:
            self.held.append(tup)
            self.by_rest[tup["n"]] = tup
            return
        if tup["n"] == ALL - 1:
            same = [held is self.by_rest[held["n"]] for held in self.held]
            collector.emit([[held["n"] for held in self.held if all(same)]], anchors=[*self.held, tup])
            for held in self.held:
                collector.ack(held)
        collector.ack(tup)


class Counts(BasicBolt):
    """A durable attribute; it rejects one number, and fails another one twice."""

    outputs = ["count"]

    def prepare(self, context: Any) -> None:
        self.count = 0
        self.tries = 0

    def execute(self, tup: Tuple, collector: Any) -> None:
        if tup["n"] == REJECTED:
            raise Reject("not this one")
        if tup["n"] == LATE:
            self.tries += 1
            if self.tries < 3:
                raise ValueError("not yet")
        self.count += 1
        collector.emit([self.count])


class Remembers(Bolt):
    """Counts by key in a ``KeyValueState``."""

    outputs = ["key", "count"]

    def init_state(self, state: Any) -> None:
        self.state = state

    transient = ["state"]

    def execute(self, tup: Tuple, collector: Any) -> None:
        key = ("rest", tup["rest"])
        self.state.put(key, self.state.get(key, 0) + 1)
        collector.emit([tup["rest"], self.state.get(key)], anchors=tup)
        collector.ack(tup)


class Sums(WindowedBolt):
    """The sums of its windows."""

    outputs = ["kind", "sum"]

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        collector.emit([self.kind, sum(tup["n"] for tup in window)])


class Starts(Bolt):
    """Starts a tree of its own with each tenth number."""

    outputs = {"own": ["tenth"]}
    starts_trees = True

    def execute(self, tup: Tuple, collector: Any) -> None:
        if tup["n"] % 10 == 0:
            collector.emit([tup["n"]], stream="own")
        collector.ack(tup)


class Takes(Bolt):
    """Holds what others have started until the sixth of them has come."""

    outputs = ["taken"]

    def prepare(self, context: Any) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple, collector: Any) -> None:
        self.held.append(tup)
        if len(self.held) < 6:
            return
        for held in self.held:
            collector.emit([held["tenth"]], anchors=held)
            collector.ack(held)
        self.held = []


class Notes(BasicBolt):
    """Writes down what comes to it."""

    stateless = True

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Tuple, collector: Any) -> None:
        note(self.directory, tup.source_component, *tup.values())


def made(directory: str, limit: int) -> Topology:
    """Its notes go into ``directory``; it reads ``limit`` numbers."""
    retry = RetryPolicy(max_retries=5, min_backoff=timedelta(seconds=3), max_backoff=timedelta(seconds=3))
    builder = TopologyBuilder("made", Config(message_timeout_secs=3600, retry=retry))
    builder.set_spout("numbers", Numbers(limit))
    builder.set_bolt("holds", Holds()).global_grouping("numbers")
    builder.set_bolt("counts", Counts()).global_grouping("numbers")
    builder.set_bolt("remembers", Remembers(), parallelism=2).fields_grouping("numbers", ["rest"])
    # The program that left format-2.tar.gz called with_window, with_timestamp_field and with_watermark_interval.
    by_time = Sliding(seconds=20, every=seconds(8), timestamp="at", watermark_interval=milliseconds(1))
    builder.set_bolt("by_count", Sums("count").windowed(Count(20, every=8))).global_grouping("numbers")
    builder.set_bolt("by_time", Sums("time").windowed(by_time)).global_grouping("numbers")
    builder.set_bolt("starts", Starts()).global_grouping("numbers")
    builder.set_bolt("takes", Takes()).global_grouping("starts", "own")
    notes = builder.set_bolt("notes", Notes(directory))
    for source in ("holds", "counts", "remembers", "by_count", "by_time", "takes"):
        notes.global_grouping(source)
    return builder.build()
