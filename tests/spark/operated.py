"""The topologies that tests of the command line run, in a process of its own or with the session of the tests.

A module of its own, because ``sparkbolt run`` and Spark's workers import it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sparkbolt import BasicBolt, Bolt, Config, PartitionedSpout, Range, Topology, TopologyBuilder
from sparkbolt.bolts import PrintBolt

ENDLESS = 1 << 40


class Numbers(PartitionedSpout):
    """The numbers from 0 on, of the source ``n``."""

    outputs = ["number"]

    def __init__(self, count: int) -> None:
        self.count = count

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        start = progress.get("n", 0)
        end = min(self.count, start + min(budget, 1000))
        return [Range(0, "n", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("n", 0) >= self.count

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]


class Told(Numbers):
    """Says in the driver when it is opened."""

    def open(self, context: Any) -> None:
        print("the spout opens")


class Remainders(BasicBolt):
    """Counts numbers by their remainder, and prints a line."""

    outputs = ["remainder", "count"]

    def prepare(self, context: Any) -> None:
        self.counts: Counter[int] = Counter()

    def execute(self, tup: Any, collector: Any) -> None:
        remainder = tup["number"] % 3
        self.counts[remainder] += 1
        if tup["number"] == 0:
            print("a line of my own")
        collector.emit([remainder, self.counts[remainder]])


class Hanging(Remainders):
    """Does not return from number 7 while there is no file ``go``."""

    def __init__(self, go: Path) -> None:
        self.go = go

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["number"] == 7 and not self.go.exists():
            threading.Event().wait()
        super().execute(tup, collector)


class Raising(BasicBolt):
    """Fails all numbers."""

    def execute(self, tup: Any, collector: Any) -> None:
        raise ValueError(f"{tup['number']} is no good")


class Printing(BasicBolt):
    """Prints the first numbers, logs number 3, fails one number in a hundred, and takes its time."""

    def execute(self, tup: Any, collector: Any) -> None:
        threading.Event().wait(0.001)  # it is busy for so long, and nobody waits for anything here
        if tup["number"] == 3:
            logging.getLogger("mine").warning("three came")
        if tup["number"] % 100 == 7:
            raise ValueError(f"{tup['number']} is no good")
        if tup["number"] < 20:
            print("number", tup["number"])


class Sleeping(BasicBolt):
    """Takes 20 s for each number; there is a file ``asleep`` from the first one on."""

    def __init__(self, asleep: Path) -> None:
        self.asleep = asleep

    def execute(self, tup: Any, collector: Any) -> None:
        self.asleep.touch()
        threading.Event().wait(20)


class HoldingFirst(Bolt):
    """Acks all numbers but 0, which it holds."""

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["number"] == 0:
            self.held.append(tup)
        else:
            collector.ack(tup)


def behind(spout: Numbers, bolt: Bolt | BasicBolt, **settings: Any) -> TopologyBuilder:
    """A topology with a bolt that reads numbers, at most 50 at a time, each with one attempt."""
    builder = TopologyBuilder("numbers", Config(max_spout_pending=50, message_timeout_secs=600))
    builder.set_spout("source", spout, max_attempts=1)
    builder.set_bolt("bolt", bolt, **settings).global_grouping("source")
    return builder


def counting() -> TopologyBuilder:
    """Thirty numbers, whose counts are printed."""
    builder = behind(Numbers(30), Remainders())
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("bolt")
    return builder


def raising() -> TopologyBuilder:
    """It fails with its first number."""
    return behind(Numbers(10), Raising(), on_error="stop")


def printing() -> TopologyBuilder:
    """It goes on for ever, and its log has lines of all kinds."""
    return behind(Told(ENDLESS), Printing())


def holding_first() -> TopologyBuilder:
    """It goes on for ever, with an open tree."""
    return behind(Numbers(ENDLESS), HoldingFirst())


def hanging(go: Path) -> Topology:
    """Thirty numbers, one of which hangs."""
    return behind(Numbers(30), Hanging(go)).build()


def endless() -> Topology:
    """It goes on for ever."""
    return behind(Numbers(ENDLESS), Remainders()).build()


def sleeping(asleep: Path) -> Topology:
    """It needs 20 s for each number."""
    return behind(Numbers(ENDLESS), Sleeping(asleep)).build()
