"""Windows by the clock of a time zone, over changes of the clock."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkbolt import Tumbling, WindowedBolt, hours, minutes
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows.bounds import DAY_MS, HOUR_MS, ZoneBounds
from tests.unit.windows.windowed import Run, Show, secs, topology

ZONES = {
    "Europe/Berlin": "an hour, at 2 o'clock",
    "America/New_York": "an hour, at 2 o'clock",
    "America/Sao_Paulo": "until 2019 an hour, at midnight: 23:00 to 24:00 came twice, 0:00 to 1:00 not at all",
    "America/Havana": "an hour, at midnight and at 1 o'clock: 0:00 to 1:00 comes twice, and then not at all",
    "Australia/Lord_Howe": "half an hour, at 2 o'clock",
    "Asia/Kathmandu": "5:45 ahead, and never changed since 1986",
    "Africa/Casablanca": "an hour back in Ramadan",
    "Pacific/Apia": "30 December 2011 did not exist",
    "UTC": "never",
}
"""By how much each zone changes its clock, and when."""


def at(zone: str, *moment: int, fold: int = 0) -> int:
    """A time on the clock of a zone, in milliseconds since the epoch."""
    return int(datetime(*moment, tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)  # type: ignore[arg-type, misc]


def shown_by(zone: str, time_ms: int) -> datetime:
    """What the clock of a zone shows."""
    return datetime.fromtimestamp(time_ms / 1000, ZoneInfo(zone)).replace(tzinfo=None)


times = st.integers(at("UTC", 1990, 1, 1), at("UTC", 2045, 1, 1)) | st.builds(
    lambda day, offset: at("UTC", 2011, 1, 1) + day * DAY_MS + offset,
    st.integers(0, 8 * 365),
    st.sampled_from([0, 1, -1, HOUR_MS, 3 * HOUR_MS, 4 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS]),
)
zones = st.sampled_from(sorted(ZONES))


@given(zones, times)
@example("Pacific/Apia", at("UTC", 2011, 12, 30, 10))
@example("America/Sao_Paulo", at("UTC", 2018, 2, 18, 2, 30))
@example("America/Havana", at("UTC", 2026, 11, 1, 4, 30))
def test_a_window_of_a_day_holds_exactly_the_times_of_one_date(zone: str, time_ms: int) -> None:
    bounds = ZoneBounds(DAY_MS, DAY_MS, zone)
    start, end = bounds.at_or_before(time_ms), bounds.after(time_ms)
    assert start <= time_ms < end
    date = shown_by(zone, time_ms).date()
    assert shown_by(zone, start).date() == shown_by(zone, end - 1).date() == date
    assert shown_by(zone, start - 1).date() < date < shown_by(zone, end).date()


@given(zones, st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 48, 7 * 24]), times)
def test_each_time_is_in_one_window_and_windows_follow_one_another(zone: str, length: int, time_ms: int) -> None:
    bounds = ZoneBounds(length * HOUR_MS, length * HOUR_MS, zone)
    start, end = bounds.at_or_before(time_ms), bounds.after(time_ms)
    assert start <= time_ms < end
    assert bounds.at_or_after(start) == bounds.at_or_before(start) == bounds.start_of(end) == start
    assert bounds.at_or_before(end - 1) == start
    assert bounds.at_or_after(start + 1) == bounds.at_or_after(end) == bounds.at_or_before(end) == end
    assert bounds.previous(bounds.next(end, end)) == end
    assert (length - 2) * HOUR_MS < end - start <= (length + 2) * HOUR_MS or zone == "Pacific/Apia"


@given(zones, st.sampled_from([1, 2, 3, 4, 6, 8, 12]), times)
def test_windows_of_hours_hold_the_times_at_which_the_clock_shows_these_hours(
    zone: str, length: int, time_ms: int
) -> None:
    def hour(moment: int) -> tuple[Any, int]:
        wall = shown_by(zone, moment)
        return wall.date(), wall.hour // length

    bounds = ZoneBounds(length * HOUR_MS, length * HOUR_MS, zone)
    start, end = bounds.at_or_before(time_ms), bounds.after(time_ms)
    assert hour(start) == hour(time_ms) == hour(end - 1)
    assert hour(start - 1) < hour(time_ms) < hour(end)


def test_a_time_so_far_ahead_that_no_calendar_has_it_is_in_a_window_too() -> None:
    bounds = ZoneBounds(DAY_MS, DAY_MS, "Europe/Berlin")
    far = 1 << 61
    assert bounds.after(far) - bounds.at_or_before(far) == DAY_MS


SPANS = [
    ("Europe/Berlin", (2026, 3, 28, 12), [24, 23, 24]),
    ("Europe/Berlin", (2026, 10, 24, 12), [24, 25, 24]),
    ("America/New_York", (2026, 3, 7, 12), [24, 23, 24]),
    ("America/New_York", (2026, 10, 31, 12), [24, 25, 24]),
    ("America/Havana", (2026, 10, 31, 12), [24, 25, 24]),
    ("America/Sao_Paulo", (2018, 11, 3, 12), [24, 23, 24]),
    ("America/Sao_Paulo", (2018, 2, 17, 12), [25, 24, 24]),
    ("Australia/Lord_Howe", (2026, 4, 4, 12), [24, 24.5, 24]),
    ("Asia/Kathmandu", (2026, 3, 28, 12), [24, 24, 24]),
]


@pytest.mark.parametrize(("zone", "first", "lengths"), SPANS)
def test_a_day_on_which_the_clock_changes_has_23_or_25_hours(
    zone: str, first: tuple[int, ...], lengths: list[float]
) -> None:
    #  Berlin, 28 to 30 March:  [0:00 --- 24 h --- [0:00 -- 23 h -- [0:00 --- 24 h ---
    windowed = Show().windowed(Tumbling(days=1, timestamp="at", lag=minutes(1), timezone=zone))
    begin, hour = at(zone, *first), timedelta(hours=1)
    with TopologyTestDriver(topology(windowed), start=datetime.fromtimestamp(begin / 1000, UTC)) as driver:
        run = Run(driver)
        for half_hours in range(8 * 24):
            run.feed("x", at=begin + half_hours * HOUR_MS // 2)
            driver.advance(hour / 2)
        shown = [tuple(values[3:5]) for values in driver.emitted("show")]
        assert [(end - start) / HOUR_MS for start, end in shown[:3]] == lengths
        assert [end for _, end in shown[:-1]] == [start for start, _ in shown[1:]]
        assert all(shown_by(zone, start).date() != shown_by(zone, start - 1).date() for start, _ in shown)
        counts = [len(names) for names in run.shown()]
        assert counts[1:3] == [2 * length for length in lengths[1:]]


def random_times(zone: str, seed: int) -> list[int]:
    """Times around a change of the clock, some of them right at full hours, in any order."""
    chance = random.Random(f"{zone} {seed}")
    change = at(zone, *chance.choice([(2026, 3, 29), (2026, 10, 25), (2026, 3, 8), (2026, 11, 1), (2018, 11, 4)]))
    chosen = [change + chance.randrange(-3 * DAY_MS, 3 * DAY_MS) for _ in range(40)]
    return [time - time % HOUR_MS if chance.random() < 1 / 3 else time for time in chosen]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("length", [1, 6, 24, 48])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Australia/Lord_Howe"])
def test_each_tuple_is_in_one_window_of_its_zone(zone: str, length: int, keyed: bool) -> None:
    bounds = ZoneBounds(length * HOUR_MS, length * HOUR_MS, zone)
    window = Tumbling(hours(length), timestamp="at", lag=hours(7 * 24), timezone=zone, key="user" if keyed else None)
    for seed in range(3):
        with TopologyTestDriver(topology(Show().windowed(window)), start=datetime(2026, 12, 1, tzinfo=UTC)) as driver:
            run, expected = Run(driver), defaultdict(list)
            for number, time in enumerate(random_times(zone, seed)):
                user = f"u{number % 3}" if keyed else None
                run.feed(f"{number},", at=time, user=user)
                expected[bounds.at_or_before(time), bounds.after(time), user].append(f"{number}")
                if number % 10 == 5:
                    driver.advance(secs(1))
                    driver.restart()
            run.feed("last,", at=at("UTC", 2026, 12, 1))
            driver.advance(secs(2))
            shown = {
                (start, end, key): sorted(names.strip(",").split(","))
                for names, _, _, start, end, key in driver.emitted("show")
            }
            assert shown == {window: sorted(names) for window, names in expected.items()}
            assert len(driver.emitted("show")) == len(expected)
            assert driver.metrics().of("show").late_tuples == 0


def test_a_tuple_right_at_midnight_belongs_to_the_day_that_begins_unless_closed_says_otherwise() -> None:
    midnight = at("Europe/Berlin", 2026, 3, 29)
    for closed, first in ((None, "a"), ("left", "a"), ("right", "ab")):
        window = Tumbling(days=1, timestamp="at", timezone="Europe/Berlin", closed=closed)  # type: ignore[arg-type]
        with TopologyTestDriver(topology(Show().windowed(window)), start=datetime(2026, 4, 1, tzinfo=UTC)) as driver:
            run = Run(driver)
            for name, time in (("a", midnight - 1), ("b", midnight), ("c", midnight + 2 * DAY_MS)):
                run.feed(name, at=time)
            driver.advance(secs(1))
            assert run.shown()[0] == first


@pytest.mark.parametrize("closed", ["left", "right"])
def test_a_tuple_of_the_first_moment_of_1970_is_in_the_window_of_its_zone(closed: Any) -> None:
    window = Tumbling(days=1, timestamp="at", timezone="Europe/Berlin", closed=closed)
    with TopologyTestDriver(topology(Show().windowed(window)), start=datetime(1970, 1, 4, tzinfo=UTC)) as driver:
        run = Run(driver)
        run.feed("a", at=0)
        run.feed("b", at=2 * DAY_MS)
        driver.advance(secs(1))
        assert (run.shown(), run.shown(3), run.shown(4)) == (["a"], [-HOUR_MS], [23 * HOUR_MS])


def test_windows_on_arrival_end_at_midnight_of_their_zone_whenever_the_task_starts() -> None:
    windowed = Show().windowed(Tumbling(days=1, timezone="Europe/Berlin"))
    start = datetime(2026, 3, 28, 15, 17, tzinfo=ZoneInfo("Europe/Berlin"))
    with TopologyTestDriver(topology(windowed), start=start) as driver:
        run = Run(driver)
        for name in "abcdefghijkl":
            run.feed(name)
            driver.advance(timedelta(hours=5))
            driver.restart()
        driver.advance(timedelta(days=4))  # nothing comes: the next timer that matters is that of the next tuple
        run.feed("z")
        driver.advance(timedelta(days=2))
        #  15:17 20:17 | 1:17 ...: on 29 March the clock leaves 2:00 to 3:00 out
        assert run.shown() == ["ab", "cdefg", "hijkl", "z"]
        days = [datetime.fromtimestamp((end + 1) / 1000, ZoneInfo("Europe/Berlin")) for end in run.shown(4)]
        assert [(day.day, day.hour, day.minute) for day in days] == [(29, 0, 0), (30, 0, 0), (31, 0, 0), (5, 0, 0)]
        assert [end - start for start, end in zip(run.shown(3), run.shown(4), strict=True)][1:3] == [
            23 * HOUR_MS,
            24 * HOUR_MS,
        ]


def of_zone(zone: str | None, **settings: Any) -> WindowedBolt:
    return Show().windowed(Tumbling(timestamp="at", lag=hours(30), closed="left", timezone=zone, **settings))


CHANGES = [
    (of_zone(None, days=1), of_zone("Europe/Berlin", days=1)),
    (of_zone("Europe/Berlin", days=1), of_zone(None, days=1)),
    (of_zone("Asia/Kathmandu", days=1), of_zone("America/New_York", hours=6)),
    (of_zone("America/New_York", hours=6), of_zone("Asia/Kathmandu", days=2)),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
@pytest.mark.parametrize("seed", range(3))
def test_windows_may_change_their_zone_and_each_tuple_is_in_one_window(
    before: WindowedBolt, after: WindowedBolt, seed: int
) -> None:
    chance, begin = random.Random(seed), at("UTC", 2026, 3, 27)
    with TopologyTestDriver(topology(before), start=datetime(2026, 3, 27, tzinfo=UTC)) as driver:
        run = Run(driver)
        for number in range(60):
            time = begin + number * 2 * HOUR_MS + chance.randrange(-20 * HOUR_MS, HOUR_MS)
            run.feed(f"{number},", at=time - time % (HOUR_MS // 4))
            driver.advance(secs(1))
            if number == 30:
                driver.restart(topology(after))
        run.feed("", at=begin + 20 * DAY_MS)
        driver.advance(secs(1))
        shown = [name for names in run.shown() for name in names.split(",") if name]
        assert sorted(shown, key=int) == [str(number) for number in range(60)]
        assert driver.metrics().of("show").late_tuples == 0
        [note] = [error.text for error in driver.errors()]
        assert "by the clock of" in note
