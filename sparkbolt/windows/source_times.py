"""Source times: the progress of the sources of a window's tuples in event time.

A task knows a source by its own tuples of this micro-batch, and by those that all tasks of the bolt saw in earlier
ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.windows.content import I64
from sparkbolt.windows.watermarks import WaterMarkEventGenerator
from sparkbolt.wire.stream_sources import NOTHING_YET, SourceRanges, StreamSources
from sparkbolt.worker.emissions import Rows

Stream: TypeAlias = tuple[str, str]
"""(component, stream)."""


class SourceTimes:
    """The newest timestamps of one task in one micro-batch, by input stream and source."""

    def __init__(self) -> None:
        """Know of no sources."""
        self.hear((), None)

    def hear(self, streams: Sequence[StreamSources], ranges: SourceRanges | None) -> None:
        """Begin a micro-batch with the data of its plan."""
        self._streams = {(one.component, one.stream): one for one in streams}
        self._ranges = ranges
        self._newest: dict[Stream, dict[int, int]] = {}
        """By input stream and the code of the source, or -1."""

    def note(self, stream: Stream, rows: Rows, times: I64, chosen: npt.NDArray[np.bool_]) -> None:
        """Note the times of the chosen rows, bool[rows]; ``times`` is int64[rows]."""
        if stream not in self._streams or self._ranges is None:
            return
        newest = self._newest.setdefault(stream, {})
        newest[-1] = max(newest.get(-1, NOTHING_YET), int(times[chosen].max()))
        if rows.anchoring is None:
            return
        if rows.anchoring.offsets is not None:
            times = np.repeat(times, np.diff(rows.anchoring.offsets))
            chosen = np.repeat(chosen, np.diff(rows.anchoring.offsets))
        codes = self._ranges.codes_of(rows.anchoring.roots[chosen])
        newest_of_code = np.full(int(codes.max(initial=-1)) + 1, NOTHING_YET, dtype=np.int64)
        np.maximum.at(newest_of_code, codes[codes >= 0], times[chosen][codes >= 0])
        for code in np.flatnonzero(newest_of_code != NOTHING_YET).tolist():
            newest[code] = max(newest.get(code, NOTHING_YET), int(newest_of_code[code]))

    def hold(self, marks: WaterMarkEventGenerator, now_ms: int) -> None:
        """Pass the progress of each stream's sources to its watermark."""
        for stream, sources in self._streams.items():
            newest = self._newest.get(stream, {})
            if not sources.has_sources and newest.keys() <= {-1}:  # no tuple of the stream belongs to any source
                marks.hold(stream, None, unread=sources.unread)
                continue
            if sources.newest_ms != NOTHING_YET:
                marks.learn(stream, sources.newest_ms, now_ms)
            held = [max(mark_ms, newest.get(code, NOTHING_YET)) for code, mark_ms in sources.planned]
            held += [] if sources.others_ms is None else [sources.others_ms]
            marks.hold(stream, min(held, default=None), unread=sources.unread, ended=sources.ended)

    def reports(self, bolt: str) -> list[tuple[str, str, str, int, int]]:
        """The report to the driver about this micro-batch (``source_marks.Report``)."""
        return [
            (bolt, *stream, code, mark_ms)
            for stream, newest in self._newest.items()
            for code, mark_ms in newest.items()
        ]

    @property
    def release_ms(self) -> int | None:
        """When the next source that has nothing at present stops to hold the watermark; None if none will."""
        if any(sources.unread for sources in self._streams.values()):
            return None
        return min(
            (sources.release_ms for sources in self._streams.values() if sources.release_ms is not None), default=None
        )

    def have_ended(self, streams: int) -> bool:
        """Whether the sources of all input streams, so many, are read to their ends."""
        return len(self._streams) == streams and all(sources.ended for sources in self._streams.values())
