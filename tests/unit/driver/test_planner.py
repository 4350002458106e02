"""What a life answers to Spark: offsets, beginnings, and starts that do not fit what was promoted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.ranges import Range
from sparkbolt.api.topology import Topology
from sparkbolt.driver.effects import AskLag, CallSpout, Effect, Execute, Wait, Write
from sparkbolt.driver.machine import perform_all
from sparkbolt.driver.planner import Planner
from sparkbolt.errors import CheckpointError, InvariantError, OutdatedLifeError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.wire.plan import BEFORE_THE_FIRST, MicroBatchPlan
from sparkbolt.wire.verdicts import Feedback

NOW = 1_000_000


class Growing(PartitionedSpout):
    """A log that a test lets grow."""

    outputs = ("n",)
    end = 0

    def next_ranges(self, progress: Any, budget: int) -> list[Range]:
        start = progress.get("log", 0)
        return [Range(0, "log", start, self.end)] if self.end > start else []

    def read(self, range_: Range) -> Any:
        return ((position, [position]) for position in range(range_.start, range_.end))


class Swallow(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing comes of it."""


def topology(**config: Any) -> Topology:
    builder = TopologyBuilder("growing", Config(**config))
    builder.set_spout("log", Growing())
    builder.set_bolt("swallow", Swallow()).shuffle_grouping("log")
    return builder.build()


class Life:
    """The machine of an engine in one process, asked as Spark asks."""

    def __init__(self, last_commit: Any = None, **config: Any) -> None:
        self.engine = LocalEngine(topology(**config), now_ms=NOW)
        self.files = self.engine.files
        self.machine = self.engine.machine
        self.planner = Planner(self.machine.coordinator, self.files, where="checkpoint /c", last_commit=last_commit)
        self.machine.planner = self.planner
        self.ledger = self.machine.ledger

    def grow(self, count: int) -> None:
        spout = self.engine.coordinator.spouts["log"]
        assert isinstance(spout, Growing)
        spout.end += count

    def latest(self, start: Any) -> Any:
        return json.loads(json.dumps(perform_all(self.machine.asked(start), self.perform)))

    def run(self, end: Any) -> MicroBatchPlan:
        plan = self.machine.confirmed(end)
        self.run_without_plan(plan.micro_batch_id)
        return plan

    def run_without_plan(self, micro_batch_id: int) -> None:
        perform_all(self.machine.ran(micro_batch_id), self.perform)

    def perform(self, effect: Effect) -> Any:
        match effect:
            case CallSpout() | AskLag():
                return effect()
            case Execute():
                return Feedback()
            case Wait():
                return False
            case Write(name, data):
                self.files.write(name, data)
        return None


def test_first_plan_of_an_empty_source_reads_nothing_and_later_data_is_read_after_it() -> None:
    life = Life()
    first = life.latest(BEFORE_THE_FIRST)
    assert first == {"micro_batch_id": 0, "life": 0, "now_ms": NOW}
    assert life.run(first).entries == ()
    assert life.latest(first) == first, "no news: the start itself, for which Spark runs nothing"
    assert life.ledger.last_promoted == 0
    life.grow(3)
    [entry] = life.run(life.latest(first)).entries
    assert (entry.start, entry.end) == (0, 3)


def test_a_life_behind_the_commits_of_spark_plans_nothing() -> None:
    life = Life()
    life.grow(3)
    first = life.latest(BEFORE_THE_FIRST)
    behind = Life()
    behind.grow(3)
    with pytest.raises(OutdatedLifeError, match=r"checkpoint /c: Spark has committed micro-batch 0, but the ledger of"):
        behind.latest(first)
    with pytest.raises(OutdatedLifeError, match="Spark runs micro-batch 1, but the ledger of life 0 has counted -1"):
        behind.planner.confirm({**first, "micro_batch_id": 1}, 0.0)
    assert behind.engine.coordinator.in_force is None


def test_a_spark_log_that_lost_its_end_is_named_with_what_to_do() -> None:
    life = Life()
    life.grow(3)
    first = life.latest(BEFORE_THE_FIRST)
    life.run(first)
    life.latest(first)
    life.ledger.last_promoted = 1
    behind = r"Spark goes on behind micro-batch 0, but .* counted 1.*checkpoint verify"
    with pytest.raises(CheckpointError, match=behind):
        life.latest(first)
    with pytest.raises(CheckpointError, match="Spark is about to run micro-batch 0, but the ledger has counted 1"):
        life.planner.confirm(first, 0.0)


def test_a_start_different_from_the_one_that_was_run_is_refused() -> None:
    life = Life()
    life.grow(3)
    first = life.latest(BEFORE_THE_FIRST)
    life.run(first)
    with pytest.raises(InvariantError, match="micro-batch 0 was run for"):
        life.latest({**first, "now_ms": 7})


def test_a_plan_that_is_too_large_for_an_offset_is_a_file() -> None:
    life = Life(plan_bytes_max=1024)
    life.grow(3)
    life.ledger.void = tuple((1, sequence) for sequence in range(1000))
    first = life.latest(BEFORE_THE_FIRST)
    assert first == {"micro_batch_id": 0, "file": "0-0"}
    [entry] = life.run(first).entries
    assert (entry.start, entry.end) == (0, 3)
    life.files.files.clear()
    with pytest.raises(CheckpointError, match="plans/0-0 is missing, though an offset of Spark's names it"):
        Life(plan_bytes_max=1024).planner.confirm(first, 0.0)


def test_a_micro_batch_run_by_spark_for_other_sources_reads_nothing_and_only_its_commit_shows_it() -> None:
    commits = [-1]
    life = Life(lambda: commits[0])
    first = life.latest(BEFORE_THE_FIRST)
    life.run(first)
    assert life.planner.committed(BEFORE_THE_FIRST) is None, "it runs"
    commits[0] = 0
    assert life.latest(first) == first
    for number in (1, 2):
        life.run_without_plan(number)
        assert life.planner.committed(first) is None, "it is not committed yet"
        commits[0] = number
        assert life.latest(first) == first, "its end is as before, since nothing here is new"
        assert life.ledger.last_promoted == number
    life.grow(3)
    fourth = life.run(life.latest(first))
    assert (fourth.micro_batch_id, [entry.end for entry in fourth.entries]) == (3, [3])
    with pytest.raises(OutdatedLifeError, match="Spark runs micro-batch 7"):
        Life().run_without_plan(7)


def test_a_life_that_begins_with_an_unplanned_micro_batch_counts_it() -> None:
    commits = [-1]
    life = Life(lambda: commits[0])
    life.run_without_plan(0)
    commits[0] = 0
    end = {"micro_batch_id": 0, "life": 0, "now_ms": NOW}
    assert life.planner.committed(end) == 0, "it ran in this life, which has confirmed no plan"
