"""Eviction: which events are in a window, and which have expired.

The names and the actions are those of Storm (``storm-client``, ``org.apache.storm.windowing``), with one addition:
every policy has ``get_state`` and ``set_state``, which Storm has for persistent windows only.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any

from sparkbolt.api.arguments import checked, whole

FOREVER_MS = (1 << 31) - 1
"""Longer than any window: Storm's ``Integer.MAX_VALUE`` milliseconds."""


class Action(enum.Enum):
    """The action on an event in one evaluation."""

    EXPIRE = "expire"
    """The event is removed; it is not in this window."""
    PROCESS = "process"
    """The event is in this window."""
    KEEP = "keep"
    """The event is not in this window; it waits for a later one."""
    STOP = "stop"
    """The event and all events after it wait: the evaluation ends here."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a window: its content, and its time in milliseconds.

    >>> Event("a", 7).is_watermark
    False
    """

    value: Any
    timestamp_ms: int
    is_watermark: bool = False
    """A watermark only moves time forward; it is in no window."""


@dataclass(frozen=True, slots=True)
class EvictionContext:
    """The data that the trigger policy passes to the eviction policy before an evaluation."""

    reference_ms: int
    """The window's end: newer events are not in the window."""
    current_count: int | None = None
    """How many waiting events have a timestamp of at most ``reference_ms``; None if the trigger does not know."""
    sliding_count: int | None = None
    """The number of events by which the window slides; None if the trigger does not count."""
    sliding_interval_ms: int | None = None
    """The time by which the window slides, in milliseconds; None if no timer triggers."""


class EvictionPolicy(ABC):
    """Decides the action on each event, in the order of arrival.

    To use your own policy, subclass this class and pass an instance to ``Policies``. The durable state of a policy
    is what ``get_state`` returns; it must be picklable. ``get_state`` is also called before each tuple: if a policy
    raises on a tuple, the tuple fails, and the policies' changes are undone from that state.
    """

    _context: EvictionContext | None = None

    @abstractmethod
    def evict(self, event: Event) -> Action:
        """Return the action on an event; called for each waiting event, oldest arrival first, until ``STOP``."""

    def track(self, event: Event) -> None:  # noqa: B027  most policies need not know
        """Called once for each event and watermark that arrives, before anything may trigger."""

    @property
    def context(self) -> EvictionContext | None:
        """The context that was set last; None before the first trigger."""
        return self._context

    def set_context(self, context: EvictionContext) -> None:
        """Called by the trigger policy right before an evaluation."""
        self._context = context

    def get_state(self) -> Any:
        """Return the durable state; by default all attributes."""
        return dict(vars(self))

    def set_state(self, state: Any) -> None:
        """Restore the result of ``get_state``, perhaps in another process."""
        vars(self).update(state)


class CountEvictionPolicy(EvictionPolicy):
    """Keeps the last ``threshold`` events; their times do not matter.

    >>> policy = CountEvictionPolicy(1)
    >>> first, second = Event("a", 1), Event("b", 2)
    >>> policy.track(first), policy.track(second)
    (None, None)
    >>> policy.evict(first), policy.evict(second)
    (<Action.EXPIRE: 'expire'>, <Action.PROCESS: 'process'>)
    """

    @checked
    def __init__(self, threshold: Annotated[int, whole()]) -> None:
        self.threshold = threshold
        self._count = 0

    def evict(self, event: Event) -> Action:
        """Expire events while there are more than ``threshold``."""
        if self._count > self.threshold:
            self._count -= 1
            return Action.EXPIRE
        return Action.PROCESS

    def track(self, event: Event) -> None:
        """Count the event, unless it is a watermark."""
        if not event.is_watermark:
            self._count += 1


class TimeEvictionPolicy(EvictionPolicy):
    """Keeps events that are younger than ``length_ms`` at the reference time of the context.

    If a timer fires late, its window is longer by the delay; if it fires early, its window is shorter. The first window
    of a timer takes every waiting event, however old (Storm's ``delta``).
    """

    @checked
    def __init__(self, length_ms: Annotated[int, whole()]) -> None:
        self.length_ms = length_ms
        self._delta = 0

    def evict(self, event: Event) -> Action:
        """Expire events that are too old; keep events that are newer than the reference time."""
        now_ms = self._context.reference_ms if self._context is not None else event.timestamp_ms
        age = now_ms - event.timestamp_ms
        if age >= self.length_ms + self._delta:
            return Action.EXPIRE
        return Action.KEEP if age < 0 else Action.PROCESS

    def set_context(self, context: EvictionContext) -> None:
        """Store the context; if a timer triggered, compute by how much the timer was late or early."""
        before, self._context = self._context, context
        if context.sliding_interval_ms is not None:
            if before is None:
                self._delta = FOREVER_MS
            else:
                self._delta = context.reference_ms - before.reference_ms - context.sliding_interval_ms


class WatermarkCountEvictionPolicy(EvictionPolicy):
    """Keeps the last ``threshold`` of the events that are not newer than the window's end.

    It does not count arrivals. The context holds the number of events (``current_count``), or the number of events by
    which the window slides (``sliding_count``), which is added to the number that the previous window held.
    """

    @checked
    def __init__(self, threshold: Annotated[int, whole()]) -> None:
        self.threshold = threshold
        self._limit = 0
        self._processed = 0

    def evict(self, event: Event) -> Action:
        """Expire events in excess of ``threshold``; keep events that are newer than the end or beyond the count."""
        if self._context is None:
            return Action.STOP
        if event.timestamp_ms <= self._context.reference_ms and self._processed < self._limit:
            if self._limit > self.threshold:
                self._limit -= 1
                return Action.EXPIRE
            self._processed += 1
            return Action.PROCESS
        return Action.KEEP

    def set_context(self, context: EvictionContext) -> None:
        """Store the context, and compute how many events this evaluation covers."""
        self._context = context
        if context.current_count is not None:
            self._limit = context.current_count
        else:
            self._limit = self._processed + (context.sliding_count or 0)
        self._processed = 0


class WatermarkTimeEvictionPolicy(EvictionPolicy):
    """Keeps events with ``end - length < timestamp <= end``; the end is the reference time of the context.

    With a ``lag_ms``, an event that is newer than the end by more than the lag ends the evaluation, as in Storm. That
    saves time if events arrive in order within the lag. If they do not, it loses events: an event that is not late, but
    arrived after such an event, is in no window. Without a ``lag_ms`` nothing ends an evaluation early.
    """

    @checked
    def __init__(self, length_ms: Annotated[int, whole()], lag_ms: Annotated[int, whole(0)] = FOREVER_MS) -> None:
        self.length_ms = length_ms
        self.lag_ms = lag_ms

    def evict(self, event: Event) -> Action:
        """Expire events before the window; keep events after it."""
        if self._context is None:
            return Action.STOP
        age = self._context.reference_ms - event.timestamp_ms
        if age < -self.lag_ms:
            return Action.STOP
        if age < 0:
            return Action.KEEP
        return Action.EXPIRE if age >= self.length_ms else Action.PROCESS
