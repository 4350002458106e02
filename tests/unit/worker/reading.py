"""A spout of numbers whose reading may be trouble, and bolts behind it: what tests of the source reader share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from sparkbolt.api.components import BasicBolt, PartitionedSpout
from sparkbolt.api.config import Config
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.api.topology import Topology
from sparkbolt.api.tuples import Tuple
from sparkbolt.driver.ledger.ledger import FailedTree
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.streams import TopologyBuilder
from sparkbolt.worker.collectors import BasicRowCollector

SEEN: Counter[int] = Counter()
COUNT = 100


class Numbers(PartitionedSpout):
    """0 to 99; ``trouble(number, times)`` is called before each, with how often the number was tried."""

    outputs = ["n"]
    tried: ClassVar[Counter[int]] = Counter()

    def __init__(self, trouble: Callable[[int, int], Any]) -> None:
        self.trouble = trouble

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        start = progress.get("n", 0)
        return [Range(0, "n", start, min(COUNT, start + 50))] if start < COUNT else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("n", 0) >= COUNT

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        for number in range(range_.start, range_.end):
            self.tried[number] += 1
            given = self.trouble(number, self.tried[number])
            yield (number, [number]) if given is None else given


class Columns(Numbers):
    """The same in columns of ten."""

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        for start in range(range_.start, range_.end, 10):
            numbers = range(start, min(start + 10, range_.end))
            given = None
            for number in numbers:
                self.tried[number] += 1
                given = given or self.trouble(number, self.tried[number])
            yield (list(numbers), [list(numbers)]) if given is None else given


class See(BasicBolt):
    """Counts what it sees; fails number 20 the first time."""

    def execute(self, tup: Tuple, collector: BasicRowCollector) -> None:
        SEEN[tup["n"]] += 1
        if tup["n"] == 20 and SEEN[20] == 1:
            raise ValueError("on purpose")


def topology(spout: Numbers, **settings: Any) -> Topology:
    builder = TopologyBuilder("reading", Config(**{"max_attempts": 3, "dead_letters": "log:", **settings}))
    builder.set_spout("numbers", spout)
    builder.set_bolt("see", See(), fuse=False).shuffle_grouping("numbers")
    return builder.build()


def run(spout: Numbers, **settings: Any) -> tuple[LocalEngine, list[FailedTree]]:
    SEEN.clear()
    Numbers.tried.clear()
    engine = LocalEngine(topology(spout, **settings))
    failed: list[FailedTree] = []
    for _ in range(500):
        promotion = engine.step()
        if promotion is None:
            break
        failed += promotion.failed
    assert engine.coordinator.finished
    assert engine.ledger.finished == {"numbers": {"n": COUNT}}
    return engine, failed


class FailAtFirst(BasicBolt):
    """Fails all rows of the first attempt; notes what comes again."""

    stateless = True
    came: ClassVar[list[Any]] = []
    fails: ClassVar[bool] = True

    def execute(self, tup: Tuple, collector: BasicRowCollector) -> None:
        if self.fails:
            raise ValueError("on purpose")
        self.came.append(tup["n"])


def what_came_again(spout: Numbers, monkeypatch: pytest.MonkeyPatch, trace: float = 0.0) -> list[Any]:
    """Let all messages of a spout fail once; the values that came then."""
    monkeypatch.setattr(FailAtFirst, "came", [])
    monkeypatch.setattr(FailAtFirst, "fails", True)
    builder = TopologyBuilder("again", Config(max_attempts=9, retry=RetryPolicy(min_backoff=timedelta(seconds=9))))
    builder.set_spout("numbers", spout, trace=trace)
    builder.set_bolt("fail", FailAtFirst(), fuse=False).shuffle_grouping("numbers")
    engine = LocalEngine(builder.build())
    engine.step()
    engine.step()
    assert engine.ledger.metrics.of("numbers").failed == COUNT
    monkeypatch.setattr(FailAtFirst, "fails", False)
    engine.now_ms += 60_000
    while engine.step() is not None:
        engine.now_ms += 1000
    assert engine.ledger.metrics.of("numbers").acked == COUNT
    return FailAtFirst.came
