"""The window manager: adds events and evaluates windows, with any eviction policy and trigger policy.

Each evaluation looks at every waiting event. Bolts without policies of their own use ``arrival`` and ``event_time``,
which make the same windows and look only at changes.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from sparkbolt.base.exceptions import printed
from sparkbolt.windows.policies import Action, Event, EvictionPolicy
from sparkbolt.windows.triggers import TriggerPolicy

EXPIRE_EVENTS_THRESHOLD = 100
"""After this many events without an evaluation, the oldest events are evaluated, so that memory does not grow."""

OnActivation: TypeAlias = Callable[[list[Event], list[Event], list[Event], int], None]
"""Called with a window: its events, the new ones among them, those of the last window that left, its end in ms."""
OnExpiry: TypeAlias = Callable[[list[Event]], None]
"""Called with the events that have expired."""


class WindowManager:
    """Keeps events and makes windows of them, as an eviction policy and a trigger policy decide.

    >>> from sparkbolt.windows import CountEvictionPolicy, CountTriggerPolicy
    >>> def show(events, new, expired, end_ms):
    ...     print([event.value for event in events], [event.value for event in new], end_ms)
    >>> manager = WindowManager(CountEvictionPolicy(2), CountTriggerPolicy(1), on_activation=show)
    >>> manager.start(now_ms=0)
    >>> for value, now_ms in [("a", 1), ("b", 2), ("c", 3)]:
    ...     manager.add(value, now_ms)
    ['a'] ['a'] 1
    ['a', 'b'] ['b'] 2
    ['b', 'c'] ['c'] 3
    """

    def __init__(
        self,
        eviction: EvictionPolicy,
        trigger: TriggerPolicy,
        *,
        on_activation: OnActivation,
        on_expiry: OnExpiry | None = None,
    ) -> None:
        self.eviction = eviction
        self.trigger = trigger
        self._on_activation = on_activation
        self._on_expiry = on_expiry
        self._queue: deque[Event] = deque()
        self._previous: list[Event] = []
        """The events of the last window, some of which may have expired."""
        self._since_scan = 0
        trigger.bind(self)

    def start(self, now_ms: int) -> None:
        """Start the trigger policy at ``now_ms``."""
        self.trigger.start(now_ms)

    def add(self, value: Any, timestamp_ms: int) -> None:
        """Add an event; it may fire a window."""
        self.add_event(Event(value, timestamp_ms))

    def add_watermark(self, timestamp_ms: int) -> None:
        """Add a watermark: no older event will arrive any more, and windows that end at it or before it may fire."""
        self.add_event(Event(None, timestamp_ms, is_watermark=True))

    def add_event(self, event: Event) -> None:
        """Add an ``Event``, which may be a watermark."""
        if not event.is_watermark:
            self._queue.append(event)
        self.eviction.track(event)
        self.trigger.track(event)
        self._compact()

    def advance(self, now_ms: int) -> None:
        """Fire each timer that is due at or before ``now_ms``."""
        self.trigger.advance(now_ms)

    def _compact(self) -> None:
        self._since_scan += 1
        if self._since_scan >= EXPIRE_EVENTS_THRESHOLD:
            self._scan(full=False)

    def on_trigger(self) -> bool:
        """Evaluate the window; called by the trigger policy.

        Returns:
            Whether the window had events.
        """
        events = self._scan(full=True)
        if events:
            before, self._previous = self._previous, events
            new, expired = _without(events, before), _without(before, events)
            context = self.eviction.context
            self._on_activation(events, new, expired, context.reference_ms if context is not None else 0)
        self.trigger.reset()
        return bool(events)

    def _scan(self, full: bool) -> list[Event]:
        """Call the eviction policy for each waiting event; without ``full`` stop at the first that does not expire."""
        inside: list[Event] = []
        expired: list[Event] = []
        waiting: list[Event] = []
        queue = self._queue
        for event in queue:
            action: object = self.eviction.evict(event)  # the policy may be the user's
            if action is Action.EXPIRE:
                expired.append(event)
            elif full and action is Action.PROCESS:
                inside.append(event)
                waiting.append(event)
            elif full and action is Action.KEEP:
                waiting.append(event)
            elif isinstance(action, Action):
                break
            else:
                said = f"{type(self.eviction).__qualname__}.evict returned {printed(action)}"
                raise TypeError(f"{said}, expected one of {', '.join(map(str, Action))}")
        self._since_scan = 0
        if expired:  # new lists, since a ``mark`` may hold the old ones
            self._queue = deque(waiting)
            self._queue.extend(islice(queue, len(waiting) + len(expired), None))
            if self._on_expiry is not None:
                self._on_expiry(expired)
        return inside

    # Queries of trigger policies.

    def get_earliest_event_ts(self, start_ms: int, end_ms: int) -> int | None:
        """The least timestamp of waiting events with ``start_ms < timestamp <= end_ms``; None if there is none."""
        times = (event.timestamp_ms for event in self._queue if start_ms < event.timestamp_ms <= end_ms)
        return min(times, default=None)

    def get_event_count(self, reference_ms: int) -> int:
        """How many waiting events have a timestamp of at most ``reference_ms``."""
        return sum(event.timestamp_ms <= reference_ms for event in self._queue)

    def get_sliding_count_timestamps(self, start_ms: int, end_ms: int, count: int) -> list[int]:
        """The ends, in milliseconds, of windows that slide by ``count`` events.

        Waiting events with ``start_ms < timestamp <= end_ms`` are counted in the order of arrival. After every
        ``count`` of them, the newest timestamp so far is an end.
        """
        ends: list[int] = []
        newest, seen = start_ms, 0
        for event in self._queue:
            if start_ms < event.timestamp_ms <= end_ms:
                newest = max(newest, event.timestamp_ms)
                seen += 1
                if seen % count == 0:
                    ends.append(newest)
        return ends

    # If a policy raises, its changes are undone.

    def mark(self) -> Any:
        """Return a mark of the present state, for ``back_to``; it is valid for the next ``add`` only."""
        policies = [(list(vars(policy)), policy.get_state()) for policy in (self.eviction, self.trigger)]
        return self._queue, len(self._queue), (self._previous, self._since_scan), pickle.dumps(policies, 5)

    def back_to(self, mark: Any) -> None:
        """Restore the state at the time of ``mark``."""
        self._queue, count, own, policies = mark
        while len(self._queue) > count:
            self._queue.pop()
        self._previous, self._since_scan = own
        both: list[EvictionPolicy | TriggerPolicy] = [self.eviction, self.trigger]
        for policy, (names, state) in zip(both, pickle.loads(policies), strict=True):
            for name in set(vars(policy)).difference(names):
                delattr(policy, name)
            policy.set_state(state)

    # Durability.

    @property
    def waiting(self) -> Sequence[Event]:
        """The waiting events, in the order of arrival."""
        return tuple(self._queue)

    def get_state(self) -> dict[str, Any]:
        """Return the durable state, which is picklable if the events are; it names events by their places."""
        places = {id(event): place for place, event in enumerate(self._queue)}
        return {
            "queue": list(self._queue),
            "expired": _without(self._previous, self._queue),
            "previous": [places[key] for key in map(id, self._previous) if key in places],
            "since_scan": self._since_scan,
            "eviction": self.eviction.get_state(),
            "trigger": self.trigger.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the result of ``get_state``."""
        self._queue = deque(state["queue"])
        self._previous = [*state["expired"], *(state["queue"][place] for place in state["previous"])]
        self._since_scan = state["since_scan"]
        self.eviction.set_state(state["eviction"])
        self.trigger.set_state(state["trigger"])


def _without(events: Sequence[Event], others: Iterable[Event]) -> list[Event]:
    """The events that are not among others, in their order."""
    ids = set(map(id, others))
    return [event for event in events if id(event) not in ids]
