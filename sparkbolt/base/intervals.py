"""Intervals: sets of whole numbers as a few intervals [start, end), ascending and apart, like Kafka's offsets.

Ranges of tree keys are not here: their ends are inclusive, because the exclusive end of the last key does not fit into
64 bits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from sparkbolt.base.ids import I64

Interval: TypeAlias = tuple[int, int]
"""[start, end), start < end."""
Intervals: TypeAlias = Sequence[Interval]
"""Several intervals, ascending; none overlaps the next."""


def union(*several: Iterable[Interval]) -> list[Interval]:
    """Return the numbers that are in any of the intervals; these may overlap, in any order.

    >>> union([(9, 12), (0, 7)], [(12, 14), (3, 5)])
    [(0, 7), (9, 14)]
    """
    merged: list[Interval] = []
    for start, end in sorted(interval for intervals in several for interval in intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def union_of_columns(starts: I64, ends: I64) -> list[Interval]:
    """``union`` of many intervals, given as two columns.

    Args:
        starts: int64[n], in any order.
        ends: int64[n], ends[i] > starts[i].

    >>> union_of_columns(np.array([7, 1, 3]), np.array([8, 3, 5]))
    [(1, 5), (7, 8)]
    """
    if len(starts) == 0:
        return []
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    apart = np.ones(len(starts), dtype=bool)
    np.greater(starts[1:], reach[:-1], out=apart[1:])
    at = np.flatnonzero(apart)
    until = np.append(at[1:], len(starts)) - 1
    return list(zip(starts[at].tolist(), reach[until].tolist(), strict=True))


def add(starts: list[int], ends: list[int], number: int) -> bool:
    """Add one number to ascending intervals, in place; return whether it was in none of them before.

    Args:
        starts: the starts of the intervals, ascending; changed in place.
        ends: their ends; changed in place.
        number: the number to add.

    >>> starts, ends = [2, 6], [4, 9]
    >>> add(starts, ends, 3), add(starts, ends, 4), add(starts, ends, 5), starts, ends
    (False, True, True, [2], [9])
    """
    at = bisect_right(starts, number)
    if at and number < ends[at - 1]:
        return False
    meets_before = at > 0 and ends[at - 1] == number
    meets_behind = at < len(starts) and starts[at] == number + 1
    if meets_before and meets_behind:
        ends[at - 1] = ends.pop(at)
        del starts[at]
    elif meets_before:
        ends[at - 1] = number + 1
    elif meets_behind:
        starts[at] = number
    else:
        starts.insert(at, number)
        ends.insert(at, number + 1)
    return True


def subtract(intervals: Intervals, gone: Intervals) -> list[Interval]:
    """Return the numbers that are in ``intervals`` and not in ``gone``.

    >>> subtract([(1, 10)], [(0, 2), (4, 6), (9, 31)])
    [(2, 4), (6, 9)]
    """
    left: list[Interval] = []
    at = 0
    for start, end in intervals:
        while at < len(gone) and gone[at][1] <= start:
            at += 1
        probe = at
        while probe < len(gone) and gone[probe][0] < end:
            if gone[probe][0] > start:
                left.append((start, gone[probe][0]))
            start = max(start, gone[probe][1])
            probe += 1
        if start < end:
            left.append((start, end))
    return left


def clip(intervals: Intervals, start: int | None = None, end: int | None = None) -> list[Interval]:
    """Return the numbers that are in the intervals and in [start, end); None means no limit on that side.

    >>> clip([(0, 7), (9, 14)], start=5), clip([(0, 7), (9, 14)], end=9)
    ([(5, 7), (9, 14)], [(0, 7)])
    """
    clipped = []
    for first, stop in intervals:
        first = first if start is None else max(first, start)
        stop = stop if end is None else min(stop, end)
        if first < stop:
            clipped.append((first, stop))
    return clipped


def first_outside(position: int, intervals: Intervals) -> int:
    """Return the first number at or after ``position`` that is in none of the intervals.

    >>> first_outside(4, [(4, 10)]), first_outside(10, [(4, 10)]), first_outside(5, [(4, 7), (7, 9)])
    (10, 10, 9)
    """
    for start, end in intervals:
        if start > position:
            break
        position = max(position, end)
    return position


def gaps(starts: I64, ends: I64, end: int, limit: int) -> list[Interval]:
    """Return the first ``limit`` gaps: the intervals after the first given one that are in none of them, up to ``end``.

    Args:
        starts: int64[n], ascending.
        ends: int64[n], ends[i] > starts[i]; the intervals may overlap.
        end: the end of the last gap; it has no effect if an interval reaches it.
        limit: the largest number of gaps to return.

    >>> gaps(np.array([1, 2, 7]), np.array([5, 3, 8]), 100, limit=9)
    [(5, 7), (8, 100)]
    """
    if len(starts) == 0 or limit < 1:
        return []
    reach = np.maximum.accumulate(ends)
    following = np.append(starts[1:], max(end, int(reach[-1])))
    at = np.flatnonzero(following > reach)[:limit]
    return list(zip(reach[at].tolist(), following[at].tolist(), strict=True))


def size(intervals: Intervals) -> int:
    """Return how many numbers are in the intervals.

    >>> size([(2, 4), (6, 9)])
    5
    """
    return sum(end - start for start, end in intervals)


def to_inclusive(intervals: Iterable[Interval]) -> list[tuple[int, int]]:
    """Return the intervals as (first, last), both inclusive, as some files store them.

    >>> to_inclusive([(2, 4), (6, 9)])
    [(2, 3), (6, 8)]
    """
    return [(start, end - 1) for start, end in intervals]


def from_inclusive(pairs: Iterable[tuple[int, int]]) -> list[Interval]:
    """The inverse of ``to_inclusive``.

    >>> from_inclusive([(2, 3), (6, 8)])
    [(2, 4), (6, 9)]
    """
    return [(first, last + 1) for first, last in pairs]
