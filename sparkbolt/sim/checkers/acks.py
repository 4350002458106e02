"""Checkers: one object for each promise, and the checkers of acks, progress and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparkbolt.api.causes import AWAY, FINAL, NOT_READ, Cause
from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.dead_letters import CHECKPOINT
from sparkbolt.api.topology import ComponentSpec
from sparkbolt.base.ids import split_key
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.ledger.ledger_settings import feeders_of
from sparkbolt.driver.ledger.outages import Outages
from sparkbolt.layout.lane import policy_of
from sparkbolt.sim.checkers.base import Checker, Facts, Records, Violation, hashable
from sparkbolt.sim.checkers.committed_rows import CommitsAreExact
from sparkbolt.sim.checkers.dead_letter_sinks import NothingIsGivenUpInSilence
from sparkbolt.sim.checkers.letters_given_back import LettersComeBack
from sparkbolt.sim.checkers.lives import LivesFollowTheTable
from sparkbolt.sim.checkers.looped_tuples import LoopedTuplesRideOnce
from sparkbolt.sim.checkers.moved_keys import EachKeyHasOneTask
from sparkbolt.sim.checkers.outbox_values import NothingStartedIsLost
from sparkbolt.sim.checkers.repeats import TheSameAgain
from sparkbolt.sim.checkers.retries import ReadOnce, RetriesAreInTime
from sparkbolt.sim.checkers.states import StateIsWhatWasCommitted
from sparkbolt.sim.checkers.trees import ExpectedVerdict, expand
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.sim.subject import Subject
from sparkbolt.wire.acker import one_fail_each
from sparkbolt.wire.exclusion import Exclusion
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.worker.state.task_state import DictStore


class NoFalseAck(Checker):
    """A tree is acked if, and only if, each of its deliveries was; it fails if, and only if, a component failed it."""

    promise = "no false ack"

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Compare the verdicts, tree by tree."""
        others = [*self.facts.trees.open, *verdict.failed]
        known = verdict.acked
        if others:
            known = np.sort(np.concatenate((known, np.array(others, dtype=np.uint64))))
        told, wrong = expand([*promotion.acked, *promotion.letters], known)
        number = promotion.micro_batch_id
        for first, last, count in wrong[:1]:
            self.broken(
                f"micro-batch {number} acked {count} tree(s) from {self.facts.where(first)} to {last:x}, "
                "but another number of trees began there",
                first,
            )
        failed = {tree.key for tree in (*promotion.failed, *promotion.letters_failed)}
        right = np.array_equal(told, verdict.acked)
        false = () if right else np.setdiff1d(told, verdict.acked).tolist()
        for key in false[:1]:
            left = sum(self.facts.trees.open.get(key, {}).values())
            how = "but somebody failed it" if key in verdict.failed else f"but {left} of its deliveries are not acked"
            self.broken(f"{self.facts.where(key)} was acked by the promotion of micro-batch {number}, {how}", key)
        forgotten = () if right else np.setdiff1d(verdict.acked, told).tolist()
        for key in forgotten[:1]:
            outcome = "failed" if key in failed else "left open"
            self.broken(f"{self.facts.where(key)} is complete with micro-batch {number}, but it was {outcome}", key)
        for key in sorted(failed - verdict.failed)[:1]:
            self.broken(
                f"{self.facts.where(key)} was failed by the promotion of micro-batch {number}; nobody failed it", key
            )
        for key in sorted(verdict.failed - failed)[:1]:
            self.broken(
                f"{self.facts.where(key)} was failed in micro-batch {number}, but the ledger did not fail it", key
            )
        self._compare_open(driver)

    def life_began(self, driver: Driver) -> None:
        """Check that a loaded ledger has the same open trees."""
        self._compare_open(driver)

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Check that all deliveries belong to trees that began."""
        for root in self.facts.trees.strangers[:1]:
            self.broken(f"micro-batch {plan.micro_batch_id} has deliveries of root {root:016x}, which nobody began")

    def _compare_open(self, driver: Driver) -> None:
        theirs = set(driver.ledger.open_keys(driver.ledger.open_trees))
        ours = set(self.facts.trees.open)
        if driver.ledger.last_promoted != self.facts.committed or self.violations:
            return
        for key in sorted(theirs - ours)[:1]:
            self.broken(f"{self.facts.where(key)} is open in the ledger, though it is finished", key)
        for key in sorted(ours - theirs)[:1]:
            self.broken(f"{self.facts.where(key)} is open, and the ledger does not know it", key)


class AcksAreDurable(Checker):
    """A spout is notified of a verdict once, and of an ack only after the work of its tree is committed."""

    promise = "no ack before the commit"

    def __init__(self, facts: Facts) -> None:
        """Start without messages."""
        super().__init__(facts)
        self._keys: dict[tuple[int, Any], int] = {}
        self._former: set[tuple[int, Any]] = set()
        """Messages of lives that ended while the driver continued: it fails those that are not emitted again."""
        self._acked: set[int] = set()
        self._failed: set[int] = set()
        self._told: set[int] = set()
        self._letters: set[int] = set()
        """Keys of dead letters for the checkpoint: a spout whose message has one is notified that it failed."""

    def life_began(self, driver: Driver) -> None:
        """Forget message ids of another driver: only one driver knows them."""
        self._former = {*self._former, *self._keys} if driver.took_over else set()
        self._keys.clear()

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """Record the message id of a tree."""
        for entry, pairs in records.items():
            for place, (record, message_id) in enumerate(pairs):
                if record.tracked:
                    self._keys[entry.task, hashable(message_id)] = key = entry.first_key + place
                    component, _ = self.facts.subject.topology.task_owner(entry.task)
                    way = self.facts.subject.topology.components[component].dead_letters
                    if entry.letters is not None and way == CHECKPOINT:
                        self._letters.add(key)

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Record which verdicts spouts may be notified of."""
        if self.facts.queues or self._keys:
            acked = set(verdict.acked.tolist())
            self._acked |= acked - self._letters
            self._failed |= set(verdict.failed) | (acked & self._letters)

    def told(self, driver: Driver) -> None:
        """Check the verdicts that spouts are about to receive."""
        if not driver.coordinator.lane.tracked:
            return
        for number, buffer in driver.coordinator.buffers.items():
            for message_ids, allowed, word in (
                (buffer.acks, self._acked, "acked"),
                (buffer.fails, self._failed, "failed"),
            ):
                for message_id in message_ids:
                    self._hear(number, message_id, allowed, word)

    def _hear(self, number: int, message_id: Any, allowed: set[int], word: str) -> None:
        key = self._keys.get((number, hashable(message_id)))
        if word == "failed" and (number, hashable(message_id)) in self._former:
            return
        if key is None:
            self.broken(f"task {number} hears that message {message_id!r} was {word}, which is not one of this life")
        elif key not in allowed:
            self.broken(f"{self.facts.where(key)}: its spout hears that it was {word}, which no commit says", key)
        elif key in self._told:
            self.broken(f"{self.facts.where(key)}: its spout hears of it twice", key)
        else:
            self._told.add(key)


class NothingIsLost(Checker):
    """Every message is acked or given up in the end, each once; progress never passes an unfinished one."""

    promise = "no tree lost"

    def __init__(self, facts: Facts) -> None:
        """Start without finished messages."""
        super().__init__(facts)
        self._done: dict[tuple[str, str], set[int]] = {}
        self._ranged = {
            number: spec
            for spec in facts.subject.topology.spouts
            if isinstance(spec.component, PartitionedSpout) and spec.component.tracked and not spec.component.once
            for number in facts.subject.topology.tasks(spec.id)
        }
        self._promised = {spec.id for spec in self._ranged.values()}
        """The spouts for which the promise holds."""
        self._entries: list[Entry] = []
        self._reached: dict[tuple[str, str], int] = {}
        self._lettered: dict[tuple[str, str, int], range] = {}
        """Positions that wait for their dead letter, by the first of them."""
        self._perhaps: set[tuple[str, str, int]] = set()
        """Messages that may have been given up or not: their trees timed out while a bolt was unavailable."""

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Record which messages are finished."""
        self._entries += [entry for entry in plan.entries if entry.source is not None and entry.task in self._ranged]
        if not self.facts.subject.lane.tracked:
            return
        kept = []
        causes = {key: fail.cause for key, fail in self.facts.fails.items()}
        open_keys = np.array(list(self.facts.trees.open), dtype=np.uint64)
        for entry in self._entries:
            assert entry.source is not None
            spec = self._ranged[entry.task]
            done = self._done.setdefault((spec.id, entry.source), set())
            first, last = np.uint64(entry.first_key), np.uint64(entry.first_key + entry.reserved)
            low, high = np.searchsorted(verdict.acked, (first, last))
            for key in verdict.acked[low:high].tolist():
                position = entry.position_of(split_key(key)[1])
                if position in done:
                    self.broken(f"{self.facts.where(key)} is acked, though its message was finished before", key)
                done.add(position)
                if entry.letters is not None:
                    done.update(self._lettered.pop((spec.id, entry.source, position), ()))
            for key in verdict.failed:
                if first <= key < last:
                    done.update(self._put_aside(spec, entry, key, causes.get(key, Cause.TIMEOUT)))
            if bool(((open_keys >= first) & (open_keys < last)).any()):
                kept.append(entry)
        self._entries = kept
        for letter in plan.returned:
            if letter.task in self._ranged:
                positions = range(letter.position, letter.end or letter.position + 1)
                self._done[self._ranged[letter.task].id, letter.source].difference_update(positions)

    def _put_aside(self, spec: ComponentSpec, entry: Entry, key: int, cause: Cause) -> range:
        """Return the positions that are finished when a tree fails; those that still need a dead letter are not."""
        if entry.letters is not None:
            return range(0)  # it is retried until a bolt processes it
        forgiven = self.facts.forgiven(key)
        positions = _given_up(spec, entry, key, cause) if not forgiven or cause in FINAL else range(0)
        if forgiven is None and positions:
            self._perhaps.update((spec.id, str(entry.source), position) for position in positions)
            return range(0)
        if positions and spec.dead_letters is not None:
            self._lettered[spec.id, str(entry.source), positions.start] = positions
            return range(0)
        return positions

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Check that progress has passed only finished messages."""
        self._check_progress(promotion.progress_moved)

    def life_began(self, driver: Driver) -> None:
        """Check the progress that a micro-batch has made whose driver did not promote it."""
        if driver.ledger.last_promoted == self.facts.committed:
            self._check_progress(driver.ledger.finished)

    def _check_progress(self, progress: Mapping[str, Mapping[str, int]]) -> None:
        if not self.facts.subject.lane.tracked:
            return
        for component, moved in progress.items():
            if component not in self._promised:
                continue
            for source, position in moved.items():
                _, _, positions = self.facts.subject.surveys[component].get(source, (0, 0, ()))
                done = self._done.get((component, source), set())
                before = self._reached.get((component, source), 0)
                for passed in positions:
                    perhaps = (component, source, passed) in self._perhaps
                    if before <= passed < position and passed not in done and not perhaps:
                        self.broken(f"progress of {component!r} passed {source}@{passed}, which is not finished")
                        return
                self._reached[component, source] = position

    def ended(self, driver: Driver) -> None:
        """Check that all messages are finished."""
        if not self.facts.subject.lane.tracked:
            return
        for component, found in self.facts.subject.surveys.items():
            if component not in self._promised:
                continue
            for source, (_, _, positions) in found.items():
                missing = sorted(
                    position
                    for position in set(positions) - self._done.get((component, source), set()) - self._open(source)
                    if (component, source, position) not in self._perhaps
                )
                if missing:
                    self.broken(
                        f"all is finished, but {len(missing)} message(s) of {component!r} were neither acked nor "
                        f"given up, the first of them {source}@{missing[0]}"
                    )
        waiting = Counter(split_key(key)[0] for key in self.facts.trees.open)
        for number, queue in self.facts.queues.items():
            left = len(queue.messages) - len(queue.done) - waiting[number]
            if left > 0:
                self.broken(f"all is finished, but the queue of task {number} still has {left} message(s)")

    def _open(self, source: str) -> set[int]:
        """Return positions of trees that are open in the end: without timeouts, an unacked tree stays open."""
        return {
            entry.position_of(sequence)
            for task, sequence in map(split_key, self.facts.trees.open)
            for entry in self._entries
            if entry.source == source and entry.task == task and 0 <= sequence - entry.base < entry.reserved
        }


def _given_up(spec: ComponentSpec, entry: Entry, key: int, cause: Cause) -> range:
    """Return the positions that are given up when a tree of the entry fails."""
    position = entry.position_of(split_key(key)[1])
    unread = entry.positions is None and cause in NOT_READ
    new = entry.positions is None and (not unread or position != entry.start)
    policy = policy_of(spec)
    assert policy is not None
    if cause in AWAY or (cause not in FINAL and policy.allows(1 if new else entry.attempt)):
        return range(0)
    return range(position, entry.end if unread else position + 1)


class SequencesAreNew(Checker):
    """No two messages have the same sequence."""

    promise = "no sequence used twice"

    def __init__(self, facts: Facts) -> None:
        """Start without reserved sequences."""
        super().__init__(facts)
        self._used: dict[int, list[tuple[int, int, Any]]] = {}

    def shaped(self) -> None:
        """Forget what nothing has committed."""
        for task, used in self._used.items():
            self._used[task] = [one for one in used if one[2][0] <= self.facts.committed]

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """Compare the plan with all that ran before."""
        for entry in plan.reserving:
            if not entry.lasting and entry not in records:
                continue
            identity = (plan.micro_batch_id, plan.life if entry.source is None else -1, entry)
            used = self._used.setdefault(entry.task, [])
            for base, end, before in used:
                if before != identity and entry.base < end and base < entry.base + entry.reserved:
                    self.broken(
                        f"micro-batch {plan.micro_batch_id} reads {entry}, whose sequences micro-batch {before[0]} has "
                        f"used for {before[2]}",
                        entry.first_key,
                    )
                    return
            if not any(before == identity for _, _, before in used):
                used.append((entry.base, entry.base + entry.reserved, identity))


class ProgressRises(Checker):
    """Time, micro-batches, counts and positions never go back."""

    promise = "progress never moves back"

    def __init__(self, facts: Facts) -> None:
        """Start without values."""
        super().__init__(facts)
        self._now_ms = 0
        self._life = -1
        self._finished: dict[tuple[str, str], int] = {}
        self._acked: dict[str, int] = {}

    def shaped(self) -> None:
        """Go back to the time of the last plan that is committed."""
        plan = self.facts.plans.get(self.facts.committed)
        self._now_ms = plan.now_ms if plan is not None else 0

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """Check the plan's time and number."""
        if plan.now_ms < self._now_ms:
            self.broken(
                f"micro-batch {plan.micro_batch_id} is at {plan.now_ms} ms, one before was at {self._now_ms} ms"
            )
        self._now_ms = plan.now_ms

    def life_began(self, driver: Driver) -> None:
        """Check the life's number, and the earlier promotions."""
        if driver.coordinator.life <= self._life:
            self.broken(f"life {driver.coordinator.life} begins after life {self._life}")
        self._life = driver.coordinator.life
        self._look(driver)

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Check everything that has moved."""
        self._look(driver)

    def _look(self, driver: Driver) -> None:
        if driver.ledger.last_promoted != self.facts.committed:
            self.broken(
                f"the ledger has promoted micro-batch {driver.ledger.last_promoted}, "
                f"but {self.facts.committed} is committed"
            )
        for component, ends in driver.ledger.finished.items():
            for source, position in ends.items():
                before = self._finished.get((component, source), 0)
                if position < before:
                    self.broken(f"progress of {component!r} in {source!r} went from {before} back to {position}")
                self._finished[component, source] = position
        for component, counts in driver.ledger.metrics.components.items():
            if counts.acked < self._acked.get(component, 0):
                self.broken(f"the acks of {component!r} went from {self._acked[component]} back to {counts.acked}")
            self._acked[component] = counts.acked


class MemoryIsBounded(Checker):
    """The memory in use depends on the open trees, not on all messages that were ever read."""

    promise = "memory is bounded"

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Check the sizes of the ledger, its log, buffers and state."""
        topology = self.facts.subject.topology
        open_trees = len(self.facts.trees.open)
        entries = driver.ledger.messages.entries
        if entries > open_trees:
            self.broken(f"the ledger keeps {entries} entries of plans for {open_trees} open trees")
        kept, waiting = len(driver.ledger.messages.retries.attempts), driver.ledger.retries
        if kept > open_trees + waiting:
            self.broken(f"the ledger keeps the attempts at {kept} messages, {open_trees + waiting} are open or waiting")
        files = len(driver.files.names("ledger"))
        # There are two snapshots, with the entries since the older one. A driver that dies in a compaction leaves files
        # behind until the next one is due.
        if files > (topology.config.compact_every + 1) * (2 + driver.coordinator.life):
            self.broken(
                f"the ledger's log has {files} files, though {topology.config.compact_every} are compacted into one"
            )
        for number, buffer in driver.coordinator.buffers.items():
            known = sum(split_key(key)[0] == number for key in self.facts.trees.open)
            if driver.coordinator.lane.tracked and len(buffer.unfinished) > known + waiting + len(buffer.planned):
                self.broken(
                    f"the buffer of task {number} keeps {len(buffer.unfinished)} messages, {known} trees are open and "
                    f"{waiting} messages wait"
                )


PROMISES = (
    NoFalseAck,
    AcksAreDurable,
    NothingIsLost,
    NothingIsGivenUpInSilence,
    NothingStartedIsLost,
    LettersComeBack,
    LivesFollowTheTable,
    RetriesAreInTime,
    ReadOnce,
    SequencesAreNew,
    TheSameAgain,
    ProgressRises,
    MemoryIsBounded,
    CommitsAreExact,
    LoopedTuplesRideOnce,
    EachKeyHasOneTask,
)


class Checkers:
    """All checkers of one world; calls each of them for every event."""

    def __init__(self, facts: Facts, *, state: bool = True) -> None:
        """Create all checkers; ``state``: whether to compare state too, which costs as much as the run."""
        self.facts = facts
        facts.outages = Outages(feeders_of(facts.subject.lane))
        promises = (*PROMISES, StateIsWhatWasCommitted) if state else PROMISES
        self.each: list[Checker] = [promise(facts) for promise in promises]
        topology = facts.subject.topology
        self._queued = [
            number
            for spec in topology.spouts
            if not isinstance(spec.component, PartitionedSpout)
            for number in topology.tasks(spec.id)
        ]

    @property
    def violations(self) -> list[Violation]:
        """The violations that were found, in the order of the promises."""
        return [violation for checker in self.each for violation in checker.violations]

    def shaped(self, subject: Subject, generations: Generations) -> None:
        """Note that the topology begins in a shape, which is the newest of its generations."""
        self.facts.subject, self.facts.generations = subject, generations
        self.facts.subjects[generations[-1].number] = subject
        self.facts.outages.feeders = feeders_of(subject.lane)
        self._tell("shaped")

    def moved(
        self, had: Mapping[int, DictStore], has: Mapping[int, DictStore], between: tuple[Generation, Generation]
    ) -> None:
        """See ``Checker``."""
        self._tell("moved", had, has, between)

    def life_began(self, driver: Driver) -> None:
        """See ``Checker``."""
        self.facts.trees.forget(self._queued)
        self.facts.verdicts.clear()
        self._tell("life_began", driver)

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """See ``Checker``."""
        self.facts.running = records
        self.facts.records += sum(map(len, records.values()))
        self._tell("begun", plan, records)

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """See ``Checker``."""
        facts = self.facts
        facts.committed = plan.micro_batch_id
        facts.plans[plan.micro_batch_id] = plan
        facts.alive[plan.micro_batch_id] = facts.running
        facts.kept[plan.micro_batch_id] = outcome.kept
        facts.looped[plan.micro_batch_id] = outcome.looped
        self._look_for_outages(plan, outcome)
        verdict = facts.verdicts[plan.micro_batch_id] = facts.trees.commit(
            outcome.sightings, (*plan.expired, *plan.beyond)
        )
        if facts.subject.topology.config.transactional:
            failed = np.array(sorted(verdict.failed), dtype=np.uint64)
            facts.left_out[plan.micro_batch_id] = Exclusion(failed, outcome.exclusion.halvings)
        self._tell("committed", plan, outcome, verdict)

    def _look_for_outages(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """Derive, from the observations of bolts, the outages that the ledger must know after this commit."""
        facts, topology = self.facts, self.facts.subject.topology
        fails = [fail for seen in outcome.sightings for fail in seen.fails]
        facts.fails = {fail.key: fail for fail in one_fail_each(fails)}
        given = {topology.task_owner(entry.task)[0] for entry in plan.reserving if entry.letters is None}
        facts.outages.observe(
            outcome.healths,
            (),
            now_ms=plan.now_ms,
            patience_ms=int(topology.config.outage_patience_secs * 1000),
            given=given,
        )
        for bolt, health in outcome.healths.items():
            if health.got:
                facts.in_vain[bolt] = facts.in_vain.get(bolt, 0) + 1 if health.unavailable == health.got else 0

    def promoted(self, driver: Driver, promotion: Promotion) -> None:
        """See ``Checker``."""
        verdict = self.facts.verdicts.pop(promotion.micro_batch_id)
        self.facts.stopped = self.facts.stopped or driver.coordinator.reason_to_stop(promotion)
        self._tell("promoted", driver, promotion, verdict)

    def told(self, driver: Driver) -> None:
        """See ``Checker``."""
        self._tell("told", driver)

    def ran(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """See ``Checker``."""
        self._tell("ran", plan, outcome)

    def wrote(self, component: str, txid: int, rows: Sequence[Any]) -> None:
        """See ``Checker``."""
        self._tell("wrote", component, txid, rows)

    def idle(self, driver: Driver, now_ms: int, due_ms: int | None) -> None:
        """See ``Checker``."""
        self._tell("idle", driver, now_ms, due_ms)

    def ended(self, driver: Driver) -> None:
        """See ``Checker``."""
        self._tell("ended", driver)

    def _tell(self, event: str, *arguments: Any) -> None:
        for checker in self.each:
            getattr(checker, event)(*arguments)
