"""Eviction: which events are in a window, and which are over.

Which question it answers: what does a policy say of each event when a window is evaluated?
Rule 1: a policy answers for one event at a time, in the order of arrival; it keeps counts, never events.
Rule 2: a policy reads no clock: whoever triggers sets a context, and the context says what the time is.

The names and the answers are those of Storm (``storm-client``, ``org.apache.storm.windowing``), with one addition:
``get_state`` and ``set_state``, which Storm has for persistent windows only, are part of every policy. Read before:
nothing.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from sparkbolt.core.model import arguments

FOREVER_MS = (1 << 31) - 1
"""Longer than any window: Storm's ``Integer.MAX_VALUE`` milliseconds."""


class Action(enum.Enum):
    """What becomes of an event in one evaluation."""

    EXPIRE = "expire"
    """It is removed, and was not in this window."""
    PROCESS = "process"
    """It is in this window."""
    KEEP = "keep"
    """It is not in this window, and waits for a later one."""
    STOP = "stop"
    """It waits, and so does everything behind it: the evaluation ends here."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a window: what it carries, and its time in milliseconds.

    >>> Event("a", 7).is_watermark
    False
    """

    value: Any
    timestamp_ms: int
    is_watermark: bool = False
    """A watermark moves the time on; it is in no window."""


@dataclass(frozen=True, slots=True)
class EvictionContext:
    """What a trigger tells the eviction policy before an evaluation."""

    reference_ms: int
    """The window's end: events that are newer are not in it."""
    current_count: int | None = None
    """How many events that wait have a timestamp of at most ``reference_ms``, where the trigger knows."""
    sliding_count: int | None = None
    """By how many events the window slides, where the trigger counts."""
    sliding_interval_ms: int | None = None
    """By how much time the window slides, where a timer triggers."""


class EvictionPolicy(ABC):
    """Says of each event, in the order of arrival, what becomes of it.

    Write one of your own and give it to a bolt with ``with_policies``: its durable state is what ``get_state``
    returns, which must be something that pickles. It is asked before each tuple too: a tuple on which a policy raises
    fails, and what the policies had changed is undone.
    """

    _context: EvictionContext | None = None

    @abstractmethod
    def evict(self, event: Event) -> Action:
        """What becomes of an event; called for each that waits, oldest arrival first, until ``STOP``."""

    def track(self, event: Event) -> None:  # noqa: B027  most policies need not know
        """Called once for each event and watermark that arrives, before anything may trigger."""

    @property
    def context(self) -> EvictionContext | None:
        """What was set last; None before the first trigger."""
        return self._context

    def set_context(self, context: EvictionContext) -> None:
        """Called by the trigger policy right before an evaluation."""
        self._context = context

    def get_state(self) -> Any:
        """What is to be durable; the default keeps the attributes."""
        return dict(vars(self))

    def set_state(self, state: Any) -> None:
        """Take over what ``get_state`` gave, perhaps in another process."""
        vars(self).update(state)


class CountEvictionPolicy(EvictionPolicy):
    """The last ``threshold`` events; times mean nothing.

    >>> policy = CountEvictionPolicy(1)
    >>> first, second = Event("a", 1), Event("b", 2)
    >>> policy.track(first), policy.track(second)
    (None, None)
    >>> policy.evict(first), policy.evict(second)
    (<Action.EXPIRE: 'expire'>, <Action.PROCESS: 'process'>)
    """

    def __init__(self, threshold: int) -> None:
        self.threshold = arguments.whole("threshold", threshold)
        self._count = 0

    def evict(self, event: Event) -> Action:
        """Expire while there are more than ``threshold``."""
        if self._count > self.threshold:
            self._count -= 1
            return Action.EXPIRE
        return Action.PROCESS

    def track(self, event: Event) -> None:
        """Count it, if it is no watermark."""
        if not event.is_watermark:
            self._count += 1


class TimeEvictionPolicy(EvictionPolicy):
    """Events that are younger than ``length_ms`` at the reference time of the context.

    A timer that comes late makes its window longer by as much, one that comes early makes it shorter, and the first
    window of a timer takes everything that waits, however old (Storm's ``delta``).
    """

    def __init__(self, length_ms: int) -> None:
        self.length_ms = arguments.whole("length_ms", length_ms)
        self._delta = 0

    def evict(self, event: Event) -> Action:
        """Expire what is too old, keep what is newer than the reference time."""
        now_ms = self._context.reference_ms if self._context is not None else event.timestamp_ms
        age = now_ms - event.timestamp_ms
        if age >= self.length_ms + self._delta:
            return Action.EXPIRE
        return Action.KEEP if age < 0 else Action.PROCESS

    def set_context(self, context: EvictionContext) -> None:
        """Keep it; a timer's also says how far the timer drifted."""
        before, self._context = self._context, context
        if context.sliding_interval_ms is not None:
            if before is None:
                self._delta = FOREVER_MS
            else:
                self._delta = context.reference_ms - before.reference_ms - context.sliding_interval_ms


class WatermarkCountEvictionPolicy(EvictionPolicy):
    """The last ``threshold`` of the events that are not newer than the window's end.

    It does not count arrivals: the context says how many events there are (``current_count``), or by how many the
    window slides beyond those that the last one held.
    """

    def __init__(self, threshold: int) -> None:
        self.threshold = arguments.whole("threshold", threshold)
        self._limit = 0
        self._processed = 0

    def evict(self, event: Event) -> Action:
        """Expire what is more than ``threshold``; keep what is newer than the end, and all beyond the count."""
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
        """Keep it, and find how many events this evaluation is about."""
        self._context = context
        if context.current_count is not None:
            self._limit = context.current_count
        else:
            self._limit = self._processed + (context.sliding_count or 0)
        self._processed = 0


class WatermarkTimeEvictionPolicy(EvictionPolicy):
    """Events with ``end - length < timestamp <= end``; the end is the reference time of the context.

    With a ``lag_ms`` an event that is newer than the end by more than that ends the evaluation, as in Storm. That
    saves time where events come in order within the lag, and loses events where they do not: what is not late but
    stands behind such an event is in no window. Without it nothing ends an evaluation early.
    """

    def __init__(self, length_ms: int, lag_ms: int = FOREVER_MS) -> None:
        self.length_ms = arguments.whole("length_ms", length_ms)
        self.lag_ms = arguments.whole("lag_ms", lag_ms, 0)

    def evict(self, event: Event) -> Action:
        """Expire what is before the window, keep what is after it."""
        if self._context is None:
            return Action.STOP
        age = self._context.reference_ms - event.timestamp_ms
        if age < -self.lag_ms:
            return Action.STOP
        if age < 0:
            return Action.KEEP
        return Action.EXPIRE if age >= self.length_ms else Action.PROCESS
