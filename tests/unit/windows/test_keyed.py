"""Windows by key: one for each, as if it were alone, for as long as it has something."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from sparkbolt import Count, WindowedBolt
from sparkbolt.api.components import BasicBolt
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows import TupleWindow, WindowCollector
from sparkbolt.windows.keyed import KeyedWindows
from tests.spark.operated import Raising
from tests.unit.windows.windowed import Run, Show, secs, topology


def test_each_key_has_its_own_window_that_shows_expired_tuples_even_after_a_silence() -> None:
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
        assert run.shown(2)[-1] == "c"


class Names(WindowedBolt):
    """Asks only the windows of ``asks`` what has expired."""

    outputs = ["names"]
    asks = "ann"

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        expired = window.get_expired() if window.key == self.asks else ()
        collector.emit(["".join(tup["name"] for tup in (*window, *expired))])


@pytest.mark.parametrize("idle_timeout", [None, secs(60)])
@pytest.mark.parametrize("event_time", [False, True])
def test_a_key_without_tuples_is_stored_until_idle_only_if_its_bolt_asks_for_expired_tuples(
    monkeypatch: pytest.MonkeyPatch, event_time: bool, idle_timeout: timedelta | None
) -> None:
    stored: list[list[str]] = []
    save = KeyedWindows.save

    def save_and_list(windows: KeyedWindows) -> Any:
        saved = save(windows)
        stored.append([key for key, _ in windows.all()])
        return saved

    monkeypatch.setattr(KeyedWindows, "save", save_and_list)
    windowed = Names().with_tumbling_window(secs(10)).with_key("user", idle_timeout=idle_timeout)
    if event_time:
        windowed.with_timestamp_field("at")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, user in (("a", "ann"), ("b", "bob")):
            run.feed(name, at=1_000, user=user)
        driver.run_until_idle()
        assert sorted(stored[-1]) == ["ann", "bob"]
        run.feed("c", at=30_000, user="cat")
        driver.advance(secs(30))
        driver.restart()
        run.feed("d", at=60_000, user="cat")
        driver.advance(secs(25))
        assert "ann" in stored[-1]
        assert "bob" not in stored[-1]
        driver.advance(secs(50))
        run.feed("e", at=90_000, user="cat")
        driver.run_until_idle()
        assert ("ann" in stored[-1]) == (idle_timeout is None)
        run.feed("f", at=95_000, user="ann")
        run.feed("g", at=130_000, user="cat")
        driver.advance(secs(30))
        assert ("fa" if idle_timeout is None else "f") in run.shown()


def test_a_watermark_fires_windows_of_keys_that_it_passes_in_the_micro_batch_where_they_arrive() -> None:
    windowed = Show().with_tumbling_window(secs(1)).with_timestamp_field("at").with_key("user")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        run.feed("a", at=500, user="ann")
        run.feed("b", at=9000, user="bob")
        driver.advance(secs(60))
        assert list(zip(run.shown(), run.shown(5), strict=True)) == [("a", "ann"), ("b", "bob")]


def test_an_idle_key_is_removed_with_its_state() -> None:
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


def test_keys_may_have_several_fields_and_must_be_valid_key_values() -> None:
    windowed = Show().with_tumbling_window(Count(1)).with_key("user", "at")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        run.feed("a", user="ann", at=1)
        run.feed("b", user=["bob"], at=2)
        driver.run_until_idle()
        assert run.shown(5) == [("ann", 1)]
        assert [failure.message_id for failure in driver.failed("source")] == ["b"]


@pytest.mark.parametrize("user", [float("nan"), (1, float("nan")), Decimal("NaN"), Raising(), [1], BasicBolt])
def test_a_key_that_equals_only_itself_fails_its_tuple(user: Any) -> None:
    windowed = Show().with_tumbling_window(Count(2)).with_key("user")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, key in (("a", user), ("b", "bob"), ("c", user), ("d", "bob"), ("e", 1.5), ("f", 1.5)):
            run.feed(name, user=key)
        driver.run_until_idle()
        if user is BasicBolt:  # a class is read again by its name
            assert sorted(run.shown()) == ["ac", "bd", "ef"]
            return
        assert sorted(run.shown()) == ["bd", "ef"]
        assert sorted(failure.message_id for failure in driver.failed("source")) == ["a", "c"]
        assert all("the key 'user'" in failure.reason for failure in driver.failed("source"))


@pytest.mark.parametrize("user", [None, ("ann", None), frozenset({None, 1}), ((None,), b"x")])
def test_a_key_may_be_or_hold_none(user: Any) -> None:
    windowed = Show().with_tumbling_window(Count(2)).with_key("user")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name in ("a", "b"):
            run.feed(name, user=user)
        driver.run_until_idle()
        assert run.shown() == ["ab"]


def test_a_tuple_that_fails_because_of_its_key_fails_again_when_it_is_retried_whatever_its_message_id() -> None:
    windowed = Show().with_tumbling_window(Count(2)).with_key("user").with_message_id_field("at")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for name, at, user in (("a", 1, "bob"), ("b", 2, float("nan")), ("again", 2, float("nan")), ("c", 3, "bob")):
            run.feed(name, at=at, user=user)
            driver.run_until_idle()
        assert [failure.message_id for failure in driver.failed("source")] == ["b", "again"]
        assert (run.shown(), driver.acked("source")) == (["ac"], ["a", "c"])
