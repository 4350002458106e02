"""WriteTimes: remembers when the bytes of a followed file were written, as far as its times of modification show."""

from __future__ import annotations

import bisect

STEP_SECS = 1.0
"""Bytes that were written within one step have one time, that of the first of them."""
STEPS_MAX = 256
"""The most steps that are kept; if there are more, steps become twice as long."""


class WriteTimes:
    """By position in one file, the time at which its byte was there first.

    The time of a byte is the file's time of modification at the first look that found the byte. Bytes that were there
    at the first look may be older.

    >>> times = WriteTimes()
    >>> times.add(100, 50.0); times.add(160, 50.5); times.add(200, 70.0)
    >>> times.of(0), times.of(159), times.of(160), times.of(200)
    (50.0, 50.0, 70.0, None)
    """

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._ends: list[int] = []
        self._times: list[float] = []
        self._step_secs = STEP_SECS

    def add(self, end: int, written_s: float) -> None:
        """Remember that the bytes up to ``end`` are there; ``written_s`` is the file's time of modification."""
        if self._ends and end <= self._ends[-1]:
            return
        if self._ends and written_s - self._times[-1] < self._step_secs:
            self._ends[-1] = end
            return
        self._ends.append(end)
        self._times.append(written_s)
        if len(self._ends) > STEPS_MAX:
            self._ends, self._times = [*self._ends[1:-1:2], self._ends[-1]], self._times[::2]
            self._step_secs *= 2

    def of(self, position: int) -> float | None:
        """Return when the byte at ``position`` was written, and forget those before it; None if it is not there yet."""
        passed = bisect.bisect_right(self._ends, position)
        del self._ends[:passed], self._times[:passed]
        if not self._times:
            self._step_secs = STEP_SECS
        return self._times[0] if self._times else None
