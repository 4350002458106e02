"""Realignment: the tuples that a task keeps go into windows of another length, slide, gap or kind.

Rule 1: nothing is shown twice. A window that is over under the old settings stays over; and where each tuple is in at
most one window, the tuples that an old window has shown expire, and only the others go on.
Rule 2: nothing is lost. A tuple that no window has shown is in the first new window that can hold it.
Rule 3: it is a function of the state and of the time, and is saved with the micro-batch in which it happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.api.story import time_text
from sparkbolt.windows.content import I64, Content
from sparkbolt.windows.firing import Count, Extent
from sparkbolt.windows.settings import Windowing, extent_text, ms
from sparkbolt.windows.triggers import aligned

StoredGrid: TypeAlias = tuple[Any, ...]
Bools: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Grid:
    """The settings that say which windows there are; a task stores those that its windows were made with."""

    length: Extent | None
    """None: sessions."""
    slide: Extent
    gap_ms: int | None
    in_event_time: bool
    closed_left: bool = False

    @classmethod
    def of(cls, windowing: Windowing) -> Grid | None:
        """Those of a bolt; None if it has policies of its own, whose windows only they know."""
        if windowing.policies is not None:
            return None
        if windowing.gap is not None:
            return cls(None, Count(1), ms(windowing.gap), windowing.in_event_time)
        slide = windowing.slide_extent
        closed_left = windowing.closed_left and windowing.in_event_time and not isinstance(slide, Count)
        return cls(windowing.length_extent, slide, None, windowing.in_event_time, closed_left)

    def stored(self) -> StoredGrid:
        """The argument of ``restored``, as plain values."""
        return _stored(self.length), _stored(self.slide), self.gap_ms, self.in_event_time, self.closed_left

    @classmethod
    def restored(cls, stored: StoredGrid) -> Grid:
        """The inverse of ``stored``."""
        length, slide, *others = stored
        return cls(_restored(length), _restored(slide) or Count(1), *others)

    @property
    def is_once(self) -> bool:
        """Whether each tuple is in at most one window."""
        if self.length is None:
            return True
        if isinstance(self.length, Count):
            return isinstance(self.slide, Count) and self.length.tuples <= self.slide.tuples
        return not isinstance(self.slide, Count) and self.length <= self.slide

    @property
    def repeats(self) -> bool:
        """Whether a window may fire repeatedly without new tuples."""
        return isinstance(self.length, Count) and not isinstance(self.slide, Count)

    def over_ms(self, reached_ms: int) -> int | None:
        """The end of the last window, in event time, that a watermark has passed; -1 before the first watermark.

        None: windows do not end at times that are known before.
        """
        if isinstance(self.slide, Count) or self.gap_ms is not None:
            return None
        return reached_ms // self.slide * self.slide if reached_ms > 0 else -1

    def __str__(self) -> str:
        """In words.

        >>> str(Grid(60_000, 60_000, None, True)), str(Grid(Count(5), Count(2), None, False))
        ('60 s by 60 s', 'Count(5) by Count(2)')
        """
        if self.length is None:
            return f"sessions with a gap of {extent_text(self.gap_ms or 0)}"
        return f"{extent_text(self.length)} by {extent_text(self.slide)}"


def _stored(extent: Extent | None) -> Any:
    return ("tuples", extent.tuples) if isinstance(extent, Count) else extent


def _restored(stored: Any) -> Extent | None:
    return Count(stored[1]) if isinstance(stored, tuple) else stored


@dataclass
class Handover:
    """What windows with other settings have left for a task, or for one of its keys."""

    grid: Grid
    """Of the old windows."""
    parts: list[Content]
    """The tuples that have not expired, in their order."""
    shown: Bools
    """bool[tuples]: which of them the last window has shown."""
    left: list[Content]
    """Tuples that the last window has shown and that have expired: the next window shows them as expired."""
    expired_is_read: bool
    over_ms: int | None = None
    """Windows that end here or earlier are over; None: they ended with tuples, not at multiples of a slide."""
    spent: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """bool[tuples]: which of the others an earlier window has shown; by default none."""
    times: I64 = field(init=False)
    """int64[tuples]."""

    def __post_init__(self) -> None:
        """Join the times."""
        times = [part.times for part in self.parts]
        self.times = np.concatenate(times) if times else np.empty(0, dtype=np.int64)
        if not len(self.spent):
            self.spent = np.zeros(len(self.times), dtype=bool)

    @property
    def used(self) -> Bools:
        """bool[tuples]: which of them any window has shown."""
        return self.shown | self.spent

    @property
    def earliest_ms(self) -> int | None:
        """The earliest time of a tuple that no window has shown; None if all were shown."""
        times = self.times[~self.used]
        return int(times.min()) if len(times) else None

    def next_end(self, grid: Grid, reached_ms: int) -> int:
        """Where the first window ends that slides by time in event time.

        Args:
            grid: of the new windows.
            reached_ms: the watermark.
        """
        assert not isinstance(grid.slide, Count)
        slide, edge, earliest = grid.slide, int(grid.closed_left), self.earliest_ms
        needed = None if earliest is None else aligned(earliest + edge, slide)
        over = max(reached_ms, -1) if self.over_ms is None else self.over_ms
        first = (over // slide + 1) * slide
        # Windows by count leave tuples that the watermark has passed. And a tuple right on a boundary came for the next
        # of windows that overlapped: if these do not, the one that holds it has other bounds than any that was shown.
        may_be_earlier = self.over_ms is None or (grid.is_once and grid.length != self.grid.length)
        return min(first, needed) if may_be_earlier and needed is not None else first


def kept_since(old: Grid, new: Grid, reached_ms: int) -> int:
    """The time of which it is certain that all newer tuples go into the windows with the new settings, in milliseconds.

    Args:
        old: the settings of the old windows.
        new: those of the new ones.
        reached_ms: the watermark, or the time on arrival.
    """
    over = old.over_ms(reached_ms) if old.in_event_time else None
    over = reached_ms if over is None else over - old.closed_left
    if old.length is None:
        return over - (old.gap_ms or 0)
    return over if new.is_once or isinstance(old.length, Count) else over - old.length


def lack(old: Grid, new: Grid, since_ms: int, reached_ms: int) -> str:
    """From when on windows are whole, as the rest of a sentence; empty if the first one is whole.

    Args:
        old: the settings of the old windows.
        new: those of the new ones.
        since_ms: ``kept_since``, or a later time if that is of an earlier change.
        reached_ms: the watermark, or the time on arrival.
    """
    if isinstance(new.length, Count):
        if new.is_once or (isinstance(old.length, Count) and old.length.tuples >= new.length.tuples):
            return ""
        return f"a window is whole once {new.length.tuples} tuples have come after the change"
    if new.length is None:
        if old.length is None and (old.gap_ms or 0) >= (new.gap_ms or 0):
            return ""
        return f"sessions are whole from {time_text(since_ms + (new.gap_ms or 0))} on"
    end, first = since_ms + new.closed_left + new.length, reached_ms
    if new.in_event_time and not isinstance(new.slide, Count):
        over = old.over_ms(reached_ms)
        end = aligned(end, new.slide)
        first = ((reached_ms if over is None else over) // new.slide + 1) * new.slide
    if end <= first:
        return ""
    return f"windows are whole from {time_text(end - new.length)} on: one that ends before {time_text(end)} is not"
