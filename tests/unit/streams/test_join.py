"""The join of two streams: which pairs it emits, what it keeps, and when it acks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import Stream, Topology, TopologyBuilder, minutes, seconds
from sparkbolt.errors import ConfigError
from sparkbolt.testing import TopologyTestDriver, simulate
from tests.unit.streams.shop import builder, feed, stream

MINUTE = 60_000


def sides(of: TopologyBuilder) -> tuple[Stream, Stream]:
    """Clicks and purchases of users."""
    return stream(of, "clicks", "user", "at", "path"), stream(of, "purchases", "user", "at", "amount")


def joined(parallelism: int = 1, **settings: Any) -> Topology:
    """Purchases within ten minutes of a click."""
    shop = builder()
    clicks, purchases = sides(shop)
    arguments = {"on": "user", "within": minutes(10), "timestamp": "at", **settings}
    clicks.join(purchases, **arguments, name="bought", parallelism=parallelism)
    return shop.build()


def click(user: str, at: Any, path: str = "/") -> dict[str, Any]:
    return {"user": user, "at": at, "path": path}


def purchase(user: str, at: Any, amount: int = 5) -> dict[str, Any]:
    return {"user": user, "at": at, "amount": amount}


def keys_of(driver: TopologyTestDriver) -> int:
    """How many keys the state of the join has."""
    return len(driver.state("bought"))


def test_pairs_within_the_time_are_emitted_once_in_either_order() -> None:
    with TopologyTestDriver(joined()) as driver:
        feed(driver, "clicks", click("ann", 0, "/a"), click("ann", 5 * MINUTE, "/b"), click("bob", 0))
        feed(driver, "purchases", purchase("ann", 11 * MINUTE), purchase("bob", 10 * MINUTE, 7))
        feed(driver, "clicks", click("ann", 12 * MINUTE, "/c"))
        assert driver.emitted("bought") == [
            {"user": "ann", "at": 5 * MINUTE, "path": "/b", "at_right": 11 * MINUTE, "amount": 5},
            {"user": "bob", "at": 0, "path": "/", "at_right": 10 * MINUTE, "amount": 7},
            {"user": "ann", "at": 12 * MINUTE, "path": "/c", "at_right": 11 * MINUTE, "amount": 5},
        ]


def test_a_tuple_is_acked_when_it_is_kept_and_waits_longer_than_the_message_timeout() -> None:
    with TopologyTestDriver(joined()) as driver:
        feed(driver, "clicks", click("ann", 0))
        assert len(driver.acked("clicks")) == 1
        driver.advance(timedelta(minutes=5))
        driver.restart()
        feed(driver, "purchases", purchase("ann", MINUTE))
        assert driver.emitted("bought") == [["ann", 0, "/", MINUTE, 5]]
        assert driver.failed("clicks") == []


def test_a_pair_that_fails_is_retried_by_itself() -> None:
    shop = builder()
    clicks, purchases = sides(shop)
    pairs = clicks.join(purchases, on="user", within=minutes(10), timestamp="at", name="bought", max_attempts=3)
    pairs.map(lambda tup: [1 / (tup.attempt - 1)], outputs=["attempt"], name="picky")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "clicks", click("ann", 0))
        feed(driver, "purchases", purchase("ann", 0))
        driver.advance(timedelta(minutes=1))
        assert driver.emitted("picky") == [[1.0]]
        assert (len(driver.acked("clicks")), len(driver.acked("purchases"))) == (1, 1)


def test_tuples_that_nobody_needs_any_more_are_forgotten() -> None:
    with TopologyTestDriver(joined()) as driver:
        feed(driver, "clicks", *(click(f"c{number}", number * MINUTE) for number in range(30)))
        assert keys_of(driver) == 30  # no purchase has come: any of them may still be bought for
        feed(driver, "purchases", purchase("nobody", 25 * MINUTE))
        assert keys_of(driver) == 15 + 1
        feed(driver, "clicks", click("c1", MINUTE))
        assert keys_of(driver) == 15 + 1  # it is too old to be kept


def test_lag_keeps_tuples_longer() -> None:
    with TopologyTestDriver(joined(lag=minutes(5))) as driver:
        feed(driver, "clicks", *(click(f"c{number}", number * MINUTE) for number in range(30)))
        feed(driver, "purchases", purchase("nobody", 25 * MINUTE))
        assert keys_of(driver) == 20 + 1


def test_without_a_timestamp_the_time_is_that_of_arrival() -> None:
    with TopologyTestDriver(joined(timestamp=None, within=seconds(10))) as driver:
        feed(driver, "clicks", click("ann", None))
        driver.advance(seconds(5))
        feed(driver, "purchases", purchase("ann", None))
        driver.advance(seconds(8))
        feed(driver, "purchases", purchase("ann", None, 6))
        assert driver.emitted("bought") == [["ann", None, "/", None, 5]]


def test_a_tuple_without_a_valid_time_is_rejected() -> None:
    with TopologyTestDriver(joined()) as driver:
        feed(driver, "clicks", click("ann", "noon"), click("ann", -1), click("ann", 1 << 60))
        stories = [failed.story for failed in driver.failed("clicks")]
        assert "expected milliseconds since the epoch" in stories[0]
        assert "is before 1970" in stories[1]
        assert "ahead of the micro-batch's time" in stories[2]


def test_what_waits_moves_with_its_key_to_other_tasks() -> None:
    with TopologyTestDriver(joined()) as driver:
        feed(driver, "clicks", *(click(f"c{number}", 0) for number in range(10)))
        driver.restart(joined(3))
        feed(driver, "purchases", *(purchase(f"c{number}", MINUTE) for number in range(10)))
        assert sorted(row[0] for row in driver.emitted("bought")) == sorted(f"c{number}" for number in range(10))


def test_streams_are_joined_on_several_fields_and_after_operators() -> None:
    shop = builder()
    clicks, purchases = sides(shop)
    paid = purchases.filter(lambda tup: tup.amount > 0).merge(stream(shop, "gifts", "user", "at", "amount"))
    clicks.join(paid, on=["user", "at"], within=seconds(0), name="bought", suffix="_paid")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "clicks", click("ann", 1), click("bob", 2))
        feed(driver, "purchases", purchase("ann", 1), purchase("bob", 3), purchase("bob", 2, 0))
        feed(driver, "gifts", purchase("bob", 2, 9))
        assert sorted(map(list, driver.emitted("bought"))) == [["ann", 1, "/", 5], ["bob", 2, "/", 9]]


def test_mistakes_of_joins_name_the_mend() -> None:
    shop = builder()
    clicks: Any
    clicks, purchases = sides(shop)
    third = stream(shop, "third", "user", "path_right", "path")
    again = stream(shop, "again", "user", "path", "path_right")
    cases: list[tuple[Any, str]] = [
        (lambda: clicks.join(clicks, on="user", within=minutes(1)), "both sides read the same stream"),
        (lambda: clicks.join(purchases, on="path", within=minutes(1)), "has no field 'path'"),
        (lambda: clicks.join(purchases, on="user", within=10), "expected a timedelta"),
        (lambda: clicks.join(third, on="user", within=minutes(1)), "two fields 'path_right'"),
        (lambda: clicks.join(again, on="user", within=minutes(1), timestamp="at"), "has no field 'at'"),
        (lambda: clicks.join("purchases", on="user", within=minutes(1)), "expected a Stream of the same builder"),
    ]
    for act, text in cases:
        with pytest.raises(ConfigError, match=text):
            act()


@pytest.mark.slow
def test_joins_keep_their_promises_under_faults() -> None:
    clicks = [[f"c{number % 7}", number * 20_000, "/"] for number in range(40)]
    purchases = [[f"c{number % 5}", number * 30_000, number] for number in range(30)]
    report = simulate(joined(2), seed=5, feed={"clicks": clicks, "purchases": purchases})
    assert report.ok, report.story
