"""Realignment: the tuples that a task keeps go into windows of another length, slide, gap or kind.

Rule 1: nothing is shown twice. A window that is over under the old settings stays over; and where each tuple is in at
most one window, the tuples that an old window has shown expire, and only the others go on.
Rule 2: nothing is lost. A tuple that no window has shown is in the first new window that can hold it.
Rule 3: it is a function of the state and of the time, and is saved with the micro-batch in which it happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.api.story import time_text
from sparkbolt.windows.bounds import bounds_of
from sparkbolt.windows.content import I64, Content
from sparkbolt.windows.grid import Grid
from sparkbolt.windows.kinds import Count

Bools: TypeAlias = npt.NDArray[np.bool_]


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
        bounds, edge, earliest = grid.bounds, int(grid.closed_left), self.earliest_ms
        assert bounds is not None
        needed = None if earliest is None else bounds.at_or_after(earliest + edge)
        over = max(reached_ms, -1) if self.over_ms is None else self.over_ms
        first = bounds.after(over)
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
    if new.is_once or isinstance(old.length, Count):
        return over
    return over - old.length if old.timezone is None else bounds_of(old.length, old.length, old.timezone).start_of(over)


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
    start, end, first = since_ms, since_ms + new.length, reached_ms
    bounds = new.bounds
    if bounds is not None and (new.in_event_time or new.timezone is not None):
        over = old.over_ms(reached_ms) if old.in_event_time else None
        end, first = bounds.first_whole(since_ms + new.closed_left), bounds.after(reached_ms if over is None else over)
        start = bounds.start_of(end)
    if end <= first:
        return ""
    return f"windows are whole from {time_text(start)} on: one that ends before {time_text(end)} is not"
