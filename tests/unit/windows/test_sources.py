"""The watermark waits for each source of a stream that is still to be read: files, kafka_partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt import Bolt, Config, Count, PartitionedSpout, Range, TopologyBuilder, WindowedBolt
from sparkbolt.api.topology import Topology
from sparkbolt.driver.source_watermarks import IDLE_SOURCE_MS
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.windows import TupleWindow, WaterMarkEventGenerator, WindowCollector
from tests.hypotheses import examples
from tests.unit.windows.windowed import SECOND, secs

TIMES: dict[str, list[int]] = {}
"""By source: the second of each of its tuples."""
THERE: dict[str, int] = {}
"""By source: how many of its tuples can be read."""
FOLLOWED: set[str] = set()
"""The sources that do not end."""


class Logs(PartitionedSpout):
    """Reads what is there of each source."""

    outputs = ["source", "at"]

    def __init__(self, names: str = "abcdef") -> None:
        self.names = names

    @property
    def times(self) -> dict[str, list[int]]:
        return {source: times for source, times in TIMES.items() if source in self.names}

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        spans = {source: (progress.get(source, 0), THERE.get(source, 0)) for source in self.times}
        return [Range(0, source, start, end) for source, (start, end) in spans.items() if end > start]

    def unread(self, progress: Mapping[str, int]) -> Mapping[str, bool] | None:
        followed = {source: THERE.get(source, 0) > progress.get(source, 0) for source in FOLLOWED}
        return {source: True for source, times in self.times.items() if len(times) > progress.get(source, 0)} | followed

    def finished(self, progress: Mapping[str, int]) -> bool:
        return not FOLLOWED and all(progress.get(source, 0) >= len(times) for source, times in self.times.items())

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position in range(range_.start, range_.end):
            yield position, [range_.source, 1000 * TIMES[range_.source][position]]


class Show(WindowedBolt):
    outputs = ["end", "sources"]

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        collector.emit([window.end_ms // 1000, "".join(sorted(tup["source"] for tup in window))])


class Runs:
    """A topology of ``Logs`` and ``Show``, with words for what these tests do."""

    def __init__(
        self, drawn: str, windowed: WindowedBolt | None = None, *, tasks: int = 1, between: Any = None, **config: Any
    ) -> None:
        """Begin with a picture: a line for each source, a column for each second, ``x`` for a tuple."""
        TIMES.clear()
        THERE.clear()
        FOLLOWED.clear()
        for line in filter(None, map(str.strip, drawn.splitlines())):
            source, seconds = line.split(":")
            TIMES[source] = [second for second, mark in enumerate(seconds) if mark == "x"]
        self.windowed = windowed or Show().with_tumbling_window(secs(5))
        self.windowed.with_timestamp_field("at").with_watermark_interval(secs(0.001))
        self.shown: list[tuple[int, str]] = []
        self.engine = LocalEngine(self._topology(tasks, between, config), now_ms=100_000, capture=self._capture)

    def _topology(self, tasks: int, between: Any, config: dict[str, Any]) -> Topology:
        builder = TopologyBuilder("logs", Config(**config))
        builder.set_spout("logs", Logs())
        if between is not None:
            builder.set_bolt("between", between).global_grouping("logs")
        declarer = builder.set_bolt("show", self.windowed, parallelism=tasks)
        declarer.fields_grouping("logs" if between is None else "between", ["source"])
        return builder.build()

    def _capture(self, component: str, index: int, stream: str, columns: Sequence[Any]) -> None:
        if component == "show" and stream == "default":
            self.shown += zip(*(list(column) for column in columns), strict=True)

    def read(self, **there: int) -> list[tuple[int, str]]:
        """Run one micro-batch in which so many more tuples of each source can be read; return the new windows."""
        before = len(self.shown)
        for source, count in there.items():
            THERE[source] = min(len(TIMES[source]), THERE.get(source, 0) + count)
        self.engine.step()
        self.wait(10)
        return self.shown[before:]

    def wait(self, ms: int) -> list[tuple[int, str]]:
        """Let time pass, with the micro-batches that are due; return the new windows."""
        before, until = len(self.shown), self.engine.now_ms + ms
        while (due := self.engine.next_due_ms()) is not None and due <= until:
            self.engine.now_ms = max(self.engine.now_ms + 1, due)
            self.engine.step()
        self.engine.now_ms = until
        return self.shown[before:]

    @property
    def late(self) -> int:
        return self.engine.ledger.metrics.of("show").late_tuples


TWO = """
    a: x x x x x x x x
    b:  x x x x x x x x
"""


def test_watermark_is_that_of_the_source_with_the_least_progress() -> None:
    marks = WaterMarkEventGenerator(["log"], lag_ms=5)
    marks.note("log", 100, now_ms=0)
    marks.hold("log", -1)
    assert marks.watermark(0) is None
    marks.hold("log", 40)
    assert marks.watermark(0) == 35
    marks.hold("log", None)
    assert marks.watermark(0) == 95


def test_windows_wait_for_a_file_that_is_not_started_and_not_for_one_that_is_read() -> None:
    runs = Runs(TWO)
    assert runs.read(a=8) == []
    assert runs.read(b=3) == [(5, "aaabb")]
    assert runs.read(b=5) == [(10, "aabbb"), (15, "aaabb")]
    assert runs.late == 0


def test_a_stream_with_all_sources_read_to_the_end_holds_back_no_other_stream() -> None:
    runs = Runs("a: x x\nb: x x x x x x x x")
    builder = TopologyBuilder("streams")
    builder.set_spout("short", Logs("a"))
    builder.set_spout("long", Logs("b"))
    builder.set_bolt("show", runs.windowed).global_grouping("short").global_grouping("long")
    runs.engine.close()
    runs.engine = LocalEngine(builder.build(), now_ms=100_000, capture=runs._capture)
    assert runs.read(b=8) == []
    assert runs.read(a=1) == []
    assert runs.read(a=1) == [(5, "aabbb"), (10, "bb"), (15, "bbb")]


def test_a_followed_source_that_is_silent_holds_windows_for_ten_seconds() -> None:
    runs = Runs(TWO)
    FOLLOWED.update("ab")
    runs.read(a=1, b=1)
    assert runs.read(a=7) == []
    assert runs.wait(IDLE_SOURCE_MS - 30) == []
    assert runs.wait(30) == [(5, "aaab"), (10, "aa"), (15, "aaa")]


def test_an_empty_followed_source_holds_nothing() -> None:
    runs = Runs(TWO)
    FOLLOWED.update("ab")
    assert runs.read(a=8) == [(5, "aaa"), (10, "aa"), (15, "aaa")]


class Hold(Bolt):
    """Emits each tuple one micro-batch late."""

    outputs = ["source", "at"]

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.held.append(tup)
        if self.held[0]["at"] != tup["at"] or len(self.held) > 1:
            first = self.held.pop(0)
            collector.emit(list(first.values()), anchors=first)
            collector.ack(first)


def test_a_tuple_that_a_bolt_held_belongs_to_its_source() -> None:
    runs = Runs(TWO, between=Hold())
    assert [runs.read(a=1) for _ in range(5)] == [[]] * 5
    runs.read(b=2)
    assert runs.engine.ledger.marks.of("show", "between", "default").sources == {
        ("logs", "a"): 9000,
        ("logs", "b"): 2000,
    }
    assert runs.late == 0


def test_a_range_that_cannot_be_read_holds_windows_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(TWO)
    read = Logs.read

    def broken(self: Logs, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        if range_.source == "b":
            raise OSError("the disk is away")
        yield from read(self, range_)

    monkeypatch.setattr(Logs, "read", broken)
    assert runs.read(a=8, b=8) == []
    assert runs.read() == []
    monkeypatch.setattr(Logs, "read", read)
    runs.wait(60_000)
    assert (runs.late, sorted(runs.shown)) == (0, [(5, "aaabb"), (10, "aabbb"), (15, "aaabb")])


@pytest.mark.parametrize(
    ("windowed", "ends"),
    [
        (lambda: Show().with_window(secs(10), slide=secs(5)), [5, 10, 15, 20]),
        (lambda: Show().with_window(secs(10), slide=secs(5), closed="left"), [5, 10, 15, 20]),
        (lambda: Show().with_window(secs(2), slide=secs(5)), [5, 10]),
        (lambda: Show().with_session_gap(secs(7)), [20]),
        (lambda: Show().with_window(Count(3), slide=Count(3)), [5, 11]),
        (lambda: Show().with_window(Count(3), slide=secs(5)), [5, 10, 15]),
        (lambda: Show().with_window(secs(5), slide=secs(5)).with_key("source"), [5, 10, 15]),
    ],
)
def test_a_silent_stream_closes_windows_of_each_kind_and_the_watermark_then_rests(
    windowed: Any, ends: list[int]
) -> None:
    runs = Runs("a: x x x x x x x       x", windowed().with_idle_stream_timeout(SECOND).with_lag(secs(3)))
    FOLLOWED.add("a")
    runs.read(a=7)
    runs.wait(120_000)
    assert [end for end, _ in runs.shown] == ends
    runs.read(a=1)
    assert runs.late == 0


def test_at_the_end_of_all_sources_an_idle_timeout_closes_every_window() -> None:
    windowed = Show().with_tumbling_window(secs(3600)).with_idle_stream_timeout(SECOND).with_lag(secs(60))
    runs = Runs(TWO, windowed)
    runs.read(a=8, b=8)
    assert not runs.engine.coordinator.finished
    assert runs.wait(1000) == [(3600, "a" * 8 + "b" * 8)]
    assert runs.engine.coordinator.finished


def test_end_of_all_sources_alone_closes_no_window() -> None:
    runs = Runs(TWO, Show().with_tumbling_window(secs(3600)))
    runs.read(a=8, b=8)
    assert (runs.wait(60_000), runs.engine.coordinator.finished) == ([], True)


@settings(deadline=None, max_examples=examples(40))
@given(
    times=st.lists(st.lists(st.integers(0, 40), max_size=12).map(sorted), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=20),
    tasks=st.integers(1, 3),
)
def test_sources_that_are_each_in_order_have_no_late_tuples_however_they_are_read(
    times: list[list[int]], steps: list[tuple[int, int, bool]], tasks: int
) -> None:
    runs = Runs("", Show().with_tumbling_window(secs(5), closed="left"), tasks=tasks)
    TIMES.update({"abcd"[place]: seconds for place, seconds in enumerate(times)})
    for place, count, restart in [*steps, *((place, 99, False) for place in range(4))]:
        source = "abcd"[place % len(times)]
        runs.read(**{source: count})
        if restart:
            runs.engine.restart()
    assert runs.late == 0
    expected: dict[int, list[str]] = {}
    for source, seconds in TIMES.items():
        for second in seconds:
            expected.setdefault(second // 5 * 5 + 5, []).append(source)
    found: dict[int, list[str]] = {}
    for end, sources in runs.shown:
        found.setdefault(end, []).extend(sources)
    assert all(sorted(expected[end]) == sorted(sources) or tasks > 1 for end, sources in found.items())
    if tasks == 1:
        newest = max((second for seconds in times for second in seconds), default=0)
        assert {end for end in expected if end <= newest} <= found.keys()
