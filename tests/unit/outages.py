"""A database that may be away, on virtual time: what tests of outages share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, PartitionedSpout, Range, Topology, TopologyBuilder
from sparkbolt.api.outage import OutageChange
from sparkbolt.driver.ledger.ledger import FailedTree
from sparkbolt.sim.checkers.dead_letter_sinks import letters_in
from sparkbolt.sim.engine import LocalEngine

HOUR_MS = 3_600_000
MICRO_BATCH_MS = 50


class World:
    """What a test says of the database; the classes below are pickled, so it is one for all."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.away: tuple[int, int] = (-1, -1)
        self.error: Callable[[int], Exception | None] = lambda n: ConnectionError(f"refused, try {n}")
        self.bad: Callable[[int], Exception | None] = lambda n: None
        self.stored: Counter[int] = Counter()
        self.asked: list[tuple[int, int]] = []
        """(time, number) of each call."""
        self.heard: list[tuple[str, Any]] = []


WORLD = World()


@pytest.fixture(autouse=True)
def _new_world() -> None:
    WORLD.__init__()  # type: ignore[misc]


class Log(PartitionedSpout):
    """The numbers from 0 on."""

    outputs = ["n"]

    def __init__(self, count: int = 1000, **members: Any) -> None:
        self.count = count
        vars(self).update(members)

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("log", 0)
        end = min(self.count, start + budget)
        return [Range(0, "log", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("log", 0) >= self.count

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]


class Store(BasicBolt):
    """Writes to a database that may be away."""

    def execute(self, tup: Any, collector: Any) -> None:
        n = tup["n"]
        WORLD.asked.append((WORLD.now_ms, n))
        begin_ms, end_ms = WORLD.away
        error = WORLD.error(n) if begin_ms <= WORLD.now_ms < end_ms else WORLD.bad(n)
        if error is not None:
            raise error
        WORLD.stored[n] += 1


def topology(spout: Any = None, **settings: Any) -> Topology:
    builder = TopologyBuilder("outage", Config(**settings))
    builder.set_spout("orders", spout or Log())
    builder.set_bolt("store", Store()).shuffle_grouping("orders")
    return builder.build()


class Run:
    """An engine whose clock goes on by 50 ms a micro-batch, and from one due time to the next when it is idle."""

    def __init__(self, built: Topology) -> None:
        self.engine = LocalEngine(built)
        self.failed: list[FailedTree] = []
        self.changes: list[OutageChange] = []
        self.micro_batches = 0

    def step(self) -> bool:
        self.engine.now_ms += MICRO_BATCH_MS
        WORLD.now_ms = self.engine.now_ms
        promotion = self.engine.step()
        if promotion is not None:
            self.failed += promotion.failed
            self.changes += promotion.outages
            self.micro_batches += 1
        return promotion is not None

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(3000):
            if condition():
                return
            if not self.step():
                due = self.engine.next_due_ms()  # None: a spout of the driver is yet to say what it has
                self.engine.now_ms = max(self.engine.now_ms, (due or 0) - MICRO_BATCH_MS)
        raise AssertionError(f"it never came to that: {self.engine.ledger.metrics} {self.engine.ledger.outages.known}")

    def to_the_end(self) -> None:
        self.until(lambda: self.engine.coordinator.finished)

    @property
    def counts(self) -> Any:
        return self.engine.ledger.metrics.of("orders")

    @property
    def phases(self) -> list[str]:
        return [change.after.value for change in self.changes]

    @property
    def letters(self) -> list[Any]:
        return letters_in(self.engine.letters)


def calls_between(begin_ms: int, end_ms: int) -> int:
    return sum(begin_ms <= at_ms < end_ms for at_ms, _ in WORLD.asked)
