"""Flows: what each task did on each stream adds up to what its component did."""

from __future__ import annotations

from typing import Any

from sparkbolt import BasicBolt, Bolt, Config, Direct, Spout, TopologyBuilder
from sparkbolt.api.topology import Topology
from sparkbolt.observe.measurements import ANY, OWN_TREES, Flow, FlowCounts
from sparkbolt.testing import TopologyTestDriver


class Numbers(Spout):
    outputs = {"default": ["n"], "odd": ["n"]}

    def next_tuple(self, collector: Any) -> None:
        """The driver feeds it."""


class Twice(BasicBolt):
    outputs = {"default": ["n"], "to": Direct(["n"]), "unheard": ["n"]}

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] < 0:
            raise ValueError("it is negative")
        collector.emit([tup["n"]])
        collector.emit([tup["n"]])
        collector.emit([tup["n"]], stream="unheard")


class Join(Bolt):
    """Holds a tuple until one of the other stream has the same number."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.held: dict[int, Any] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        other = self.held.pop(tup["n"], None)
        if other is None:
            self.held[tup["n"]] = tup
        else:
            collector.ack(other)
            collector.fail(tup) if tup["n"] == 3 else collector.ack(tup)


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing comes of it."""


class Late(Bolt):
    """Acks its tuples when the micro-batch ends."""

    transient = ["kept"]

    def prepare(self, context: Any) -> None:
        self.kept: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.kept.append((tup, collector))

    def flush(self) -> None:
        for tup, collector in self.kept:
            collector.ack(tup)
        self.kept = []


def flows(topology: Topology, *fed: tuple[str, int]) -> dict[Flow, FlowCounts]:
    with TopologyTestDriver(topology) as driver:
        for place, (stream, number) in enumerate(fed):
            driver.feed("numbers", [number], message_id=place, stream=stream)
        driver.run_until_idle()
        metrics = driver.metrics()
        found = driver._engine.coordinator.ledger.flows
    for component, counts in metrics.components.items():
        own = [count for flow, count in found.items() if flow.component == component]
        assert sum(count.emitted for count in own) == counts.emitted, component
        assert sum(count.executed for count in own) == counts.executed, component
        assert sum(count.acked for count in own) == counts.acked, component
        assert sum(count.failed for count in own) == counts.failed, component
    return found


def test_each_stream_has_its_counts_and_a_tuple_for_three_tasks_is_transferred_three_times() -> None:
    builder = TopologyBuilder("flows", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("twice", Twice()).shuffle_grouping("numbers")
    builder.set_bolt("sink", Sink(), parallelism=3).all_grouping("twice")
    found = flows(builder.build(), ("default", 1), ("default", 2), ("default", -1))
    came = found[Flow("twice", 0, "numbers", "default")]
    assert (came.executed, came.acked, came.failed, came.processed) == (3, 2, 1, 2)
    sent = found[Flow("twice", 0, "", "default")]
    assert (sent.emitted, sent.transferred) == (4, 12)
    unheard = found[Flow("twice", 0, "", "unheard")]
    assert (unheard.emitted, unheard.transferred) == (2, 0)
    trees = found[Flow("numbers", 0, "", OWN_TREES)]
    assert (trees.acked, trees.failed) == (2, 1)


def test_held_tuple_is_acked_on_its_original_stream() -> None:
    builder = TopologyBuilder("joined", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("join", Join()).global_grouping("numbers").global_grouping("numbers", "odd")
    found = flows(builder.build(), ("default", 1), ("odd", 1), ("default", 3), ("odd", 3))
    plain, odd = (found[Flow("join", 0, "numbers", stream)] for stream in ("default", "odd"))
    assert (plain.executed, plain.acked, plain.failed) == (2, 2, 0)
    assert (odd.executed, odd.acked, odd.failed) == (2, 1, 1)


def test_ack_in_a_flush_belongs_to_the_only_input_of_a_bolt_and_to_none_of_several() -> None:
    for both in (False, True):
        builder = TopologyBuilder("flushed", Config(max_attempts=1))
        builder.set_spout("numbers", Numbers())
        bolt = builder.set_bolt("late", Late()).global_grouping("numbers")
        if both:
            bolt.global_grouping("numbers", "odd")
        found = flows(builder.build(), ("default", 1), ("default", 2))
        late = Flow("late", 0, "numbers", "default")
        assert found[late].acked == 2
        assert (Flow("late", 0, ANY, ANY) in found) == both
