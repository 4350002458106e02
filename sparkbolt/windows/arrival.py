"""Windows over tuples in their order of arrival, or in the order in which the watermark passes them.

Such a window is a range of sequences, so its cost does not depend on the number of its tuples. In event time, a tuple
enters a window with a count when the watermark passes it, and is counted once. Storm counts from 0 at each watermark
and can lose such tuples (``docs/differences-from-storm.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import U64
from sparkbolt.windows.bounds import Bounds, bounds_of
from sparkbolt.windows.content import I64, Content, join
from sparkbolt.windows.firing import Fired, Windower, expiry
from sparkbolt.windows.grid import Extent, Grid
from sparkbolt.windows.kinds import Count
from sparkbolt.windows.realignment import Handover
from sparkbolt.windows.triggers import aligned
from sparkbolt.windows.tuple_log import AFTER_ALL, BEFORE_ALL, WindowLog
from sparkbolt.windows.tuple_segments import NOTHING, Selection, Shelf


class ArrivalWindows(Windower):
    """Windows by arrival.

    Args:
        shelf: where segments are kept.
        length: the length of a window.
        slide: the distance from window to window.
        origin_ms: when timers begin; the first window ends one slide later.
        timezone: by whose clock tumbling windows of time begin and end, whenever timers begin.
    """

    def __init__(
        self, shelf: Shelf, length: Extent, slide: Extent, origin_ms: int, *, timezone: str | None = None
    ) -> None:
        self.log = WindowLog(shelf)
        self._length = length
        self._slide = slide
        self._seen = 0
        """The number of tuples since the last window, if the slide is a count."""
        self._bounds: Bounds | None = None
        """Those of windows that slide by time."""
        self._due_ms = origin_ms
        if not isinstance(slide, Count):
            self._bounds = bounds_of(slide if isinstance(length, Count) else length, slide, timezone)
            self._due_ms = self._bounds.next(origin_ms, origin_ms)
        self._head = 0
        """The first sequence that has not expired."""
        self._shown = 0
        """The sequence behind the last tuple of the last window with tuples."""

    def add(self, content: Content, now_ms: int) -> Iterator[Fired]:
        """Add tuples; if the slide is a count, yield a window after every ``slide`` tuples."""
        begin = self.log.end
        self.log.append(content)
        if isinstance(self._slide, Count):
            every = self._slide.tuples
            yield from self._fire_each(range(begin + every - self._seen, self.log.end + 1, every), now_ms)
            self._seen = (self._seen + len(content)) % every
        else:
            yield from self._expire_early(self._slide)

    def _expire_early(self, slide_ms: int) -> Iterator[Fired]:
        """Tuples that neither the next timer's window nor any later window will hold expire on arrival."""
        log = self.log
        if isinstance(self._length, Count):
            begin = log.end - self._length.tuples
        elif self._length < slide_ms:
            begin = log.first_after(self._due_ms - 1 - self._length)
        else:
            return
        if begin > self._head:
            yield expiry(self._expire(begin))

    def _expire(self, begin: int) -> Selection:
        expiring = _expired(self.log, self._head, self._shown, begin)
        self._head = begin
        return expiring

    def _fire_each(self, ends: range, now_ms: int) -> Iterator[Fired]:
        for end in ends:
            yield from self._fire(end, now_ms)

    def clock(self, now_ms: int) -> Iterator[Fired]:
        """Yield a window for each timer that was due by ``now_ms``."""
        bounds = self._bounds
        if bounds is None:
            return
        while self._due_ms <= now_ms:
            if self._is_idle:  # the next timer that matters is the first after now
                self._due_ms = bounds.next(self._due_ms, now_ms)
                return
            # After a change of the settings, tuples may be there that came after this timer.
            yield from self._fire(self.log.first_after(self._due_ms - 1), self._due_ms - 1)
            self._due_ms = bounds.next(self._due_ms, self._due_ms)

    def _fire(self, end: int, reference_ms: int) -> Iterator[Fired]:
        """The window that ends before sequence ``end``."""
        log = self.log
        if isinstance(self._length, Count):
            begin, start_ms = max(self._head, end - self._length.tuples), None
        else:
            start_ms = reference_ms - self._length
            if self._bounds is not None:
                start_ms = self._bounds.start_of(reference_ms + 1) - 1
            begin = min(max(self._head, log.first_after(start_ms)), end)
        events, new = log.between(begin, end), log.between(max(begin, self._shown), end)
        yield from self._show(reference_ms, start_ms, events, new, self._expire(begin))
        if begin < end:
            self._shown = end

    @property
    def _is_idle(self) -> bool:
        """Whether a timer has nothing to do: no tuples wait."""
        return self._head == self.log.end

    def due_ms(self) -> int | None:
        """The time of the next timer, while tuples wait."""
        return None if isinstance(self._slide, Count) or self._is_idle else self._due_ms

    def forget(self, is_void: Callable[[U64], npt.NDArray[np.bool_]]) -> None:
        """See ``Windower``; the remaining tuples are counted as if there had been no others."""
        self._seen, self._shown = _drop_void(self.log, is_void, self._head, self._seen, self._shown)
        self._head = 0

    @property
    def waits(self) -> bool:
        """See ``Windower``; a window whose length is a count always fires, and waits until all tuples were shown."""
        return self._shown < self.log.end if isinstance(self._length, Count) else self._head < self.log.end

    def hand_over(self, grid: Grid, reached_ms: int) -> Handover:
        """See ``Windower``."""
        parts, sequences, left = self.log.give_up(self._head)
        over = None if self._bounds is None else self._bounds.previous(self._due_ms)
        return Handover(grid, parts, sequences < self._shown, left, self.log.expired_is_read, over)

    def take_over(self, past: Handover, grid: Grid, reached_ms: int) -> Iterator[Fired]:
        """See ``Windower``; timers keep the phase of the task's start."""
        self._take_left(past)
        if past.parts:
            self.log.append(join(past.parts))
        self._shown = int(np.count_nonzero(past.shown))
        if grid.is_once:
            yield expiry(self._expire(self._shown))
        if isinstance(self._slide, Count):
            every, new = self._slide.tuples, self.log.end - self._shown
            yield from self._fire_each(range(self._shown + every, self.log.end + 1, every), reached_ms)
            self._seen = new % every
            return
        over = past.over_ms
        if over is None:
            over = reached_ms if past.earliest_ms is None else past.earliest_ms
        assert self._bounds is not None
        self._due_ms = self._bounds.next(self._due_ms, over)

    def save(self) -> Any:
        """See ``Windower``."""
        self.log.tidy()
        return self.log.save(), self._seen, self._due_ms, self._head, self._shown

    def load(self, state: Any) -> None:
        """See ``Windower``."""
        log, self._seen, self._due_ms, self._head, self._shown = state
        self.log.load(log)


class ReleasedWindows(Windower):
    """Windows in event time that have a count: tuples wait until the watermark passes them, and are counted then.

    Args:
        shelf: where segments are kept; waiting tuples and tuples that the watermark has passed have separate segments.
        length: the length of a window.
        slide: the distance from window to window; ``length`` or ``slide`` is a count.
        closed_left: whether a tuple right at the end of a window that slides by time enters with the next window.
    """

    def __init__(self, shelf: Shelf, length: Extent, slide: Extent, *, closed_left: bool = False) -> None:
        self.log = WindowLog(_Half(shelf, 0))
        self._waiting = WindowLog(_Half(shelf, 1))
        self._length = length
        self._slide = slide
        self._edge_ms = int(closed_left)
        """How long before a window's end the newest time in it is: 0, or 1 ms if windows are closed on the left."""
        self._seen = 0
        self._end_ms = 0
        """The end of the next window, if it slides by time."""
        self._newest_ms = BEFORE_ALL
        self._head = 0
        self._shown = 0
        self._mark_ms = 0

    def add(self, content: Content, now_ms: int) -> Iterator[Fired]:
        """Add tuples; they wait for the watermark."""
        self._waiting.append(content)
        yield from ()

    def watermark(self, mark_ms: int) -> Iterator[Fired]:
        """Yield the windows of the tuples that the watermark has passed."""
        self._mark_ms = mark_ms
        if isinstance(self._slide, Count):
            yield from self._by_count(self._slide.tuples, mark_ms)
        else:
            yield from self._by_time(self._slide, mark_ms)

    def _release(self, upto_ms: int) -> I64:
        """Let waiting tuples up to a time enter; return their times in the order of arrival, int64[tuples]."""
        passed = self._waiting.select(BEFORE_ALL, upto_ms)
        if not passed.count:
            return np.empty(0, dtype=np.int64)
        parts = [self._waiting.content(segment).take(rows) for segment, rows in passed.parts()]
        self._waiting.end_rows(passed)
        self._waiting.sweep()
        content = join(parts)
        self.log.append(content)
        return content.times

    def _by_count(self, every: int, mark_ms: int) -> Iterator[Fired]:
        begin = self.log.end
        times = self._release(mark_ms)
        if not len(times):
            return
        newest = np.maximum(np.maximum.accumulate(times), self._newest_ms)
        first = every - self._seen
        for place in range(first, len(times) + 1, every):
            reference = int(newest[place - 1])
            if isinstance(self._length, Count):
                yield from self._fire_range(begin + place, reference)
            else:
                yield from self._fire_times(begin + place, reference, self._length)
        self._seen = (self._seen + len(times)) % every
        self._newest_ms = int(newest[-1])

    def _by_time(self, every: int, mark_ms: int) -> Iterator[Fired]:
        while self._end_ms <= mark_ms:
            end, last = self._end_ms, self._end_ms - self._edge_ms
            self._release(last)
            if self._head < self.log.end:
                yield from self._fire_range(self.log.end, end)
                self._end_ms = end + every
                continue
            earliest = self._waiting.earliest(last, mark_ms)
            if earliest is None:
                return
            self._end_ms = aligned(earliest + self._edge_ms, every)

    def _fire_range(self, end: int, reference_ms: int) -> Iterator[Fired]:
        log, count = self.log, self._length
        assert isinstance(count, Count)
        begin = max(self._head, end - count.tuples)
        events, new = log.between(begin, end), log.between(max(begin, self._shown), end)
        expiring = _expired(log, self._head, self._shown, begin)
        self._head = begin
        yield from self._show(reference_ms, None, events, new, expiring)
        self._shown = end

    def _fire_times(self, end: int, reference_ms: int, length_ms: int) -> Iterator[Fired]:
        """A window with a length in time: tuples that are too old may be anywhere in the order, not only at first."""
        log, shown, start_ms = self.log, self._shown, reference_ms - length_ms
        events, gone = log.select(start_ms, AFTER_ALL, stop=end), log.select(BEFORE_ALL, start_ms, stop=end)
        new = Selection(None, lambda: log.select(start_ms, AFTER_ALL, shown, end).parts())
        log.leave(log.select(BEFORE_ALL, start_ms, stop=shown))
        log.end_rows(gone)
        yield from self._show(reference_ms, start_ms, events, new, gone)
        self._shown = end

    def due_ms(self) -> int | None:
        """The watermark at which there is something to do."""
        if isinstance(self._slide, Count):
            if self._waiting.live + self._seen < self._slide.tuples:
                return None
            return self._waiting.earliest(BEFORE_ALL, AFTER_ALL)
        if self._head < self.log.end:
            return self._end_ms
        earliest = self._waiting.earliest(BEFORE_ALL, AFTER_ALL)
        return None if earliest is None else max(self._end_ms, aligned(earliest + self._edge_ms, self._slide))

    @property
    def is_empty(self) -> bool:
        """Whether no tuples are kept."""
        return self.log.live == 0 and self._waiting.live == 0

    @property
    def held(self) -> int:
        """How many tuples are kept."""
        return self.log.live + self._waiting.live

    def everything(self) -> Iterator[tuple[WindowLog, Selection]]:
        """See ``Windower``."""
        for log in (self.log, self._waiting):
            yield log, log.select(BEFORE_ALL, AFTER_ALL)

    def release(self, keep: int) -> None:
        """See ``Windower``."""
        self.log.release(keep)
        self._waiting.release(keep)

    def forget(self, is_void: Callable[[U64], npt.NDArray[np.bool_]]) -> None:
        """See ``Windower``; the remaining tuples are counted as if there had been no others."""
        self._waiting.end_void(is_void, NOTHING)
        self._seen, self._shown = _drop_void(self.log, is_void, self._head, self._seen, self._shown)
        self._head = 0

    def hand_over(self, grid: Grid, reached_ms: int) -> Handover:
        """See ``Windower``."""
        parts, sequences, left = self.log.give_up(self._head)
        waiting, places, _ = self._waiting.give_up()
        shown = np.concatenate((sequences < self._shown, np.zeros(len(places), dtype=bool)))
        return Handover(grid, [*parts, *waiting], shown, left, self.log.expired_is_read, grid.over_ms(reached_ms))

    def take_over(self, past: Handover, grid: Grid, reached_ms: int) -> Iterator[Fired]:
        """See ``Windower``; tuples that no window has shown wait for the watermark again."""
        self._take_left(past)
        self._mark_ms = reached_ms
        if not isinstance(self._slide, Count):
            self._end_ms = past.next_end(grid, reached_ms)
        if not len(past.times):
            return
        content, places = join(past.parts), np.flatnonzero(past.shown)
        if not isinstance(past.grid.slide, Count):  # in the order in which the watermark would have let them enter
            ends = -(-(past.times[places] + past.grid.closed_left) // past.grid.slide)
            places = places[np.argsort(ends, kind="stable")]
        spent, fresh = np.flatnonzero(past.spent), np.flatnonzero(~past.used)
        if len(fresh) < len(content):
            self.log.append(content.take(np.concatenate((spent, places))))
            self._shown, self._newest_ms = self.log.end, int(past.times[past.used].max())
        if len(fresh):
            self._waiting.append(content.take(fresh))
        self._head = self._shown if grid.is_once else len(spent)
        gone = self.log.between(0, self._head)
        self.log.leave(self.log.between(len(spent), self._head))
        self.log.end_before(self._head)
        yield expiry(gone)

    def save(self) -> Any:
        """See ``Windower``."""
        self._waiting.tidy(0)
        self.log.tidy(None if isinstance(self._length, Count) else self._shown)
        own = self._seen, self._end_ms, self._newest_ms, self._head, self._shown, self._mark_ms
        return self.log.save(), self._waiting.save(), own

    def load(self, state: Any) -> None:
        """See ``Windower``."""
        log, waiting, own = state
        self._seen, self._end_ms, self._newest_ms, self._head, self._shown, self._mark_ms = own
        self.log.load(log)
        self._waiting.load(waiting)


def _expired(log: WindowLog, head: int, shown: int, begin: int) -> Selection:
    """Expire the tuples from ``head`` to ``begin`` (exclusive); those before ``shown`` were in the last window."""
    expiring = log.between(head, begin)
    log.leave(log.between(head, min(shown, begin)))
    log.end_before(begin)
    return expiring


class _Half:
    """The even numbers of a shelf, or the odd ones."""

    def __init__(self, shelf: Shelf, odd: int) -> None:
        self._shelf = shelf
        self._odd = odd

    def read(self, number: int) -> Content:
        return self._shelf.read(2 * number + self._odd)

    def write(self, number: int, data: bytes, content: Content) -> None:
        self._shelf.write(2 * number + self._odd, data, content)

    def drop(self, number: int) -> None:
        self._shelf.drop(2 * number + self._odd)


def _drop_void(
    log: WindowLog, is_void: Callable[[U64], npt.NDArray[np.bool_]], head: int, seen: int, shown: int
) -> tuple[int, int]:
    """Start a log again with the tuples from ``head`` on that are not void.

    Args:
        log: the tuples of the window.
        is_void: bool[roots] of uint64[roots].
        head: the first place that counts.
        seen: how many tuples, up to the end of the log, no window was evaluated for yet.
        shown: the place up to which tuples were shown in a window.

    Returns:
        ``seen`` and ``shown`` in the present log.
    """
    log.end_void(is_void, log.between(head, shown))
    left = [log.select(BEFORE_ALL, AFTER_ALL, max(head, place)).count for place in (log.end - seen, shown)]
    live = log.select(BEFORE_ALL, AFTER_ALL, head)
    log.restart(live)
    return left[0], live.count - left[1]
