"""A topology changes its shape while drivers and queries die: every promise is kept, and planted bugs are found."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.driver.ledger import ledger_files
from sparkbolt.driver.ledger.changed_shape import changed
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.ledger.ledger_log import State
from sparkbolt.sim import subject as subjects
from sparkbolt.sim.faults import KINDS, SHAPED, history_of
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.subject import SimulationError, Subject, subject_of
from sparkbolt.testing import simulate
from sparkbolt.worker.state.division import moved_stores
from sparkbolt.worker.state.task_state import DictStore
from tests.sim.changing import Shape, count_table
from tests.sim.planting import Patch
from tests.sim.planting import patch as patch
from tests.sim.seeds import block

SHAPES, MESSAGES, SEEDS_EACH = 6, 40, 10
TASKS = [1, 2, 3, 5]


@cache
def changing(number: int) -> Subject:
    """A topology that changes through several shapes: tasks, windows, migrations, and a bolt without state."""
    chance, shape, shapes = random.Random(number), Shape(), []
    for _ in range(SHAPES):
        shapes.append(shape)
        match chance.choice(["tasks", "tasks", "length", "version"]):
            case "tasks":
                name = chance.choice(sorted(shape.tasks))
                shape = replace(shape, tasks={**shape.tasks, name: chance.choice(TASKS)})
            case "length":
                shape = replace(shape, length=shape.length + chance.choice([2, 5]))
            case _:
                shape = replace(shape, version=shape.version + 1)
    first, *later = [shape.topology() for shape in shapes]
    return subject_of(first, messages_max=MESSAGES, later=later)


def check(seeds: range) -> None:
    for seed in seeds:
        run = run_seed(changing(seed // SEEDS_EACH), seed, state=True)
        words = [f"{violation.promise}: {violation.words}" for violation in run.violations]
        assert not words, (seed, [str(fault) for fault in run.happened], words)


def test_a_topology_that_changes_keeps_every_promise() -> None:
    check(range(6))


@pytest.mark.campaign
def test_a_topology_that_changes_keeps_every_promise_over_many_seeds() -> None:
    check(block(600, 6))


@pytest.mark.parametrize("step", [step for step in KINDS if SHAPED & KINDS[step].keys() and step != "committing"])
def test_the_shape_changes_at_each_step_and_the_driver_dies_on_the_way(step: str) -> None:
    for kind in SHAPED & KINDS[step].keys():
        for place in (1 + 8 * changes for changes in (0, 2)):
            run = run_seed(changing(1), 7, history_of(f"1:{step}:{kind}:{place}"), state=True)
            assert not run.violations, (step, kind, place, run.violations)
            assert [fault.kind for fault in run.happened] == [kind]


@pytest.mark.parametrize("place", [0, 3, 9, 24])
def test_a_dead_driver_commits_after_the_change_has_begun(place: int) -> None:
    for number in range(2):
        run = run_seed(changing(number), 5, history_of(f"2:staged:changes-shape:{place}"), state=True)
        assert not run.violations, (number, run.violations)


def test_a_plan_that_a_dead_driver_still_commits_counts_for_no_other_plan_of_its_number() -> None:
    run = run_seed(changing(4), 46, history_of("7:staged:changes-shape:21399"), state=True)
    assert not run.violations, run.violations


# Planted bugs.


def moved_with(wrong: Callable[[dict[int, DictStore], Any, Any], None]) -> Callable[..., dict[int, DictStore]]:
    def moved(stores: Any, moves: Any, *others: Any) -> dict[int, DictStore]:
        found = moved_stores(stores, moves, *others)
        for move in moves:
            if len(move.before) < len(move.after):
                wrong(found, stores, move)
        return found

    return moved


def a_task_keeps_the_keys_that_move(patch: Patch) -> None:
    def keeps(found: dict[int, DictStore], stores: Any, move: Any) -> None:
        found[move.after[0]] = DictStore(stores.get(move.before[0], {}))

    patch.setattr(subjects, "moved_stores", moved_with(keeps))


def a_new_task_gets_nothing(patch: Patch) -> None:
    patch.setattr(subjects, "moved_stores", moved_with(lambda found, _, move: found.pop(move.after[-1], None)))


def open_trees_are_forgotten(patch: Patch) -> None:
    nothing = np.empty(0, dtype=np.uint64)

    def forgets(state: State, generation: Generation) -> State:
        return replace(changed(state, generation), trees=(nothing, nothing, nothing.astype(np.int64)))

    patch.setattr(ledger_files, "changed", forgets)


def retries_are_forgotten(patch: Patch) -> None:
    def forgets(state: State, generation: Generation) -> State:
        found = changed(state, generation)
        logs = [replace(log, retries=[]) for log in found.messages.logs]
        return replace(found, messages=replace(found.messages, logs=logs))

    patch.setattr(ledger_files, "changed", forgets)


def a_generation_begins_twice(patch: Patch) -> None:
    def again(self: Generations, _: int) -> tuple[Generation, Generation] | None:
        return (self[-2], self[-1]) if self and self[-1].moves else None

    patch.setattr(Generations, "unmoved", again)


@pytest.mark.parametrize(
    ("plant", "promises"),
    [
        (a_task_keeps_the_keys_that_move, {"each key has one task"}),
        (a_new_task_gets_nothing, {"each key has one task"}),
        (open_trees_are_forgotten, {"no false ack", "no tree lost"}),
        (retries_are_forgotten, {"retries are in time", "no tree lost"}),
        (a_generation_begins_twice, {"state is what a run without faults gives", "no tree lost", "no false ack"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_of_a_change_is_found(plant: Callable[[Patch], None], promises: set[str], patch: Patch) -> None:
    plant(patch)
    for seed in range(300):
        run = run_seed(changing(seed // SEEDS_EACH), seed, state=True)
        if run.violations:
            assert run.violations[0].promise in promises, run.violations[0]
            return
    raise AssertionError("nothing was found")


# What users write.


def small(tasks: int, name: str = "count") -> Any:
    builder = TopologyBuilder("small")
    shape = Shape()
    first = shape.topology().components["numbers"].component
    builder.set_spout("numbers", first)
    builder.set_bolt(name, count_table(1), tasks).fields_grouping("numbers", ["k"])
    return builder


def test_a_report_says_how_the_topology_changed() -> None:
    history = "1:promoted:changes-shape:2"
    report = simulate(small(2), 1, later=[small(3)], messages_max=30, history=history)
    assert report.ok, report.story
    assert "the driver dies after the promotion, and the topology starts in another shape" in report.story


def test_changes_that_a_simulation_cannot_follow_are_refused() -> None:
    with pytest.raises(SimulationError, match=r"later= has other spouts.*from_checkpoint"):
        simulate(small(2), later=[small(2, name="counts")])
