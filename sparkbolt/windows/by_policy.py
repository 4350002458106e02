"""Windows by policies: a user's own policies, or Storm's.

They cost more than the built-in kinds: every evaluation looks at each waiting tuple. If a policy raises on a tuple, the
tuple fails, and the window is as if the tuple had not come.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.api.causes import Cause
from sparkbolt.api.method_validation import is_ours
from sparkbolt.base.exceptions import pass_on, raised_by
from sparkbolt.base.ids import U64
from sparkbolt.errors import EngineError, InvariantError
from sparkbolt.windows.content import Content
from sparkbolt.windows.firing import Fired, Windower, expiry
from sparkbolt.windows.grid import Grid
from sparkbolt.windows.manager import WindowManager
from sparkbolt.windows.policies import CountEvictionPolicy, Event, EvictionPolicy
from sparkbolt.windows.realignment import Handover
from sparkbolt.windows.triggers import TriggerPolicy
from sparkbolt.windows.tuple_log import AFTER_ALL, BEFORE_ALL, WindowLog
from sparkbolt.windows.tuple_segments import NOTHING, Selection, Shelf
from sparkbolt.worker.failures import failure_of

_Window: TypeAlias = tuple[list[Event], list[Event], list[Event], int]
"""The arguments of ``OnActivation``."""


class PolicyWindows(Windower):
    """Windows that an eviction policy and a trigger policy make.

    Args:
        shelf: where segments are kept.
        eviction: the eviction policy; this window uses a copy.
        trigger: the trigger policy; this window uses a copy.
        start_ms: when the trigger begins.
        in_event_time: whether watermarks, and not the clock, move time forward.
        owner: the name of the component, for error messages.
    """

    def __init__(
        self,
        shelf: Shelf,
        eviction: EvictionPolicy,
        trigger: TriggerPolicy,
        start_ms: int,
        *,
        in_event_time: bool,
        owner: str = "",
    ) -> None:
        self._part = f"a window policy of {owner!r}"
        self._may_raise = not (is_ours(type(eviction)) and is_ours(type(trigger)))
        """Whether a policy is the user's: it may raise, so a mark before each tuple is needed to undo its changes."""
        self.log = WindowLog(shelf)
        self._in_event_time = in_event_time
        self._repeats = isinstance(eviction, CountEvictionPolicy)
        self._news = False
        """Whether tuples have arrived since the last window."""
        self._done: list[list[Event] | _Window] = []
        """The expired events and the windows that the manager has reported since the last ``_flush``."""
        self._shown: set[int] = set()
        """Sequences of the last window that are live."""
        self._length_ms: int | None = getattr(eviction, "length_ms", None)
        with self._named():
            self._manager = WindowManager(
                copy.deepcopy(eviction),
                copy.deepcopy(trigger),
                on_activation=lambda *window: self._done.append(window),
                on_expiry=self._done_with,
            )
            self._manager.start(start_ms)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn an exception of a policy outside of any tuple into an error that names its method and its line."""
        try:
            yield
        except BaseException as error:
            pass_on(error)
            raise EngineError(raised_by(self._part, error)) from error

    def _done_with(self, events: list[Event]) -> None:
        self._done.append(events)

    def add(self, content: Content, now_ms: int) -> Iterator[Fired]:
        """Add tuples one after the other; yields the windows that they trigger."""
        begin = self.log.end
        self.log.append(content)
        self.refused = {}
        for offset, time_ms in enumerate(content.times.tolist()):
            mark = None
            try:
                if self._may_raise:
                    mark = self._manager.mark()
                self._manager.add(begin + offset, time_ms)
            except BaseException as error:  # noqa: BLE001  user code may raise anything
                failure = failure_of(error)
                if failure.cause == Cause.EXCEPTION:
                    failure = replace(failure, reason=raised_by(self._part, error))
                self.refused[offset] = failure
                if mark is not None:
                    with self._named():
                        self._manager.back_to(mark)
                self._done = []
                self.log.end_rows(self.log.pick([begin + offset]))
                continue
            self._news = True
            yield from self._flush()

    def watermark(self, mark_ms: int) -> Iterator[Fired]:
        """Pass the watermark to the policies; yields the windows that it triggers."""
        with self._named():
            self._manager.add_watermark(mark_ms)
        yield from self._flush()

    def clock(self, now_ms: int) -> Iterator[Fired]:
        """Pass the time to the policies; yields the windows that it triggers."""
        with self._named():
            self._manager.advance(now_ms)
        yield from self._flush()

    def _flush(self) -> Iterator[Fired]:
        done, self._done = self._done, []
        for one in done:
            if isinstance(one, list):
                expiring = {event.value for event in one}
                self._leave(self._shown & expiring)
                selection = self._pick(expiring)
                self.log.end_rows(selection)
                yield expiry(selection)
                continue
            self._news = False
            events, new = ({event.value for event in part} for part in one[:2])
            end_ms = one[-1]
            start_ms = None if self._length_ms is None else end_ms - self._length_ms
            self._leave(self._shown - events)  # a policy may keep a tuple that it showed before
            yield from self._show(end_ms, start_ms, self._pick(events), self._pick(new), NOTHING)
            self._shown = events

    def _leave(self, sequences: set[int]) -> None:
        self.log.leave(self._pick(sequences))
        self._shown -= sequences

    def _pick(self, sequences: set[int]) -> Selection:
        return self.log.pick(sorted(sequences)) if sequences else NOTHING

    def forget(self, is_void: Callable[[U64], npt.NDArray[np.bool_]]) -> None:
        """See ``Windower``; void tuples stay until the policies expire them, since policies count their tuples."""

    def due_ms(self) -> int | None:
        """The time of the trigger's next timer; 0 in event time, where any watermark may trigger a window."""
        if self.is_empty:
            return None
        if self._in_event_time:
            return 0
        with self._named():
            return self._manager.trigger.next_due_ms()

    @property
    def waits(self) -> bool:
        """See ``Windower``; a window of the last n tuples may always fire, and waits until all tuples were shown."""
        return self._news if self._repeats else not self.is_empty

    def hand_over(self, grid: Grid, reached_ms: int) -> Handover:
        """Raises: only the policies know which windows are over, so ``settings_change`` refuses others."""
        raise InvariantError(f"the windows of {self._part} were to become windows with other settings")

    def take_over(self, past: Handover, grid: Grid, reached_ms: int) -> Iterator[Fired]:
        """Raises, as ``hand_over``."""
        raise InvariantError(f"windows with other settings were to become those of {self._part}")

    def save(self) -> Any:
        """See ``Windower``; the waiting events are not saved, since ``load`` reads them from the log."""
        self.log.tidy()
        with self._named():
            state = self._manager.get_state()
        del state["queue"], state["expired"], state["previous"]
        return self.log.save(), state, self._news, self._shown

    def load(self, state: Any) -> None:
        """See ``Windower``."""
        log, manager_state, self._news, shown = state
        self.log.load(log)
        waiting: list[Event] = []
        for segment, rows in self.log.select(BEFORE_ALL, AFTER_ALL).parts():
            times = self.log.content(segment).times
            places = range(segment.count) if rows is None else rows.tolist()
            waiting += [Event(segment.first + row, int(times[row])) for row in places]
        previous = [place for place, event in enumerate(waiting) if event.value in shown]
        self._shown = {waiting[place].value for place in previous}
        with self._named():
            self._manager.set_state({**manager_state, "queue": waiting, "expired": [], "previous": previous})
