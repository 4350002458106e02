"""Windowed bolts in a topology without Spark: which windows there are, and what becomes of tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import pytest

from sparkbolt import Config, Count, InvalidTopology, Spout, TopologyBuilder, WindowedBolt, bolt
from sparkbolt.core.keyvalue import KeyValueState
from sparkbolt.core.topology import Topology
from sparkbolt.testing import START, TopologyTestDriver
from sparkbolt.windows import (
    Action,
    CountEvictionPolicy,
    CountTriggerPolicy,
    Event,
    EvictionContext,
    EvictionPolicy,
    TimeEvictionPolicy,
    TimeTriggerPolicy,
    TriggerPolicy,
    TupleWindow,
    WindowCollector,
)

SECOND = timedelta(seconds=1)


def secs(count: float) -> timedelta:
    return timedelta(seconds=count)


class Source(Spout):
    outputs = {"default": ["name", "at", "user"], "other": ["at", "name", "user"]}

    def next_tuple(self, collector: Any) -> None: ...


class Show(WindowedBolt):
    outputs = ["names", "new", "expired", "start", "end", "key"]

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        parts = (window, window.get_new(), window.get_expired())
        names = ["".join(tup["name"] for tup in part) for part in parts]
        collector.emit([*names, window.start_ms, window.end_ms, window.key])


def topology(windowed: WindowedBolt, other: bool = False, **settings: Any) -> Topology:
    builder = TopologyBuilder("windows", Config(**settings))
    builder.set_spout("source", Source())
    declarer = builder.set_bolt("show", windowed).global_grouping("source")
    if other:
        declarer.global_grouping("source", "other")
    return builder.build()


class Run:
    """A driver with short words for what these tests do."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver

    def feed(self, name: str, at: Any = None, user: Any = "u", stream: str = "default") -> None:
        values = {"name": name, "at": at, "user": user}
        self.driver.feed("source", values, message_id=name, stream=stream)

    def shown(self, column: int = 0) -> list[Any]:
        return [values[column] for values in self.driver.emitted("show")]


def drawn(picture: str) -> tuple[list[tuple[int, str]], list[str]]:
    """The tuples and the windows of a picture: a column is a second, a bar covers the tuples of one window."""
    first, *bars = [line.removeprefix("|") for line in picture.splitlines() if line.strip()]
    tuples = [(column, name) for column, name in enumerate(first) if name.isalnum()]
    windows = []
    for bar in bars:
        begin, end = len(bar) - len(bar.lstrip()), len(bar.rstrip())
        windows.append("".join(name for column, name in tuples if begin <= column < end))
    return tuples, windows


ARRIVALS: dict[str, tuple[Callable[[], WindowedBolt], str]] = {
    "tumbling by count": (
        lambda: Show().with_tumbling_window(Count(3)),
        """
|a b c  d e  f g
|[---]
|       [----]
""",
    ),
    "tumbling by time": (
        lambda: Show().with_tumbling_window(secs(5)),
        """
|ab c  d    e f   g  h
|[---]
|     [---]
|          [---]
|               [---]
|                    [---]
""",
    ),
    "sliding, count by count": (
        lambda: Show().with_window(Count(4), slide=Count(2)),
        """
|a b c d e f
|[-]
|[-----]
|    [-----]
""",
    ),
    "sliding, time by time": (
        lambda: Show().with_window(secs(10), slide=secs(5)),
        """
|ab  c   d e    f   g
|[---]
|[--------]
|     [--------]
|          [--------]
|               [--------]
""",
    ),
    "sliding, time by count": (
        lambda: Show().with_window(secs(5), slide=Count(2)),
        """
|a b  c   d e f    g
|[-]
|     [---]
|         [---]
""",
    ),
    "sliding, count by time": (
        lambda: Show().with_window(Count(3), slide=secs(5)),
        """
|ab  cd e   f   g
|[---]
|    [--]
|     [------]
|       [--------]
""",
    ),
    "by every tuple, count": (
        lambda: Show().with_window(Count(2)),
        """
|a b  c
|-
|[-]
|  [--]
""",
    ),
    "by every tuple, time": (
        lambda: Show().with_window(secs(4)),
        """
|a b  c
|-
|[-]
|  [--]
""",
    ),
    "a slide longer than the window": (
        lambda: Show().with_window(secs(2), slide=secs(5)),
        """
|ab cd     ef  g
|   []
|             []
""",
    ),
    "sessions": (
        lambda: Show().with_session_gap(secs(3)),
        """
|a b c d    e
|[-----]
|           -
""",
    ),
}


@pytest.mark.parametrize("kind", ARRIVALS)
def test_windows_by_arrival_are_as_drawn(kind: str) -> None:
    make, picture = ARRIVALS[kind]
    tuples, windows = drawn(picture)
    with TopologyTestDriver(topology(make())) as driver:
        run = Run(driver)
        for column, name in tuples:
            driver.advance(START + secs(column) - driver.now)
            run.feed(name)
        driver.run_until_idle()
        driver.advance(secs(10))
        shown = run.shown()
        assert shown[: len(windows)] == windows
        assert set(shown[len(windows) :]) <= {windows[-1]}  # a count by time shows the same again, as Storm does
        assert sorted(driver.acked("source")) == [name for _, name in tuples]


EVENT_TIMES: dict[str, tuple[Callable[[], WindowedBolt], str]] = {
    "tumbling by time: a boundary belongs to the earlier window": (
        lambda: Show().with_tumbling_window(secs(5)),
        """
| ab cd e
| [---]
|      [---]
""",
    ),
    "sliding, time by time: windows end at multiples of the slide": (
        lambda: Show().with_window(secs(10), slide=secs(5)),
        """
| a  b c     d
| [---]
| [--------]
|      [--------]
|           [--------]
""",
    ),
    "sliding, time by time, with a gap: empty windows are skipped": (
        lambda: Show().with_window(secs(4), slide=secs(2)),
        """
| a  b               c d
|[-]
| [--]
|   [--]
|                  [--]
|                    [--]
|                      [--]
""",
    ),
    "tumbling by count": (
        lambda: Show().with_tumbling_window(Count(2)),
        """
| a b c  d  e
| [-]
|     [--]
""",
    ),
    "by every tuple: one window for each, once the watermark has passed it": (
        lambda: Show().with_window(secs(3)),
        """
| a b c   d
| -
| [-]
|   [-]
|         -
""",
    ),
    "sliding, count by time": (
        lambda: Show().with_window(Count(3), slide=secs(5)),
        """
| a b c d    e
| [---]
|   [---]
|     [------]
""",
    ),
    "sessions": (
        lambda: Show().with_session_gap(secs(3)),
        """
| a b c     d  e
| [---]
|           -
|              -
""",
    ),
}


@pytest.mark.parametrize("kind", EVENT_TIMES)
def test_windows_in_event_time_are_as_drawn(kind: str) -> None:
    make, picture = EVENT_TIMES[kind]
    tuples, windows = drawn(picture)
    with TopologyTestDriver(topology(make().with_timestamp_field("at"))) as driver:
        run = Run(driver)
        for column, name in tuples:
            run.feed(name, at=(60 + column) * 1000)
        driver.run_until_idle()
        assert run.shown() == []  # the watermark moves a second later
        driver.advance(SECOND)
        run.feed("Z", at=(60 + tuples[-1][0] + 10) * 1000)
        driver.run_until_idle()
        driver.advance(SECOND)
        assert run.shown()[: len(windows)] == windows
        assert sorted(driver.acked("source")) == sorted([*(name for _, name in tuples), "Z"])


def clock(hours: int, minutes: int, seconds: int) -> datetime:
    return datetime(2026, 3, 1, hours, minutes, seconds, tzinfo=UTC)


def storms_example() -> WindowedBolt:
    windowed = Show().with_window(secs(20), slide=secs(10)).with_timestamp_field("at")
    return windowed.with_lag(secs(5)).with_watermark_interval(SECOND)


STORMS_FIRST = [(3, "1"), (5, "2"), (7, "3"), (18, "4"), (26, "5"), (36, "6")]
STORMS_SECOND = [(25, "7"), (26, "8"), (27, "9"), (39, "X")]
STORMS_WINDOWS = [
    ("123", clock(6, 0, 10)),
    ("1234", clock(6, 0, 20)),
    ("45", clock(6, 0, 30)),
    ("56", clock(6, 0, 40)),
    ("6", clock(6, 0, 50)),
    ("789", clock(8, 0, 30)),
]


def test_storms_worked_example_gives_exactly_its_six_windows() -> None:
    with TopologyTestDriver(topology(storms_example())) as driver:
        run = Run(driver)
        for second, name in STORMS_FIRST:
            run.feed(name, at=clock(6, 0, second))
        driver.advance(SECOND)
        assert run.shown() == ["123", "1234", "45"]
        assert driver.metrics().of("show").watermark_ms == clock(6, 0, 31).timestamp() * 1000
        for second, name in STORMS_SECOND:
            run.feed(name, at=clock(8, 0, second))
        driver.advance(SECOND)
        ends = [datetime.fromtimestamp(end / 1000, tz=UTC) for end in run.shown(4)]
        assert list(zip(run.shown(), ends, strict=True)) == STORMS_WINDOWS
        assert run.shown(2) == ["", "", "123", "4", "5", "6"]


def test_a_window_outlives_a_crash_and_another_worker() -> None:
    with TopologyTestDriver(topology(Show().with_window(Count(3), slide=Count(2)))) as driver:
        run = Run(driver)
        for name in "abcdefg":
            run.feed(name)
            driver.run_until_idle()
            driver.restart()
        assert run.shown() == ["ab", "bcd", "def"]
        assert driver.acked("source") == list("abcdefg")


def test_timers_and_watermarks_outlive_a_crash() -> None:
    for windowed in (Show().with_tumbling_window(secs(5)), Show().with_tumbling_window(secs(5)).with_key("user")):
        with TopologyTestDriver(topology(windowed)) as driver:
            run = Run(driver)
            run.feed("a")
            driver.run_until_idle()
            driver.restart()
            driver.advance(secs(5))
            assert run.shown() == ["a"]
    with TopologyTestDriver(topology(Show().with_tumbling_window(secs(5)).with_timestamp_field("at"))) as driver:
        run = Run(driver)
        run.feed("a", at=1000)
        run.feed("b", at=7000)
        driver.run_until_idle()
        driver.restart()
        driver.advance(SECOND)
        assert run.shown() == ["a"]
        driver.restart()
        run.feed("late", at=6999)
        driver.run_until_idle()
        assert driver.metrics().of("show").late_tuples == 1


# ---- late tuples and several streams


def test_a_late_tuple_goes_to_its_stream_with_its_source_and_is_acked_with_its_tree() -> None:
    windowed = Show().with_tumbling_window(secs(5)).with_timestamp_field("at").with_late_tuple_stream("late")
    builder = TopologyBuilder("late")
    builder.set_spout("source", Source())
    builder.set_bolt("show", windowed).global_grouping("source").global_grouping("source", "other")

    @bolt(outputs=["name"])
    def refuse(tup: Any) -> Any:
        raise ValueError(tup["late_tuple"]["name"])

    builder.set_bolt("refuse", refuse).shuffle_grouping("show", "late")
    with TopologyTestDriver(builder.build()) as driver:
        run = Run(driver)
        run.feed("a", at=20_000)
        run.feed("b", at=20_000, stream="other")
        driver.advance(SECOND)
        run.feed("same", at=20_000)
        driver.feed("source", [19_999, "late", "u"], message_id="late", stream="other")
        driver.run_until_idle()
        [[late]] = driver.emitted("show", "late")
        assert (late.source_component, late.source_task, late.source_stream) == ("source", 0, "other")
        assert late.fields == ("at", "name", "user")
        assert late.values == (19_999, "late", "u")
        assert [failure.message_id for failure in driver.failed("source")] == ["late"]
        assert driver.acked("source") == ["a", "b", "same"]


def test_a_late_tuple_without_a_stream_is_counted_told_once_an_interval_and_acked() -> None:
    windowed = Show().with_tumbling_window(secs(5)).with_timestamp_field("at")
    with TopologyTestDriver(topology(windowed, error_throttle_interval_secs=10)) as driver:
        run = Run(driver)
        run.feed("a", at=20_000)
        driver.advance(SECOND)
        for name in "bcd":
            run.feed(name, at=1000)
            driver.run_until_idle()
        assert driver.acked("source") == list("abcd")
        assert driver.metrics().of("show").late_tuples == 3
        assert driver.metrics().of("show").errors == 0
        [report] = driver.errors()
        assert report.text.startswith("1 tuple(s) were older than the watermark 20000")


def test_a_silent_stream_holds_windows_back_unless_it_may_be_idle() -> None:
    for timeout, shown in ((None, []), (secs(30), ["a"])):
        windowed = Show().with_tumbling_window(secs(5)).with_timestamp_field("at")
        if timeout is not None:
            windowed.with_idle_stream_timeout(timeout)
        with TopologyTestDriver(topology(windowed, other=True)) as driver:
            run = Run(driver)
            run.feed("a", at=1000)
            run.feed("b", at=9000)
            driver.advance(secs(29))
            assert run.shown() == []
            run.feed("c", at=9000)
            driver.advance(secs(10))
            assert run.shown() == shown


def test_streams_with_other_fields_meet_in_one_window() -> None:
    with TopologyTestDriver(topology(Show().with_tumbling_window(Count(4)), other=True)) as driver:
        run = Run(driver)
        for name, stream in (("a", "default"), ("b", "other"), ("c", "default"), ("d", "other")):
            run.feed(name, at=1, stream=stream)
            driver.run_until_idle()
            driver.restart()
        assert run.shown() == ["abcd"]


def test_a_tuple_without_a_time_fails_alone() -> None:
    with TopologyTestDriver(topology(Show().with_tumbling_window(Count(2)).with_timestamp_field("at"))) as driver:
        run = Run(driver)
        for name, at in (("a", 1), ("b", "noon"), ("c", datetime(2026, 1, 1)), ("d", 2), ("e", None)):
            run.feed(name, at=at)
        driver.advance(SECOND)
        assert [failure.message_id for failure in driver.failed("source")] == ["b", "c", "e"]
        assert "the timestamp field 'at': expected milliseconds since the epoch" in driver.failed("source")[0].reason
        assert run.shown() == ["ad"]


def test_an_extractor_gives_times() -> None:
    windowed = Show().with_tumbling_window(secs(5)).with_timestamp_extractor(lambda tup: int(tup["name"]) * 1000)
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name in "1379x":
            run.feed(name)
        driver.advance(SECOND)
        assert run.shown() == ["13"]
        assert [failure.message_id for failure in driver.failed("source")] == ["x"]


# ---- keys


def test_each_key_has_a_window_of_its_own_and_empty_ones_are_forgotten() -> None:
    windowed = Show().with_window(secs(10), slide=secs(5)).with_key("user")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, user in (("a", "ann"), ("b", "bob"), ("c", "ann")):
            run.feed(name, user=user)
            driver.advance(secs(4))
        driver.advance(secs(3))
        assert list(zip(run.shown(), run.shown(5), strict=True)) == [
            ("a", "ann"),
            ("b", "bob"),
            ("ac", "ann"),
            ("b", "bob"),
            ("c", "ann"),
        ]
        driver.advance(secs(20))
        assert run.shown()[5:] == []
        run.feed("d", user="ann")
        driver.advance(secs(5))
        assert run.shown()[5:] == ["d"]
        assert run.shown(2)[-1] == ""


def test_a_watermark_fires_the_windows_of_keys_that_it_passes_in_the_micro_batch_in_which_they_come() -> None:
    windowed = Show().with_tumbling_window(secs(1)).with_timestamp_field("at").with_key("user")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        run.feed("a", at=500, user="ann")
        run.feed("b", at=9000, user="bob")
        driver.advance(secs(60))
        assert list(zip(run.shown(), run.shown(5), strict=True)) == [("a", "ann"), ("b", "bob")]


def test_a_key_that_is_idle_is_forgotten_with_what_it_has() -> None:
    windowed = Show().with_tumbling_window(Count(2)).with_key("user", idle_timeout=secs(60))
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        run.feed("a", user="ann")
        run.feed("b", user="bob")
        driver.advance(secs(50))
        run.feed("c", user="bob")
        driver.advance(secs(50))
        run.feed("d", user="ann")
        driver.run_until_idle()
        assert run.shown() == ["bc"]
        run.feed("e", user="ann")
        driver.run_until_idle()
        assert run.shown() == ["bc", "de"]


def test_keys_may_be_several_fields_and_must_be_values_that_can_be_keys() -> None:
    windowed = Show().with_tumbling_window(Count(1)).with_key("user", "at")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        run.feed("a", user="ann", at=1)
        run.feed("b", user=["bob"], at=2)
        driver.run_until_idle()
        assert run.shown(5) == [("ann", 1)]
        assert [failure.message_id for failure in driver.failed("source")] == ["b"]


SHAPES: list[Callable[[WindowedBolt], WindowedBolt]] = [
    lambda windowed: windowed.with_window(secs(6), slide=secs(4)),
    lambda windowed: windowed.with_window(Count(3), slide=Count(2)),
    lambda windowed: windowed.with_window(secs(6), slide=Count(2)),
    lambda windowed: windowed.with_window(Count(3), slide=secs(4)),
    lambda windowed: windowed.with_session_gap(secs(3)),
]
COME = [(f"{i:x}", i * i % 17 + i, f"u{i * 7 % 3}") for i in range(16)]


def windows_shown(windowed: WindowedBolt, users: Sequence[str], event_time: bool, restart: bool) -> list[Any]:
    """(names, new, start, end, key) of all windows but those of ``-``, who comes first and last in any case."""
    if event_time:
        windowed.with_timestamp_field("at").with_lag(secs(90))  # one watermark, whoever else there is
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, at, user in [("<", 0, "-"), *COME, (">", 999, "-")]:
            if user in (*users, "-"):
                run.feed(name, at=at * 1000, user=user)
            driver.advance(secs(0.5))
            if restart:
                driver.restart()
        driver.advance(secs(30))
        return [(*shown[:2], *shown[3:]) for shown in driver.emitted("show") if shown[5] != "-"]


@pytest.mark.parametrize("event_time", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_windows_of_a_key_are_those_that_it_has_alone(
    shape: Callable[[WindowedBolt], WindowedBolt], event_time: bool
) -> None:
    together = windows_shown(shape(Show().with_key("user")), ["u0", "u1", "u2"], event_time, restart=True)
    assert len(together) >= 3
    for user in ("u0", "u1", "u2"):
        alone = windows_shown(shape(Show().with_key("user")), [user], event_time, restart=False)
        assert [shown for shown in together if shown[4] == user] == alone


@pytest.mark.parametrize("event_time", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_single_key_has_the_windows_of_a_bolt_without_keys(
    shape: Callable[[WindowedBolt], WindowedBolt], event_time: bool
) -> None:
    shown = []
    for windowed in (Show(), Show().with_key("user")):
        shape(windowed)
        if event_time:
            windowed.with_timestamp_field("at").with_lag(secs(20))
        with TopologyTestDriver(topology(windowed)) as driver:
            run = Run(driver)
            for name, at, _ in [*COME, (">", 99, "-")]:
                run.feed(name, at=at * 1000)
                driver.advance(secs(0.7))
            driver.advance(secs(30))
            shown.append([(*values[:2], *values[3:5]) for values in driver.emitted("show")])
    assert shown[0] == shown[1]
    assert shown[0]


# ---- what execute gets


class Sums(WindowedBolt):
    """A running sum beside the one that looks at everything."""

    outputs = ["running", "sum", "column"]

    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        self.total += sum(tup["at"] for tup in window.get_new()) - sum(tup["at"] for tup in window.get_expired())
        collector.emit([self.total, sum(tup["at"] for tup in window), pc.sum(window.column("at")).as_py()])


@pytest.mark.parametrize(
    "shape",
    [
        lambda windowed: windowed.with_window(Count(4), slide=Count(3)),
        lambda windowed: windowed.with_window(secs(6), slide=secs(4)),
        lambda windowed: windowed.with_window(secs(3), slide=Count(1)),
        lambda windowed: windowed.with_tumbling_window(secs(2)),
    ],
)
def test_what_is_new_and_what_has_expired_keep_a_running_sum_also_over_empty_windows(
    shape: Callable[[WindowedBolt], WindowedBolt],
) -> None:
    builder = TopologyBuilder("sums")
    builder.set_spout("source", Source())
    builder.set_bolt("sums", shape(Sums())).global_grouping("source")
    with TopologyTestDriver(builder.build()) as driver:
        run = Run(driver)
        for i, pause in enumerate([0, 1, 1, 0, 20, 1, 3, 0, 0, 9, 1]):
            driver.advance(secs(pause))
            run.feed(str(i), at=10**i)
            if i == 6:
                driver.run_until_idle()
                driver.restart()
        driver.advance(secs(20))
        assert len(driver.emitted("sums")) >= 3
        for running, whole, column in driver.emitted("sums"):
            assert running == whole == column


def test_a_window_is_a_sequence_of_tuples() -> None:
    seen: list[Any] = []

    class Look(WindowedBolt):
        def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
            collector.report_error(f"{len(window)} {window[0]['name']} {window[-1]['name']} {len(window[1:])}")
            collector.report_error(repr(window.get().timestamps().to_pylist() == [window.end_ms] * 3))
            try:
                window[3]
            except IndexError as error:
                collector.report_error(error)
            try:
                window.column("nmae")
            except KeyError as error:
                collector.report_error(error)

    with TopologyTestDriver(topology(Look().with_tumbling_window(Count(3)))) as driver:
        run = Run(driver)
        for name in "abc":
            run.feed(name)
        driver.run_until_idle()
        seen = [error.text for error in driver.errors()]
    assert seen[:2] == ["3 a c 2", "True"]
    assert seen[2] == "IndexError: a window of 3 tuples has none at 3"
    assert "'nmae' does not exist in stream 'default' of 'source'" in seen[3]


class Stateful(WindowedBolt):
    outputs = ["names", "windows"]

    def init_state(self, state: KeyValueState) -> None:
        self.state = state

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        self.state.put("windows", self.state.get("windows", 0) + 1)
        collector.emit(["".join(tup["name"] for tup in window), self.state.get("windows")])


def test_a_windowed_bolt_may_have_a_key_value_state_which_windows_do_not_show_in() -> None:
    for windowed in (Stateful(), Stateful().with_key("user")):
        with TopologyTestDriver(topology(windowed.with_tumbling_window(Count(2)))) as driver:
            run = Run(driver)
            for name in "abcd":
                run.feed(name)
                driver.run_until_idle()
                driver.restart()
            assert driver.emitted("show") == [["ab", 1], ["cd", 2]]


# ---- reliability


class Fragile(Show):
    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        super().execute(window, collector)
        if any(tup["name"] == "bad" for tup in window):
            raise ValueError("bad")


def test_a_window_that_raises_has_emitted_nothing_and_fails_no_tuple() -> None:
    with TopologyTestDriver(topology(Fragile().with_tumbling_window(Count(2)))) as driver:
        run = Run(driver)
        for name in ("a", "b", "bad", "c", "d", "e"):
            run.feed(name)
        driver.run_until_idle()
        assert run.shown() == ["ab", "de"]
        assert len(driver.acked("source")) == 6
        assert [error.text for error in driver.errors()] == ["ValueError: bad"]
        assert driver.metrics().of("show").windows == 3


def test_what_a_window_emits_is_given_again_until_it_is_acked_and_its_tuples_are_not() -> None:
    builder = TopologyBuilder("again", Config(max_attempts=3))
    builder.set_spout("source", Source())
    builder.set_bolt("show", Show().with_tumbling_window(Count(2))).global_grouping("source")

    @bolt(outputs=["names", "attempt"])
    def third_time(tup: Any) -> Any:
        if tup.attempt < 3 and "c" in tup["names"]:
            raise ValueError(tup["names"])
        yield [tup["names"], tup.attempt]

    builder.set_bolt("third", third_time).shuffle_grouping("show")
    with TopologyTestDriver(builder.build()) as driver:
        run = Run(driver)
        for name in "abcd":
            run.feed(name)
            driver.run_until_idle()
        driver.advance(secs(5))
        assert driver.emitted("third") == [["ab", 1], ["cd", 3]]
        assert driver.acked("source") == list("abcd")
        assert driver.metrics().of("show").windows == 2


def test_with_ack_on_expiry_a_tuple_is_acked_when_it_expires() -> None:
    windowed = Show().with_window(Count(2), slide=Count(1)).with_ack_on_expiry()
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, acked in (("a", ""), ("b", ""), ("c", "a"), ("d", "ab")):
            run.feed(name)
            driver.run_until_idle()
            assert driver.acked("source") == list(acked)
            if name == "c":
                driver.run_until_idle()
        driver.advance(secs(40))
        assert sorted(failure.message_id for failure in driver.failed("source")) == ["c", "d"]


def test_with_ack_on_expiry_what_is_emitted_is_anchored_to_the_window() -> None:
    builder = TopologyBuilder("anchored")
    builder.set_spout("source", Source())
    windowed = Show().with_tumbling_window(Count(2)).with_ack_on_expiry()
    builder.set_bolt("show", windowed).global_grouping("source")

    @bolt(outputs=["names"])
    def refuse(tup: Any) -> Any:
        if "c" in tup["names"]:
            raise ValueError(tup["names"])
        yield [tup["names"]]

    builder.set_bolt("refuse", refuse).shuffle_grouping("show")
    with TopologyTestDriver(builder.build()) as driver:
        run = Run(driver)
        for name in "abcdef":
            run.feed(name)
            driver.run_until_idle()
        assert sorted(failure.message_id for failure in driver.failed("source")) == ["c", "d"]
        assert driver.acked("source") == ["a", "b"]
        assert driver.pending("source") == ["e", "f"]


def test_with_ack_on_expiry_a_window_that_raises_fails_its_tuples() -> None:
    with TopologyTestDriver(topology(Fragile().with_tumbling_window(Count(2)).with_ack_on_expiry())) as driver:
        run = Run(driver)
        for name in ("a", "b", "bad", "c", "d", "e"):
            run.feed(name)
        driver.run_until_idle()
        assert [failure.message_id for failure in driver.failed("source")] == ["bad", "c"]
        assert driver.acked("source") == ["a", "b"]


def test_with_ack_on_expiry_tuples_of_a_dead_connection_leave_the_window() -> None:
    with TopologyTestDriver(topology(Show().with_tumbling_window(Count(3)).with_ack_on_expiry())) as driver:
        run = Run(driver)
        run.feed("a")
        run.feed("b")
        driver.run_until_idle()
        driver.restart()
        for name in "abc":
            run.feed(name)
            driver.run_until_idle()
        assert run.shown() == ["abc"]


def test_what_was_seen_before_a_restart_is_dropped() -> None:
    windowed = Show().with_tumbling_window(Count(2)).with_message_id_field("at")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, at in (("a", 1), ("c", 3)):
            run.feed(name, at=at)
        run.feed("d", at=4)
        driver.run_until_idle()
        driver.restart()
        for name, at in (("A", 1), ("b", 2), ("C", 3), ("D", 4), ("e", 5)):
            run.feed(name, at=at)
        driver.run_until_idle()
        assert run.shown() == ["ac", "db"]
        assert driver.acked("source")[-5:] == ["A", "b", "C", "D", "e"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_window_larger_than_memory_is_read_back_in_order(keyed: bool) -> None:
    windowed = Show().with_tumbling_window(Count(2000)).with_max_events_in_memory(10)
    if keyed:
        windowed.with_key("user")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for i in range(2000):
            run.feed(chr(0x4E00 + i))
            if i % 400 == 0:
                driver.run_until_idle()
        driver.run_until_idle()
        assert run.shown() == ["".join(chr(0x4E00 + i) for i in range(2000))]


# ---- policies of one's own


class EveryVowel(TriggerPolicy):
    """A window whenever a tuple comes whose sequence is a multiple of three; knows its events by their places."""

    def __init__(self) -> None:
        self.events = 0

    def track(self, event: Event) -> None:
        self.events += 1
        if self.events % 3 == 0:
            self.manager.eviction.set_context(EvictionContext(event.timestamp_ms))
            self.manager.on_trigger()

    def reset(self) -> None: ...


class OnlyEven(EvictionPolicy):
    """Every other tuple is in the window, the rest is not wanted at all."""

    def __init__(self) -> None:
        self.seen = 0

    def evict(self, event: Event) -> Action:
        return Action.PROCESS if event.value % 2 == 0 else Action.EXPIRE


def test_a_bolt_takes_policies_of_ones_own_and_keeps_their_state() -> None:
    with TopologyTestDriver(topology(Show().with_policies(OnlyEven(), EveryVowel()))) as driver:
        run = Run(driver)
        for name in "abcdefghi":
            run.feed(name)
            driver.run_until_idle()
            driver.restart()
        assert run.shown() == ["ac", "ace", "acegi"]
        assert run.shown(1) == ["ac", "e", "gi"]
        assert run.shown(2) == ["b", "df", "h"]


# ---- mistakes


def refused(windowed: WindowedBolt, **settings: Any) -> list[str]:
    with pytest.raises(InvalidTopology) as caught:
        topology(windowed, **settings)
    return [mistake.removeprefix("bolt 'show': ") for mistake in caught.value.mistakes]


HOUR = timedelta(hours=1)
BAD_VALUE: Any = 5
MISTAKES: list[tuple[Callable[[], WindowedBolt], str]] = [
    (Show, "Window length is not specified: call with_window, with_tumbling_window or with_session_gap"),
    (lambda: Show().with_window(Count(0)), "the window's length: expected Count(n) with an int n of at least 1"),
    (lambda: Show().with_window(BAD_VALUE), "expected a Count or a timedelta, got 5: did you mean Count(5)?"),
    (lambda: Show().with_window(secs(0)), "the window's length: expected at least 1 ms, got 0 ms"),
    (lambda: Show().with_window(timedelta(days=25)), "the window's length: expected at most 2147483647 ms"),
    (lambda: Show().with_window(HOUR, slide=secs(-1)), "the window's sliding interval: expected at least 1 ms"),
    (lambda: Show().with_window(HOUR).with_session_gap(HOUR), "with_window and with_session_gap were both called"),
    (lambda: Show().with_session_gap(BAD_VALUE), "the session gap: expected a timedelta, got 5"),
    (
        lambda: Show().with_window(HOUR).with_late_tuple_stream("late"),
        "Late tuple stream can be defined only when specifying a timestamp field",
    ),
    (lambda: Show().with_window(HOUR).with_lag(secs(1)), "A lag can be defined only when specifying a timestamp field"),
    (
        lambda: Show().with_window(HOUR).with_timestamp_field("at").with_late_tuple_stream("default"),
        "Stream for late tuples must be defined with with_late_tuple_stream alone",
    ),
    (
        lambda: Show().with_window(HOUR).with_timestamp_field("att"),
        "with_timestamp_field: 'att' does not exist in stream 'default' of 'source': did you mean 'at'?",
    ),
    (lambda: Show().with_window(HOUR).with_key("usr"), "with_key: 'usr' does not exist in stream 'default'"),
    (lambda: Show().with_window(HOUR).with_key(), "with_key: expected the names of fields"),
    (
        lambda: (
            Show()
            .with_window(HOUR)
            .with_timestamp_field("at")
            .with_timestamp_extractor(int)
            .with_timestamp_extractor(int)
        ),
        "with_timestamp_extractor was called twice",
    ),
    (
        lambda: Show().with_window(HOUR).with_timestamp_field("at").with_timestamp_extractor(int),
        "with_timestamp_field and with_timestamp_extractor were both called",
    ),
    (
        lambda: Show().with_window(HOUR).with_max_events_in_memory(0),
        "with_max_events_in_memory: expected an int of at least 1, got 0",
    ),
    (
        lambda: Show().with_window(HOUR).with_timestamp_field("at").with_watermark_interval(secs(0)),
        "the watermark interval: expected at least 1 ms",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), MISTAKES)
def test_what_does_not_fit_is_refused_when_the_topology_is_built(
    make: Callable[[], WindowedBolt], sentence: str
) -> None:
    mistakes = refused(make())
    assert any(sentence in mistake for mistake in mistakes), mistakes


@pytest.mark.parametrize(
    ("length", "slide", "settings", "refusal"),
    [
        (secs(20), secs(10), {"message_timeout_secs": 29}, "Window duration (length + sliding interval) value 30000"),
        (secs(20), secs(10), {"message_timeout_secs": 30}, None),
        (secs(20), Count(10), {"message_timeout_secs": 19}, "Window duration"),
        (Count(10), secs(20), {"message_timeout_secs": 19}, "Window duration"),
        (timedelta(hours=5), secs(10), {"enable_message_timeouts": False}, None),
        (Count(10), Count(5), {"max_spout_pending": 14}, "Window count (length + sliding interval) value 15"),
        (Count(10), Count(5), {"max_spout_pending": 15}, None),
        (Count(10), Count(5), {}, None),
        (Count(10), secs(1), {"max_spout_pending": 9}, "Window count"),
    ],
)
def test_with_ack_on_expiry_a_window_must_fit_into_the_timeout_and_the_pending_tuples(
    length: Any, slide: Any, settings: dict[str, Any], refusal: str | None
) -> None:
    topology(Show().with_window(length, slide), **settings)  # the default needs no such check
    anchored = Show().with_window(length, slide).with_ack_on_expiry()
    if refusal is None:
        topology(anchored, **settings)
    else:
        [mistake] = refused(anchored, **settings)
        assert mistake.startswith(refusal)


def test_all_mistakes_come_at_once() -> None:
    mistakes = refused(Show().with_window(Count(-1), slide=secs(0)).with_lag(secs(1)).with_key("nobody"))
    assert len(mistakes) == 4


# ---- metrics and the end


def test_metrics_count_windows_their_tuples_and_the_watermark() -> None:
    windowed = Show().with_window(secs(10), slide=secs(5)).with_timestamp_field("at")
    with TopologyTestDriver(topology(windowed), start=clock(6, 1, 0)) as driver:
        run = Run(driver)
        for second in (1, 2, 7, 21):
            run.feed(str(second), at=clock(6, 0, second))
        driver.advance(SECOND)
        run.feed("late", at=clock(6, 0, 1))
        driver.run_until_idle()
        counts = driver.metrics().of("show")
        assert (counts.windows, counts.window_tuples, counts.late_tuples, counts.expired) == (3, 6, 1, 2)
        assert counts.watermark_ms == int(clock(6, 0, 21).timestamp() * 1000)
        assert counts.watermark_behind_ms == 40_000


def test_an_idle_topology_runs_no_micro_batch_for_windows_that_have_nothing() -> None:
    with TopologyTestDriver(topology(Show().with_tumbling_window(secs(5)).with_timestamp_field("at"))) as driver:
        run = Run(driver)
        run.feed("a", at=1000)
        driver.advance(secs(60))
        assert driver.metrics().micro_batches <= 2


@pytest.mark.parametrize(
    ("shape", "secs_left"),
    [
        (lambda: Show().with_window(secs(10), slide=secs(5)), 15),
        (lambda: Show().with_window(Count(3), slide=secs(5)), 5),
        (lambda: Show().with_window(Count(3), slide=secs(5)).with_key("user"), 5),
        (lambda: Show().with_tumbling_window(Count(3)), 0),
        (lambda: Show().with_session_gap(secs(4)), 4),
        (lambda: Show().with_policies(CountEvictionPolicy(3), CountTriggerPolicy(2)), 0),
        (lambda: Show().with_policies(CountEvictionPolicy(3), TimeTriggerPolicy(5000)), 5),
        (lambda: Show().with_policies(TimeEvictionPolicy(5000), TimeTriggerPolicy(5000)), 10),
    ],
)
def test_a_topology_is_finished_when_no_window_waits(
    monkeypatch: pytest.MonkeyPatch, shape: Callable[[], WindowedBolt], secs_left: int
) -> None:
    with TopologyTestDriver(topology(shape())) as driver:
        Run(driver).feed("a")
        driver.run_until_idle()
        monkeypatch.setattr("sparkbolt.testing._FedSpout.exhausted", True)
        driver.run_until_idle()
        host = driver._engine.host
        for second in range(secs_left):
            assert not host.finished, second
            driver.advance(SECOND)
        assert host.finished
