"""Segments: consecutive tuples of a window, and selections of some of them.

Which question it answers: what is known of a stretch of tuples without opening it?

Read before: ``content``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.windows.content import Content, Picked


class Shelf(Protocol):
    """Where segments are kept beside the head of their log."""

    def read(self, number: int) -> Content:
        """The content of a segment that was written."""

    def write(self, number: int, data: bytes, content: Content) -> None:
        """Keep a segment; numbers are not used twice."""

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
    """No row is older."""
    high_ms: int
    """No row is newer."""
    live: int
    """How many rows are not over."""
    alive: npt.NDArray[np.bool_] | None = None
    """Which rows are not over; None: all from ``start`` on."""
    start: int = 0
    """Rows before it are over."""
    content: Content | None = None
    """None: on the shelf."""
    written: bool = False
    """Whether the shelf has it."""
    in_order: bool = False
    """Whether its times never fall."""
    place: int = -1
    """Where it is in the log's index."""

    @property
    def end(self) -> int:
        """The sequence behind the last row."""
        return self.first + self.count

    def live_rows(self, begin: int = 0, stop: int | None = None) -> Picked:
        """The live rows from ``begin`` to ``stop``; None: all rows of the segment."""
        stop = self.count if stop is None else min(stop, self.count)
        begin = max(begin, self.start)
        if self.alive is not None:
            return np.flatnonzero(self.alive[begin:stop]) + begin if begin < stop else np.empty(0, dtype=np.intp)
        if begin == 0 and stop == self.count:
            return None
        return np.arange(begin, max(begin, stop), dtype=np.intp)


Part: TypeAlias = tuple[Segment, Picked]


class Selection:
    """Some tuples of a log, found when they are asked for."""

    __slots__ = ("_count", "_make", "_parts")

    def __init__(self, count: int | None, make: Callable[[], list[Part]]) -> None:
        """Know how to find them and, unless ``count`` is None, how many there are."""
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
    """A new segment of some content, whose row 0 has sequence ``first``."""
    times, count = content.times, len(content)
    in_order = bool((times[1:] >= times[:-1]).all())
    low, high = (times[0], times[-1]) if in_order else (times.min(), times.max())
    return Segment(number, first, count, int(low), int(high), count, content=content, in_order=in_order)


def may_join(left: Segment, right: Segment, boundary: int | None) -> bool:
    """Whether two neighbours, or one segment with itself, may be written as one; see ``WindowLog.tidy``."""
    kept = stays(left) if left is right else stays(left, right)
    return kept or (boundary is not None and not left.first < boundary < right.end)


def stays(*segments: Segment) -> bool:
    """Whether live rows of neighbours can be joined so that each keeps its sequence."""
    return all(segment.alive is None for segment in segments) and all(
        left.end == right.first + right.start and right.start == 0 for left, right in itertools.pairwise(segments)
    )
