"""Source marks: the newest timestamps that windowed bolts have seen of each source.

A mark only rises, and only with a promotion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sparkbolt.wire.plan import MicroBatchPlan, TaskOwner
from sparkbolt.wire.stream_sources import NOTHING_YET

Place: TypeAlias = tuple[str, str]
"""(spout, source)."""
Stream: TypeAlias = tuple[str, str, str]
"""(windowed bolt, component, stream): one of its input streams."""
Report: TypeAlias = tuple[str, str, str, int, int]
"""(windowed bolt, component, stream, code of the source or -1, newest timestamp) of one task in one micro-batch."""


@dataclass
class StreamMarks:
    """The newest timestamps of one input stream of a windowed bolt, in milliseconds."""

    newest_ms: int = NOTHING_YET
    """Of all tuples."""
    sources: dict[Place, int] = field(default_factory=dict)


class SourceMarks:
    """The marks of all input streams; part of the ledger.

    >>> marks = SourceMarks()
    >>> marks.raise_to(("average", "lines", "default"), ("lines", "a.txt"), 900)
    >>> marks.of("average", "lines", "default").sources
    {('lines', 'a.txt'): 900}
    """

    def __init__(self, state: Iterable[Sequence[Any]] = ()) -> None:
        """Begin with the result of ``state``."""
        self._streams: dict[Stream, StreamMarks] = {}
        for bolt, component, stream, newest_ms, sources in state:
            places = {(spout, source): mark for spout, source, mark in sources}
            self._streams[bolt, component, stream] = StreamMarks(newest_ms, places)

    def state(self) -> list[list[Any]]:
        """The durable state."""
        return [
            [*stream, marks.newest_ms, [[*place, mark] for place, mark in marks.sources.items()]]
            for stream, marks in self._streams.items()
        ]

    def of(self, bolt: str, component: str, stream: str) -> StreamMarks:
        """The marks of a stream."""
        return self._streams.get((bolt, component, stream)) or StreamMarks()

    def promote(self, plan: MicroBatchPlan, reports: Iterable[Report], owner: TaskOwner) -> None:
        """Apply the reports of the tasks of a micro-batch; the sources of ``plan`` have the codes."""
        places = plan.sources(owner)
        for bolt, component, stream, code, newest_ms in reports:
            self.raise_to((bolt, component, stream), places[code] if code >= 0 else None, newest_ms)

    def raise_to(self, stream: Stream, place: Place | None, newest_ms: int) -> None:
        """Raise the mark of a stream, and of one of its sources if it is known."""
        marks = self._streams.setdefault(stream, StreamMarks())
        marks.newest_ms = max(marks.newest_ms, newest_ms)
        if place is not None:
            marks.sources[place] = max(marks.sources.get(place, NOTHING_YET), newest_ms)
