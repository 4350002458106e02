"""A spout of numbers, whose micro-batches are as large as a benchmark wants them.

How does a benchmark say what each micro-batch holds?
Rule: which step a micro-batch is follows from its first position alone, so a restart would go on the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sparkbolt import PartitionedSpout, Range

_STRIDE = 7919
_SOURCE = "numbers"


class Numbers(PartitionedSpout):
    """Emits ``word``: every number below ``keys`` in turn, far apart.

    First ``fill`` tuples in micro-batches as large as the engine wants; then micro-batches of ``steps[0]``,
    ``steps[1]``, ... and again, ``cycles`` times.

    >>> list(Numbers(4, fill=3).read(Range(0, "numbers", 0, 3)))
    [(0, [0]), (1, [3]), (2, [2])]
    >>> Numbers(4, fill=3, steps=(5, 1), cycles=2).next_ranges({"numbers": 8}, budget=100)
    [Range(task=0, source='numbers', start=8, end=9)]
    """

    outputs = ["word"]
    first_budget = 100_000

    def __init__(self, keys: int, *, fill: int, steps: tuple[int, ...] = (1,), cycles: int = 0) -> None:
        assert np.gcd(keys, _STRIDE) == 1, "the stride must reach every key"
        self.keys = keys
        self.fill = fill
        self.steps = steps
        self.total = fill + cycles * sum(steps)

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get(_SOURCE, 0)
        if start >= self.total:
            return []
        if start < self.fill:
            return [Range(0, _SOURCE, start, min(self.fill, start + budget))]
        ends = np.cumsum(self.steps)
        done = (start - self.fill) % int(ends[-1])
        return [Range(0, _SOURCE, start, start + int(ends[ends > done][0]) - done)]

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get(_SOURCE, 0) >= self.total

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for positions, (words,) in self.read_columns(range_):
            for position, word in zip(positions.tolist(), words.tolist(), strict=True):
                yield position, [word]

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]]]:
        positions = np.arange(range_.start, range_.end, dtype=np.int64)
        yield positions, [positions * _STRIDE % self.keys]
