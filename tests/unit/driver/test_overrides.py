"""What an operator changes while a topology runs: it applies to the next plan, and to the next life."""

from __future__ import annotations

from typing import Any

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.api.retry import at_once
from sparkbolt.driver.overrides import Overrides, TraceWish, traced_sequences
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.wire.plan import Entry
from tests.topologies import Numbers
from tests.unit.test_stories import fed, topology


def numbers(**config: Any) -> Any:
    class Pass(BasicBolt):
        outputs = ["n"]

        def execute(self, tup: Any, collector: Any) -> None:
            collector.emit([tup["n"]])

    builder = TopologyBuilder("numbers", Config(**config))
    builder.set_spout("numbers", Numbers(1000))
    builder.set_bolt("pass", Pass()).global_grouping("numbers")
    return builder.build()


def test_limits_and_targets_apply_from_the_next_plan_on() -> None:
    engine = LocalEngine(topology())
    coordinator = engine.coordinator
    [buffer] = coordinator.buffers.values()
    coordinator.override(Overrides({"lines": 3}, micro_batch_target_ms=50, message_timeout_secs=3))
    assert (buffer.pending_max, coordinator.rates["lines"].budget_max) == (3, 3)
    assert coordinator.rates["lines"].target_ms == 50
    assert coordinator.message_timeout_secs == 3
    coordinator.override(Overrides())
    assert buffer.pending_max > 3
    assert coordinator.rates["lines"].target_ms == Config().micro_batch_target_ms
    assert coordinator.message_timeout_secs == 30
    engine.close()


def test_the_number_of_attempts_changes_for_those_that_are_retried_by_a_policy() -> None:
    engine = LocalEngine(numbers(max_attempts=5))
    engine.coordinator.override(Overrides(max_attempts={"numbers": 2}))
    assert engine.ledger.messages.terms.policies["numbers"] == at_once(2)
    engine.coordinator.override(Overrides())
    assert engine.ledger.messages.terms.policies["numbers"] == at_once(5)
    engine.close()


def test_a_shorter_timeout_fails_trees_that_are_open_already() -> None:
    with TopologyTestDriver(topology(message_timeout_secs=1000)) as driver:
        engine = driver._engine
        fed(driver, "waits")
        engine.coordinator.override(Overrides(message_timeout_secs=1))
        for _ in range(40):
            engine.now_ms += 100
            engine.step()
        assert [tree.fail.cause for tree in engine.ledger.failed] == ["timeout"]


def test_a_message_is_traced_by_its_id() -> None:
    with TopologyTestDriver(topology()) as driver:
        driver._engine.coordinator.override(Overrides(traces=(TraceWish("ack"),)))
        fed(driver, "waits", "ack", "waits")
        traced = driver._engine.ledger.traced
        assert [story.message_id for story in traced] == ["'ack'"]
        assert {hop.component for hop in traced[0].hops} == {"lines", "split", "join"}


def test_the_sequences_of_an_entry_follow_from_its_kind() -> None:
    wishes = [TraceWish("a.txt@12"), TraceWish("a.txt@15"), TraceWish("b")]
    assert traced_sequences(wishes, "lines", Entry(1, 100, "/x/a.txt", 10, 14), []) == (102,)
    assert traced_sequences(wishes, "lines", Entry(1, 100, "a.txt", 0, 0, 2, (15, 3, 12)), []) == (100, 102)
    assert traced_sequences(wishes, "jobs", Entry(1, 100, None, 0, 3), ["a", "b", 3]) == (101,)
    assert traced_sequences([TraceWish("b", "other")], "jobs", Entry(1, 100, None, 0, 1), ["b"]) == ()
