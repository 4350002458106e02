"""Segments: consecutive tuples of a window, and selections of some of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.windows.content import Content, RowIndices


class Shelf(Protocol):
    """The store of segments beside the head of their log."""

    def read(self, number: int) -> Content:
        """The content of a segment that was written."""

    def write(self, number: int, data: bytes, content: Content) -> None:
        """Store a segment; no number is used twice."""

    def drop(self, number: int) -> None:
        """Forget a segment."""


@dataclass(eq=False)
class Segment:
    """Consecutive tuples of a log."""

    number: int
    first: int
    """The sequence of row 0; row i has ``first + i``."""
    count: int
    low_ms: int
    """The oldest timestamp, in milliseconds."""
    high_ms: int
    """The newest timestamp, in milliseconds."""
    live: int
    """How many rows have not expired."""
    alive: npt.NDArray[np.bool_] | None = None
    """bool[count]: which rows have not expired; None: all from ``start`` on."""
    start: int = 0
    """Rows before this one have expired."""
    content: Content | None = None
    """None: the content is on the shelf only."""
    written: bool = False
    """Whether the shelf has the content."""
    in_order: bool = False
    """Whether the timestamps never fall."""
    place: int = -1
    """The segment's place in the log's index."""

    @property
    def end(self) -> int:
        """The sequence behind the last row (exclusive end)."""
        return self.first + self.count

    def live_rows(self, begin: int = 0, stop: int | None = None) -> RowIndices:
        """The live rows from ``begin`` to ``stop`` (exclusive): intp[rows], ascending; None: all of the segment."""
        stop = self.count if stop is None else min(stop, self.count)
        begin = max(begin, self.start)
        if self.alive is not None:
            return np.flatnonzero(self.alive[begin:stop]) + begin if begin < stop else np.empty(0, dtype=np.intp)
        if begin == 0 and stop == self.count:
            return None
        return np.arange(begin, max(begin, stop), dtype=np.intp)


Part: TypeAlias = tuple[Segment, RowIndices]


class Selection:
    """Some tuples of a log, which are found at the first use."""

    __slots__ = ("_count", "_make", "_parts")

    def __init__(self, count: int | None, make: Callable[[], list[Part]]) -> None:
        """Store how to find the tuples.

        Args:
            count: how many tuples there are; None: not known until they are found.
            make: finds them.
        """
        self._count = count
        self._make = make
        self._parts: list[Part] | None = None

    @property
    def count(self) -> int:
        """How many tuples there are."""
        if self._count is None:
            self._count = sum(segment.count if rows is None else len(rows) for segment, rows in self.parts())
        return self._count

    def parts(self) -> list[Part]:
        """The rows by segment, in the order of arrival."""
        if self._parts is None:
            self._parts = self._make()
        return self._parts


NOTHING = Selection(0, list)


def segment_of(number: int, first: int, content: Content) -> Segment:
    """Make a segment of some content, whose row 0 has sequence ``first``."""
    times, count = content.times, len(content)
    in_order = bool((times[1:] >= times[:-1]).all())
    low, high = (times[0], times[-1]) if in_order else (times.min(), times.max())
    return Segment(number, first, count, int(low), int(high), count, content=content, in_order=in_order)


def may_join(left: Segment, right: Segment, boundary: int | None) -> bool:
    """Whether two neighbours may be merged, or one segment may be rewritten; see ``WindowLog.tidy``."""
    in_place = stays(left) if left is right else stays(left, right)
    return in_place or (boundary is not None and not left.first < boundary < right.end)


def stays(*segments: Segment) -> bool:
    """Whether the live rows of neighbours can be merged so that each row keeps its sequence."""
    return all(segment.alive is None for segment in segments) and all(
        left.end == right.first + right.start and right.start == 0 for left, right in itertools.pairwise(segments)
    )
