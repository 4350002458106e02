"""The join of two streams: pairs of tuples with the same key whose times are close to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from sparkbolt.api.components import Bolt, TopologyContext
from sparkbolt.api.interfaces import BoltCollector, KeyValueState
from sparkbolt.api.tuples import Tuple
from sparkbolt.streams.stateless_operators import key_of
from sparkbolt.windows.kinds import Window, ms
from sparkbolt.windows.reading import time_of

LEFT, RIGHT = 0, 1
Waiting: TypeAlias = tuple[tuple[int, tuple[Any, ...]], ...]
"""(time in milliseconds, values) of each tuple that waits, in the order of arrival."""
SWEEPS = 4
"""Tuples that nobody needs any more are removed this often while the time moves by what they are kept for."""


class Join(Bolt):
    """Keeps the tuples of two streams, and emits each pair that belongs together.

    Its state has the values of the tuples of each key that may still find a partner. A tuple is acked as soon as it is
    in the state, which is committed with the micro-batch; each pair starts a tree of its own, so that a pair that fails
    is retried by itself, and never stored twice.
    """

    keyed = True
    starts_trees = True
    ignores_ticks = True
    transient = ("sides", "on", "right", "time", "within_ms", "kept_ms", "outputs", "context")

    def __init__(
        self,
        sides: Mapping[tuple[str, str], int],
        on: Sequence[str],
        right: Sequence[str],
        outputs: Sequence[str],
        time: Window,
        within: timedelta,
    ) -> None:
        """Store what is joined.

        Args:
            sides: LEFT or RIGHT, for the (component, stream) of each input.
            on: the fields that are equal in a pair.
            right: the fields of the right tuple that are emitted, after all of the left one.
            outputs: the fields of a pair.
            time: where the time of a tuple is, and its lag.
            within: how far apart the times of a pair may be.
        """
        self.sides = dict(sides)
        self.on = tuple(on)
        self.right = tuple(right)
        self.outputs = list(outputs)
        self.time = time
        self.within_ms = ms(within)
        self.kept_ms = self.within_ms + (0 if time.lag is None else ms(time.lag))

    def prepare(self, context: TopologyContext) -> None:
        """Begin without a time: no tuple has come."""
        self.context = context
        self.left_ms = self.right_ms = self.swept_ms = -1

    def init_state(self, state: KeyValueState) -> None:
        """Keep what waits: (left, right) of each key, each a ``Waiting``."""
        self.waiting = state

    def execute(self, tup: Tuple, collector: BoltCollector) -> None:
        """Emit the pairs that the tuple completes, and let it wait for others."""
        side = self.sides[tup.source_component, tup.source_stream]
        now_ms = self.context.now_ms
        timestamp = self.time.timestamp
        if timestamp is None:
            at_ms = self.left_ms = self.right_ms = now_ms
        else:
            value = timestamp(tup) if callable(timestamp) else tup[timestamp]
            at_ms = time_of(value, self.time, now_ms)
            if side == LEFT:
                self.left_ms = max(self.left_ms, at_ms)
            else:
                self.right_ms = max(self.right_ms, at_ms)
        key = key_of(tup, self.on)
        needed_ms = self._needed_ms()
        waiting: tuple[Waiting, Waiting] = self.waiting.get(key, ((), ()))
        left, right = (self._still(one, needed_ms) for one in waiting)
        values = tuple(tup.values()) if side == LEFT else tuple([tup[name] for name in self.right])
        for other_ms, other in right if side == LEFT else left:
            if abs(at_ms - other_ms) <= self.within_ms:
                collector.emit([*values, *other] if side == LEFT else [*other, *values])
        if at_ms >= needed_ms:
            entry = (at_ms, values)
            left, right = ((*left, entry), right) if side == LEFT else (left, (*right, entry))
        self._store(key, left, right)
        collector.ack(tup)

    def flush(self) -> None:
        """Remove what nobody needs any more, now and then: that reads the whole state."""
        needed_ms = self._needed_ms()
        if needed_ms - self.swept_ms < max(1, self.kept_ms // SWEEPS):
            return
        self.swept_ms = needed_ms
        for key, (left, right) in self.waiting:
            kept = self._still(left, needed_ms), self._still(right, needed_ms)
            if kept != (left, right):
                self._store(key, *kept)

    def _needed_ms(self) -> int:
        """The time from which on a tuple may still find a partner: the stream that is behind decides."""
        behind_ms = min(self.left_ms, self.right_ms)
        return behind_ms - self.kept_ms if behind_ms >= 0 else -self.kept_ms

    def _still(self, waiting: Waiting, needed_ms: int) -> Waiting:
        return waiting if all(at >= needed_ms for at, _ in waiting) else tuple(e for e in waiting if e[0] >= needed_ms)

    def _store(self, key: Any, left: Waiting, right: Waiting) -> None:
        if left or right:
            self.waiting.put(key, (left, right))
        else:
            self.waiting.delete(key)
