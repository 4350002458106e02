"""Operators on windows: windows of a key, their bounds, and the stream of late tuples."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import Count, Session, Sliding, Stream, TopologyBuilder, Tumbling, TupleWindow, minutes, seconds
from sparkbolt.errors import ConfigError
from sparkbolt.testing import TopologyTestDriver, simulate
from tests.unit.streams.shop import builder, feed, stream

MINUTE = 60_000


def clicks_of(of: TopologyBuilder) -> Stream:
    """Clicks of users."""
    return stream(of, "clicks", "user", "path", "at")


def click(user: str, path: str | None, at: int) -> dict[str, Any]:
    """One click."""
    return {"user": user, "path": path, "at": at}


def test_windows_of_a_key_are_counted_in_event_time() -> None:
    shop = builder()
    clicks_of(shop).key_by("user").window(Tumbling(minutes=1, timestamp="at", closed="left")).count(name="count")
    with TopologyTestDriver(shop) as driver:
        feed(
            driver,
            "clicks",
            click("ann", "/", 1),
            click("bob", "/", 2),
            click("ann", "/a", 3),
            click("bob", "/", MINUTE),
        )
        driver.advance(seconds(2))
        assert sorted(map(list, driver.emitted("count")))[:2] == [["ann", 0, MINUTE, 2], ["bob", 0, MINUTE, 1]]
        assert len(driver.acked("clicks")) == 4


def test_a_visit_is_aggregated_and_late_tuples_go_to_their_stream() -> None:
    shop = builder()
    visits = clicks_of(shop).key_by("user").window(Session(gap=minutes(30), timestamp="at", late="late"))
    visits.aggregate(pages=("path", "count"), n="count", last=("at", "max"), name="visits")
    visits.late.map(lambda tup: dict(tup.late_tuple), outputs=["user", "path", "at"], name="late")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "clicks", click("ann", "/", 0), click("ann", None, MINUTE), click("bob", "/", 100 * MINUTE))
        driver.advance(seconds(2))
        start, end, last = 0, 31 * MINUTE, MINUTE
        assert driver.emitted("visits") == [
            {"user": "ann", "start": start, "end": end, "pages": 1, "n": 2, "last": last}
        ]
        feed(driver, "clicks", click("ann", "/late", 5))
        assert driver.emitted("late") == [["ann", "/late", 5]]


def test_a_window_of_a_count_has_no_start_and_is_reduced() -> None:
    def joined(so_far: Any, tup: Any) -> dict[str, Any]:
        return {"path": f"{so_far.path} {tup.path}", "at": tup.at}

    shop = builder()
    clicks_of(shop).key_by("user").window(Count(2)).reduce(joined, name="reduce")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "clicks", click("ann", "/", 0), click("bob", "/", 1), click("ann", "/a", 2))
        (row,) = driver.emitted("reduce")
        assert (row[0], row[1], row[3:]) == ("ann", None, ["/ /a", 2])


def mean(window: TupleWindow) -> float:
    """The mean time of the tuples of a window."""
    times: list[int] = [tup.at for tup in window]
    return sum(times) / len(times)


def test_a_function_of_the_window_returns_one_result_or_yields_several() -> None:
    def paths(window: TupleWindow) -> Any:
        for tup in window:
            yield {"end": window.end_ms, "path": tup.path}

    shop = builder()
    by_user = clicks_of(shop).key_by("user").window(Sliding(seconds=20, every=seconds(10), timestamp="at"))
    by_user.apply(mean, name="mean")
    by_user.apply(paths, outputs=["end", "path"], name="paths")
    by_user.apply(lambda window: None, outputs=["nothing"], name="none")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "clicks", click("ann", "/", 1000), click("ann", "/a", 2000), click("ann", "/b", 40_000))
        driver.advance(seconds(2))
        assert driver.emitted("mean")[0] == {"user": "ann", "start": -10_000, "end": 10_000, "value": 1500.0}
        assert driver.emitted("paths")[:2] == [["ann", -10_000, 10_000, "/"], ["ann", -10_000, 10_000, "/a"]]
        assert driver.emitted("none") == []


def test_a_stream_without_a_key_has_windows_in_one_task() -> None:
    shop = builder()
    clicks = stream(shop, "clicks", "user", "path", "at", parallelism=3)
    clicks.window(Count(3)).aggregate(users=("user", "set"), name="users")
    assert shop.build().component("users").parallelism == 1
    with TopologyTestDriver(shop) as driver:
        feed(driver, "clicks", click("ann", "/", 0), click("bob", "/", 1), click("ann", "/a", 2))
        assert driver.emitted("users")[0][2:] == [["ann", "bob"]]


def test_mistakes_of_windows_name_the_mend() -> None:
    clicks = clicks_of(builder())
    by_user: Any = clicks.key_by("user")
    cases: list[tuple[Any, str]] = [
        (lambda: by_user.window(timedelta(minutes=1)), "expected a window, such as Tumbling"),
        (lambda: by_user.window(Count(3, key="path")), r"the stream has key_by\('user'\)"),
        (lambda: clicks.window(Count(3, key="path")), "the stream has no key_by"),
        (lambda: by_user.window(Count(3)).late, r"write Count\(..., late='late'\)"),
        (lambda: by_user.window(Count(3, late="late")).late, "has no operator yet"),
        (lambda: by_user.window(Count(3)).count(into="end"), "two fields 'end'"),
        (lambda: by_user.window(Count(3)).aggregate(user="count"), "two fields 'user'"),
        (lambda: by_user.window(Count(3)).apply(mean, outputs="mean"), r"did you mean outputs = \['mean'\]"),
    ]
    for act, text in cases:
        with pytest.raises(ConfigError, match=text):
            act()


@pytest.mark.slow
def test_windowed_operators_keep_their_promises_under_faults() -> None:
    shop = builder()
    by_user = clicks_of(shop).key_by("user").window(Tumbling(seconds=10, timestamp="at", late="late"))
    by_user.count(name="count", parallelism=2)
    by_user.apply(mean, name="mean")
    rows = [[f"c{number % 5}", "/", number * 700] for number in range(60)]
    report = simulate(shop, seed=3, feed={"clicks": rows})
    assert report.ok, report.story
