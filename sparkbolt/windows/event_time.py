"""Windows over event time, and sessions.

A window ``(end - length, end]`` includes its end, as in Storm. A window that is closed on the left, ``[end - length,
end)``, as in Spark and Flink, is the same window one millisecond earlier: the newest time in it is ``end - 1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sparkbolt.windows.bounds import bounds_of
from sparkbolt.windows.content import Content, join
from sparkbolt.windows.firing import Fired, Windower, expiry
from sparkbolt.windows.grid import Grid
from sparkbolt.windows.realignment import Handover
from sparkbolt.windows.tuple_log import AFTER_ALL, BEFORE_ALL, WindowLog
from sparkbolt.windows.tuple_segments import NOTHING, Part, Selection, Shelf


class EventTimeWindows(Windower):
    """Windows in event time that have a length in time and slide by time.

    Args:
        shelf: where segments are kept.
        length_ms: the length of a window.
        slide_ms: the distance from window to window.
        closed_left: whether windows include their start and exclude their end.
        timezone: by whose clock tumbling windows begin and end; None: UTC.
    """

    def __init__(
        self,
        shelf: Shelf,
        length_ms: int,
        slide_ms: int,
        *,
        closed_left: bool = False,
        timezone: str | None = None,
    ) -> None:
        self.log = WindowLog(shelf)
        self._bounds = bounds_of(length_ms, slide_ms, timezone)
        self._edge_ms = int(closed_left)
        """How long before a window's end the newest time in it is: 0, or 1 ms if windows are closed on the left."""
        self._end_ms = self._bounds.at_or_after(0)
        """Where the next window ends."""
        self._mark_ms = 0
        self._shown_ms = BEFORE_ALL
        """The newest time that belongs to the last window with tuples."""
        self._shown = 0
        """The end of the log when the last window with tuples fired."""
        self._new_ms = BEFORE_ALL
        """No tuple of an earlier time is new in the next window."""
        self._ahead = 0
        """After a change of the settings: how many of the first tuples in the log windows by count have shown, up to
        times that no window by time has reached."""
        self._ahead_ms = BEFORE_ALL
        """The newest time of these tuples."""

    def watermark(self, mark_ms: int) -> Iterator[Fired]:
        """Yield all windows that end at the watermark or before it."""
        self._mark_ms = mark_ms
        log, bounds = self.log, self._bounds
        while self._end_ms <= mark_ms:
            end, last, start = self._end_ms, self._end_ms - self._edge_ms, bounds.start_of(self._end_ms)
            before = start - self._edge_ms
            events, gone = log.select(before, last), log.select(BEFORE_ALL, before)
            if gone.count:
                log.leave(log.select(BEFORE_ALL, min(before, self._shown_ms), stop=self._shown))
                log.end_rows(gone)
            if events.count and last < self._shown_ms:  # windows by count have shown newer tuples, which expire here
                log.leave(log.select(last, self._shown_ms, stop=self._shown))
            yield from self._show(end, start, events, self._new(before, last), gone)
            if events.count:
                self._shown_ms = self._new_ms = last
                self._shown = log.end
                self._ahead = 0 if last >= self._ahead_ms else self._ahead
                self._end_ms = bounds.after(end)
                continue
            earliest = log.earliest(last, mark_ms)
            if earliest is None:
                return
            self._end_ms = bounds.at_or_after(earliest + self._edge_ms)

    def _last_shown(self) -> Selection:
        return self.log.select(BEFORE_ALL, self._shown_ms, stop=self._shown)

    def _new(self, before_ms: int, last_ms: int) -> Selection:
        """The tuples that were not in the last window: newer than its newest time, or added after it fired."""
        log, shown_ms, shown, new_ms = self.log, self._shown_ms, self._shown, self._new_ms

        def make() -> list[Part]:
            parts: list[Part] = []
            for segment, rows in log.select(max(before_ms, new_ms - 1), last_ms).parts():
                if segment.first < shown and segment.low_ms <= shown_ms:
                    rows = np.arange(segment.count, dtype=np.intp) if rows is None else rows
                    times = log.content(segment).times[rows]
                    rows = rows[(times > shown_ms) | (rows + segment.first >= shown)]
                if rows is None or len(rows):
                    parts.append((segment, rows))
            return parts

        return Selection(None, make)

    def due_ms(self) -> int | None:
        """The end of the next window that may have tuples."""
        if self.log.live == 0:
            return None
        if self._end_ms > self._mark_ms:
            return self._end_ms
        earliest = self.log.earliest(self._end_ms - 1, AFTER_ALL)
        return None if earliest is None else self._bounds.at_or_after(earliest + self._edge_ms)

    def hand_over(self, grid: Grid, reached_ms: int) -> Handover:
        """See ``Windower``."""
        parts, sequences, left = self.log.give_up()
        times = np.concatenate([part.times for part in parts]) if parts else sequences
        shown = (sequences < self._shown) & (times <= self._shown_ms)
        spent = (sequences < self._ahead) & ~shown
        return Handover(grid, parts, shown, left, self.log.expired_is_read, grid.over_ms(reached_ms), spent)

    def take_over(self, past: Handover, grid: Grid, reached_ms: int) -> Iterator[Fired]:
        """See ``Windower``; a tuple of a window that is over already, as a late one has, expires and is ``missed``."""
        self._take_left(past)
        self._mark_ms, self._end_ms = reached_ms, past.next_end(grid, reached_ms)
        if not len(past.times):
            return
        if not grid.is_once:
            self._take_again(past)
            return
        log = self.log
        log.append(join(past.parts))
        log.leave(log.pick(np.flatnonzero(past.shown).tolist()))
        missed = ~past.used & (past.times <= min(self._bounds.previous(self._end_ms), reached_ms) - self._edge_ms)
        self.missed = int(np.count_nonzero(missed))
        gone = log.pick(np.flatnonzero(past.used | missed).tolist())
        log.end_rows(gone)
        yield expiry(gone)
        log.sweep()

    def _take_again(self, past: Handover) -> None:
        """Take tuples into windows that may show them again."""
        content, times, shown, spent = join(past.parts), past.times, past.shown, past.spent
        last = self._end_ms - self._edge_ms
        newest = int(times[past.used].max()) if past.used.any() else BEFORE_ALL
        if shown.any():
            self._shown, self._shown_ms = int(np.flatnonzero(shown)[-1]) + 1, int(times[shown].max())
            self._new_ms = int(times[~shown].min(initial=self._shown_ms))
        if newest > last or spent.any():
            self._ahead, self._ahead_ms = int(np.count_nonzero(past.used)), newest
        if self._ahead or bool((~shown[: self._shown] & (times[: self._shown] <= self._shown_ms)).any()):
            # A tuple among those that were shown would be taken for one of them: they go first.
            content = content.take(np.concatenate([np.flatnonzero(some) for some in (shown, spent, ~past.used)]))
            self._shown = int(np.count_nonzero(shown))
        self.log.append(content)

    def save(self) -> Any:
        """See ``Windower``."""
        self.log.tidy(None if self._ahead else self._shown)
        own = self._end_ms, self._mark_ms, self._shown_ms, self._shown, self._new_ms, self._ahead, self._ahead_ms
        return self.log.save(), *own

    def load(self, state: Any) -> None:
        """See ``Windower``."""
        log, self._end_ms, self._mark_ms, self._shown_ms, self._shown, *others = state
        self._new_ms, self._ahead, self._ahead_ms = others or (self._shown_ms, 0, BEFORE_ALL)
        self.log.load(log)


class SessionWindows(Windower):
    """Sessions, in event time or on arrival: less than ``gap_ms`` is between a tuple of a session and the next one.

    A session starts at the time of its first tuple and ends ``gap_ms`` after its last. It fires when the watermark, or
    the clock, reaches that end; then its tuples expire. All tuples of a session are new in it.
    """

    def __init__(self, shelf: Shelf, gap_ms: int) -> None:
        self.log = WindowLog(shelf)
        self._gap_ms = gap_ms
        self._due_ms: int | None = None
        """No session ends before this time; None if there are no tuples."""

    def add(self, content: Content, now_ms: int) -> Iterator[Fired]:
        """Add tuples; no session ends with them."""
        self.log.append(content)
        if len(content):
            end = int(content.times.min()) + self._gap_ms
            self._due_ms = end if self._due_ms is None else min(self._due_ms, end)
        yield from ()

    def watermark(self, mark_ms: int) -> Iterator[Fired]:
        """Yield the sessions that have ended, in the order of their ends."""
        if self._due_ms is None or mark_ms < self._due_ms:
            return
        log = self.log
        times = np.sort(log.times(log.select(BEFORE_ALL, mark_ms)))
        breaks = np.flatnonzero(np.diff(times) >= self._gap_ms)
        firsts = times[np.concatenate(([0], breaks + 1))] if len(times) else times
        lasts = times[np.concatenate((breaks, [len(times) - 1]))] if len(times) else times
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            if last + self._gap_ms <= mark_ms:
                events = log.select(first - 1, last)
                yield from self._show(last + self._gap_ms, first, events, events, NOTHING)
                log.leave(events)
                log.end_rows(events)
                yield expiry(events)
        log.sweep()
        self._due_ms = self._next_end()

    def clock(self, now_ms: int) -> Iterator[Fired]:
        """The same as ``watermark``: where arrival is the time, the clock takes the watermark's place."""
        return self.watermark(now_ms)

    def _next_end(self) -> int | None:
        """The time before which no session can end: a gap after the last known tuple of the oldest session."""
        times = np.sort(self.log.times(self.log.select(BEFORE_ALL, AFTER_ALL)))
        if not len(times):
            return None
        breaks = np.flatnonzero(np.diff(times) >= self._gap_ms)
        return int(times[breaks[0] if len(breaks) else -1]) + self._gap_ms

    def due_ms(self) -> int | None:
        """The time at which the next session may end."""
        return self._due_ms

    def hand_over(self, grid: Grid, reached_ms: int) -> Handover:
        """See ``Windower``."""
        parts, sequences, left = self.log.give_up()
        return Handover(grid, parts, np.zeros(len(sequences), dtype=bool), left, self.log.expired_is_read)

    def take_over(self, past: Handover, grid: Grid, reached_ms: int) -> Iterator[Fired]:
        """See ``Windower``."""
        self._take_left(past)
        if past.parts:
            self.log.append(join(past.parts))
        if past.used.any():
            gone = self.log.pick(np.flatnonzero(past.used).tolist())
            self.log.leave(self.log.pick(np.flatnonzero(past.shown).tolist()))
            self.log.end_rows(gone)
            yield expiry(gone)
            self.log.sweep()
        self._due_ms = self._next_end()

    def save(self) -> Any:
        """See ``Windower``."""
        self.log.tidy(0)
        return self.log.save(), self._due_ms

    def load(self, state: Any) -> None:
        """See ``Windower``."""
        log, self._due_ms = state
        self.log.load(log)
