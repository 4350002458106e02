"""A micro-batch of a transactional topology leaves no trace of what fails in it."""

from __future__ import annotations

from collections import Counter

import pytest

from sparkbolt import Bolt, Config, TopologyBuilder
from sparkbolt.api.topology import Topology
from sparkbolt.driver.transaction import REPEATS_WHOLE
from sparkbolt.errors import InvalidTopology
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.wire.frames import python_values
from tests.topologies import Sum

RUNS: Counter[int] = Counter()
"""How often the bolt that fails has executed each number, over all executions."""


class Check(Bolt):
    """Fails some numbers for some attempts."""

    outputs = ["n", "total"]

    def __init__(self, fails):
        self.fails = fails

    def execute(self, tup, collector):
        RUNS[tup["n"]] += 1
        if RUNS[tup["n"]] <= self.fails.get(tup["n"], 0):
            collector.fail(tup)
        else:
            collector.emit([tup["n"], tup["total"]], anchors=[tup])
            collector.ack(tup)


class Keep(Bolt):
    """Holds a tuple for ever."""

    outputs = ["n"]

    def execute(self, tup, collector):
        if tup["n"] != 3:
            collector.ack(tup)


def _topology(numbers: int, fails: dict[int, int], *, max_attempts: int = 3, transactional: bool = True) -> Topology:
    RUNS.clear()
    builder = TopologyBuilder("sums", Config(transactional=transactional, max_attempts=max_attempts))
    builder.set_spout("numbers", GeneratorSpout(_numbers(numbers), outputs=["n"]))
    builder.set_bolt("sum", Sum(), parallelism=1).global_grouping("numbers")
    builder.set_bolt("check", Check(fails)).global_grouping("sum")
    return builder.build()


def _numbers(count):
    def numbers():
        return ([n] for n in range(1, count + 1))

    return numbers


def _run(topology: Topology) -> tuple[list[list[int]], LocalEngine]:
    """Run to the end; returns what ``check`` has emitted, and the engine."""
    emitted: list[list[int]] = []

    def capture(component, index, stream, columns):
        if component == "check":
            emitted.extend(map(list, zip(*map(python_values, columns), strict=True)))

    engine = LocalEngine(topology, capture=capture)
    while not engine.coordinator.finished:
        if engine.step() is None:
            due = engine.next_due_ms()
            engine.now_ms = max(engine.now_ms + 1, due or 0)
    engine.close()
    return emitted, engine


def test_failed_attempts_leave_no_trace_until_one_succeeds():
    emitted, _ = _run(_topology(9, {4: 1, 7: 1}))
    assert sorted(n for n, _ in emitted) == list(range(1, 10))
    assert max(total for _, total in emitted) == 45
    assert [total for n, total in emitted if n == 5] != [15]  # 4 was not in the sum when 5 was counted


def test_errors_of_executions_that_do_not_count_are_counted():
    class Raises(Check):
        def execute(self, tup, collector):
            if tup["n"] == 4 and tup.attempt == 1:
                raise ValueError("not at first")
            collector.ack(tup)

    builder = TopologyBuilder("sums", Config(transactional=True))
    builder.set_spout("numbers", GeneratorSpout(_numbers(9), outputs=["n"]))
    builder.set_bolt("raises", Raises({})).global_grouping("numbers")
    _, engine = _run(builder.build())
    counts = engine.ledger.metrics.components["raises"]
    assert (counts.failed, counts.errors) == (1, 1)


def test_without_transactional_a_retry_counts_twice():
    emitted, _ = _run(_topology(9, {4: 1, 7: 1}, transactional=False))
    assert max(total for _, total in emitted) == 45 + 4 + 7


def test_permanently_failing_message_becomes_a_dead_letter_and_is_in_no_sum():
    emitted, _ = _run(_topology(9, {4: 99}))
    assert sorted(n for n, _ in emitted) == [1, 2, 3, 5, 6, 7, 8, 9]
    assert max(total for _, total in emitted) == 41
    assert RUNS[4] == 3


def test_several_failures_of_one_micro_batch_cost_one_repeat():
    _run(_topology(9, {4: 1, 7: 1, 9: 1}))
    assert RUNS[1] <= 2


def test_a_tuple_that_is_held_over_micro_batches_fails():
    builder = TopologyBuilder("kept", Config(transactional=True, max_attempts=2))
    builder.set_spout("numbers", GeneratorSpout(_numbers(5), outputs=["n"]))
    builder.set_bolt("keep", Keep()).global_grouping("numbers")
    _, engine = _run(builder.build())
    assert [tree.fail.cause for tree in engine.ledger.failed] == ["held", "held"]
    assert "no tuple is held over micro-batches" in engine.ledger.failed[0].fail.reason


@pytest.mark.slow
def test_a_bolt_that_fails_different_tuples_in_turn_ends_with_a_smaller_micro_batch():
    """The first executions fail another number each; after ``REPEATS_WHOLE`` of them the entries are halved."""

    class Moody(Check):
        def execute(self, tup, collector):
            RUNS[0] += 1
            if RUNS[0] % 23 == 0:
                collector.fail(tup)
            else:
                collector.emit([tup["n"], tup["total"]], anchors=[tup])
                collector.ack(tup)

    RUNS.clear()
    builder = TopologyBuilder("sums", Config(transactional=True, max_attempts=50))
    builder.set_spout("numbers", GeneratorSpout(_numbers(200), outputs=["n"]))
    builder.set_bolt("sum", Sum()).global_grouping("numbers")
    builder.set_bolt("check", Moody({})).global_grouping("sum")
    emitted, engine = _run(builder.build())
    assert sorted(n for n, _ in emitted) == list(range(1, 201))
    assert max(total for _, total in emitted) == 200 * 201 // 2
    assert engine.ledger.metrics.micro_batches > REPEATS_WHOLE


def test_a_bolt_without_outputs_must_say_what_its_effects_are():
    def build(**settings):
        class Print(Bolt):
            def execute(self, tup, collector):
                collector.ack(tup)

        builder = TopologyBuilder("printed", Config(transactional=True))
        builder.set_spout("numbers", GeneratorSpout(_numbers(5), outputs=["n"]))
        builder.set_bolt("print", Print(), **settings).global_grouping("numbers")
        return builder.build()

    with pytest.raises(InvalidTopology, match="effects='repeatable'"):
        build()
    build(effects="repeatable")
    build(effects="none")
