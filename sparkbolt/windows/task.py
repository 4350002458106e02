"""The window task: the runtime of one task of a windowed bolt.

Rule 1: the time is the micro-batch's. Timers that were due by then fire at their own times before the micro-batch's
tuples are added, so that a window on arrival holds exactly the tuples of its span of time; the watermark moves after
the tuples.
Rule 2: memory is valid only if the head of the state is the very object that this process wrote or read last.
Rule 3: a window for which ``execute`` raises emits nothing and is not shown again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.story import time_text
from sparkbolt.api.tuples import SYSTEM_COMPONENT
from sparkbolt.base.exceptions import line_of
from sparkbolt.base.ids import U64
from sparkbolt.errors import EngineError, KilledWorkerError
from sparkbolt.windows.arrival import ArrivalWindows, ReleasedWindows
from sparkbolt.windows.by_policy import PolicyWindows
from sparkbolt.windows.collector import WindowCollector
from sparkbolt.windows.content import Content, decode
from sparkbolt.windows.event_time import EventTimeWindows, SessionWindows
from sparkbolt.windows.firing import Fired, Windower
from sparkbolt.windows.grid import Grid
from sparkbolt.windows.keyed import KeyedWindows
from sparkbolt.windows.kinds import Count, Policies, Window, ms
from sparkbolt.windows.reading import MessageIds, groups_of, times_of
from sparkbolt.windows.realignment import kept_since, lack
from sparkbolt.windows.shares import HEAD, WINDOWS
from sparkbolt.windows.source_times import SourceTimes
from sparkbolt.windows.tuple_log import BEFORE_ALL, WindowLog
from sparkbolt.windows.tuple_segments import Selection, Shelf
from sparkbolt.windows.watermarks import WaterMarkEventGenerator
from sparkbolt.windows.window import TupleWindow
from sparkbolt.wire.plan import Timer
from sparkbolt.wire.stream_sources import SourceRanges, StreamSources
from sparkbolt.worker.bolt_runtime import BoltRuntime, joined
from sparkbolt.worker.emissions import Output, Rows
from sparkbolt.worker.failures import failure_of
from sparkbolt.worker.returned_values import emit_all

if TYPE_CHECKING:
    from sparkbolt.windows.bolt import WindowedBolt
    from sparkbolt.worker.results import Settlements
    from sparkbolt.worker.state.task_state import TaskState

SESSION_QUANTA = 16
POLICY_QUANTUM_MS = 1000


class _TaskShelf:
    """The segments of a window without keys: the only window of its task."""

    def __init__(self, keep: bool) -> None:
        self.state: TaskState | None = None
        self._keep = keep
        """Whether decoded content may stay in the worker."""

    def read(self, number: int) -> Content:
        assert self.state is not None
        name = f"{HEAD}/{number}"
        content = self.state.load(name, decode) if self._keep else decode(self.state.read(name) or b"")
        assert content is not None
        return content

    def write(self, number: int, data: bytes, content: Content) -> None:
        assert self.state is not None
        self.state.write_own(f"{HEAD}/{number}", data, content if self._keep else None)

    def drop(self, number: int) -> None:
        assert self.state is not None
        self.state.drop(f"{HEAD}/{number}")


class WindowTask(BoltRuntime):
    """Runs a windowed bolt; made by ``WindowedBolt.runtime``."""

    def __init__(self, bolt: WindowedBolt, windowing: Window, context: TopologyContext, output: Output) -> None:
        super().__init__()
        self._bolt = bolt
        self._windowing = windowing
        self._context = context
        self._output = output
        self._collector = WindowCollector(output)
        self._shelf = _TaskShelf(keep=windowing.max_events_in_memory is None)
        self._state: TaskState | None = None
        self._head: Any = None
        """The head of the state when this process read or wrote it last."""
        self._changed = False
        self._late = 0
        self._late_told_ms: int | None = None
        self._wanted = Grid.of(windowing)
        self._start_afresh()

    def _start_afresh(self) -> None:
        """Reset to a task that has seen nothing."""
        self._grid = self._wanted
        """Of the windows in memory; until ``begin`` they may have the settings of an earlier program."""
        self._since_ms = BEFORE_ALL
        """After changes of the settings: the time of which all newer tuples are in the windows."""
        self._origin_ms: int | None = None
        """When the task began, in milliseconds."""
        self._next_mark_ms = 0
        self._next_due_ms = self._context.now_ms
        """When the task ran last or, if that is later, when its timer is due next; in milliseconds."""
        self._marks: WaterMarkEventGenerator | None = None
        self._seen = MessageIds()
        self._window: Windower | None = None
        self._keyed: KeyedWindows | None = None
        self._times = SourceTimes()

    # The micro-batch, step by step.

    def attach(self, state: TaskState) -> None:
        """See ``BoltRuntime``."""
        self._state = self._shelf.state = state
        self._changed = False
        self._collector.begin_micro_batch()
        head = state.load(HEAD, pickle.loads)
        fresh = head is None or head is not self._head
        if fresh:
            self._start_afresh()
            self._head = head
            if head is not None and len(head) > 6 and head[6] is not None:  # a task of an older version stored no grid
                self._grid, self._since_ms = Grid.restored(head[6]), head[7]
        if self._origin_ms is None:
            self._begin_life(self._context.now_ms if head is None else head[0])
            self._changed = head is None and self._bolt.runs_timers  # saved: timers keep this start after a crash
        if fresh and head is not None:
            _, self._next_mark_ms, marks, seen, window, self._next_due_ms, *_ = head
            if self._marks is not None and marks is not None:
                self._marks.set_state(marks)
            if self._windowing.message_id is not None:
                self._seen.load(seen)
            if self._window is not None:
                self._window.load(window)
        self._come_back()
        if self._keyed is not None:
            self._keyed.attach(state.key_value(WINDOWS), None if head is None else head[4], fresh)

    def _come_back(self) -> None:
        """Count the silence of streams from now on if the task ran late by more than the idle timeout.

        A task that did not run received nothing, so its streams may not have been silent.
        """
        now_ms, idle = self._context.now_ms, self._windowing.idle_ms
        if self._marks is not None and idle is not None and now_ms - self._next_due_ms > idle:
            self._marks.hear_all(now_ms)
            self._changed = True

    def _begin_life(self, origin_ms: int) -> None:
        windowing = self._windowing
        self._origin_ms = origin_ms
        if windowing.in_event_time:
            lag = 0 if windowing.lag is None else ms(windowing.lag)
            self._marks = WaterMarkEventGenerator(self._context.inputs, lag, windowing.idle_ms, origin_ms)
            self._next_mark_ms = origin_ms + windowing.watermark_interval_ms
        if windowing.key_fields is None:
            self._window = self._make(self._grid, self._shelf)
        else:
            idle = None if windowing.key_idle is None else ms(windowing.key_idle)
            make = partial(self._make, self._grid)
            self._keyed = KeyedWindows(make, self._quantum_ms(), idle, repeats=self._repeats)

    @property
    def _repeats(self) -> bool:
        return self._grid is not None and self._grid.repeats

    def _make(self, grid: Grid | None, shelf: Shelf) -> Windower:
        windowing, origin = self._windowing, self._origin_ms or 0
        if isinstance(windowing, Policies):
            owner = self._context.component
            pair, in_event_time = (windowing.eviction, windowing.trigger), windowing.in_event_time
            return PolicyWindows(shelf, *pair, origin, in_event_time=in_event_time, owner=owner)
        assert grid is not None
        if grid.gap_ms is not None:
            return SessionWindows(shelf, grid.gap_ms)
        length, slide = grid.length, grid.slide
        assert length is not None
        if not grid.in_event_time:
            return ArrivalWindows(shelf, length, slide, origin, timezone=grid.timezone)
        if isinstance(length, Count) or isinstance(slide, Count):
            return ReleasedWindows(shelf, length, slide, closed_left=grid.closed_left)
        return EventTimeWindows(shelf, length, slide, closed_left=grid.closed_left, timezone=grid.timezone)

    def _quantum_ms(self) -> int:
        if self._grid is None:
            return POLICY_QUANTUM_MS
        if self._grid.gap_ms is not None:
            return self._grid.gap_ms // SESSION_QUANTA
        return self._windowing.watermark_interval_ms if isinstance(self._grid.slide, Count) else 1

    def hear(self, streams: Sequence[StreamSources], ranges: SourceRanges | None) -> None:
        """See ``BoltRuntime``."""
        self._times.hear(streams, ranges)

    def forget(self, is_void: Callable[[U64], npt.NDArray[np.bool_]]) -> None:
        """See ``BoltRuntime``; windows know the trees of their tuples only if tuples are acked when they expire."""
        if self._windowing.ack_on_expiry:
            for _, window in self._windows():
                window.forget(is_void)
            self._changed = True

    def _windows(self) -> Iterator[tuple[Any, Windower]]:
        if self._keyed is not None:
            return self._keyed.all()
        assert self._window is not None
        return iter([(None, self._window)])

    def begin(self, counts: Settlements) -> None:
        """See ``BoltRuntime``."""
        now_ms = self._context.now_ms
        if self._grid != self._wanted:
            self._realign()
        if self._marks is None:
            for key, window in self._due(now_ms):
                self._show(window, window.clock(now_ms), key)
        if self._keyed is not None:
            for _, window in self._keyed.idle(now_ms):
                self._evict(window)

    def _realign(self) -> None:
        """Let windows with the present settings take over the tuples of those with the settings of before."""
        before, after = self._grid, self._wanted
        assert before is not None
        assert after is not None
        self._head = None  # should this attempt fail, the next one reads the state again
        self._grid, self._changed = after, True
        reached = self._context.now_ms if self._marks is None else self._marks.last
        for key, old, new in self._replaced(reached):
            self._show(new, new.take_over(old.hand_over(before, reached), after, reached), key)
            if self._marks is not None and reached:
                self._show(new, new.watermark(reached), key)
            self.effects.metrics.late_tuples += new.missed
        text = f"its windows were {before} and are {after} from now on"
        if reached:
            self._since_ms = max(self._since_ms, kept_since(before, after, reached))
            lacking = lack(before, after, self._since_ms, reached)
            text = f"{text}: {lacking}" if lacking else text
        self.effects.reports.append(text)

    def _replaced(self, reached_ms: int) -> Iterator[tuple[Any, Windower, Windower]]:
        """Yield each key with its window of before, and the new one; without keys there is one."""
        make = partial(self._make, self._grid)
        if self._keyed is not None:
            yield from self._keyed.realign(make, self._quantum_ms(), reached_ms, repeats=self._repeats)
            return
        old, self._window = self._window, make(self._shelf)
        assert old is not None
        yield None, old, self._window

    def _due(self, limit_ms: int) -> Iterator[tuple[Any, Windower]]:
        if self._keyed is not None:
            yield from self._keyed.due(limit_ms)
        elif self._window is not None:
            yield None, self._window

    def _evict(self, window: Windower) -> None:
        """Expire all tuples of a window without showing them."""
        for log, held in window.everything():
            self._expire(log, held)
            log.end_rows(held)
        self._changed = True

    def rows(self, rows: Rows, counts: Settlements) -> npt.NDArray[np.bool_] | None:
        """See ``BoltRuntime``."""
        if rows.origin.component == SYSTEM_COMPONENT:
            return None
        self._changed = True
        now_ms, windowing = self._context.now_ms, self._windowing
        good = np.ones(rows.count, dtype=bool)
        times = np.full(rows.count, now_ms, dtype=np.int64)
        if self._marks is not None:
            times, good = times_of(rows, windowing, now_ms, counts)
        seen = None
        if windowing.message_id is not None:
            may_fail = isinstance(windowing, Policies) or windowing.key is not None
            seen = self._seen.save() if may_fail else None
            good = self._seen.new_of(rows, windowing.message_id, good, counts)
        fresh = good
        if self._marks is not None and bool(good.any()):
            good = self._in_time(rows, times, good)
        fields = windowing.key_fields
        groups = None if fields is None else groups_of(rows, fields, good, counts)
        trees = rows.anchoring if windowing.ack_on_expiry else None
        content = Content((rows.origin,), None, list(rows.columns), times, trees)
        if groups is None:
            assert self._window is not None
            places = np.flatnonzero(good)
            chosen = content if bool(good.all()) else content.take(places)
            self._show(self._window, self._window.add(chosen, now_ms), None)
            _refuse(self._window, places, good, counts)
        else:
            assert self._keyed is not None
            for key, own in content.split(groups):
                window = self._keyed.of(key, now_ms)
                if self._marks is None:  # a key without tuples was not listed as due
                    self._show(window, window.clock(now_ms), key)
                self._show(window, window.add(own, now_ms), key)
                _refuse(window, groups[key], good, counts)
        if seen is not None and counts.failures:  # ids of failed rows do not count as seen: they may be retried
            assert windowing.message_id is not None
            fresh = fresh.copy()
            fresh[[row for row in counts.failures if row < rows.count]] = False
            self._seen.load(seen)
            self._seen.new_of(rows, windowing.message_id, fresh, counts)
        return good if windowing.ack_on_expiry else None

    def _in_time(self, rows: Rows, times: npt.NDArray[np.int64], good: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Find the good rows that are not late, bool[rows]; late rows go to their stream, if there is one."""
        assert self._marks is not None
        origin = rows.origin
        late = good & (times < self._marks.last)
        if self._grid is not None and self._grid.closes_at(self._marks.last):
            late |= good & (times == self._marks.last)
        stream = origin.component, origin.stream
        self._marks.note(stream, int(times[good].max()), self._context.now_ms)
        self._times.note(stream, rows, times, good)
        count = int(np.count_nonzero(late))
        if not count:
            return good
        self.effects.metrics.late_tuples += count
        if self._windowing.late is None:
            self._tell_late(count)
            return good & ~late
        from sparkbolt.windows.bolt import LateTuple

        source = origin.component, origin.task, origin.stream, origin.fields
        out = self._output.of(self._windowing.late)
        wanted = set(np.flatnonzero(late).tolist())
        for row, values in enumerate(rows.values()):
            if row in wanted:
                out.push([LateTuple(*source, tuple(values))], row)
        return good & ~late

    def _tell_late(self, count: int) -> None:
        """Log late tuples at most once per interval."""
        assert self._marks is not None
        self._late += count
        now_ms, interval = self._context.now_ms, self._context.config.error_throttle_interval_secs * 1000
        if self._late_told_ms is None or now_ms - self._late_told_ms >= interval:
            self.effects.reports.append(
                f"{self._late} tuple(s) were older than the watermark, {time_text(self._marks.last)}, and are in no "
                "window: raise the lag, or set late to have them in a stream"
            )
            self._late, self._late_told_ms = 0, now_ms

    def end(self, counts: Settlements) -> None:
        """See ``BoltRuntime``."""
        now_ms, marks = self._context.now_ms, self._marks
        if marks is not None:
            self._times.hold(marks, now_ms)
            self.marks = self._times.reports(self._context.component)
        if marks is not None and now_ms >= self._next_mark_ms:
            before, mark = marks.last, marks.watermark(now_ms)
            if mark is not None:
                self._pass(before, mark)
            self._close_silent(marks)
            self._changed = self._changed or marks.last > before
            if self._changed:  # an interval begins only if it is saved, so that it is the same one after a crash
                self._next_mark_ms = now_ms + self._windowing.watermark_interval_ms
        if self._keyed is not None:
            self._keyed.settle(now_ms if marks is None else marks.last)
        if marks is not None and marks.last:
            self.effects.metrics.watermark_ms = marks.last
            self.effects.metrics.watermark_behind_ms = max(0, now_ms - marks.last)
        self.timer = self._next_timer()
        self._next_due_ms = now_ms if self.timer is None else max(now_ms, self.timer.due_ms)
        self._changed = self._changed or self._windowing.idle is not None  # ``_come_back`` needs it saved

    def _pass(self, before_ms: int, mark_ms: int) -> None:
        """Show the windows that the watermark has reached on its way from ``before_ms``."""
        if self._keyed is not None:
            self._keyed.settle(before_ms)  # the watermark may pass tuples of this very micro-batch
        for key, window in self._due(mark_ms):
            self._show(window, window.watermark(mark_ms), key)

    def _close_silent(self, marks: WaterMarkEventGenerator) -> None:
        """While all streams are silent, let the watermark rise with the clock, where that closes a window.

        It stops at the end of the last window with tuples, so tuples for later windows are in time.
        """
        limit = marks.clock_mark(self._context.now_ms)
        if limit is None:
            return
        last = self._last_end(marks.newest_ms or 0)
        limit = last if self._times.have_ended(len(self._context.inputs)) else min(limit, last)
        if self._keyed is not None:
            self._keyed.settle(marks.last)
        due, _ = self._next_due()
        if due is None or not marks.last < due <= limit:
            return
        bounds = None if self._grid is None else self._grid.bounds
        before, marks.last = marks.last, limit if bounds is None else bounds.at_or_before(limit)
        self._pass(before, marks.last)

    def _last_end(self, newest_ms: int) -> int:
        """Where the last window with tuples ends, if the newest of them has this time."""
        return newest_ms if self._grid is None else self._grid.last_end(newest_ms)

    def _next_due(self) -> tuple[int | None, bool]:
        """When the next window is due, and whether it shows something new."""
        if self._keyed is not None:
            return self._keyed.next_due_ms(), self._keyed.waits
        assert self._window is not None
        return self._window.due_ms(), self._window.waits

    def _next_timer(self) -> Timer | None:
        due, waits = self._next_due()
        if due is None:
            return None
        marks, now_ms = self._marks, self._context.now_ms
        if marks is None:
            return Timer(max(due, now_ms + 1), waits)
        candidate = marks.candidate(now_ms)
        if candidate is not None and candidate >= due:
            return Timer(max(self._next_mark_ms, now_ms + 1))
        least = max(self._next_mark_ms, now_ms + 1)
        changes = [when for when in (marks.next_idle_ms(now_ms), self._times.release_ms) if when is not None]
        if changes:
            return Timer(max(min(changes), least))
        clock_mark = marks.clock_mark(now_ms)
        if clock_mark is None or due > self._last_end(marks.newest_ms or 0):
            return None
        return Timer(max(now_ms + due - clock_mark, least), waits=False)

    def begin_flush(self) -> WindowCollector:
        """See ``BoltRuntime``."""
        self._collector.begin(None)
        return self._collector

    def end_flush(self) -> None:
        """See ``BoltRuntime``."""
        self._collector.end()

    def save(self) -> None:
        """See ``BoltRuntime``."""
        state, limit = self._state, self._windowing.max_events_in_memory
        assert state is not None
        if not self._changed and not (self._keyed is not None and self._keyed.is_touched):
            return
        if self._keyed is not None:
            window = self._keyed.save()
        else:
            assert self._window is not None
            window = self._window.save()
        marks = None if self._marks is None else self._marks.get_state()
        head = (self._origin_ms, self._next_mark_ms, marks, self._seen.save(), window, self._next_due_ms)
        data = pickle.dumps((*head, None if self._grid is None else self._grid.stored(), self._since_ms), 5)
        self._head = pickle.loads(data)
        state.write_own(HEAD, data, self._head, alone=True)
        if limit is not None and self._keyed is not None:
            self._keyed.release(limit)
        elif limit is not None and self._window is not None:
            self._window.release(limit)

    # Windows that are due.

    def _show(self, window: Windower, fired: Iterator[Fired], key: Any) -> None:
        for one in fired:
            self._changed = True
            self._expire(window.log, one.expiring)
            if one.events.count:
                self._execute(window.log, one, key)

    def _expire(self, log: WindowLog, expired: Selection) -> None:
        if expired.count:
            self.effects.metrics.expired += expired.count
            if self._windowing.ack_on_expiry:
                self.effects.acks.append(_pairs(log, expired))

    def _execute(self, log: WindowLog, fired: Fired, key: Any) -> None:
        self.has_run = True
        self.effects.metrics.windows += 1
        self.effects.metrics.window_tuples += fired.events.count
        collector = self._collector
        anchored = self._windowing.ack_on_expiry
        collector.begin((lambda: _pairs(log, fired.events)) if anchored else None)
        before = collector.mark()
        window = TupleWindow(log, fired, key)
        try:
            with self.showing():
                returned = self._bolt.execute(window, collector)
                if returned is not None:
                    who = f"execute of {self._context.component!r}"
                    emit_all(returned, collector.emit, who, single=self._output.single)
        except BaseException as raised:
            failure_of(raised)  # re-raises Ctrl-C, which does not belong to a window
            error = KilledWorkerError(f"{window!r} {raised}") if isinstance(raised, KilledWorkerError) else raised
            collector.back_to(before)
            if anchored:
                self.effects.fails.append((_pairs(log, fired.events)[0], error))
                return
            if self._context.config.on_error == "stop":
                raise EngineError(
                    f"{self._context.component!r} raised for the window that ends at {fired.end_ms}, and its on_error "
                    f"is 'stop': {line_of(error)}"
                ) from raised
            self._output.errors.append(error)
        finally:
            collector.end()


def _refuse(window: Windower, places: npt.NDArray[np.intp], good: npt.NDArray[np.bool_], counts: Settlements) -> None:
    """Fail the rows that a window did not take; ``good``, bool[rows], becomes false for them."""
    for offset, failure in window.refused.items():
        row = int(places[offset])
        good[row] = False
        counts.failures[row] = failure


def _pairs(log: WindowLog, selection: Selection) -> tuple[U64, U64]:
    return joined([log.content(segment).pairs(rows) for segment, rows in selection.parts()])
