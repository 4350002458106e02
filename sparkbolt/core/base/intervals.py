"""Intervals: spans of whole numbers, both ends inclusive.

Which question it answers: which numbers are in these spans, few of them that rise and neither meet nor overlap?

Read before: ``ids``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from sparkbolt.core.base.ids import U64

Span: TypeAlias = tuple[int, int]
"""(first, last), both inclusive."""


def folded(first: U64, last: U64) -> list[Span]:
    """Spans in any order as few spans that rise and neither meet nor overlap.

    >>> folded(np.array([7, 1, 3], dtype=np.uint64), np.array([7, 2, 4], dtype=np.uint64))
    [(1, 4), (7, 7)]
    """
    if len(first) == 0:
        return []
    order = np.argsort(first, kind="stable")
    first, reach = first[order], np.maximum.accumulate(last[order])
    apart = np.ones(len(first), dtype=bool)
    apart[1:] = first[1:] > reach[:-1] + np.uint64(1)
    starts = np.flatnonzero(apart)
    ends = np.append(starts[1:], len(first)) - 1
    return list(zip(first[starts].tolist(), reach[ends].tolist(), strict=True))


def less(spans: Sequence[Span], gone: Sequence[Span]) -> list[Span]:
    """Spans without what is in others; both rise, and spans of one list do not overlap.

    >>> less([(1, 9)], [(0, 1), (4, 5), (9, 30)])
    [(2, 3), (6, 8)]
    """
    left: list[Span] = []
    at = 0
    for first, last in spans:
        while at < len(gone) and gone[at][1] < first:
            at += 1
        probe = at
        while probe < len(gone) and gone[probe][0] <= last:
            if gone[probe][0] > first:
                left.append((first, gone[probe][0] - 1))
            first = gone[probe][1] + 1
            probe += 1
        if first <= last:
            left.append((first, last))
    return left


Interval = tuple[int, int]
"""Positions from the first to before the second."""
