"""Windows as values: what they equal, how they are shown, how a bolt gets one, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparkbolt
from sparkbolt import (
    Count,
    Session,
    Sliding,
    TopologyBuilder,
    Tumbling,
    WindowedBolt,
    days,
    hours,
    milliseconds,
    minutes,
    seconds,
)
from sparkbolt.errors import ConfigError, InvalidTopology
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows import Window
from tests.unit.windows.test_settings import EveryVowel, OnlyEven
from tests.unit.windows.windowed import SECOND, Run, Show, secs, topology


def at_of(tup: Any) -> Any:
    return tup["at"]


# Values.

lengths = st.builds(milliseconds, st.integers(1, 10_000)) | st.builds(
    lambda unit, number: unit(number), st.sampled_from([seconds, minutes, hours]), st.integers(1, 20)
)
slides = lengths | st.builds(Count, st.integers(1, 50))
settings = st.fixed_dictionaries(
    {},
    optional={
        "timestamp": st.sampled_from(["at", "time"]),
        "unit": st.sampled_from(["s", "ms", "us", "ns"]),
        "lag": lengths | st.just(timedelta(0)),
        "idle": lengths,
        "key": st.sampled_from(["user", ("user", "at"), ["user"], ["user", "at"]]),
        "key_idle": lengths,
        "late": st.just("late"),
        "closed": st.sampled_from(["left", "right"]),
        "max_future": lengths,
        "watermark_interval": lengths,
        "message_id": st.just("n"),
        "ack_on_expiry": st.booleans(),
        "max_events_in_memory": st.integers(1, 9),
    },
)
tumbling = st.builds(lambda length, more: Tumbling(length, **more), lengths, settings)
in_zone = st.builds(
    lambda zone, length, more: Tumbling(length, timezone=zone, **more),
    st.sampled_from(["Europe/Berlin", "Asia/Kathmandu", "UTC"]),
    st.sampled_from([hours(1), hours(6), days(1), days(7)]),
    settings,
)
sliding = st.builds(lambda length, every, more: Sliding(length, every=every, **more), lengths, slides, settings)
session = st.builds(lambda gap, more: Session(gap=gap, **more), lengths, settings)
count = st.builds(
    lambda tuples, every, more: Count(tuples, every=every, **more),
    st.integers(1, 99),
    st.none() | st.integers(1, 99) | slides,
    settings,
)
windows = st.one_of(tumbling, in_zone, sliding, session, count)


@given(windows)
def test_a_window_is_shown_as_the_expression_that_makes_it(window: Window) -> None:
    again = eval(repr(window), vars(sparkbolt))
    assert again == window
    assert hash(again) == hash(window)
    assert repr(again) == repr(window)


@given(windows, windows)
def test_windows_are_equal_if_they_are_shown_alike(one: Window, other: Window) -> None:
    assert (one == other) == (repr(one) == repr(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Tumbling(minutes=1), Tumbling(seconds=60)),
        (Tumbling(minutes=1), Tumbling(timedelta(minutes=1))),
        (Tumbling(hours=1, minutes=30), Tumbling(hours=1.5)),
        (Tumbling(days=1, seconds=0.5), Tumbling(length=days(1) + milliseconds(500))),
        (Sliding(seconds=20, every=seconds(10)), Sliding(seconds(20), every=timedelta(seconds=10))),
        (Session(gap=minutes(30)), Session(gap=timedelta(hours=0.5))),
        (Count(100), Count(tuples=100, every=100)),
        (Count(100, every=10), Count(100, every=Count(10))),
        (Tumbling(minutes=1, key="user"), Tumbling(minutes=1, key=["user"])),
        (Tumbling(minutes=1, key=("a", "b")), Tumbling(minutes=1, key=["a", "b"])),
    ],
)
def test_two_ways_to_write_a_window_make_equal_values(one: Window, other: Window) -> None:
    assert one == other
    assert len({one, other}) == 1


def test_a_window_shows_its_settings_by_name() -> None:
    window = Sliding(seconds=90, every=seconds(0.5), timestamp=at_of, lag=minutes(2), key=["user", "ip"], late="late")
    assert repr(window) == (
        "Sliding(seconds=90, every=milliseconds(500), timestamp=at_of, lag=minutes(2), key=('user', 'ip'), late='late')"
    )


def test_a_window_does_not_change_and_replace_makes_another_one() -> None:
    window = Tumbling(minutes=1, timestamp="at")
    with pytest.raises(FrozenInstanceError):
        window.lag = seconds(1)  # type: ignore[misc]
    assert replace(window, lag=seconds(1)) == Tumbling(minutes=1, timestamp="at", lag=seconds(1))
    assert replace(window, length=hours(1)) == Tumbling(hours=1, timestamp="at")


BAD: Any = 5
NONE: Any = None


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Tumbling, "Tumbling() has no length: write Tumbling(minutes=1)"),
        (lambda: Tumbling(BAD), "length=5: expected a timedelta of at least 1 ms and at most 24 days, such as seconds"),
        (lambda: Tumbling(minutes="1"), "minutes='1': expected a number"),  # type: ignore[arg-type]
        (lambda: Tumbling(minutes=-1), "expected a timedelta of at least 1 ms and at most 24 days"),
        (lambda: Tumbling(days=25), "length=datetime.timedelta(days=25): expected a timedelta of at least 1 ms"),
        (lambda: Tumbling(SECOND, seconds=1), "length and seconds both set the length of Tumbling: leave one of them"),
        (
            lambda: Sliding(seconds=20),
            "Sliding() has no every: write every=seconds(10), or every=Count(1) for a window with every tuple",
        ),
        (lambda: Sliding(every=SECOND), "Sliding() has no length: write Sliding(minutes=1, every=seconds(10))"),
        (lambda: Sliding(seconds=20, every=BAD), "every=5: expected a Count, such as Count(5), or a timedelta"),
        (lambda: Sliding(seconds=20, every=Count(5, key="user")), "every=Count(5, key='user'): expected a Count"),
        (lambda: Session(gap=BAD), "gap=5: expected a timedelta of at least 1 ms and at most 24 days, such as seconds"),
        (lambda: Count(NONE), "tuples=None: expected a whole number of at least 1"),
        (lambda: Count(5, every=0), "every=0: expected a number of tuples, such as 10, or a timedelta of at least 1"),
        (lambda: Tumbling(minutes=1, timestamp=BAD), "timestamp=5: expected the name of a field, or a function of the"),
        (lambda: Tumbling(minutes=1, unit="m"), "unit='m': expected 's' or 'ms' or 'us' or 'ns'"),  # type: ignore[arg-type]
        (lambda: Tumbling(minutes=1, lag=BAD), "lag=5: expected a timedelta of at least 0 ms"),
        (
            lambda: Tumbling(minutes=1, idle=secs(0)),
            "idle=datetime.timedelta(0): expected a timedelta of at least 1 ms",
        ),
        (lambda: Tumbling(minutes=1, key=[]), "key=(): expected the name of a field, such as 'user', or a list"),
        (lambda: Tumbling(minutes=1, key=BAD), "key=5: expected the name of a field, such as 'user', or a list"),
        (lambda: Tumbling(minutes=1, late=""), "late='': expected the name of a stream"),
        (lambda: Tumbling(minutes=1, closed="both"), "closed='both': expected 'left' or 'right'"),  # type: ignore[arg-type]
        (lambda: Tumbling(minutes=1, lag=BAD, late=""), "lag=5: expected a timedelta of at least 0 ms"),
        (lambda: Tumbling(minutes=1, lag=BAD, late=""), "late='': expected the name of a stream"),
        (
            lambda: Tumbling(days=1, timezone="Europe/Berlni"),
            "timezone='Europe/Berlni': expected the name of a time zone: did you mean 'Europe/Berlin'?",
        ),
        (
            lambda: Tumbling(days=1, timezone="../etc"),
            "timezone='../etc': expected the name of a time zone, such as 'Eu",
        ),
        (
            lambda: Tumbling(days=1, timezone=BAD),
            "timezone=5: expected the name of a time zone, such as 'Europe/Berlin'",
        ),
        (
            lambda: Tumbling(minutes=15, timezone="Europe/Berlin"),
            "timezone='Europe/Berlin': by the clock of a zone windows have whole days, such as days=1, or 1, 2, 3, 4, "
            "6, 8 or 12 hours, such as hours=6; these have 0.25 hours",
        ),
        (lambda: Tumbling(hours=5, timezone="Europe/Berlin"), "such as hours=6; these have 5 hours"),
        (lambda: Tumbling(hours=36, timezone="Europe/Berlin"), "such as hours=6; these have 36 hours"),
        (lambda: seconds("1"), "number='1': expected a number"),  # type: ignore[arg-type]
        (
            lambda: Show().windowed(BAD),
            "window=5: expected a window, such as Tumbling(minutes=1)",
        ),
    ],
)
def test_an_invalid_setting_is_named_with_what_to_write(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert sentence in str(caught.value)


# What a bolt has.


class Busy(Show):
    window = Tumbling(minutes=1, timestamp="at")


def shown_by(bolt: WindowedBolt, *times: int) -> list[str]:
    """The names that its windows show if these seconds are fed, each with its number as its name."""
    with TopologyTestDriver(topology(bolt)) as driver:
        run = Run(driver)
        for number, at in enumerate(times):
            run.feed(str(number), at=1000 * at)
            driver.advance(SECOND)
        return run.shown()


def test_a_class_says_its_windows_and_a_bolt_may_have_others() -> None:
    assert shown_by(Busy(), 5, 40, 70, 125) == ["01", "2"]
    assert shown_by(Busy().windowed(Tumbling(seconds=30, timestamp="at")), 5, 40, 70, 125) == ["0", "1", "2"]
    assert shown_by(Busy().windowed(Count(3)), 5, 40, 70, 125) == ["012"]
    assert shown_by(Busy(), 5, 40, 70, 125) == ["01", "2"]


def test_a_method_of_storm_changes_one_setting_of_the_windows_of_the_class() -> None:
    assert shown_by(Busy().with_lag(minutes(2)), 5, 40, 70, 185, 300) == ["01", "2"]
    assert shown_by(Busy().with_tumbling_window(secs(30)), 5, 40, 70, 125) == ["0", "1", "2"]
    assert Busy().own_window == Tumbling(minutes=1, timestamp="at")


PAIRS: list[tuple[WindowedBolt, Window]] = [
    (Show().with_tumbling_window(minutes(1)), Tumbling(minutes=1)),
    (Show().with_tumbling_window(Count(5)), Count(5)),
    (Show().with_window(secs(20), slide=secs(10)), Sliding(seconds=20, every=seconds(10))),
    (Show().with_window(secs(20), slide=Count(10)), Sliding(seconds=20, every=Count(10))),
    (Show().with_window(secs(20)), Sliding(seconds=20, every=Count(1))),
    (Show().with_window(Count(20), slide=Count(10)), Count(20, every=10)),
    (Show().with_window(Count(20), slide=secs(10)), Count(20, every=seconds(10))),
    (Show().with_window(Count(20)), Count(20, every=1)),
    (Show().with_session_gap(minutes(30)), Session(gap=minutes(30))),
    (
        Show()
        .with_lag(secs(5))
        .with_key("user", idle_timeout=hours(1))
        .with_late_tuple_stream("late")
        .with_idle_stream_timeout(minutes(5))
        .with_max_future(hours(2))
        .with_watermark_interval(milliseconds(100))
        .with_tumbling_window(minutes(1), closed="left")
        .with_timestamp_field("at", unit="s"),
        Tumbling(
            minutes=1,
            timestamp="at",
            unit="s",
            lag=seconds(5),
            idle=minutes(5),
            key="user",
            key_idle=hours(1),
            late="late",
            closed="left",
            max_future=hours(2),
            watermark_interval=milliseconds(100),
        ),
    ),
    (
        Show().with_session_gap(secs(9)).with_key("user", "name").with_timestamp_extractor(at_of),
        Session(gap=seconds(9), key=["user", "name"], timestamp=at_of),
    ),
    (
        Show().with_window(Count(5)).with_message_id_field("at").with_max_events_in_memory(9),
        Count(5, every=1, message_id="at", max_events_in_memory=9),
    ),
    (Show().with_window(Count(5)).with_ack_on_expiry(), Count(5, every=1, ack_on_expiry=True)),
]


@pytest.mark.parametrize(("bolt", "window"), PAIRS)
def test_the_methods_of_storm_make_a_value_and_its_topology_is_the_same(bolt: WindowedBolt, window: Window) -> None:
    assert bolt.own_window == window
    equal = topology(Show().windowed(window))
    assert topology(bolt).fingerprint() == equal.fingerprint()
    assert topology(bolt).version == equal.version


def test_policies_are_windows_too() -> None:
    bolt = Show().with_policies(OnlyEven(), EveryVowel()).with_key("user")
    assert bolt.own_window == sparkbolt.windows.Policies(
        bolt.own_window.eviction,  # type: ignore[attr-defined]
        bolt.own_window.trigger,  # type: ignore[attr-defined]
        key="user",
    )


@pytest.mark.parametrize(("bolt", "window"), [pair for pair in PAIRS if pair[1].unit is None])
def test_a_checkpoint_of_windows_that_methods_made_goes_on_with_the_equal_value(
    bolt: WindowedBolt, window: Window
) -> None:
    def run(*programs: WindowedBolt) -> tuple[list[Any], list[Any]]:
        with TopologyTestDriver(topology(programs[0])) as driver:
            fed = Run(driver)
            for number in range(20):
                if number % 4 == 3:
                    driver.restart(topology(programs[number // 4 % len(programs)]))
                fed.feed(chr(97 + number), at=1000 * number, user="uv"[number % 2])
                driver.advance(SECOND)
            fed.feed("last", at=10_000_000)
            driver.advance(minutes(31))
            assert driver.errors() == []
            return [list(values) for values in driver.emitted("show")], sorted(driver.acked("source"))

    value = Show().windowed(window)
    shown = run(value)
    assert run(bolt, value) == shown
    assert shown[0]


def test_late_tuples_have_the_stream_that_the_window_names() -> None:
    class Averages(Show):
        window = Tumbling(seconds=10, timestamp="at", late="too_late")

    bolt = Averages()
    with TopologyTestDriver(topology(bolt)) as driver:
        run = Run(driver)
        run.feed("a", at=20_000)
        driver.advance(SECOND)
        run.feed("b", at=1_000)
        driver.run_until_idle()
        [[late]] = driver.emitted("show", stream="too_late")
        assert late["name"] == "b"
    assert bolt.outputs == Show.outputs
    streams = [stream.name for stream in topology(bolt).components["show"].streams]
    assert streams == ["too_late", "default"]


def test_windows_that_ack_on_expiry_start_no_trees() -> None:
    class Anchoring(Show):
        window = Count(2, ack_on_expiry=True)

    assert not Anchoring().starts_trees
    assert Busy().starts_trees
    with TopologyTestDriver(topology(Anchoring())) as driver:
        run = Run(driver)
        for name in "abc":
            run.feed(name)
            driver.run_until_idle()
        assert run.shown() == ["ab"]
        assert driver.acked("source") == []


def test_a_window_that_is_no_value_is_refused_when_the_topology_is_built() -> None:
    class Number(Show):
        window = 60  # type: ignore[assignment]

    class Kind(Show):
        window = Tumbling  # type: ignore[assignment]

    class Own(Show):
        def __init__(self) -> None:
            self.window = Tumbling(minutes=1)

    for bolt, sentence in (
        (Number(), "window=60: expected a window, such as Tumbling(minutes=1)"),
        (Kind(), "window=<class 'sparkbolt.windows.kinds.Tumbling'>: expected a window, such as Tumbling(minutes=1)"),
        (Own(), "its __init__ sets self.window: write self.windowed(...) there"),
    ):
        with pytest.raises(InvalidTopology) as caught:
            topology(bolt)
        assert sentence in str(caught.value)


def test_an_attribute_window_of_the_user_is_only_an_attribute() -> None:
    class Kept(Show):
        def prepare(self, context: Any) -> None:
            self.window = []  # type: ignore[assignment]

        def execute(self, window: Any, collector: Any) -> None:
            kept: Any = self.window
            kept += [tup["name"] for tup in window]
            collector.emit(["".join(kept), *[None] * 5])

    with TopologyTestDriver(topology(Kept().with_tumbling_window(Count(2)))) as driver:
        run = Run(driver)
        for name in "abcd":
            run.feed(name)
            driver.run_until_idle()
            driver.restart()
        assert run.shown() == ["ab", "abcd"]


def test_a_bolt_that_chooses_its_windows_in_init_has_those_of_the_program_that_runs() -> None:
    def program(window: Window) -> Any:
        builder = TopologyBuilder("numbers")
        builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(20)), outputs=["n"], count=20))

        class Sizes(WindowedBolt):
            outputs = ("size",)

            def __init__(self) -> None:
                self.windowed(window)

            def execute(self, window: Any, collector: Any) -> None:
                collector.emit([len(window)])

        builder.set_bolt("sizes", Sizes()).global_grouping("numbers")
        return builder.build()

    engine = LocalEngine(program(Count(7)))
    for _ in range(3):
        engine.step()
    engine.restart(program(Count(3)))
    for _ in range(3):
        engine.step()
    assert engine.ledger.metrics.of("sizes").windows == 2 + 2
    engine.close()
