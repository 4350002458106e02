"""Topologies with loops keep every promise, and the simulator finds bugs that are planted in what is fed back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkbolt.driver import looped_tuples, machine
from sparkbolt.driver.effects import Remove
from sparkbolt.driver.ledger import ledger_files, ledger_log
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.loops import Loops
from sparkbolt.sim.subject import subject_of
from tests.sim.looping import looping_topology
from tests.sim.planting import Patch, hunt
from tests.sim.planting import patch as patch
from tests.sim.seeds import block
from tests.sim.test_many_seeds import check

FIRST_TOPOLOGIES = 12
TOPOLOGIES = 120
SEEDS_EACH = 4


def check_looping(numbers: range) -> None:
    for number in numbers:
        seeds = range(number * SEEDS_EACH, (number + 1) * SEEDS_EACH)
        check(subject_of(*looping_topology(number)), seeds)


@pytest.mark.slow
def test_topologies_with_loops_keep_every_promise() -> None:
    check_looping(range(FIRST_TOPOLOGIES))


@pytest.mark.campaign
def test_more_topologies_with_loops_keep_every_promise() -> None:
    check_looping(block(TOPOLOGIES, FIRST_TOPOLOGIES))


def a_restart_forgets_what_waits(patch: Patch) -> None:
    load = ledger_log.load_entry

    def forgetful(data: bytes, name: str) -> Any:
        life, plan, feedback, terms = load(data, name)
        return life, plan, replace(feedback, fed_back=replace(feedback.fed_back, rows=0)), terms

    patch.setattr(ledger_log, "load_entry", forgetful)


def compaction_forgets_what_waits(patch: Patch) -> None:
    patch.setattr(Loops, "state", lambda self: None)


def a_promotion_leaves_what_was_delivered(patch: Patch) -> None:
    promote = Loops.promote

    def repeating(self: Loops, plan: Any, *rest: Any) -> None:
        promote(self, replace(plan, looped=plan.looped[1:]), *rest)

    patch.setattr(Loops, "promote", repeating)


def the_entry_is_durable_before_the_tuples(patch: Patch) -> None:
    patch.setattr(machine, "stored", lambda number, frames: Remove("looped/none"))
    committed = machine.DriverMachine.committed

    def late(self: Any, number: int) -> Any:
        staged = self.ledger._staged
        if staged is not None and staged[1].looping:
            yield looped_tuples.stored(number, staged[1].looping)
        return (yield from committed(self, number))

    patch.setattr(machine.DriverMachine, "committed", late)


def tuples_of_ended_trees_are_delivered(patch: Patch) -> None:
    patch.setattr(Ledger, "are_open", lambda self, keys: keys == keys)


def compaction_removes_what_the_next_plan_names(patch: Patch) -> None:
    compact = ledger_files.compact

    def eager(files: Any, micro_batch_id: int, snapshot: bytes) -> None:
        compact(files, micro_batch_id, snapshot)
        files.remove(f"{ledger_files.LOOPED_FOLDER}/{micro_batch_id}")

    patch.setattr("sparkbolt.driver.durable_effects.compact", eager)


PLANTS = (
    a_restart_forgets_what_waits,
    compaction_forgets_what_waits,
    a_promotion_leaves_what_was_delivered,
    the_entry_is_durable_before_the_tuples,
    tuples_of_ended_trees_are_delivered,
    compaction_removes_what_the_next_plan_names,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_loops_is_found(plant: Callable[[Patch], None], patch: Patch) -> None:
    plant(patch)
    needed, promise, words = hunt(lambda number: subject_of(*looping_topology(number)))
    print(f"{plant.__name__}: {needed} seeds; {promise}: {words}")
