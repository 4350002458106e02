"""Windowed bolts in event time: late tuples, several streams, times that are none."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkbolt import Count, TopologyBuilder, bolt
from sparkbolt.api.tuples import Origin
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows.kinds import Window
from sparkbolt.windows.reading import times_of
from sparkbolt.worker.emissions import Rows
from sparkbolt.worker.results import Settlements
from tests.unit.windows.windowed import SECOND, Run, Show, Source, clock, secs, topology


def test_a_late_tuple_is_sent_to_its_stream_with_its_source_and_is_acked_with_its_tree() -> None:
    windowed = Show().with_window(secs(10), slide=secs(5)).with_timestamp_field("at").with_late_tuple_stream("late")
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


def test_a_late_tuple_without_a_stream_is_counted_reported_once_per_interval_and_acked() -> None:
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
        assert report.text.startswith("1 tuple(s) were older than the watermark, 1970-01-01 00:00:20.000Z")


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


@pytest.mark.parametrize("restart", [False, True])
def test_a_stream_is_not_idle_because_nobody_listened(restart: bool) -> None:
    windowed = Show().with_tumbling_window(secs(1)).with_timestamp_field("at").with_idle_stream_timeout(secs(10))
    with TopologyTestDriver(topology(windowed, other=True)) as driver:
        run = Run(driver)
        run.feed("a", at=5000)
        run.feed("b", at=2000, stream="other")
        driver.advance(secs(2))
        driver._engine.now_ms += 3_600_000  # it was down
        if restart:
            driver.restart()
        run.feed("c", at=6000)
        driver.advance(secs(2))
        run.feed("d", at=2500, stream="other")
        driver.advance(secs(12))
        assert driver.metrics().of("show").late_tuples == 0
        assert run.shown() == ["b", "d", "a", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("idle", [None, secs(2)])
def test_the_watermark_moves_at_the_same_times_whatever_is_killed(idle: Any) -> None:
    """Ticks run the task between its tuples; a kill in between, and another process, change nothing.

    |a........b..|
    """
    seen = []
    for kills in ((), (4, 5), range(8), (6, 11)):
        windowed = Show().with_tumbling_window(secs(1)).with_timestamp_field("at").with_watermark_interval(secs(3))
        if idle is not None:
            windowed.with_idle_stream_timeout(idle)
        builder = TopologyBuilder("kills")
        builder.set_spout("source", Source())
        declared = builder.set_bolt("show", windowed, tick_tuple_freq_secs=0.5)
        declared.global_grouping("source").global_grouping("source", "other")
        with TopologyTestDriver(builder.build()) as driver:
            run, marks = Run(driver), []
            for half in range(60):
                if half / 2 in kills:
                    driver.restart()
                if half % 7 == 0 and half not in (14, 21, 28):
                    run.feed("a", at=5000 + half * 1000)
                if half % 11 == 0:
                    run.feed("b", at=4000 + half * 1000, stream="other")
                driver.advance(secs(0.5))
                marks.append(driver.metrics().of("show").watermark_ms)
            seen.append((marks, run.shown()))
    assert len(set(seen[0][0])) > 3
    assert seen == [seen[0]] * len(seen)


@pytest.mark.parametrize(("slide", "late"), [(10, 1), (20, 1), (5, 0)])
def test_tuple_at_the_end_of_a_fired_window_is_late_if_no_other_window_has_it(slide: int, late: int) -> None:
    windowed = Show().with_window(secs(10), slide=secs(slide)).with_timestamp_field("at")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        run.feed("a", at=20_000)
        driver.advance(secs(2))
        assert run.shown() == ["a"]
        run.feed("b", at=20_000)
        run.feed("c", at=40_000)
        driver.advance(secs(2))
        assert driver.metrics().of("show").late_tuples == late
        assert ("b" in "".join(run.shown())) == (late == 0)


def test_a_tuple_without_a_time_fails_alone_and_permanently() -> None:
    with TopologyTestDriver(topology(Show().with_tumbling_window(Count(2)).with_timestamp_field("at"))) as driver:
        run = Run(driver)
        for name, at in (("a", 1), ("b", "noon"), ("c", datetime(2026, 1, 1)), ("d", np.int64(2)), ("e", None)):
            run.feed(name, at=at)
        driver.advance(SECOND)
        assert [failure.message_id for failure in driver.failed("source")] == ["b", "c", "e"]
        assert {failure.cause for failure in driver.failed("source")} == {"unreadable"}
        assert "the timestamp field 'at': expected milliseconds since the epoch" in driver.failed("source")[0].reason
        assert run.shown() == ["ad"]


def test_an_extractor_provides_timestamps() -> None:
    windowed = Show().with_tumbling_window(secs(5)).with_timestamp_extractor(lambda tup: int(tup["name"]) * 1000)
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name in "1379x":
            run.feed(name)
        driver.advance(SECOND)
        assert run.shown() == ["13"]
        assert [failure.message_id for failure in driver.failed("source")] == ["x"]


MICROSECONDS = 1000


@pytest.mark.parametrize(("max_future", "ahead"), [(None, 3651 * 24 * 3600), (secs(60), 61)])
@pytest.mark.parametrize("keyed", [False, True])
def test_one_timestamp_from_the_far_future_fails_alone_and_makes_nothing_late(
    max_future: Any, ahead: int, keyed: bool
) -> None:
    windowed = Show().with_tumbling_window(secs(5)).with_timestamp_field("at")
    if keyed:
        windowed.with_key("user")
    if max_future is not None:
        windowed.with_max_future(max_future)
    with TopologyTestDriver(topology(windowed), start=clock(6, 0, 0)) as driver:
        run, now_ms = Run(driver), int(clock(6, 0, 0).timestamp() * 1000)
        run.feed("a", at=now_ms + 1)
        run.feed("micro", at=now_ms * MICROSECONDS)
        run.feed("ahead", at=now_ms + ahead * 1000)
        run.feed("b", at=now_ms + 6000)
        driver.advance(SECOND)
        run.feed("c", at=now_ms + 11_000)
        driver.advance(SECOND)
        assert run.shown() == ["a", "b"]
        assert driver.acked("source") == ["a", "b", "c"]
        assert [failure.message_id for failure in driver.failed("source")] == ["micro", "ahead"]
        assert driver.metrics().of("show").late_tuples == 0
        [micro, _] = driver.failed("source")
        assert micro.cause == "unreadable"
        assert micro.reason.startswith(
            "the timestamp field 'at': 1772344800000000 ms is 20,492,736 days ahead of the micro"
        )
        assert micro.reason.endswith("Did you give microseconds? Then say timestamp='at', unit='us'")


def times_read(values: Any, unit: Any = None) -> Any:
    """The times of a column; the reasons where it has values without one."""
    rows, counts = Rows(Origin("source", 0, "default", ("at",)), len(values), [values], None, None), Settlements()
    windowing, now_ms = Window(timestamp="at", unit=unit), int(clock(6, 0, 0).timestamp() * 1000)
    times, good = times_of(rows, windowing, now_ms, counts)
    assert [row for row, is_good in enumerate(good) if not is_good] == sorted(counts.failures)
    return [failure.reason for failure in counts.failures.values()] or times.tolist()


MOMENT = datetime(2026, 3, 1, 5, 59, 59, 123_456, tzinfo=UTC)
MOMENT_MS = 1_772_344_799_123


@pytest.mark.parametrize(
    ("unit", "count"), [("s", MOMENT_MS // 1000), ("us", 10**3 * MOMENT_MS), ("ns", 10**6 * MOMENT_MS)]
)
@pytest.mark.parametrize("column", [list, np.array, pa.array, lambda values: np.array(values, dtype=np.uint64)])
def test_a_unit_determines_what_a_timestamp_counts(unit: str, count: int, column: Any) -> None:
    whole = MOMENT_MS if unit != "s" else MOMENT_MS // 1000 * 1000
    assert times_read(column([count, count]), unit) == [whole, whole]
    [reason, _] = times_read(column([count, count]))
    assert f"unit={unit!r}" in reason


@pytest.mark.parametrize("column", [list, np.array, pa.array])
def test_numbers_with_a_fraction_keep_their_milliseconds(column: Any) -> None:
    assert times_read(column([MOMENT.timestamp(), 0.5]), "s") == [MOMENT_MS, 500]
    assert times_read([Decimal("1772344799.123999"), 7, MOMENT], "s") == [MOMENT_MS, 7000, MOMENT_MS]
    assert len(times_read(column([float("nan"), float("inf")]), "s")) == 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_timestamps_need_a_zone_and_no_unit(unit: str) -> None:
    at = pa.array([MOMENT.replace(microsecond=0)], pa.timestamp("us", "UTC")).cast(
        pa.timestamp(unit, "America/New_York")
    )
    assert times_read(at) == times_read(at, "s") == [MOMENT_MS // 1000 * 1000]
    [reason] = times_read(at.cast(pa.timestamp(unit)))
    assert "a datetime with a zone" in reason


def test_a_number_that_is_too_large_for_its_unit_fails_its_tuple() -> None:
    for column in (list, np.array, pa.array):
        [reason, _] = times_read(column([1 << 62, 1 << 61]), "s")
        assert reason.startswith("the timestamp field 'at': ")


@pytest.mark.parametrize("late_stream", [False, True])
def test_a_timestamp_before_1970_fails_alone_and_permanently(late_stream: bool) -> None:
    windowed = Show().with_tumbling_window(secs(10)).with_timestamp_field("at")
    if late_stream:
        windowed.with_late_tuple_stream("late")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, at in (("a", -15_000), ("b", datetime(1969, 12, 31, tzinfo=UTC)), ("c", 0), ("d", 40_000)):
            run.feed(name, at=at)
        driver.advance(SECOND)
        failed = driver.failed("source")
        assert [(failure.message_id, failure.cause) for failure in failed] == [("a", "unreadable"), ("b", "unreadable")]
        assert failed[0].reason.startswith("the timestamp field 'at': -15000 ms is before 1970-01-01T00:00:00Z")
        assert run.shown() == ["c", "d"]
        assert driver.metrics().of("show").late_tuples == 0


@pytest.mark.parametrize("extracted", [False, True])
def test_a_timestamp_that_seems_to_count_seconds_fails_alone_and_permanently(extracted: bool) -> None:
    windowed = Show().with_tumbling_window(secs(5))
    if extracted:
        windowed.with_timestamp_extractor(lambda tup: tup["at"])
    else:
        windowed.with_timestamp_field("at")
    with TopologyTestDriver(topology(windowed), start=clock(6, 0, 0)) as driver:
        run, now = Run(driver), int(clock(6, 0, 0).timestamp())
        for name, at in (("a", now * 1000 + 1), ("int", now), ("numpy", np.int64(now)), ("float", now + 0.5)):
            run.feed(name, at=at)
        run.feed("b", at=(now + 6) * 1000)
        driver.advance(SECOND)
        assert run.shown() == ["a"]
        failures = {failure.message_id: failure for failure in driver.failed("source")}
        assert {name: failure.cause for name, failure in failures.items()} == dict.fromkeys(
            ("int", "numpy", "float"), "unreadable"
        )
        call = "timestamp=..., unit='s'" if extracted else "timestamp='at', unit='s'"
        assert f"Did you give seconds? Then say {call}" in failures["int"].reason
        assert failures["float"].reason.endswith(f"If it counts seconds, say {call}")


def test_two_streams_of_one_task_arrive_one_after_the_other_within_a_micro_batch() -> None:
    with TopologyTestDriver(topology(Show().with_tumbling_window(Count(4)), other=True)) as driver:
        run = Run(driver)
        for number, name in enumerate("abcdefgh"):
            run.feed(name, stream=("default", "other")[number % 2])
        driver.run_until_idle()
        assert run.shown() == ["aceg", "bdfh"]
