"""Grid: which windows the settings of a bolt make, as the engine uses them; a task stores it with its windows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from sparkbolt.windows.bounds import Bounds, bounds_of
from sparkbolt.windows.kinds import Count, Session, Sliding, Tumbling, Window, ms

Extent: TypeAlias = Count | int
"""A length or a slide: a count, or a number of milliseconds."""
StoredGrid: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Grid:
    """The settings that say which windows there are; a task stores those that its windows were made with."""

    length: Extent | None
    """None: sessions."""
    slide: Extent
    gap_ms: int | None
    in_event_time: bool
    closed_left: bool = False
    timezone: str | None = None
    """By whose clock windows that slide by time begin and end; None: UTC."""

    @classmethod
    def of(cls, window: Window) -> Grid | None:
        """Those of a bolt; None if policies of its own, which alone know its windows, or nothing says which."""
        in_event_time = window.timestamp is not None
        zone = window.timezone if isinstance(window, Tumbling) else None
        length: Extent | None = None
        slide: Extent = Count(1)
        gap_ms: int | None = None
        match window:
            case Tumbling():
                length = slide = ms(window.length)
            case Sliding():
                length, slide = ms(window.length), _extent(window.every)
            case Count():
                length = Count(window.tuples)
                slide = length if window.every is None else _extent(window.every)
            case Session():
                gap_ms = ms(window.gap)
            case _:
                return None
        closed_left = window.closed == "left" or (window.closed is None and zone is not None)
        slides_by_time = length is not None and isinstance(slide, int)
        return cls(length, slide, gap_ms, in_event_time, closed_left and in_event_time and slides_by_time, zone)

    def stored(self) -> StoredGrid:
        """The argument of ``restored``, as plain values; a zone is stored only if there is one."""
        stored = _stored(self.length), _stored(self.slide), self.gap_ms, self.in_event_time, self.closed_left
        return stored if self.timezone is None else (*stored, self.timezone)

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

    @property
    def bounds(self) -> Bounds | None:
        """Where windows begin and end, in event time; None if they do not slide by time."""
        if isinstance(self.slide, Count) or self.length is None:
            return None
        length = self.slide if isinstance(self.length, Count) else self.length
        return bounds_of(length, self.slide, self.timezone)

    def over_ms(self, reached_ms: int) -> int | None:
        """The end of the last window, in event time, that a watermark has passed; -1 before the first watermark.

        None: windows do not end at times that are known before.
        """
        bounds = self.bounds
        if bounds is None:
            return None
        return bounds.at_or_before(reached_ms) if reached_ms > 0 else -1

    def closes_at(self, mark_ms: int) -> bool:
        """Whether a tuple whose time equals the watermark is late, since the watermark has closed its last window.

        A window that slides by time fires when the watermark reaches its end, and includes that end. So if windows do
        not overlap, a tuple with exactly that time is too late.
        """
        bounds = self.bounds
        if bounds is None or mark_ms <= 0 or self.closed_left or not self.is_once:
            return False
        return bounds.at_or_before(mark_ms) == mark_ms

    def last_end(self, newest_ms: int) -> int:
        """Where the last window with tuples ends, in event time, if the newest of them has this time."""
        bounds = self.bounds
        if bounds is not None:
            return bounds.last_with(newest_ms + self.closed_left)
        return newest_ms + (self.gap_ms or 0)

    def __str__(self) -> str:
        """In words.

        >>> str(Grid(60_000, 60_000, None, True)), str(Grid(Count(5), Count(2), None, False))
        ('60 s by 60 s', 'Count(5) by Count(2)')
        """
        if self.length is None:
            return f"sessions with a gap of {extent_text(self.gap_ms or 0)}"
        return f"{extent_text(self.length)} by {extent_text(self.slide, self.timezone)}"


def _extent(length: Count | timedelta | int) -> Extent:
    """A length or a slide; an int is a number of tuples."""
    if isinstance(length, timedelta):
        return ms(length)
    return length if isinstance(length, Count) else Count(length)


def extent_text(extent: Extent, timezone: str | None = None) -> str:
    """A length or a slide in words.

    >>> extent_text(Count(5)), extent_text(90_500), extent_text(3_600_000, "Europe/Berlin")
    ('Count(5)', '90.5 s', '3,600 s by the clock of Europe/Berlin')
    """
    if isinstance(extent, Count):
        return f"Count({extent.tuples})"
    text = f"{extent / 1000:,.3f}".rstrip("0").rstrip(".") + " s"
    return text if timezone is None else f"{text} by the clock of {timezone}"


def _stored(extent: Extent | None) -> Any:
    return ("tuples", extent.tuples) if isinstance(extent, Count) else extent


def _restored(stored: Any) -> Extent | None:
    return Count(stored[1]) if isinstance(stored, tuple) else stored
