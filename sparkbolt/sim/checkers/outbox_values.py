"""Outbox: checks that each value that a bolt starts is acked or given up in the end, and then forgotten."""

from __future__ import annotations

import numpy as np

from sparkbolt.api.causes import FINAL
from sparkbolt.api.pickling import Pickling
from sparkbolt.api.retry import RetryPolicy, at_once
from sparkbolt.base.ids import AGAIN, SEQUENCE_BITS, split_key, tree_key
from sparkbolt.layout.lane import policy_of
from sparkbolt.sim.checkers.base import Checker, Facts
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.wire.plan import MicroBatchPlan
from sparkbolt.worker.outbox import Outbox
from sparkbolt.worker.state.task_state import DictStore, TaskState


class NothingStartedIsLost(Checker):
    """Each value that a bolt's task starts is acked or given up in the end, once, and is not kept longer."""

    promise = "no tree of a bolt lost"

    def __init__(self, facts: Facts) -> None:
        """Start without values."""
        super().__init__(facts)
        self._policies: dict[int, RetryPolicy] = {}
        """By number of a task that starts trees, or did so before a change."""
        self._begun: set[int] = set()
        self._owed: set[int] = set()
        """Keys of first attempts at values that are neither acked nor given up."""
        self._perhaps: set[int] = set()
        """Keys of values with an unknown outcome: they timed out while a bolt was unavailable."""
        self._again: dict[int, tuple[int, int]] = {}
        """Key of a further attempt -> (key of the first attempt, number of the attempt)."""

    def life_began(self, driver: Driver) -> None:
        """Note the tasks that start trees in the shape of this life."""
        topology = self.facts.subject.topology
        for name in self.facts.subject.lane.starters:
            policy = policy_of(topology.components[name]) or at_once(1)
            self._policies.update(dict.fromkeys(topology.tasks(name), policy))

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Record which values were started, and which are finished."""
        if not self._policies:
            return
        for entry in plan.again:
            for place, position in enumerate(entry.positions or ()):
                self._again[entry.first_key + place] = (tree_key(entry.task, position), entry.attempt)
        for key in self._mine(
            np.concatenate([np.empty(0, np.uint64), *(k for s in outcome.sightings for k in s.started)])
        ):
            self._start(key)
        for key in self._mine(verdict.acked):
            first, _ = self._again.get(key, (key, 1))
            if first not in self._owed and first not in self._perhaps:
                self.broken(f"{self.facts.where(key)} is acked, though its value was finished before", key)
            self._owed.discard(first)
        for key in verdict.failed:
            first, attempt = self._again.get(key, (key, 1))
            number, _ = split_key(key)
            if number not in self._policies:
                continue
            fail, forgiven = self.facts.fails.get(key), self.facts.forgiven(key)
            final = fail is not None and fail.cause in FINAL
            if final or not (forgiven or self._policies[number].allows(attempt)):
                self._owed.discard(first)
                if forgiven is None:
                    self._perhaps.add(first)

    def _mine(self, keys: np.ndarray) -> list[int]:
        mine = np.isin(keys >> np.uint64(SEQUENCE_BITS), np.array(list(self._policies), dtype=np.uint64))
        own_keys: list[int] = keys[mine].tolist()
        return own_keys

    def _start(self, key: int) -> None:
        if key in self._begun:
            self.broken(f"{self.facts.where(key)} was started twice", key)
        self._begun.add(key)
        if split_key(key)[1] < AGAIN:
            self._owed.add(key)
        elif key not in self._again:
            self.broken(f"{self.facts.where(key)} was given again, which no plan asked for", key)
        elif self._again[key][0] not in self._owed and self._again[key][0] not in self._perhaps:
            self.broken(f"{self.facts.where(key)} was given again, though its value was finished before", key)

    def ended(self, driver: Driver) -> None:
        """Check that all values are finished, and kept only by tasks that are not yet notified."""
        for key in sorted(self._owed)[:1]:
            self.broken(
                f"all is finished, but {len(self._owed)} value(s) were neither acked nor given up, the first of them "
                f"that of {self.facts.where(key)}",
                key,
            )
        for number in self._policies.keys() & self.facts.subject.lane.dests.keys():
            state = TaskState()
            state.begin(self.facts.stores.get(self.facts.subject.lane.dests[number], DictStore()))
            size = Outbox(state, number, Pickling({})).kept
            untold = sum(end - start for task, start, end in driver.ledger.outbox_acks.first() if task == number)
            if size != untold:
                component, index = self.facts.subject.topology.task_owner(number)
                self.broken(
                    f"all is finished, but {component}[{index}] keeps {size} value(s), and is to hear of {untold}"
                )
