"""Retries: checks that each retry happens at its time and under its number, and that the engine wakes for it.

Due times are computed here, from the committed failures and the policy, without the engine.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from sparkbolt.api.causes import AWAY, FINAL, Cause
from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.base.ids import AGAIN, split_key
from sparkbolt.driver.coordinator import CATCH_UP_SPEED
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.ledger.outcomes import LETTER_WAITS
from sparkbolt.layout.lane import policy_of
from sparkbolt.sim.checkers.base import Checker, Facts, Records, hashable
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.wire.plan import Entry, MicroBatchPlan, own_source

ROUNDED_MS = 3
"""Two times that are computed at different clock speeds, each in whole milliseconds, may differ by this many ms."""
MessageKey = tuple[Hashable, ...]
"""A message: (component, source, position), or (task number, message id) of a ``Spout``; with ``_LETTER`` at its end it
is the message's dead letter."""
_LETTER = "dead letter"


class RetriesAreInTime(Checker):
    """A failed message is retried after its wait, with the right attempt number; an idle engine wakes for it."""

    promise = "retries are in time"

    def __init__(self, facts: Facts) -> None:
        """Start without failures."""
        super().__init__(facts)
        topology = facts.subject.topology
        names = [*(spec.id for spec in topology.spouts), *facts.subject.lane.starters]
        self._policies = {name: policy_of(topology.components[name]) for name in names}
        ranged = {spec.id: spec.component for spec in topology.spouts if isinstance(spec.component, PartitionedSpout)}
        self._once = {name for name, spout in ranged.items() if spout.once}
        self._returned: set[MessageKey] = set()
        """The messages that an operator has given back."""
        self._lettered = {spec.id for spec in topology.spouts if spec.dead_letters is not None}
        self._due: dict[MessageKey, tuple[int, int]] = {}
        """Waiting messages: (time when due in ms, number of the next attempt)."""
        self._records: dict[int, tuple[MessageKey, int]] = {}
        """Key of a tree of a ``Spout`` -> (message, attempt)."""
        self._failures: dict[int, tuple[str, bool | None]] = {}
        """The trees that failed last: (cause, whether the failure costs no attempt)."""
        self._forgiven_ms: dict[int, int] = {}
        self._base = (0, 0.0)
        """(Time of the newest promoted plan in ms, monotonic clock in seconds at its run or at the life's start)."""
        self._ran_s = 0.0

    def life_began(self, driver: Driver) -> None:
        """Forget records of a ``Spout``, and their waiting retries, with their life."""
        self._base = (self._base[0], self.facts.mono_s)
        self._records.clear()
        self._due = {place: due for place, due in self._due.items() if isinstance(place[0], str)}

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """Check that no message is retried too early or under a wrong number."""
        self._ran_s = self.facts.mono_s
        ready_ms = self._ready_ms(plan.now_ms)
        self._check_probe(plan, ready_ms)
        for entry, pairs in records.items():
            for number, (record, message_id) in enumerate(pairs):
                if record.tracked:
                    self._records[entry.first_key + number] = _of_spout(entry, message_id), entry.attempt
        for place, attempt in self._given(plan, records):
            if place not in self._due:
                continue
            due_ms, expected = self._due[place]
            if ready_ms < due_ms:
                self.broken(f"{place} is given again {due_ms - ready_ms} ms before it is due")
            if attempt != expected:
                self.broken(f"{place} is given again as attempt {attempt}, expected {expected}")

    def _check_probe(self, plan: MicroBatchPlan, ready_ms: int) -> None:
        """Check that a bolt that is unavailable receives nothing before its next probe."""
        allowances = self.facts.outages.allowances(ready_ms)
        for entry in plan.reserving:
            component, _ = self.facts.subject.topology.task_owner(entry.task)
            allowance = allowances.get(component)
            if entry.letters is None and allowance is not None and allowance.tuples == 0:
                self.broken(
                    f"{component!r} gives {entry}, though a bolt that it feeds is out until a probe "
                    f"{allowance.next_probe_ms - ready_ms} ms later"
                )

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Record that messages in the plan no longer wait."""
        for place, _ in self._given(plan, self.facts.running):
            self._due.pop(place, None)
        for letter in plan.returned:
            component, _ = self.facts.subject.topology.task_owner(letter.task)
            self._due[component, letter.source, letter.position] = plan.now_ms, 1
            self._returned.add((component, letter.source, letter.position))
        fails = self.facts.fails
        self._failures = {
            key: (fails[key].cause if key in fails else Cause.TIMEOUT, self.facts.forgiven(key))
            for key in verdict.failed
        }
        self._forgiven_ms = {key: self.facts.outages.wait_ms(fail) for key, fail in fails.items()}

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Record that failed messages wait, unless they are given up."""
        now_ms = self.facts.plans[promotion.micro_batch_id].now_ms
        self._base = (max(self._base[0], now_ms), self._ran_s)
        for key in verdict.failed:
            component, _ = self.facts.subject.topology.task_owner(split_key(key)[0])
            policy = self._policies.get(component)
            message = self._message(key)
            if policy is not None and message is not None:
                wait = self._wait_for_letter if _LETTER in message[0] else self._wait
                wait(key, component, policy, *message, now_ms)

    def _wait(
        self, key: int, component: str, policy: RetryPolicy, place: MessageKey, attempt: int, now_ms: int
    ) -> None:
        cause, forgiven = self._failures.get(key, (Cause.TIMEOUT, False))
        if cause in AWAY or (forgiven is None and cause == Cause.TIMEOUT):
            return  # the wait depends on the outages of its source in a row, or on the task that held the tree
        reads_once = component in self._once and place not in self._returned
        if not reads_once and forgiven:
            self._due[place] = now_ms + self._forgiven_ms.get(key, 0), attempt
        elif not reads_once and cause not in FINAL and policy.allows(attempt):
            self._due[place] = now_ms + policy.delay_ms(attempt, key), attempt + 1
        elif component in self._lettered:
            self._due[(*place, _LETTER)] = now_ms, 1

    def _wait_for_letter(
        self, key: int, component: str, policy: RetryPolicy, place: MessageKey, attempt: int, now_ms: int
    ) -> None:
        cause, forgiven = self._failures.get(key, (Cause.TIMEOUT, False))
        waits = LETTER_WAITS if cause == Cause.LETTER else policy
        if forgiven is None:
            return
        wait_ms = max(self._forgiven_ms.get(key, 0) if forgiven else 0, waits.delay_ms(attempt, key))
        self._due[place] = now_ms + wait_ms, attempt + (0 if forgiven else 1)

    def idle(self, driver: Driver, now_ms: int, due_ms: int | None) -> None:
        """Check that the engine wakes when something is due, and only for work that it can do."""
        if due_ms is not None and due_ms <= now_ms:
            self.broken(f"there was nothing to do, but something is said to be due {now_ms - due_ms} ms ago")
        if not self._due:
            return
        place, (first_ms, _) = min(self._due.items(), key=lambda item: self._due_ms(*item))
        first_ms = self._due_ms(place, (first_ms, 0))
        ready_ms = self._ready_ms(now_ms)
        left = max(0, first_ms - ready_ms) / (CATCH_UP_SPEED if ready_ms > now_ms else 1.0)
        if due_ms is None or due_ms - now_ms > left + ROUNDED_MS:
            self.broken(f"{place} is due in {left:.0f} ms, but the engine sleeps until {due_ms}, now is {now_ms}")

    def _due_ms(self, place: MessageKey, due: tuple[int, int]) -> int:
        """Return when a due message is retried: not before a probe may carry it."""
        if _LETTER in place:
            return due[0]
        owner = self.facts.subject.topology.task_owner
        component = place[0] if isinstance(place[0], str) else owner(int(str(place[0])))[0]
        allowance = self.facts.outages.allowances(1 << 62).get(str(component))
        return max(due[0], allowance.next_probe_ms if allowance is not None else 0)

    def ended(self, driver: Driver) -> None:
        """Check that every retry has happened."""
        for place, (_, attempt) in list(self._due.items())[:1]:
            self.broken(f"all is finished, but attempt {attempt} at {place} was never made")

    def _ready_ms(self, now_ms: int) -> int:
        """Return the time, in ms, up to which retries are due."""
        newest_ms, mono_s = self._base
        return max(now_ms, newest_ms + int((self.facts.mono_s - mono_s) * 1000 * CATCH_UP_SPEED + 0.5))

    def _given(self, plan: MicroBatchPlan, records: Records) -> Iterator[tuple[MessageKey, int]]:
        """Yield the messages of a plan with their attempts; of a range only its first message."""
        owner = self.facts.subject.topology.task_owner
        for entry in plan.reserving:
            if entry.source is not None:
                for position in entry.positions or (entry.start,):
                    yield _of_source(entry, owner(entry.task)[0], position), entry.attempt
        for entry, pairs in records.items():
            for _, message_id in pairs:
                yield _of_spout(entry, message_id), entry.attempt

    def _message(self, key: int) -> tuple[Any, int] | None:
        """Return the message of a tree, and the number of its attempt."""
        if key in self._records:
            return self._records[key]
        task, sequence = split_key(key)
        component, index = self.facts.subject.topology.task_owner(task)
        if component in self.facts.subject.lane.starters and sequence < AGAIN:
            return (component, own_source(index), sequence), 1
        for plan in reversed(list(self.facts.plans.values())):
            for entry in plan.reserving:
                if entry.task == task and entry.source and entry.base <= sequence < entry.base + entry.reserved:
                    position = entry.position_of(sequence)
                    new = entry.positions is None and position != entry.start
                    return _of_source(entry, component, position), 1 if new else entry.attempt
        return None


def _of_source(entry: Entry, component: str, position: int) -> MessageKey:
    place = component, entry.source, position
    return place if entry.letters is None else (*place, _LETTER)


def _of_spout(entry: Entry, message_id: Any) -> MessageKey:
    place = entry.task, hashable(message_id)
    return place if entry.letters is None else (*place, _LETTER)


class ReadOnce(Checker):
    """A message of a spout with ``once`` begins in only one life, and in only one micro-batch."""

    promise = "read at most once"

    def __init__(self, facts: Facts) -> None:
        """Start without messages."""
        super().__init__(facts)
        topology = facts.subject.topology
        ranged = {spec.id: spec.component for spec in topology.spouts if isinstance(spec.component, PartitionedSpout)}
        self._tasks = {task for name, spout in ranged.items() if spout.once for task in topology.tasks(name)}
        self._begun: dict[MessageKey, tuple[int, int]] = {}
        """Message -> (life, micro-batch)."""
        self._life = -1

    def life_began(self, driver: Driver) -> None:
        """Record the life's number."""
        self._life = driver.coordinator.life

    def ran(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """Check which messages began, whether the micro-batch is committed or not."""
        if not self._tasks:
            return
        entries = [
            entry
            for entry in plan.entries
            if entry.task in self._tasks and entry.letters is None and entry.records is None
        ]
        failed = {fail.key for seen in outcome.sightings for fail in seen.fails}
        owner = self.facts.subject.topology.task_owner
        for key in (key for seen in outcome.sightings for keys in seen.started for key in keys.tolist()):
            task, sequence = split_key(key)
            for entry in entries:
                if entry.task == task and entry.base <= sequence < entry.base + entry.reserved and key not in failed:
                    place = owner(task)[0], entry.source, entry.position_of(sequence)
                    before = self._begun.setdefault(place, (self._life, plan.micro_batch_id))
                    if before != (self._life, plan.micro_batch_id):
                        self.broken(f"{self.facts.where(key)} is read again, after {before} (life, micro-batch)", key)
