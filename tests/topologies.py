"""The bolts of the word count, a sum, and a spout of numbers, which tests share.

They are in a module of their own because Spark's workers import them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from sparkbolt import BasicBolt, Bolt, PartitionedSpout, Range


class Split(BasicBolt):
    """The words of a line."""

    outputs = ["word"]

    def execute(self, tup: Any, collector: Any) -> None:
        for word in tup["line"].split():
            collector.emit([word])


class Count(BasicBolt):
    """How often each word has come so far, in an attribute, which is durable."""

    outputs = ["word", "count"]

    def prepare(self, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["word"]] += 1
        collector.emit([tup["word"], self.counts[tup["word"]]])


class Sum(Bolt):
    """The sum of all numbers so far; it is counted before anything behind it can fail."""

    outputs = ["n", "total"]

    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.total += tup["n"]
        collector.emit([tup["n"], self.total], anchors=[tup])
        collector.ack(tup)


class Numbers(PartitionedSpout):
    """The numbers from 0 on, 200 a micro-batch."""

    outputs = ["n"]

    def __init__(self, count: int) -> None:
        self.count = count

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        start = progress.get("n", 0)
        return [Range(0, "n", start, start + 200)] if start < self.count else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("n", 0) >= self.count

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]
