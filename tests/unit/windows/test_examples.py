"""The examples of windows do what they say, in one process."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from examples import moving_average, rolling_top_words, running_sum, sessions
from sparkbolt.api.topology import Topology
from sparkbolt.testing import TopologyTestDriver


def ran(topology: Topology, spout: str, rows: Iterable[Any], seconds: int = 3) -> TopologyTestDriver:
    driver = TopologyTestDriver(topology)
    for number, row in enumerate(rows):
        driver.feed(spout, row, message_id=number)
    driver.advance(timedelta(seconds=seconds))
    assert not driver.errors()
    assert not driver.pending(spout)
    return driver


def test_moving_average_covers_the_readings_in_each_window() -> None:
    readings = list(moving_average.readings())
    driver = ran(moving_average.topology, "readings", readings)
    shown = driver.emitted("average")
    assert len(shown) > 50
    for sensor, average, end in shown:
        values = [value for who, at, value in readings if who == sensor and end - 20_000 < at <= end]
        assert abs(average - sum(values) / len(values)) < 0.01


def test_a_measurement_that_arrives_a_minute_late_is_reported() -> None:
    topology = moving_average.topology
    with TopologyTestDriver(topology) as driver:
        driver.feed("readings", ["roof", 100_000, 20.0])
        driver.feed("readings", ["roof", 130_000, 20.0])
        driver.advance(timedelta(seconds=1))
        driver.feed("readings", ["roof", 40_000, 20.0])
        driver.run_until_idle()
        assert driver.emitted("late") == [["late: roof at 40000"]]


def test_sessions_end_after_half_an_hour_without_a_click() -> None:
    clicks = list(sessions.clicks())[:1000]
    clicks.append(["user-00", clicks[-1][1] + 3_600_000, "home"])
    clicks.append(["user-01", clicks[-1][1], "home"])
    driver = ran(sessions.topology, "clicks", clicks)
    assert sum(count for _, _, count, _ in driver.emitted("sessions")) >= 950
    assert all(minutes >= 0 for _, minutes, _, _ in driver.emitted("sessions"))


def test_the_running_sum_is_the_sum_of_the_window() -> None:
    orders = list(running_sum.orders())[:15_000]
    driver = ran(running_sum.topology, "orders", orders, seconds=0)
    expected = [
        [min(end, 10_000), sum(cents for _, cents in orders[max(0, end - 10_000) : end])]
        for end in range(1000, 15_001, 1000)
    ]
    assert driver.emitted("turnover") == expected


def test_the_top_words_of_all_tasks_are_merged() -> None:
    with TopologyTestDriver(rolling_top_words.topology) as driver:
        for _ in range(3):
            driver.feed("lines", ["to be or not to be is the question of to"])
            driver.advance(timedelta(seconds=1))
        driver.advance(timedelta(seconds=10))
        rankings = [ranking for [ranking] in driver.emitted("merge")]
        assert any(ranking.startswith("to 9, be 6") for ranking in rankings), rankings
