"""Bounds: where windows that slide by time begin and end, in UTC or by the clock of a time zone.

A window in a zone begins when the clock on the wall first shows its begin, and ends when it first shows the begin of
the next one. So windows follow one another without a gap and without an overlap, and on the day of a change of the
clock they are shorter or longer than their name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SECS = (datetime(9990, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
"""Later times have the offset of this one, since a ``datetime`` ends with the year 9999."""


@dataclass(frozen=True)
class Bounds:
    """The bounds of windows that end at multiples of ``slide_ms``; all times are in milliseconds since the epoch."""

    length_ms: int
    slide_ms: int

    def at_or_after(self, time_ms: int) -> int:
        """The first end that is not before a time.

        >>> [Bounds(10, 10).at_or_after(time) for time in (1, 10, 11)]
        [10, 10, 20]
        """
        return -(-time_ms // self.slide_ms) * self.slide_ms

    def at_or_before(self, time_ms: int) -> int:
        """The last end that is not after a time."""
        return time_ms // self.slide_ms * self.slide_ms

    def after(self, time_ms: int) -> int:
        """The first end after a time."""
        return self.at_or_after(time_ms + 1)

    def start_of(self, end_ms: int) -> int:
        """Where the window begins that ends at ``end_ms``."""
        return end_ms - self.length_ms

    def previous(self, end_ms: int) -> int:
        """The end of the window before the one that ends at ``end_ms``."""
        return end_ms - self.slide_ms

    def next(self, end_ms: int, after_ms: int) -> int:
        """The first end after ``after_ms``, of windows of which one ends at ``end_ms``, a multiple or not.

        >>> Bounds(10, 10).next(3, 3), Bounds(10, 10).next(3, 25), Bounds(10, 10).next(3, -8)
        (13, 33, -7)
        """
        return end_ms + ((after_ms - end_ms) // self.slide_ms + 1) * self.slide_ms

    def last_with(self, time_ms: int) -> int:
        """The end of the last window that holds a time.

        >>> Bounds(20, 10).last_with(5), Bounds(20, 10).last_with(10), Bounds(5, 10).last_with(2)
        (20, 20, 10)
        """
        return max(self.at_or_after(time_ms), self.at_or_before(time_ms + self.length_ms - 1))

    def first_whole(self, since_ms: int) -> int:
        """The end of the first window that does not begin before a time."""
        return self.at_or_after(since_ms + self.length_ms)


@dataclass(frozen=True)
class ZoneBounds(Bounds):
    """The bounds of tumbling windows of whole hours, or whole days, by the clock of a time zone.

    >>> berlin = ZoneBounds(DAY_MS, DAY_MS, "Europe/Berlin")
    >>> end = berlin.at_or_after(int(datetime(2026, 3, 29, 12, tzinfo=UTC).timestamp() * 1000))
    >>> (end - berlin.start_of(end)) // HOUR_MS
    23
    """

    timezone: str

    def at_or_after(self, time_ms: int) -> int:
        """The first bound that is not before a time."""
        place = self._place(time_ms)
        start = self._start(place)
        return start if start == time_ms else self._start(place + 1)

    def at_or_before(self, time_ms: int) -> int:
        """The last bound that is not after a time."""
        return self._start(self._place(time_ms))

    def start_of(self, end_ms: int) -> int:
        """The bound before ``end_ms``, which is a bound."""
        return self.at_or_before(end_ms - 1)

    def previous(self, end_ms: int) -> int:
        """The same as ``start_of``: windows follow one another."""
        return self.start_of(end_ms)

    def next(self, end_ms: int, after_ms: int) -> int:
        """The first bound after ``after_ms``."""
        return self.after(after_ms)

    def last_with(self, time_ms: int) -> int:
        """The end of the window that holds a time."""
        return self.at_or_after(time_ms)

    def first_whole(self, since_ms: int) -> int:
        """The end of the first window that does not begin before a time."""
        return self.after(self.at_or_after(since_ms))

    def _place(self, time_ms: int) -> int:
        """The number of the window that holds a time: by the clock on the wall, but a clock set back does not count."""
        place = (time_ms + _offset_ms(self.timezone, time_ms)) // self.length_ms
        while self._start(place) > time_ms:
            place -= 1
        while self._start(place + 1) <= time_ms:
            place += 1
        return place

    def _start(self, place: int) -> int:
        return _first_time(self.timezone, place * self.length_ms)


@lru_cache(maxsize=16_384)
def _first_time(timezone: str, wall_ms: int) -> int:
    """The first moment at which the clock of a zone shows a time or, if it leaves that out, a later one.

    It holds for zones that change their clocks at most once in two days, as all have done since 1970.
    """
    low, high = wall_ms - DAY_MS, wall_ms + DAY_MS
    before, after = _offset_ms(timezone, low), _offset_ms(timezone, high)
    if before == after:
        return wall_ms - before
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_ms(timezone, middle) == before:
            low = middle
        else:
            high = middle
    return wall_ms - before if wall_ms - before < high else max(high, wall_ms - after)


def _offset_ms(timezone: str, time_ms: int) -> int:
    """How far the clock of a zone is ahead of UTC."""
    moment = _EPOCH + timedelta(seconds=max(-_LAST_SECS // 8, min(time_ms // 1000, _LAST_SECS)))
    offset = moment.astimezone(ZoneInfo(timezone)).utcoffset()
    assert offset is not None
    return offset // timedelta(milliseconds=1)


def bounds_of(length_ms: int, slide_ms: int, timezone: str | None = None) -> Bounds:
    """The bounds of windows that slide by time; in a zone they are tumbling windows."""
    return Bounds(length_ms, slide_ms) if timezone is None else ZoneBounds(length_ms, slide_ms, timezone)
