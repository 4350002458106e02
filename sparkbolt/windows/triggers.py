"""Triggers: decide when a window is evaluated. The names and the rules are those of Storm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Any

from sparkbolt.api.arguments import checked, whole
from sparkbolt.windows.policies import Event, EvictionContext

if TYPE_CHECKING:
    from sparkbolt.windows.manager import WindowManager

_UNBOUND = "a trigger policy was used before a WindowManager took it"


class TriggerPolicy(ABC):
    """Calls ``manager.on_trigger`` whenever there is a window to evaluate.

    To use your own policy, subclass this class and pass an instance to ``Policies``. It must call
    ``manager.eviction.set_context`` before each ``manager.on_trigger``.
    """

    _manager: WindowManager | None = None
    _started = False

    def bind(self, manager: WindowManager) -> None:
        """Called once by the window manager that uses this policy."""
        self._manager = manager

    @property
    def manager(self) -> WindowManager:
        """The window manager that uses this policy.

        Raises:
            RuntimeError: there is none yet.
        """
        if self._manager is None:
            raise RuntimeError(_UNBOUND)
        return self._manager

    def start(self, now_ms: int) -> None:
        """Begin: events count from now on, and timers run from ``now_ms``; a second call changes nothing."""
        self._started = True

    def shutdown(self) -> None:
        """End: this policy triggers nothing any more."""
        self._started = False

    def track(self, event: Event) -> None:  # noqa: B027  a timer need not know
        """Called for each event and each watermark, after the manager has stored it."""

    @abstractmethod
    def reset(self) -> None:
        """Called by the manager after each evaluation, also if the window had no events."""

    def advance(self, now_ms: int) -> None:  # noqa: B027  only a timer needs to know
        """Called when time has passed: fire each timer that is due at or before ``now_ms``."""

    def next_due_ms(self) -> int | None:
        """When ``advance`` will fire next, in milliseconds; None if no timer runs."""
        return None

    def get_state(self) -> Any:
        """Return the durable state; by default all attributes except the manager."""
        return {name: value for name, value in vars(self).items() if name != "_manager"}

    def set_state(self, state: Any) -> None:
        """Restore the result of ``get_state``, perhaps in another process."""
        vars(self).update(state)

    def _fire(self, context: EvictionContext) -> bool:
        self.manager.eviction.set_context(context)
        return self.manager.on_trigger()


class CountTriggerPolicy(TriggerPolicy):
    """Triggers a window after every ``count`` events; the window ends at the time of the last of them."""

    @checked
    def __init__(self, count: Annotated[int, whole()]) -> None:
        self.count = count
        self._seen = 0

    def track(self, event: Event) -> None:
        """Count the event, unless it is a watermark; fire when there are ``count``."""
        if self._started and not event.is_watermark:
            self._seen += 1
            if self._seen >= self.count:
                self._fire(EvictionContext(event.timestamp_ms))

    def reset(self) -> None:
        """Count from 0 again."""
        self._seen = 0


class TimeTriggerPolicy(TriggerPolicy):
    """Triggers a window every ``interval_ms``, the first one interval after ``start``.

    A window ends one millisecond before its timer's time: an event in the timer's millisecond belongs to the
    next window.
    """

    @checked
    def __init__(self, interval_ms: Annotated[int, whole()]) -> None:
        self.interval_ms = interval_ms
        self._due_ms: int | None = None

    def start(self, now_ms: int) -> None:
        """Start the timer, unless it already runs."""
        if not self._started:
            self._due_ms = now_ms + self.interval_ms
        super().start(now_ms)

    def advance(self, now_ms: int) -> None:
        """Fire once for each timer that was due."""
        while self._started and self._due_ms is not None and self._due_ms <= now_ms:
            due, self._due_ms = self._due_ms, self._due_ms + self.interval_ms
            self._fire(EvictionContext(due - 1, sliding_interval_ms=self.interval_ms))

    def next_due_ms(self) -> int | None:
        """The time of the next timer, in milliseconds; None before ``start``."""
        return self._due_ms if self._started else None

    def reset(self) -> None:
        """Nothing to do: timers run at a fixed rate."""


class WatermarkCountTriggerPolicy(TriggerPolicy):
    """Triggers a window for every ``count`` events that a watermark has passed; it ends at the newest of them."""

    @checked
    def __init__(self, count: Annotated[int, whole()]) -> None:
        self.count = count
        self._last_ms = 0

    def track(self, event: Event) -> None:
        """On a watermark, fire once for every ``count`` events that it has passed."""
        if self._started and event.is_watermark:
            ends = self.manager.get_sliding_count_timestamps(self._last_ms, event.timestamp_ms, self.count)
            for end in ends:
                self._fire(EvictionContext(end, sliding_count=self.count))
                self._last_ms = end

    def reset(self) -> None:
        """Nothing to do: the timestamp of the last window marks which events were counted."""


class WatermarkTimeTriggerPolicy(TriggerPolicy):
    """Triggers a window at each multiple of ``interval_ms`` that a watermark has reached; skips empty windows."""

    @checked
    def __init__(self, interval_ms: Annotated[int, whole()]) -> None:
        self.interval_ms = interval_ms
        self._end_ms = 0

    def track(self, event: Event) -> None:
        """On a watermark, fire all windows that end at it or before it, in order."""
        if not self._started or not event.is_watermark:
            return
        manager, watermark = self.manager, event.timestamp_ms
        while self._end_ms <= watermark:
            end = self._end_ms
            if self._fire(EvictionContext(end, current_count=manager.get_event_count(end))):
                self._end_ms = end + self.interval_ms
                continue
            earliest = manager.get_earliest_event_ts(end, watermark)
            if earliest is None:
                break
            self._end_ms = aligned(earliest, self.interval_ms)

    def reset(self) -> None:
        """Nothing to do: the next end is known."""


def aligned(timestamp_ms: int, interval_ms: int) -> int:
    """The least multiple of the interval, in milliseconds, that is not before the timestamp.

    It is the end of the first window that holds the timestamp, if windows end at multiples of the interval.

    >>> aligned(1, 10), aligned(10, 10), aligned(11, 10)
    (10, 10, 20)
    """
    return -(-timestamp_ms // interval_ms) * interval_ms
