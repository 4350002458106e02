"""Watermarks: for which sources the watermark of windows has to wait.

A source that has records to be read, or has not begun, holds the watermark. A source that was read to its end does not.
A source without new records holds it until it was idle for the bolt's timeout, and not at all if it never had a tuple.
Sources are known for the tuples of tracked spouts that list them (``unread``); all other tuples are those of their
stream, as in Storm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.ranges import Range
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.driver.effects import CallSpout, Steps
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.source_marks import Place
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.wire.stream_sources import NOTHING_YET, StreamSources

IDLE_SOURCE_MS = 10_000
"""For how long a source without new records holds the watermark, for a bolt without an idle timeout."""
OPEN_RANGES_MAX = 200
"""The most ranges of earlier plans that a plan names: those planned last, since their tuples are most likely held."""


@dataclass(frozen=True)
class _Stream:
    """An input stream of a windowed bolt, with the spouts above it that list their sources."""

    bolt: str
    component: str
    stream: str
    spouts: tuple[str, ...]
    idle_ms: int


class Watermarks:
    """The streams of all windows in event time; in the driver."""

    def __init__(self, lane: Lane, spouts: Mapping[str, PartitionedSpout]) -> None:
        """Find the streams.

        Args:
            lane: the lane of the topology.
            spouts: as in ``Coordinator``.
        """
        self._owner = lane.topology.task_owner
        listing = {name: spout for name, spout in spouts.items() if lane.tracked and _lists_sources(lane, name)}
        self._streams = tuple(_streams(lane, listing))
        above = {spout for stream in self._streams for spout in stream.spouts}
        self._spouts = {component: spout for component, spout in listing.items() if component in above}
        self._unread: dict[str, Mapping[str, bool]] = {}
        """By spout: its sources, as it listed them last; spouts that know none are left out."""
        self._heard_ms: dict[Place, int] = {}
        """When each source was read last, in the plans' time."""

    def ask(self, progress: Mapping[str, Mapping[str, int]], offered: Mapping[str, Sequence[Range]]) -> Steps[None]:
        """Ask the spouts for their sources.

        Args:
            progress: as in ``Ledger``.
            offered: the ranges of the plan that is being made.
        """
        for component, spout in self._spouts.items():
            new = {range_.source: range_.end for range_ in offered.get(component, ())}
            done = {**progress.get(component, {}), **new}
            sources = yield CallSpout(component, spout, "unread", (done,))
            if sources is None:
                self._unread.pop(component, None)
            else:
                self._unread[component] = sources

    def streams(self, plan: MicroBatchPlan, ledger: Ledger) -> tuple[StreamSources, ...]:
        """The data on each stream for a plan, which has its entries and open ranges."""
        if not self._unread:
            return ()
        codes = {place: code for code, place in enumerate(plan.sources(self._owner))}
        for entry in plan.entries:
            if entry.source is not None:
                self._heard_ms[self._owner(entry.task)[0], entry.source] = plan.now_ms
        rests = ledger.messages.retries.unread()
        known = (stream for stream in self._streams if not self._unread.keys().isdisjoint(stream.spouts))
        return tuple(self._told(stream, codes, rests, ledger, plan.now_ms) for stream in known)

    def _told(
        self, stream: _Stream, codes: Mapping[Place, int], rests: set[Place], ledger: Ledger, now_ms: int
    ) -> StreamSources:
        marks = ledger.marks.of(stream.bolt, stream.component, stream.stream)
        others: list[int] = []
        planned: list[tuple[int, int]] = []
        releases: list[int] = []
        unread = False
        for place, has_more in self._places(stream, rests):
            mark_ms = marks.sources.get(place, NOTHING_YET)
            if not has_more:
                heard_ms = self._heard_ms.setdefault(place, now_ms)
                if now_ms - heard_ms >= stream.idle_ms or (mark_ms == NOTHING_YET and place not in codes):
                    continue
                releases.append(heard_ms + stream.idle_ms)
            unread = unread or has_more
            if place in codes:
                planned.append((codes[place], mark_ms))
            else:
                others.append(mark_ms)
        return StreamSources(
            bolt=stream.bolt,
            component=stream.component,
            stream=stream.stream,
            newest_ms=marks.newest_ms,
            has_sources=bool(marks.sources),
            others_ms=min(others, default=None),
            planned=tuple(sorted(planned)),
            unread=unread,
            ended=all(self._unread.get(spout) == {} for spout in stream.spouts) and not unread,
            release_ms=min(releases, default=None),
        )

    def _places(self, stream: _Stream, rests: set[Place]) -> Iterator[tuple[Place, bool]]:
        """The sources that may hold a stream's watermark, and whether each has records to be read."""
        for spout in stream.spouts:
            sources = self._unread.get(spout, {})
            for source, has_more in sources.items():
                yield (spout, source), has_more or (spout, source) in rests
        for spout, source in rests:
            if spout in stream.spouts and source not in self._unread.get(spout, {}):
                yield (spout, source), True

    def open_ranges(self, ledger: Ledger) -> tuple[tuple[int, int, int, str], ...]:
        """The ranges of earlier plans with open trees, as in ``MicroBatchPlan``; the newest ones."""
        if not self._unread:
            return ()
        newest: list[Entry] = [
            live.entry
            for live in sorted(ledger.messages.live, key=lambda live: live.micro_batch_id)
            if live.entry.source is not None and live.entry.letters is None
        ][-OPEN_RANGES_MAX:]
        return tuple((entry.task, entry.base, entry.reserved, entry.source or "") for entry in newest)


def _lists_sources(lane: Lane, component: str) -> bool:
    """Whether a spout's tuples have trees, and it may know its sources."""
    spout = lane.topology.components[component].component
    return isinstance(spout, PartitionedSpout) and spout.tracked and type(spout).unread is not PartitionedSpout.unread


def _streams(lane: Lane, listing: Mapping[str, PartitionedSpout]) -> Iterator[_Stream]:
    """The input streams of bolts in event time that have any of the spouts above them."""
    for spec in lane.topology.bolts:
        bolt = spec.component
        if not isinstance(bolt, RuntimeBolt) or not bolt.has_watermark:
            continue
        idle_ms = IDLE_SOURCE_MS if bolt.idle_timeout_ms is None else bolt.idle_timeout_ms
        for subscription in spec.subscriptions:
            above = tuple(sorted(_above(lane, subscription.source) & set(listing)))
            if above:
                yield _Stream(spec.id, subscription.source, subscription.stream, above, idle_ms)


def _above(lane: Lane, component: str) -> set[str]:
    """A component, and all components whose tuples it may emit tuples for."""
    found: set[str] = set()
    left = [component]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += [subscription.source for subscription in lane.topology.components[one].subscriptions]
    return found
