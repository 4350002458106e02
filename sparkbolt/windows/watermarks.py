"""Watermarks: the progress of event time.

The watermark is the least of the latest timestamps of the input streams, minus the lag. It exists once every input
stream has had an event, and it only rises. An event is late if it is older than the last watermark that was returned.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any


class WaterMarkEventGenerator:
    """Tracks the timestamps of input streams and makes watermarks (the spelling is Storm's).

    Args:
        streams: the names of all input streams.
        lag_ms: how far out of order events may arrive, in milliseconds.
        idle_timeout_ms: a stream that was silent for this long no longer holds the watermark back. None: a silent
            stream holds it back without a limit, as in Storm.
        now_ms: when the silence of every stream begins to count.

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
        self._held: dict[Hashable, int] = {}
        """The progress of the sources of a stream, while some are not fully read; negative: none."""
        self._unread: set[Hashable] = set()
        """The streams whose sources have events that are not read yet: they are not silent."""
        self._ended: set[Hashable] = set()
        """The streams whose sources are all read: they hold nothing back."""
        self.last = 0
        """The last watermark that was returned, in milliseconds; 0 before the first."""

    def track(self, stream: Hashable, timestamp_ms: int, now_ms: int = 0) -> bool:
        """Record an event of a stream; return True if it is in time, False if it is late."""
        self.note(stream, timestamp_ms, now_ms)
        return timestamp_ms >= self.last

    def note(self, stream: Hashable, newest_ms: int, now_ms: int) -> None:
        """Record several events of a stream; only the newest timestamp matters."""
        latest = self._latest.get(stream)
        self._latest[stream] = newest_ms if latest is None else max(latest, newest_ms)
        self._heard_ms[stream] = now_ms

    def learn(self, stream: Hashable, newest_ms: int, now_ms: int) -> None:
        """Record that another task had events of a stream, up to this timestamp."""
        latest = self._latest.get(stream)
        if latest is None or latest < newest_ms:
            self.note(stream, newest_ms, now_ms)

    def hold(self, stream: Hashable, until_ms: int | None, *, unread: bool = False, ended: bool = False) -> None:
        """Let a stream count with this timestamp, if its latest one is newer; until the next call for the stream.

        Args:
            stream: the stream.
            until_ms: the progress of all sources that are not fully read; negative if one of them had no event yet,
                so that there is no watermark; None if all sources are fully read.
            unread: whether a source has events that are not read yet: the stream is then not silent.
            ended: whether all sources are read to their ends: the stream then holds back no other.

        >>> marks = WaterMarkEventGenerator(["log"])
        >>> marks.note("log", 90, now_ms=0)
        >>> marks.hold("log", 40)
        >>> marks.watermark(0)
        40
        """
        self._held.pop(stream, None)
        if until_ms is not None:
            self._held[stream] = until_ms
        self._unread = self._unread | {stream} if unread else self._unread - {stream}
        self._ended = self._ended | {stream} if ended else self._ended - {stream}

    def hear_all(self, now_ms: int) -> None:
        """Count the silence of every stream from now on."""
        self._heard_ms = dict.fromkeys(self._heard_ms, now_ms)

    def candidate(self, now_ms: int) -> int | None:
        """The watermark that ``watermark`` would return now; None if there is no new one."""
        going_on = (stream for stream in self._latest if stream not in self._ended)
        latest = [self._come_to(stream) for stream in going_on if not self._is_silent(stream, now_ms)]
        if not latest:  # all streams are silent or have ended: the newest timestamp of all counts
            latest = [self.newest_ms]
        times = [timestamp for timestamp in latest if timestamp is not None]
        if len(times) < len(latest):
            return None
        mark = min(times) - self.lag_ms
        return mark if mark > self.last else None

    def _come_to(self, stream: Hashable) -> int | None:
        """The timestamp with which a stream counts; None if it holds all windows."""
        latest, held = self._latest[stream], self._held.get(stream)
        if latest is None or held is None:
            return latest
        return min(latest, held) if held >= 0 else None

    def _is_silent(self, stream: Hashable, now_ms: int) -> bool:
        timeout_ms = self.idle_timeout_ms
        return timeout_ms is not None and stream not in self._unread and now_ms - self._heard_ms[stream] >= timeout_ms

    @property
    def newest_ms(self) -> int | None:
        """The newest timestamp of all streams; None if there was no event."""
        return max((time_ms for time_ms in self._latest.values() if time_ms is not None), default=None)

    def clock_mark(self, now_ms: int) -> int | None:
        """How far the watermark may rise with the clock: not quite as far as time has passed since the last event.

        Only while all streams are silent; None at any other time. Events that arrive from now on are then in time, and
        their windows are still to fire, if their delays differ by no more than the lag.

        >>> marks = WaterMarkEventGenerator(["log"], lag_ms=5, idle_timeout_ms=100)
        >>> marks.note("log", 1000, now_ms=50)
        >>> marks.clock_mark(149), marks.clock_mark(150)
        (None, 1094)
        """
        newest_ms = self.newest_ms
        if newest_ms is None or not all(self._is_silent(stream, now_ms) for stream in self._latest):
            return None
        return newest_ms - self.lag_ms + now_ms - max(self._heard_ms.values()) - 1

    def watermark(self, now_ms: int) -> int | None:
        """Return the watermark if it has risen, otherwise None. Called once per interval."""
        mark = self.candidate(now_ms)
        if mark is not None:
            self.last = mark
        return mark

    def next_idle_ms(self, now_ms: int) -> int | None:
        """When the next stream becomes idle, in milliseconds; None if none will."""
        if self.idle_timeout_ms is None:
            return None
        heard_ms = (heard for stream, heard in self._heard_ms.items() if stream not in self._unread)
        ends = (heard + self.idle_timeout_ms for heard in heard_ms)
        return min((end for end in ends if end > now_ms), default=None)

    def get_state(self) -> Any:
        """Return the durable state."""
        return self.last, self._latest, self._heard_ms

    def set_state(self, state: Any) -> None:
        """Restore the result of ``get_state``; a stream that is new has had no event yet."""
        last, latest, heard = state
        self.last = last
        self._latest.update((stream, value) for stream, value in latest.items() if stream in self._latest)
        self._heard_ms.update((stream, value) for stream, value in heard.items() if stream in self._latest)
