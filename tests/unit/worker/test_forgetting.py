"""Tuples of a dead life are taken out of what bolts keep."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from sparkbolt import Bolt, Spout, TopologyBuilder
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.base.ids import mix64, tree_key
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.worker.held_tuples import forget

ORIGIN = Origin("queue", 0, "default", ("v",))


def tup(*trees: tuple[int, int]) -> Tuple:
    """A tuple of these (task, sequence) trees."""
    return Tuple.of(ORIGIN, [1], tuple((mix64(tree_key(task, sequence)), 7) for task, sequence in trees))


class Box:
    def __init__(self, held: Any) -> None:
        self.held = held


def test_void_tuples_are_removed_from_every_kind_of_container() -> None:
    alive = tup((1, 10))
    loop: list[Any] = [tup((1, 9))]
    loop.append(loop)
    attributes: dict[str, Any] = {
        "plain": tup((1, 0)),
        "map": OrderedDict(a=tup((1, 3)), b=alive),
        "nested": {"x": [tup((1, 1)), alive], "y": ({"z": tup((1, 2))},)},
        "set": {tup((1, 4)), alive},
        "deque": deque([alive, tup((1, 5))], maxlen=3),
        "box": Box([tup((1, 6))]),
        "loop": loop,
        "count": 5,
    }
    assert forget(attributes, {1: 10}) == 8
    assert attributes["plain"] is None
    assert dict(attributes["map"]) == {"b": alive}
    assert attributes["nested"] == {"x": [alive], "y": ({},)}
    assert attributes["set"] == {alive}
    assert list(attributes["deque"]) == [alive]
    assert attributes["box"].held == []
    assert attributes["loop"] == [loop]


def test_a_tuple_with_one_living_tree_stays() -> None:
    both = tup((1, 0), (2, 0))
    attributes = {"held": [both], "untracked": [tup()]}
    assert forget(attributes, {1: 10}) == 0
    assert attributes["held"] == [both]


class Queue(Spout):
    outputs = ["user", "v"]

    def next_tuple(self, collector):
        """Never called: the test feeds it."""


class Join(Bolt):
    outputs = ["user", "pair"]

    def prepare(self, context):
        self.waiting = {}

    def execute(self, tup, collector):
        other = self.waiting.pop(tup["user"], None)
        if other is None:
            self.waiting[tup["user"]] = tup
        else:
            collector.emit([tup["user"], (other["v"], tup["v"])], anchors=[other, tup])
            collector.ack(other)
            collector.ack(tup)


def test_a_message_redelivered_after_a_crash_does_not_join_its_own_earlier_copy() -> None:
    builder = TopologyBuilder("join")
    builder.set_spout("queue", Queue())
    builder.set_bolt("join", Join()).fields_grouping("queue", ["user"])
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("queue", ["ann", 1], message_id=1)
        driver.run_until_idle()
        driver.restart()
        driver.feed("queue", ["ann", 1], message_id=1)
        driver.run_until_idle()
        assert driver.emitted("join") == []
        assert driver.acked("queue") == []
        driver.feed("queue", ["ann", 2], message_id=2)
        driver.run_until_idle()
        assert driver.emitted("join") == [["ann", (1, 2)]]
        assert sorted(driver.acked("queue")) == [1, 2]
