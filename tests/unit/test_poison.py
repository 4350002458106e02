"""One tuple's trouble is that tuple's trouble."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbolt import Bolt, Config, TopologyBuilder
from sparkbolt.testing import TopologyTestDriver
from tests.unit.poison import (
    EXCEPTIONS,
    UNSENDABLE,
    Doing,
    DoingByHand,
    Source,
    run,
)


def throw(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize("kind", [Doing, DoingByHand])
def test_any_exception_fails_its_tuple(kind: Any, name: str) -> None:
    run(kind(lambda bolt, tup, collector: throw(EXCEPTIONS[name]())))


@pytest.mark.parametrize("name", UNSENDABLE)
@pytest.mark.parametrize("stateless", [True, False])
def test_an_unserializable_value_fails_its_tuple(name: str, stateless: bool) -> None:
    run(Doing(lambda bolt, tup, collector: UNSENDABLE[name](), stateless=stateless))


def keep(bolt: Any, thing: Any) -> None:
    bolt.thing = thing


@pytest.mark.parametrize("name", [name for name in UNSENDABLE if not name.startswith("large")])
@pytest.mark.parametrize("kind", [Doing, DoingByHand])
def test_an_attribute_that_cannot_be_kept_fails_the_tuple_that_set_it(kind: Any, name: str) -> None:
    driver = run(kind(lambda bolt, tup, collector: keep(bolt, UNSENDABLE[name]())))
    failure = driver.failed("source")[0]
    assert failure.cause == "state"
    assert "'thing'" in failure.reason


class Holding(Bolt):
    """Holds the first tuple in ways of its own, until it gets the third."""

    outputs = ["n", "thing"]
    transient = ["hold", "state"]

    def __init__(self, hold: Any) -> None:
        self.hold = hold

    def prepare(self, context: Any) -> None:
        self.held: dict[int, Any] = {}

    def init_state(self, state: Any) -> None:
        self.state = state

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"], None], anchors=tup)
        if tup["n"] == 0:
            self.hold(self, tup)
            return
        if tup["n"] == 2 and "held" in self.state:
            collector.ack(self.state.delete("held"))
        collector.ack(tup)


def in_both(bolt: Any, tup: Any) -> None:
    bolt.held[1] = tup
    bolt.state.put("held", tup)


def in_both_inside(bolt: Any, tup: Any) -> None:
    bolt.held[1] = [tup]
    bolt.state.put("held", {"a": tup})


def under_two_keys(bolt: Any, tup: Any) -> None:
    bolt.state.put("held", tup)
    bolt.state.put("other", tup)


def in_one(bolt: Any, tup: Any) -> None:
    bolt.state.put("held", tup)


def moved(bolt: Bolt) -> tuple[list[tuple[int, str]], list[int]]:
    """Show the bolt three messages, each in a micro-batch of its own; what failed why, and what was acked."""
    builder = TopologyBuilder("moving", Config(max_attempts=1))
    builder.set_spout("source", Source())
    builder.set_bolt("bolt", bolt).shuffle_grouping("source")
    with TopologyTestDriver(builder.build()) as driver:
        for n in range(3):
            driver.feed("source", [n], message_id=n)
            driver.run_until_idle()
        failed = [(failure.message_id, failure.reason) for failure in driver.failed("source")]
        return failed, sorted(driver.acked("source"))


@pytest.mark.parametrize("hold", [in_both, in_both_inside, under_two_keys])
def test_a_tuple_stored_in_two_places_fails(hold: Any) -> None:
    [(number, reason)], acked = moved(Holding(hold))
    assert (number, acked) == (0, [1, 2])
    assert "is held twice" in reason


def test_a_tuple_stored_in_one_place_is_acked_from_there() -> None:
    assert moved(Holding(in_one)) == ([], [0, 1, 2])


class Moving(Holding):
    """Takes what it gets out of the key-value state into an attribute, later."""

    transient = ["hold", "state", "deletes"]

    def __init__(self, deletes: bool) -> None:
        self.deletes = deletes

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"], None], anchors=tup)
        if tup["n"] == 0:
            self.state.put("held", tup)
        elif tup["n"] == 1:
            self.held[0] = self.state.get("held")
            if self.deletes:
                self.state.delete("held")
            collector.ack(tup)
        else:
            collector.ack(self.held[0] if self.deletes else self.state.get("held"))
            collector.ack(tup)


@pytest.mark.parametrize("deletes", [True, False])
def test_a_tuple_moves_from_the_key_value_state_to_an_attribute_if_it_is_deleted_there(deletes: bool) -> None:
    failed, acked = moved(Moving(deletes))
    assert ([number for number, _ in failed], acked) == (([], [0, 1, 2]) if deletes else ([1], [0, 2]))
