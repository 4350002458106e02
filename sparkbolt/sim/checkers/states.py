"""States: compares state with that of a run without faults, which costs about as much as the run itself.

That run has the committed plans with the records that they carried, so everything must be equal, value by value.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparkbolt.api.pickling import Pickling
from sparkbolt.sim.canonical import same
from sparkbolt.sim.checkers.base import Checker
from sparkbolt.sim.checkers.dead_letter_sinks import SimulatedSink
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import Executors
from sparkbolt.sim.faults import Pending
from sparkbolt.sim.observer import AttemptObserver
from sparkbolt.sim.subject import Subject
from sparkbolt.wire.acker import gather
from sparkbolt.wire.exclusion import NOTHING_EXCLUDED
from sparkbolt.wire.plan import Piece
from sparkbolt.wire.verdicts import KeptRows
from sparkbolt.worker.state.large_dicts import LargeDicts
from sparkbolt.worker.state.task_state import DictStore, TaskState


@dataclass(frozen=True)
class StateContent:
    """The state of one task."""

    attributes: Any
    key_values: dict[Any, Any]
    segments: dict[str, bytes | None]


def content_of(store: DictStore, namespace: Any) -> StateContent:
    """Return the content of a task's segments."""
    state = TaskState(namespace)
    state.begin(store)
    data = state.snapshot()
    tokens = ("self", "key_value_state", "context", "collector")
    pickling = Pickling(namespace, {token: token for token in tokens})
    key_value = state.key_value()
    attributes = pickling.load_attributes(data) if data is not None else None
    if attributes is not None:
        LargeDicts().restore(attributes, state)
    return StateContent(
        attributes=attributes,
        key_values=dict(key_value),
        segments={name: state.read(name) for name in state.names()},
    )


class StateIsWhatWasCommitted(Checker):
    """The final state is that of the committed plans, run once and without faults.

    In a transactional topology they are run without the trees that failed, so nothing of these may be in it.
    """

    promise = "state is what a run without faults gives"

    def ended(self, driver: Driver) -> None:
        """Run all committed plans again, and compare."""
        facts = self.facts
        stores = self._run_again()
        namespace = facts.subject.environment.namespace
        for task, dest in facts.subject.lane.dests.items():
            one, other = facts.stores.get(dest), stores.get(dest)
            if not one and not other:
                continue
            ours = content_of(one if one is not None else DictStore(), namespace)
            theirs = content_of(other if other is not None else DictStore(), namespace)
            if not same(ours, theirs):
                component, index = facts.subject.topology.task_owner(task)
                self.broken(f"{component}[{index}] holds {_first_difference(ours, theirs)}")
                return

    def _run_again(self) -> dict[int, DictStore]:
        """The segments after all committed plans, each run in the shape that the topology had."""
        facts, before, random_ = self.facts, None, random.Random(0)
        states: dict[str, dict[int, DictStore]] = {}

        def stamps() -> int:
            return random_.getrandbits(63) + 1

        for place, generation in enumerate(facts.generations):
            subject = facts.subjects.get(generation.number, facts.subject)
            if generation.moves and before is not None:
                states[generation.folder] = subject.moved(states, (before, generation), stamps)
            end = facts.generations[place + 1].base if place + 1 < len(facts.generations) else facts.committed + 1
            plans = [number for number in sorted(facts.plans) if generation.base <= number < end]
            self._run_plans(subject, plans, states.setdefault(generation.folder, {}), stamps)
            before = generation
        return states[facts.generations[-1].folder]

    def _run_plans(
        self, subject: Subject, numbers: Sequence[int], stores: dict[int, DictStore], stamps: Callable[[], int]
    ) -> None:
        facts, observer = self.facts, AttemptObserver(subject.lane)
        sink = SimulatedSink({}, observer)  # it fails in the same cases as the sink of the original run
        environment = subject.environment_with(stamps, None, sink)
        executors = Executors(subject.lane, environment, observer, stores)
        for number in numbers:
            plan, alive = facts.plans[number], facts.alive[number]
            pieces = [
                Piece(index, entry, tuple(record for record, _ in alive.get(entry, ())))
                for index, entry in enumerate(plan.entries)
                if entry.lasting or entry in alive
            ]
            left_out = facts.left_out.get(number, NOTHING_EXCLUDED)
            looped = facts.looped[number]
            outcome = executors.run(plan, [pieces], Pending(()), random.Random(number), left_out, looped)
            stores.update(outcome.stores)
            self._compare_kept(number, gather(data for _, data in outcome.rows).kept)
        executors.die()

    def _compare_kept(self, number: int, kept: Sequence[KeptRows]) -> None:
        """Compare the rows of committers, whatever their order."""
        ours, theirs = (
            Counter((part.component, row) for part in parts for row in part.rows)
            for parts in (self.facts.kept[number], kept)
        )
        if ours != theirs:
            component, row = next(iter((ours - theirs) or (theirs - ours)))
            words = "got" if (ours - theirs) else "did not get"
            self.broken(
                f"committer {component!r} {words} {pickle.loads(row)!r:.120} in micro-batch {number}, unlike without "
                "faults",
                component=component,
            )


def _first_difference(ours: StateContent, theirs: StateContent) -> str:
    for name in ("attributes", "key_values", "segments"):
        one, other = getattr(ours, name), getattr(theirs, name)
        if same(one, other):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            for key in [*one, *other]:
                if not (key in one and key in other and same(one[key], other[key])):
                    return f"{key!r} = {one.get(key)!r:.120}, without faults it is {other.get(key)!r:.120}"
        return f"{one!r:.120}, without faults it is {other!r:.120}"
    return "something else"
