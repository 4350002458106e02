"""Watermarks: how far event time has come.

Which question it answers: up to which timestamp may windows be closed, and which event comes too late?
Rule 1: the watermark is the least of the latest timestamps of the input streams, less the lag, once every input
stream has been heard from; it only rises.
Rule 2: an event is late if, and only if, it is older than the last watermark that was given out. Equal is not late.

Read before: nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any


class WaterMarkEventGenerator:
    """Tracks the timestamps of input streams and gives out watermarks (the spelling is Storm's).

    Args:
        streams: the names of all input streams.
        lag_ms: how much out of order events may come.
        idle_timeout_ms: a stream that was silent for so long no longer holds the watermark back; None, as in Storm:
            it does so for ever.

    >>> marks = WaterMarkEventGenerator(["a", "b"], lag_ms=5)
    >>> marks.track("a", 100), marks.watermark(0)
    (True, None)
    >>> marks.track("b", 50), marks.watermark(0)
    (True, 45)
    >>> marks.track("a", 44), marks.track("a", 45)
    (False, True)
    """

    def __init__(
        self, streams: Iterable[Hashable], lag_ms: int = 0, idle_timeout_ms: int | None = None, now_ms: int = 0
    ) -> None:
        self.lag_ms = lag_ms
        self.idle_timeout_ms = idle_timeout_ms
        self._latest: dict[Hashable, int | None] = dict.fromkeys(streams)
        self._heard_ms: dict[Hashable, int] = dict.fromkeys(self._latest, now_ms)
        self.last = 0
        """The last watermark that was given out; 0 before the first."""

    def track(self, stream: Hashable, timestamp_ms: int, now_ms: int = 0) -> bool:
        """Note an event of a stream; whether it is in time, which is False for one that is late."""
        self.note(stream, timestamp_ms, now_ms)
        return timestamp_ms >= self.last

    def note(self, stream: Hashable, newest_ms: int, now_ms: int) -> None:
        """As ``track`` for several events of a stream, of which the newest counts."""
        latest = self._latest.get(stream)
        self._latest[stream] = newest_ms if latest is None else max(latest, newest_ms)
        self._heard_ms[stream] = now_ms

    def hear_all(self, now_ms: int) -> None:
        """No stream was silent until now, as far as anybody can tell."""
        self._heard_ms = dict.fromkeys(self._heard_ms, now_ms)

    def candidate(self, now_ms: int) -> int | None:
        """What ``watermark`` would give out; None if that is nothing."""
        latest = [
            timestamp
            for stream, timestamp in self._latest.items()
            if self.idle_timeout_ms is None or now_ms - self._heard_ms[stream] < self.idle_timeout_ms
        ]
        if not latest:  # all are silent: what was heard last holds
            latest = [max((known for known in self._latest.values() if known is not None), default=None)]
        known = [timestamp for timestamp in latest if timestamp is not None]
        if len(known) < len(latest):
            return None
        mark = min(known) - self.lag_ms
        return mark if mark > self.last else None

    def watermark(self, now_ms: int) -> int | None:
        """Give out a watermark if it has risen; None if not. Called once an interval."""
        mark = self.candidate(now_ms)
        if mark is not None:
            self.last = mark
        return mark

    def next_idle_ms(self, now_ms: int) -> int | None:
        """When the next stream will be taken for idle; None if none will."""
        if self.idle_timeout_ms is None:
            return None
        ends = (heard + self.idle_timeout_ms for heard in self._heard_ms.values())
        return min((end for end in ends if end > now_ms), default=None)

    def get_state(self) -> Any:
        """What is to be durable."""
        return self.last, self._latest, self._heard_ms

    def set_state(self, state: Any) -> None:
        """Take over what ``get_state`` gave; streams that are new have not been heard from."""
        last, latest, heard = state
        self.last = last
        self._latest.update((stream, value) for stream, value in latest.items() if stream in self._latest)
        self._heard_ms.update((stream, value) for stream, value in heard.items() if stream in self._latest)
