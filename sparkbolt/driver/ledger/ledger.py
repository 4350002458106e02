"""The ledger: which trees are open, and what the outcomes of the others are.

Rule 1: only the ledger combines XOR values of several micro-batches into verdicts.
Rule 2: a verdict is counted once. ``stage`` n records it and replaces an earlier staging of n; the engine commits n;
``promote`` n applies it, exactly once. Only then may a spout receive it.
Rule 3: a promotion depends only on the promoted log, so that replaying the log gives the same ledger. This includes
expiry: an expired tree stays open until a plan that names it is promoted; if it completes before that, it is acked.
Rule 4: a failed tree is never acked. Acks and fails for trees that are not open are dropped, and counted as ``late``
for their spout.

Python code runs per tree only for trees that fail. ``messages`` knows the message of each tree and the progress of each
source, and counts trees; ``story_store`` keeps the stories of trees.

Prior art: the pending map of Storm's ``SpoutExecutor``, and the intent and commit records of a write-ahead log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sparkbolt.api.causes import Cause
from sparkbolt.api.outage import OutageChange
from sparkbolt.api.reports import ErrorReport, Fail, FailedTree, Promotion, SourceView
from sparkbolt.api.story import NO_NOTES, Story, TreeNotes, time_text
from sparkbolt.api.tree_life import TreeState
from sparkbolt.api.user_metrics import full_text, is_full
from sparkbolt.base.ids import (
    I32,
    MAX_SEQUENCE,
    MAX_TASK_NUMBER,
    U64,
    empty_u64,
    split_key,
    tree_key,
)
from sparkbolt.driver.ledger import ledger_log
from sparkbolt.driver.ledger.loops import Loops
from sparkbolt.driver.ledger.messages import Messages
from sparkbolt.driver.ledger.open_trees import RotatingMap, distinct
from sparkbolt.driver.ledger.outages import Outages
from sparkbolt.driver.ledger.outbox_acks import OutboxAcks
from sparkbolt.driver.ledger.outcomes import SpoutInfo
from sparkbolt.driver.ledger.source_marks import SourceMarks
from sparkbolt.driver.ledger.story_store import (
    STORIES_MAX,
    Ranges,
    Stories,
    hold_words,
    holder_of,
    holds_of,
    story_of,
)
from sparkbolt.driver.ledger.tally import Tally
from sparkbolt.errors import CheckpointError, InvariantError, check
from sparkbolt.observe.measurements import add_flows
from sparkbolt.wire.acker import locate
from sparkbolt.wire.plan import MicroBatchPlan
from sparkbolt.wire.verdicts import NO_HOLDER, Feedback, Verdicts

__all__ = ["FailedTree", "Ledger", "Promotion", "SpoutInfo", "Story"]


class Ledger:
    """The open trees of a topology and the state of their messages; no files, no clock, no callbacks.

    >>> from sparkbolt.wire.acker import Partials, judge
    >>> from sparkbolt.wire.plan import Entry
    >>> from sparkbolt.api.retry import at_once
    >>> ledger = Ledger([SpoutInfo("lines", (1,), True, at_once(3))], task_owner=lambda task: ("lines", task - 1))
    >>> plan = MicroBatchPlan(0, life=0, now_ms=0, entries=(Entry(1, 0, "a.txt", 0, 100),))
    >>> keys = np.array([tree_key(1, 0), tree_key(1, 40)], dtype=np.uint64)
    >>> verdicts = judge([Partials(init_keys=keys, init_xors=np.array([0, 7], dtype=np.uint64))])
    >>> entry = ledger.stage(plan, Feedback(verdicts))
    >>> promotion = ledger.promote(0)
    >>> len(promotion.acked), promotion.progress_moved, ledger.pending("lines")
    (1, {'lines': {'a.txt': 40}}, 1)
    """

    def __init__(
        self,
        spouts: Sequence[SpoutInfo],
        *,
        rotations: int = 31,
        task_owner: Callable[[int], tuple[str, int]],
        stories_max: int = STORIES_MAX,
        patience_ms: int | None = None,
        feeders: Mapping[str, frozenset[str]] | None = None,
        state: ledger_log.State | None = None,
    ) -> None:
        """Begin before micro-batch 0, or with ``state``.

        Args:
            spouts: the topology's spouts, and its bolts that start trees, such as windows.
            rotations: a tree expires on this many-th call of ``expire`` after its start or its last ``touch``.
            task_owner: (component, index) of a task number; for texts and metrics.
            stories_max: how many stories are kept, as in ``Stories``.
            patience_ms: for how long a bolt that fails everything is only probed, in milliseconds; None: outages are
                not detected.
            feeders: as in ``Outages``.
            state: the content of a snapshot; it is taken over, not copied.
        """
        state = state or ledger_log.State()
        self.life = state.life
        """The current run of the driver; -1 before the first ``begin_life``."""
        self.last_promoted = state.last_promoted
        self.last_now_ms = state.last_now_ms
        self.metrics = state.metrics
        self.flows = state.flows
        """The counts of all tasks by stream, since the first start with the checkpoint; other modules may read it."""
        self.void = state.void
        """(task number, first sequence that is not void), for the next plan; empty once a plan with it was promoted."""
        self.outages = Outages(feeders or {}, state.outages)
        """The bolts in an outage; other modules may read it."""
        self.messages = Messages(
            spouts, task_owner=task_owner, patience_ms=patience_ms, outages=self.outages, state=state.messages
        )
        """The state of messages; other modules may read it."""
        self.outbox_acks = OutboxAcks(state.outbox_acks)
        """Outbox acks that no promoted plan has delivered to their tasks yet."""
        self.marks = SourceMarks(state.marks)
        """How far sources have come in event time; other modules may read it."""
        self.loops = Loops(state.loops)
        """The trees that are fed back; other modules may read it."""
        self._stories = Stories(stories_max, state.stories)
        self._task_owner = task_owner
        self._trees = RotatingMap.restore(rotations, *state.trees)
        components = [spout.component for spout in spouts]
        self._tally = Tally(self.metrics, self.flows, components, task_owner=task_owner)
        self._tally.opened(state.trees[0])
        self._tally.show(self.messages.retries.counts())
        self._expiring: U64 = empty_u64()
        self._staged: tuple[MicroBatchPlan, Feedback] | None = None
        self.replayed: Promotion | None = None
        """The newest replayed promotion: the driver may have died before it delivered the results."""

    # Queries.

    @property
    def open_trees(self) -> int:
        """How many trees are open."""
        return len(self._trees)

    @property
    def nbytes(self) -> int:
        """Bytes of the open trees' columns."""
        return self._trees.nbytes

    @property
    def progress(self) -> Mapping[str, Mapping[str, int]]:
        """Component -> source -> end of the planned ranges, as in ``Messages``."""
        return self.messages.progress

    @property
    def finished(self) -> dict[str, dict[str, int]]:
        """Component -> source -> the position below which all is finished."""
        return self.messages.finished

    @property
    def retries(self) -> int:
        """How many records wait to be retried."""
        return len(self.messages.retries)

    def views(self, component: str, *, changed: bool = False) -> dict[str, SourceView]:
        """The views of a component's sources for its spout: of all, or of those that the last promotion changed."""
        return self.messages.views(component, self._trees, changed=changed)

    @property
    def given_up(self) -> list[FailedTree]:
        """The newest trees whose messages were exhausted, oldest first."""
        return list(self.messages.given_up)

    @property
    def failed(self) -> list[FailedTree]:
        """The newest trees that failed, with their stories, oldest first; they outlive the process."""
        return self._stories.failed

    @property
    def traced(self) -> list[Story]:
        """The stories of the newest trees that were traced and acked, oldest first; they outlive the process."""
        return self._stories.acked

    def story(self, key: int) -> Story:
        """The story of a tree: complete while it is kept; for an open tree also its holder."""
        found = self._stories.find(key)
        if found is not None:
            return found
        one = np.array([key], dtype=np.uint64)
        live = self.messages.lives_of(one)[0]
        notes = self._stories.notes.get(key, NO_NOTES)
        if not self._trees.find(one)[1][0]:
            return story_of(key, TreeState.UNKNOWN, None, NO_NOTES, self._task_owner)
        age = f"; open for {(self.last_now_ms - live.born_ms) / 1000:.1f} s" if live else ""
        why = self._place_words(key, int(self._trees.holders_of(one)[0])) + age
        return replace(story_of(key, TreeState.OPEN, live, notes, self._task_owner), why=why)

    def holders_of(self, keys: Sequence[int]) -> list[int]:
        """The numbers of the tasks that last held some of these trees, each once, ascending."""
        holds = self._trees.holders_of(np.array(sorted(keys), dtype=np.uint64))
        return sorted({holder_of(hold) for hold in holds.tolist()} - {NO_HOLDER})

    def oldest_words(self, component: str, tasks: Sequence[int]) -> str:
        """Since when the oldest open tree of some tasks is open, and who holds it."""
        ranges = [(tree_key(task, 0), tree_key(task, MAX_SEQUENCE)) for task in tasks]
        firsts = [key for one in ranges if (key := self._trees.first_between(*one)) is not None]
        if not firsts:
            return f"{component} has no open tree"
        keys = np.array(firsts, dtype=np.uint64)
        borns = [live.born_ms if live else self.last_now_ms for live in self.messages.lives_of(keys)]
        oldest = borns.index(min(borns))
        words = self._place_words(firsts[oldest], int(self._trees.holders_of(keys)[oldest]))
        return f"the oldest tree has been open since {time_text(borns[oldest])[:16]}Z, {words}"

    def are_open(self, keys: U64) -> npt.NDArray[np.bool_]:
        """bool[keys]: which of some trees are open; ``keys`` are ascending."""
        return self._trees.find(keys)[1]

    def _place_words(self, key: int, hold: int) -> str:
        """Where the tuples of an open tree are, as far as is known."""
        words = self.loops.words_of(key, self._task_owner)
        return words if words is not None else hold_words(hold, self.last_promoted, self._task_owner)

    def told_keys(self) -> list[int]:
        """The keys of open trees with known hops."""
        return list(self._stories.notes)

    def open_keys(self, limit: int) -> list[int]:
        """The keys of up to ``limit`` open trees, ascending."""
        keys: list[int] = self._trees.arrays()[0][:limit].tolist()
        return keys

    @property
    def staged(self) -> int | None:
        """The micro-batch that is staged and not yet promoted."""
        return self._staged[0].micro_batch_id if self._staged else None

    def pending(self, which: int | str) -> int:
        """How many trees of a task (by number) or of a component (by id) are open."""
        return self._tally.pending(which)

    def next_sequence(self, task: int) -> int:
        """The first sequence of a task that no promoted plan has reserved."""
        return self.messages.next_sequence(task)

    # One micro-batch: stage, then promote.

    def stage(self, plan: MicroBatchPlan, feedback: Feedback) -> bytes:
        """Record the feedback of the next micro-batch, without counting it; replaces an earlier staging of it.

        Returns:
            The entry for the log. It must be durable before the micro-batch is committed.

        Raises:
            InvariantError: it is not the micro-batch after the last promoted one, or verdicts and plan disagree.
        """
        self._note(plan, feedback)
        return ledger_log.dump_entry(self.life, plan, feedback, self.messages.terms)

    def promote(self, micro_batch_id: int) -> Promotion:
        """Apply the staged entry, once its micro-batch is committed.

        Raises:
            InvariantError: this micro-batch is not the staged one (it was promoted before, or never staged).
        """
        staged = self._staged
        if staged is None or staged[0].micro_batch_id != micro_batch_id:
            raise InvariantError(
                f"promotion of micro-batch {micro_batch_id}: staged is {self.staged}, last promoted "
                f"{self.last_promoted}; a micro-batch is staged, committed and then promoted once"
            )
        plan, feedback = staged
        verdicts = feedback.verdicts
        promotion = Promotion(micro_batch_id, reports=list(feedback.reports))
        self._staged = None
        promotion.reports += self._add_metrics(feedback)
        add_flows(self.flows, feedback.measured.flows)
        self.marks.promote(plan, feedback.marks, self._task_owner)

        new_keys = verdicts.open_keys[verdicts.open_new]
        self.messages.admit(plan, np.concatenate((new_keys, verdicts.init_failed)), self.life)
        ending = {*plan.expired, *plan.beyond, *(fail.key for fail in verdicts.failed)}
        self._stories.receive(feedback.hops, feedback.message_ids, ending)
        promotion.outages = self._observe(plan, feedback)
        self._time_out(plan, promotion)
        self._fail_beyond(plan, promotion)
        holds = holds_of(verdicts.open_holders, micro_batch_id)
        acked = self._apply_old(verdicts, holds) if len(holds) else empty_u64()
        new = verdicts.open_new
        self._trees.put(new_keys, verdicts.open_xors[new], holds[new])
        self._tally.opened(new_keys)
        self._fail_named(plan, verdicts, promotion)
        self.touch(verdicts.touched)
        self._collect_acked(verdicts, acked, promotion)
        self._settle_stories(plan, promotion)
        self.loops.promote(plan, feedback.fed_back, self.are_open)

        self.void = tuple(pair for pair in self.void if pair not in plan.void)
        self.outbox_acks.delivered(plan.outbox_acks)
        if len(self.messages.own_tasks):
            self.outbox_acks.learn(promotion, self.messages)
        promotion.progress_moved = self.messages.advance(self._trees)
        self.last_promoted = micro_batch_id
        self.last_now_ms = max(self.last_now_ms, plan.now_ms)
        self.metrics.micro_batches += 1
        self._tally.show(self.messages.retries.counts())
        return promotion

    def _add_metrics(self, feedback: Feedback) -> list[ErrorReport]:
        """Add the counts of a micro-batch, and return a note for each component that has too many series now."""
        full = {component for component, own in self.metrics.components.items() if is_full(own.user)}
        self.metrics.add(feedback.metrics)
        return [
            ErrorReport(component, 0, full_text(component), is_note=True)
            for component in feedback.metrics
            if component not in full and is_full(self.metrics.of(component).user)
        ]

    def _observe(self, plan: MicroBatchPlan, feedback: Feedback) -> list[OutageChange]:
        """Update the outages of bolts; called before the outcomes of failed trees are decided."""
        patience_ms = self.messages.terms.patience_ms
        if patience_ms is None:
            return []
        given = {self._task_owner(entry.task)[0] for entry in plan.reserving if entry.letters is None}
        return self.outages.observe(
            feedback.healths, feedback.verdicts.failed, now_ms=plan.now_ms, patience_ms=patience_ms, given=given
        )

    def replay(self, entry: bytes, name: str = "a ledger entry") -> Promotion:
        """Apply, at start-up, a logged entry whose micro-batch was committed; spouts are not notified again.

        Raises:
            CheckpointError: the entry is damaged, or not the next one.
        """
        life, plan, feedback, terms = ledger_log.load_entry(entry, name)
        if plan.micro_batch_id != self.last_promoted + 1:
            raise CheckpointError(
                f"{name} is of micro-batch {plan.micro_batch_id}, expected {self.last_promoted + 1}: "
                "an entry of the ledger's log is missing or was written twice"
            )
        if life > self.life:
            self.begin_life(life)
        self._note(plan, feedback)
        own, self.messages.terms = self.messages.terms, terms  # the terms of the staging still apply
        try:
            self.replayed = self.promote(plan.micro_batch_id)
            return self.replayed
        finally:
            self.messages.terms = own

    def begin_life(self, life: int) -> tuple[tuple[int, int], ...]:
        """Begin a new life, after the replay; the records of a ``Spout`` were lost with the old driver.

        Their open trees are dropped, neither acked nor failed, because the queue delivers the messages again.

        Returns:
            ``void``, which every plan must carry until one with it is promoted.
        """
        check(life > self.life, f"life {life} cannot begin after life {self.life}: lives are numbered upwards")
        self.life = life
        self._staged = None
        self.void = self.messages.forget_records(self._trees)
        for task, _ in self.void:
            gone = self._trees.between(tree_key(task, 0), tree_key(task, MAX_SEQUENCE))
            self._trees.remove(gone)
            self._tally.closed(gone)
        self._tally.show(self.messages.retries.counts())
        return self.void

    def take_over(self, old: Ledger, kept: Mapping[int, Iterable[int]]) -> None:
        """Queue the records of each ``Spout`` from an earlier life of the same driver; ``kept``: task to positions.

        They wait for the same attempt as in the old life, whether they waited there or their trees were open.
        """
        self.messages.take_over(old.messages, old._trees, kept)
        self._tally.show(self.messages.retries.counts())

    # Time.

    def expire(self) -> tuple[int, ...]:
        """Advance the open trees by one rotation.

        Returns: ``expiring()``, which the next plan names as ``expired``.

        Raises:
            InvariantError: a micro-batch is staged and not promoted; it may ack trees that would expire.
        """
        check(self._staged is None, f"trees cannot expire while micro-batch {self.staged} awaits its promotion")
        keys, xors, holders = self._trees.rotate()
        self._trees.put(keys, xors, holders)
        self._expiring = distinct(np.concatenate((self._expiring, keys)))
        return self.expiring()

    def expiring(self, limit: int | None = None) -> tuple[int, ...]:
        """The keys of open trees that have expired, ascending, at most ``limit``.

        They fail when a plan that names them is promoted. Keys beyond the limit cost nothing.
        """
        limit = len(self._expiring) if limit is None else limit
        found: list[int] = []
        while len(found) < limit and len(self._expiring) > len(found):
            some = self._expiring[len(found) : limit]
            still_open = some[self._trees.find(some)[1]]
            if len(still_open) < len(some):
                kept = self._expiring[: len(found)], still_open, self._expiring[len(found) + len(some) :]
                self._expiring = np.concatenate(kept)
            found += still_open.tolist()
        return tuple(found)

    def touch(self, keys: U64) -> None:
        """Restart the timeouts of trees, uint64[keys] (Storm's ``resetTimeout``); unknown keys are ignored."""
        if len(keys) == 0:
            return
        wanted = distinct(keys)
        self._trees.touch(wanted)
        self._expiring = self._expiring[~locate(wanted, self._expiring)[1]]

    # Snapshots.

    def snapshot(self) -> bytes:
        """The promoted state as bytes; it replaces the log up to ``last_promoted``."""
        return ledger_log.dump_snapshot(self.state())

    def state(self) -> ledger_log.State:
        """The promoted state; it shares its content with this object."""
        return ledger_log.State(
            life=self.life,
            last_promoted=self.last_promoted,
            last_now_ms=self.last_now_ms,
            metrics=self.metrics,
            void=self.void,
            messages=self.messages.state(),
            stories=self._stories.state(),
            trees=self._trees.arrays(),
            outbox_acks=self.outbox_acks.first(),
            outages=self.outages.known,
            flows=self.flows,
            marks=self.marks.state(),
            loops=self.loops.state(),
        )

    def release(self, tasks: Collection[int]) -> None:
        """Let the trees that some tasks hold expire with the next plan: these tasks are gone."""
        keys, _, holds = self._trees.arrays()
        held = np.isin(holds & MAX_TASK_NUMBER, np.array(sorted(tasks), dtype=np.int32))
        self.release_trees(keys[held])

    def release_trees(self, keys: U64) -> None:
        """Let open trees expire with the next plan: uint64[keys], ascending."""
        self._expiring = distinct(np.concatenate((self._expiring, keys)))

    # The steps of a promotion.

    def _note(self, plan: MicroBatchPlan, feedback: Feedback) -> None:
        number = plan.micro_batch_id
        check(
            number == self.last_promoted + 1,
            f"micro-batch {number} cannot be staged: the last promoted one is {self.last_promoted}",
        )
        verdicts = feedback.verdicts
        new_keys = verdicts.open_keys[verdicts.open_new]
        started = np.concatenate((verdicts.done_first, verdicts.done_last, new_keys, verdicts.init_failed))
        for stranger in self.messages.unreserved(plan, started)[:1].tolist():
            raise InvariantError(
                f"micro-batch {number} started tree {split_key(stranger)} (task, sequence), "
                "which its plan did not reserve"
            )
        failed = np.array([fail.key for fail in verdicts.failed], dtype=np.uint64)
        check(
            set(verdicts.init_failed.tolist()) <= set(failed.tolist()) and len(set(failed.tolist())) == len(failed),
            f"micro-batch {number}: a tree fails once, and each of init_failed is among the failed",
        )
        self._staged = (plan, feedback)

    def _apply_old(self, verdicts: Verdicts, holds: I32) -> U64:
        """Add acks to trees of earlier micro-batches; returns uint64[acked], the keys that are complete now."""
        old = ~verdicts.open_new
        acked, unknown = self._trees.xor(verdicts.open_keys[old], verdicts.open_xors[old], holds[old])
        self._tally.late(unknown)
        self._tally.closed(acked)
        self.messages.finish(acked)
        return acked

    def _time_out(self, plan: MicroBatchPlan, promotion: Promotion) -> None:
        if not plan.expired:
            return
        keys = distinct(np.array(plan.expired, dtype=np.uint64))
        keys = keys[self._trees.find(keys)[1]]
        fails, number = [], plan.micro_batch_id
        lives = self.messages.lives_of(keys)
        for key, hold, live in zip(keys.tolist(), self._trees.holders_of(keys).tolist(), lives, strict=True):
            component, task = self._task_owner(holder_of(hold) or split_key(key)[0])
            age = f"timed out after {(plan.now_ms - live.born_ms) / 1000:.1f} s" if live else "timed out"
            notes = self._stories.notes.get(key, NO_NOTES)
            who, what = self._place_words(key, hold), notes.held_words(number)
            fails.append(Fail(key, component, task, Cause.TIMEOUT, f"{age}; {who}{what}", number))
        self._trees.remove(keys)
        self._tally.closed(keys)
        self._fail(keys, fails, plan, promotion)

    def _fail_beyond(self, plan: MicroBatchPlan, promotion: Promotion) -> None:
        """Fail the open trees whose tuples have been fed back too often."""
        if not plan.beyond:
            return
        keys = np.array(plan.beyond, dtype=np.uint64)
        keys = keys[self._trees.find(keys)[1]]
        fails = []
        for key in keys.tolist():
            component, task = self._task_owner(self.loops.sender_of(key) or split_key(key)[0])
            reason = (
                f"its tuples were fed back in {self.loops.hops_of(key):,} micro-batches, more than max_hops allows; "
                f"{component}[{task}] was the last that did: end the loop earlier, or raise max_hops"
            )
            fails.append(Fail(key, component, task, Cause.HOPS, reason, plan.micro_batch_id))
        self._trees.remove(keys)
        self._tally.closed(keys)
        self._fail(keys, fails, plan, promotion)

    def _fail_named(self, plan: MicroBatchPlan, verdicts: Verdicts, promotion: Promotion) -> None:
        """Fail the trees that a task failed, if they began in this micro-batch or are open."""
        if not verdicts.failed:
            return
        fails = {fail.key: fail for fail in verdicts.failed}
        keys = np.sort(np.array(list(fails), dtype=np.uint64))
        new = locate(np.sort(verdicts.init_failed), keys)[1]
        was_open = self._trees.remove(keys)
        self._tally.closed(keys[was_open])
        self._tally.late(keys[~new & ~was_open])
        keys = keys[new | was_open]
        self._fail(keys, [fails[key] for key in keys.tolist()], plan, promotion)

    def _fail(self, keys: U64, fails: Sequence[Fail], plan: MicroBatchPlan, promotion: Promotion) -> None:
        """Decide and count the outcomes of failed trees, already removed from the open ones; ``keys`` are ascending."""
        failed = promotion.fail(self.messages.fail(keys, fails, self._stories.notes, plan.now_ms))
        self._stories.fail(failed)
        self._tally.failed(failed)

    def _collect_acked(self, verdicts: Verdicts, acked: U64, promotion: Promotion) -> None:
        """Collect complete older trees one by one, then this micro-batch's ranges; dead letters separately."""
        first = np.concatenate((acked, verdicts.done_first))
        last = np.concatenate((acked, verdicts.done_last))
        counts = np.concatenate((np.ones(len(acked), dtype=np.int64), verdicts.done_counts))
        letters = self.messages.letters_among(first)
        self._tally.acked(first[~letters], counts[~letters])
        self._tally.written(first[letters], counts[letters])
        promotion.complete(first, last, counts, letters)
        promotion.completed = self.messages.completed(first[~letters], counts[~letters])

    def _settle_stories(self, plan: MicroBatchPlan, promotion: Promotion) -> None:
        """Store the stories of traced trees that were acked in this promotion."""

        def end(key: int, notes: TreeNotes) -> Story:
            live = self.messages.lives_of(np.array([key], dtype=np.uint64))[0]
            story = story_of(key, TreeState.ACKED, live, notes, self._task_owner)
            story = replace(story, ended_in=plan.micro_batch_id, ended_ms=plan.now_ms)
            promotion.traced.append(story)
            return story

        acked = Ranges(promotion.acked_first, promotion.acked_last)
        self._stories.settle(acked.contain, lambda keys: self._trees.find(keys)[1], end)
