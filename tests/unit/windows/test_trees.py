"""What becomes of the tuples of a window, and of what it emits."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt import Config, Count, TopologyBuilder, WindowedBolt, bolt
from sparkbolt.api.tuples import Origin
from sparkbolt.errors import EngineError
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows import (
    CountEvictionPolicy,
    TimeTriggerPolicy,
    TupleWindow,
    WindowCollector,
)
from sparkbolt.windows.manager import EXPIRE_EVENTS_THRESHOLD
from sparkbolt.windows.reading import MESSAGE_ID_RUNS_KEPT, MessageIds
from sparkbolt.worker.emissions import Rows
from sparkbolt.worker.results import Settlements
from tests.unit.windows.windowed import Run, Show, Source, secs, topology


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


@pytest.mark.parametrize("fire", [Count(2), secs(1)], ids=["by count", "by a timer"])
def test_on_error_stop_names_the_window_that_raises_and_stops_the_topology(fire: Any) -> None:
    with TopologyTestDriver(topology(Fragile().with_tumbling_window(fire), on_error="stop")) as driver:
        run = Run(driver)
        run.feed("a")
        run.feed("bad")
        with pytest.raises(EngineError, match=r"'show' raised for the window that ends at \d+, and its on_error"):
            driver.advance(secs(2))


def test_tuples_emitted_by_a_window_are_retried_until_acked_and_its_inputs_are_not() -> None:
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


BETWEEN_TIMERS: dict[str, Callable[[], WindowedBolt]] = {
    "built in": lambda: Show().with_window(Count(5), slide=secs(20)),
    "by key": lambda: Show().with_window(Count(5), slide=secs(20)).with_key("user"),
    "policies": lambda: Show().with_policies(CountEvictionPolicy(5), TimeTriggerPolicy(20_000)),
}


@pytest.mark.parametrize("kind", BETWEEN_TIMERS)
@pytest.mark.parametrize("restart", [False, True])
def test_with_ack_on_expiry_tuples_that_no_later_window_can_hold_expire_between_timers(
    kind: str, restart: bool
) -> None:
    windowed = BETWEEN_TIMERS[kind]().with_ack_on_expiry()
    letters = [chr(0x4E00 + i) for i in range(400)]
    with TopologyTestDriver(topology(windowed, max_spout_pending=150, message_timeout_secs=60)) as driver:
        run = Run(driver)
        for letter in letters:
            run.feed(letter)
        driver.advance(secs(1))
        at_once = 5 if kind != "policies" else EXPIRE_EVENTS_THRESHOLD + 5  # as in Storm
        assert len(driver.acked("source")) >= len(letters) - at_once, "the spout stands still"
        assert driver.acked("source") == letters[: len(driver.acked("source"))]
        if restart:
            driver.restart()
            for letter in letters[len(driver.acked("source")) :]:
                run.feed(letter)
        driver.advance(secs(20))
        assert run.shown()[0] == "".join(letters[-5:])
        assert run.shown(2)[0] == "", "no window had shown them"
        if not restart:  # what had not expired left with its connection
            assert driver.metrics().of("show").expired == len(driver.acked("source"))
        assert driver.failed("source") == []


def test_with_ack_on_expiry_emitted_tuples_are_anchored_to_the_window() -> None:
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


def test_tuple_seen_before_a_restart_is_dropped() -> None:
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


def new_ids(seen: MessageIds, ids: list[Any]) -> list[Any]:
    """Those of the ids that are new; they are seen now."""
    rows = Rows(Origin("source", 0, "default", ("id",)), len(ids), [ids], None, None)
    fresh = seen.new_of(rows, "id", np.ones(len(ids), dtype=bool), Settlements())
    return [value for value, new in zip(ids, fresh.tolist(), strict=True) if new]


@given(st.lists(st.lists(st.integers(0, 30) | st.sampled_from([3.0, 10**400]))))
def test_runs_of_ids_answer_as_a_set_of_ids(pieces: list[list[float]]) -> None:
    seen, known = MessageIds(), set[float]()
    for piece in pieces:
        expected = []
        for value in piece:
            if value not in known:
                expected.append(value)
                known.add(value)
        assert new_ids(seen, piece) == expected
        state = seen.save()
        seen = MessageIds()
        seen.load(state)


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


def test_an_id_that_first_arrives_late_is_not_dropped() -> None:
    seen = MessageIds()
    even = list(range(0, 4 * MESSAGE_ID_RUNS_KEPT, 2))
    assert new_ids(seen, even) == even
    assert new_ids(seen, [3, even[-1] - 1, even[-1], 3]) == [3, even[-1] - 1]  # 3 is below all that are known
    restarted = MessageIds()
    restarted.load(pickle.loads(pickle.dumps(seen.save())))
    assert new_ids(restarted, [even[-1] - 1, even[-1] - 3, even[-1]]) == [even[-1] - 3]


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
