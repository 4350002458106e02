"""Windows of any policies: a user's own, or Storm's as they are.

Which question it answers: how does a ``WindowManager`` make the windows of a bolt, durable like the others?
Rule 1: it gives the same windows as the built-in kinds where those have the same rules, at another price: every
evaluation looks at each tuple that waits, and after a restart all their times are read.
Rule 2: a tuple on which a policy raises fails, and it is as if it had not come. What a policy raises when there is no
tuple, for a timer or a watermark, is an error that names it.

Read before: ``manager``, ``firing``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from sparkbolt.core.base.exceptions import pass_on, raised_by
from sparkbolt.core.model.causes import Cause
from sparkbolt.core.model.method_validation import is_ours
from sparkbolt.core.worker.failures import failure_of
from sparkbolt.errors import EngineError
from sparkbolt.windows.content import Content
from sparkbolt.windows.firing import Fired, Windower, expiry
from sparkbolt.windows.log import AFTER_ALL, BEFORE_ALL, WindowLog
from sparkbolt.windows.manager import WindowManager
from sparkbolt.windows.policies import CountEvictionPolicy, Event, EvictionPolicy
from sparkbolt.windows.segments import NOTHING, Selection, Shelf
from sparkbolt.windows.triggers import TriggerPolicy

_Window: TypeAlias = tuple[list[Event], list[Event], list[Event], int]
"""As ``OnActivation`` is told of it."""


class PolicyWindows(Windower):
    """Windows as a pair of policies make them.

    Args:
        shelf: for segments.
        eviction: copied for this window.
        trigger: copied for this window.
        start_ms: when the trigger begins.
        in_event_time: whether it is watermarks that say that time has passed.
        owner: the component, for messages.
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
        """Whether a policy is the user's, so that each tuple may have to be taken back; to be able to has its price."""
        self.log = WindowLog(shelf)
        self._in_event_time = in_event_time
        self._repeats = isinstance(eviction, CountEvictionPolicy)
        self._news = False
        """Whether anything has come since the last window."""
        self._done: list[list[Event] | _Window] = []
        """What the manager has done since it was asked last: events that expired, and windows."""
        self._expired: set[int] = set()
        """Sequences that have expired and are still in the log."""
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
        """What a policy raises outside of any tuple says whose it is, and where."""
        try:
            yield
        except BaseException as error:
            pass_on(error)
            raise EngineError(raised_by(self._part, error)) from error

    def _done_with(self, events: list[Event]) -> None:
        self._done.append(events)

    def add(self, content: Content, now_ms: int) -> Iterator[Fired]:
        """Tuples have come, one after the other."""
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
                self._drop([begin + offset])
                continue
            self._news = True
            yield from self._flush()

    def watermark(self, mark_ms: int) -> Iterator[Fired]:
        """The watermark has risen."""
        with self._named():
            self._manager.add_watermark(mark_ms)
        yield from self._flush()

    def clock(self, now_ms: int) -> Iterator[Fired]:
        """Time has passed."""
        with self._named():
            self._manager.advance(now_ms)
        yield from self._flush()

    def _flush(self) -> Iterator[Fired]:
        done, self._done = self._done, []
        for one in done:
            if isinstance(one, list):
                yield expiry(self._pick(one))
                self._expired.update(event.value for event in one)
                continue
            self._news = False
            events, new, expired, end_ms = one
            start_ms = None if self._length_ms is None else end_ms - self._length_ms
            shown = self._pick(expired)
            yield Fired(end_ms, start_ms, self._pick(events), self._pick(new), shown, expiring=NOTHING)
            self._drop(event.value for event in expired)
        waiting = {event.value for event in self._manager.remembered}
        self._drop(self._expired - waiting)

    def _drop(self, sequences: Iterable[int]) -> None:
        """Let go of what has expired, and of which no window will say so any more."""
        gone = sorted(sequences)
        if gone:
            self.log.end_rows(self.log.pick(gone))
            self._expired.difference_update(gone)

    def _pick(self, events: Sequence[Event]) -> Selection:
        return self.log.pick([event.value for event in events]) if events else NOTHING

    def due_ms(self) -> int | None:
        """The trigger's next timer; in event time any watermark may have something to do."""
        if self.is_empty:
            return None
        if self._in_event_time:
            return 0
        with self._named():
            return self._manager.trigger.next_due_ms()

    @property
    def waits(self) -> bool:
        """The last so many tuples may be shown for ever; they wait until they were shown once."""
        return self._news if self._repeats else not self.is_empty

    def save(self) -> Any:
        """See ``Windower``; what waits is read from the log again."""
        self.log.tidy()
        with self._named():
            state = self._manager.get_state()
        del state["queue"]
        state["expired"] = [event.value for event in state["expired"]]
        return self.log.save(), state, self._news

    def load(self, state: Any) -> None:
        """See ``Windower``."""
        log, kept, self._news = state
        self.log.load(log)
        known: dict[int, Event] = {}
        for segment, rows in self.log.select(BEFORE_ALL, AFTER_ALL).parts():
            times = self.log.content(segment).times
            places = range(segment.count) if rows is None else rows.tolist()
            known.update((segment.first + row, Event(segment.first + row, int(times[row]))) for row in places)
        self._expired = set(kept["expired"])
        expired = [known.pop(sequence) for sequence in kept["expired"]]
        with self._named():
            self._manager.set_state({**kept, "queue": list(known.values()), "expired": expired})
