"""The ledger: which trees are open, and what became of those that are not.

Which question it answers: after micro-batch n, which messages are finished, which must be read again, which
are lost?

Rule 1: only the ledger turns XOR values of several micro-batches into verdicts.
Rule 2: a verdict is counted once. ``stage`` n writes it down, replacing an earlier staging of n; the engine
commits n; ``promote`` n applies it, exactly once, and only then may a spout hear of it.
Rule 3: what a promotion does depends on the promoted log and on nothing else, so that replaying the log gives
the same ledger. Expiry is no exception: a tree whose time has run out stays open until a plan that names it
is promoted; a tree that completes before that is acked.
Rule 4: a tree that failed is not acked any more; acks and fails for trees that are not open are dropped and
counted as ``late`` of their spout.
Rule 5: a source has progressed to the first position that is neither acked nor set aside.

Nothing is done per tree in Python but for trees that fail.

Prior art: the pending map of Storm's ``SpoutExecutor``, the offset manager of its Kafka spout, and the intent
and commit records of a write-ahead log.
Read before: ``plan``, ``acker``, ``rotating_map``; then ``ledger_log``, which turns all this into bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparkbolt.core import ledger_log
from sparkbolt.core.acker import I64, NO_HOLDER, Fail, Feedback, Report, Verdicts, empty_u64, locate
from sparkbolt.core.ids import MAX_SEQUENCE, SEQUENCE_BITS, U64, mix64, run_starts, split_key, tree_key
from sparkbolt.core.ledger_log import FailedTree, Live, Retry
from sparkbolt.core.metrics import TopologyMetrics
from sparkbolt.core.plan import Entry, MicroBatchPlan
from sparkbolt.core.rotating_map import RotatingMap
from sparkbolt.errors import CheckpointError, InvariantError, check

__all__ = ["FailedTree", "Ledger", "Promotion", "Retry", "SpoutInfo"]

SET_ASIDE_MAX = 1000
"""How many set-aside trees are kept with their stories, the newest; all are counted."""


@dataclass(frozen=True)
class SpoutInfo:
    """What the ledger must know of a spout."""

    component: str
    tasks: tuple[int, ...]
    """The numbers of its tasks in the topology."""
    replayable: bool
    """Whether it is a ``PartitionedSpout``: its records can be read again."""
    max_attempts: int
    """How many times a record of a replayable spout is tried before it is set aside; at least 1."""


@dataclass
class Promotion:
    """What became known with the promotion of one micro-batch."""

    micro_batch_id: int
    acked_first: U64 = field(default_factory=empty_u64)
    acked_last: U64 = field(default_factory=empty_u64)
    acked_counts: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Complete trees as (first key, last key, how many); of a range, all trees that the micro-batch started
    in it."""
    failed: list[FailedTree] = field(default_factory=list)
    progress_moved: dict[str, dict[str, int]] = field(default_factory=dict)
    """Component -> source -> the position below which all is finished now; only what moved."""
    reports: list[Report] = field(default_factory=list)

    @property
    def acked(self) -> list[tuple[int, int, int]]:
        """(first key, last key, how many), single trees too; made anew on each call."""
        columns = (self.acked_first.tolist(), self.acked_last.tolist(), self.acked_counts.tolist())
        return list(zip(*columns, strict=True))


class Ledger:
    """The open trees of a topology and what is known of their messages; no files, no clock, no callbacks.

    >>> from sparkbolt.core.acker import Partials, judge
    >>> ledger = Ledger([SpoutInfo("lines", (1,), True, 3)], task_owner=lambda task: ("lines", task - 1))
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
    ) -> None:
        """Make an empty ledger, before micro-batch 0.

        Args:
            spouts: the topology's spouts. Trees of other tasks (what a window emits) have no entries; their
                tasks are their spouts.
            rotations: on which ``expire`` after its start (or ``touch``) a tree has run out of time.
            task_owner: (component, index) of a task number; for words and metrics.
        """
        self.life = -1
        """The run of the driver that is going on; -1 before the first ``begin_life``."""
        self.last_promoted = -1
        self.last_now_ms = 0
        self.metrics = TopologyMetrics()
        self.progress: dict[str, dict[str, int]] = {}
        """Component -> source -> end of what was planned."""
        self.finished: dict[str, dict[str, int]] = {}
        """Component -> source -> the position below which all is finished."""
        self.void: tuple[tuple[int, int], ...] = ()
        """(task number, sequence) pairs that the next plan must carry; empty once a plan with them was
        promoted."""
        self._spouts = {task: spout for spout in spouts for task in spout.tasks}
        self._tasks = {spout.component: spout.tasks for spout in spouts}
        self._task_owner = task_owner
        self._trees = RotatingMap(rotations)
        self._live: list[Live] = []
        self._live_first: list[int] = []
        self._retries: dict[tuple[str, str, int], Retry] = {}
        self._set_aside: deque[FailedTree] = deque(maxlen=SET_ASIDE_MAX)
        self._next_sequence: dict[int, int] = {}
        self._pending: dict[int, int] = {}
        self._expiring: U64 = empty_u64()
        self._staged: tuple[MicroBatchPlan, Feedback] | None = None
        self._moved: set[tuple[str, str]] = set()

    # What is known.

    @property
    def open_trees(self) -> int:
        """How many trees are open."""
        return len(self._trees)

    @property
    def nbytes(self) -> int:
        """Bytes of the open trees' columns."""
        return self._trees.nbytes

    @property
    def retries(self) -> int:
        """How many records wait to be read again."""
        return len(self._retries)

    @property
    def set_aside(self) -> list[FailedTree]:
        """The newest trees that were given up after their last attempt, oldest first."""
        return list(self._set_aside)

    @property
    def staged(self) -> int | None:
        """The micro-batch that is staged and not yet promoted."""
        return self._staged[0].micro_batch_id if self._staged else None

    def pending(self, which: int | str) -> int:
        """How many trees of a task (by number) or of a component (by id) are open."""
        if isinstance(which, int):
            return self._pending.get(which, 0)
        return sum(count for task, count in self._pending.items() if self._task_owner(task)[0] == which)

    def next_sequence(self, task: int) -> int:
        """The first sequence of a task that no promoted plan has reserved."""
        return self._next_sequence.get(task, 0)

    def take_retries(self, limit: int) -> list[Retry]:
        """Up to ``limit`` records to be read again, those that wait longest first.

        They stay in the queue until a plan with an entry that names their positions is promoted, so a plan
        that was made and dropped loses nothing. Plan n + 1 is made after n was promoted: none is planned
        twice.
        """
        return [retry for retry, _ in zip(self._retries.values(), range(limit), strict=False)]

    # One micro-batch: stage, then promote.

    def stage(self, plan: MicroBatchPlan, feedback: Feedback) -> bytes:
        """Note what came of the next micro-batch; nothing is counted yet. Replaces an earlier staging of it.

        Returns:
            The entry for the log. It must be durable before the micro-batch is committed.

        Raises:
            InvariantError: it is not the micro-batch after the last promoted one, or verdicts and plan
            disagree.
        """
        self._note(plan, feedback)
        return ledger_log.dump_entry(self.life, plan, feedback)

    def promote(self, micro_batch_id: int) -> Promotion:
        """Apply what is staged, once its micro-batch is committed.

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
        self._moved = set()
        self.metrics.add(feedback.metrics)

        new_keys = verdicts.open_keys[verdicts.open_new]
        self._admit(plan, np.concatenate((new_keys, verdicts.init_failed)))
        self._time_out(plan, promotion)
        acked = self._apply_old(verdicts)
        new = verdicts.open_new
        self._trees.put(new_keys, verdicts.open_xors[new], verdicts.open_holders[new])
        self._tally(new_keys, 1)
        self._fail_named(plan, verdicts, promotion)
        self.touch(verdicts.touched)
        self._collect_acked(verdicts, acked, promotion)

        self.void = tuple(pair for pair in self.void if pair not in plan.void)
        self._sweep_live()
        self._move_progress(promotion)
        self.last_promoted = micro_batch_id
        self.last_now_ms = max(self.last_now_ms, plan.now_ms)
        self.metrics.micro_batches += 1
        self._count_open()
        return promotion

    def replay(self, entry: bytes, name: str = "a ledger entry") -> Promotion:
        """Start-up: apply a logged entry whose micro-batch was committed. No spout hears of it again.

        Raises:
            CheckpointError: the entry is damaged, of another version, or not the next one.
        """
        life, plan, feedback = ledger_log.load_entry(entry, name)
        if plan.micro_batch_id != self.last_promoted + 1:
            raise CheckpointError(
                f"{name} is of micro-batch {plan.micro_batch_id}, expected {self.last_promoted + 1}: "
                "an entry of the ledger's log is missing or was written twice"
            )
        if life > self.life:
            self.begin_life(life)
        self._note(plan, feedback)
        return self.promote(plan.micro_batch_id)

    def begin_life(self, life: int) -> tuple[tuple[int, int], ...]:
        """A new driver begins, after the replay: records of a ``Spout`` died with the old one.

        Their open trees are dropped, neither acked nor failed, because the queue gives them again.

        Returns:
            What is void: (task number, first sequence that is not). The next plan must carry it, and each one
            after that until one was promoted; ``void`` says so.
        """
        check(life > self.life, f"life {life} cannot begin after life {self.life}: lives are numbered upwards")
        self.life = life
        self._staged = None
        void = []
        for task, spout in sorted(self._spouts.items()):
            if spout.replayable:
                continue
            gone = self._trees.between(tree_key(task, 0), tree_key(task, MAX_SEQUENCE))
            self._trees.remove(gone)
            self._tally(gone, -1)
            if task in self._next_sequence:
                void.append((task, self._next_sequence[task]))
        self._live = [live for live in self._live if live.entry.source is not None]
        self._live_first = [live.entry.first_key for live in self._live]
        self.void = tuple(void)
        self._count_open()
        return self.void

    # Time.

    def expire(self) -> tuple[int, ...]:
        """Let one rotation pass.

        Returns:
            ``expiring()``, which the next plan names as ``expired``.

        Raises:
            InvariantError: a micro-batch is staged and not promoted; it may be about to ack what would
            expire.
        """
        check(self._staged is None, f"trees cannot expire while micro-batch {self.staged} awaits its promotion")
        keys, xors, holders = self._trees.rotate()
        self._trees.put(keys, xors, holders)
        self._expiring = np.union1d(self._expiring, keys)
        return self.expiring()

    def expiring(self) -> tuple[int, ...]:
        """Keys of the open trees that ran out of time; they fail with the plan that names them."""
        self._expiring = self._expiring[self._trees.find(self._expiring)[1]]
        return tuple(self._expiring.tolist())

    def touch(self, keys: U64) -> None:
        """Give trees their full time again (Storm's ``resetTimeout``); what is not open is left out."""
        wanted = np.unique(keys)
        self._trees.touch(wanted)
        self._expiring = np.setdiff1d(self._expiring, wanted, assume_unique=True)

    # Snapshots.

    def snapshot(self) -> bytes:
        """All that was promoted, as bytes; what replaces the log up to ``last_promoted``."""
        return ledger_log.dump_snapshot(
            ledger_log.State(
                life=self.life,
                last_promoted=self.last_promoted,
                last_now_ms=self.last_now_ms,
                metrics=self.metrics,
                progress=self.progress,
                finished=self.finished,
                void=self.void,
                next_sequence=self._next_sequence,
                live=self._live,
                retries=[(component, retry) for (component, _, _), retry in self._retries.items()],
                set_aside=list(self._set_aside),
                trees=self._trees.arrays(),
            )
        )

    @classmethod
    def restore(
        cls,
        snapshot: bytes,
        spouts: Sequence[SpoutInfo],
        *,
        rotations: int = 31,
        task_owner: Callable[[int], tuple[str, int]],
        name: str = "a ledger snapshot",
    ) -> Ledger:
        """The ledger of which ``snapshot`` was taken; every open tree has its full time again.

        Raises:
            CheckpointError: the snapshot is damaged or of another version; ``name`` is in the message.
        """
        state = ledger_log.load_snapshot(snapshot, name)
        ledger = cls(spouts, rotations=rotations, task_owner=task_owner)
        ledger.life, ledger.last_promoted, ledger.last_now_ms = (
            state.life,
            state.last_promoted,
            state.last_now_ms,
        )
        ledger.metrics, ledger.progress, ledger.finished = state.metrics, state.progress, state.finished
        ledger.void, ledger._next_sequence = state.void, state.next_sequence
        ledger._live = state.live
        ledger._live_first = [live.entry.first_key for live in ledger._live]
        ledger._retries = {(component, r.source, r.position): r for component, r in state.retries}
        ledger._set_aside.extend(state.set_aside)
        ledger._trees = RotatingMap.restore(rotations, *state.trees)
        ledger._tally(state.trees[0], 1)
        ledger._count_open()
        return ledger

    # The steps of a promotion.

    def _note(self, plan: MicroBatchPlan, feedback: Feedback) -> None:
        number = plan.micro_batch_id
        check(
            number == self.last_promoted + 1,
            f"micro-batch {number} cannot be staged: the last promoted one is {self.last_promoted}",
        )
        verdicts = feedback.verdicts
        started = np.concatenate(
            (
                verdicts.done_first,
                verdicts.done_last,
                verdicts.open_keys[verdicts.open_new],
                verdicts.init_failed,
            )
        )
        entries = sorted(plan.entries, key=lambda entry: entry.first_key)
        known = np.isin(started >> np.uint64(SEQUENCE_BITS), np.array(list(self._spouts), dtype=np.uint64))
        slots = _entry_slots([entry.first_key for entry in entries], [entry.reserved for entry in entries], started)
        for stranger in started[known & (slots < 0)][:1].tolist():
            raise InvariantError(
                f"micro-batch {number} started tree {split_key(stranger)} (task, sequence), "
                "which its plan did not reserve"
            )
        failed = np.array([fail.key for fail in verdicts.failed], dtype=np.uint64)
        check(
            len(np.unique(failed)) == len(failed) and bool(np.isin(verdicts.init_failed, failed).all()),
            f"micro-batch {number}: a tree fails once, and each of init_failed is among the failed",
        )
        self._staged = (plan, feedback)

    def _admit(self, plan: MicroBatchPlan, unfinished: U64) -> None:
        """Take over the plan's entries: sequences, progress, retries, and which have unfinished trees."""
        for entry in plan.entries:
            self._next_sequence[entry.task] = max(self.next_sequence(entry.task), entry.base + entry.reserved)
            if entry.source is None:
                continue
            component = self._spouts[entry.task].component
            self._moved.add((component, entry.source))
            if entry.positions is None:
                ends = self.progress.setdefault(component, {})
                ends[entry.source] = max(ends.get(entry.source, 0), entry.end)
                self.finished.setdefault(component, {}).setdefault(entry.source, entry.start)
                continue
            for position in entry.positions:
                queued = self._retries.get((component, entry.source, position))
                if queued is not None and queued.attempt == entry.attempt:
                    del self._retries[component, entry.source, position]
        self._live += [Live(entry, plan.micro_batch_id, plan.now_ms) for entry in plan.entries if entry.reserved]
        self._live.sort(key=lambda live: live.entry.first_key)
        self._live_first = [live.entry.first_key for live in self._live]
        self._settle(unfinished, 1)

    def _apply_old(self, verdicts: Verdicts) -> U64:
        """Add to trees of earlier micro-batches; the keys that are complete now."""
        old = ~verdicts.open_new
        acked, unknown = self._trees.xor(verdicts.open_keys[old], verdicts.open_xors[old], verdicts.open_holders[old])
        self._count_late(unknown)
        self._tally(acked, -1)
        self._settle(acked, -1)
        return acked

    def _time_out(self, plan: MicroBatchPlan, promotion: Promotion) -> None:
        keys = np.unique(np.array(plan.expired, dtype=np.uint64))
        keys = keys[self._trees.find(keys)[1]]
        if len(keys) == 0:
            return
        fails = []
        births = self._lives_of(keys)
        for key, holder, live in zip(keys.tolist(), self._trees.holders_of(keys).tolist(), births, strict=True):
            component, task = self._task_owner(holder if holder != NO_HOLDER else split_key(key)[0])
            age = f"timed out after {(plan.now_ms - live.born_ms) / 1000:.1f} s" if live else "timed out"
            why = (
                f"held by {component}[{task}]" if holder != NO_HOLDER else "never acked; nobody says that they hold it"
            )
            fails.append(Fail(key, component, task, "timeout", f"{age}; {why}", plan.micro_batch_id))
        self._trees.remove(keys)
        self._tally(keys, -1)
        self._fail(keys, fails, promotion)

    def _fail_named(self, plan: MicroBatchPlan, verdicts: Verdicts, promotion: Promotion) -> None:
        """Fail the trees that somebody failed, if they began now or are open."""
        if not verdicts.failed:
            return
        fails = {fail.key: fail for fail in verdicts.failed}
        keys = np.sort(np.array(list(fails), dtype=np.uint64))
        new = locate(np.sort(verdicts.init_failed), keys)[1]
        was_open = self._trees.remove(keys)
        self._tally(keys[was_open], -1)
        self._count_late(keys[~new & ~was_open])
        keys = keys[new | was_open]
        self._fail(keys, [fails[key] for key in keys.tolist()], promotion)

    def _fail(self, keys: U64, fails: Sequence[Fail], promotion: Promotion) -> None:
        """Decide on what happens to failed trees that are no longer open; ``keys`` rise."""
        for fail, live in zip(fails, self._lives_of(keys), strict=True):
            number, sequence = split_key(fail.key)
            component, task = self._task_owner(number)
            entry = live.entry if live else None
            source = entry.source if entry else None
            position = entry.position_of(sequence) if entry and source is not None else None
            attempt = entry.attempt if entry else 1
            fate = "spout"
            if source is not None and position is not None:
                fate = "retry" if attempt < self._spouts[number].max_attempts else "set_aside"
            where = f" {source}@{position}" if source is not None else ""
            who = f"failed by {fail.component}[{fail.task}] in micro-batch {fail.micro_batch_id}: "
            why = fail.reason if fail.cause == "timeout" else who + fail.reason
            story = f"root {mix64(fail.key):016x}; {component}[{task}]{where}, attempt {attempt}; {why}"
            tree = FailedTree(fail.key, component, task, source, position, attempt, fail, fate, story)
            promotion.failed.append(tree)
            if source is not None and position is not None and fate == "retry":
                self._retries[component, source, position] = Retry(number, source, position, attempt + 1)
            elif fate == "set_aside":
                self._set_aside.append(tree)
                self.metrics.of(component).set_aside += 1
        for task, count in _by_task(keys).items():
            self.metrics.of(self._task_owner(task)[0]).failed += count
        self._settle(keys, -1)

    def _collect_acked(self, verdicts: Verdicts, acked: U64, promotion: Promotion) -> None:
        """Old trees that are complete now, one by one, then this micro-batch's ranges."""
        for task, count in _by_task(acked).items():
            self.metrics.of(self._task_owner(task)[0]).acked += count
        for task, count in _by_task(verdicts.done_first, verdicts.done_counts).items():
            self.metrics.of(self._task_owner(task)[0]).acked += count
        promotion.acked_first = np.concatenate((acked, verdicts.done_first))
        promotion.acked_last = np.concatenate((acked, verdicts.done_last))
        promotion.acked_counts = np.concatenate((np.ones(len(acked), dtype=np.int64), verdicts.done_counts))

    # Bookkeeping.

    def _tally(self, keys: U64, sign: int) -> None:
        for task, count in _by_task(keys).items():
            self._pending[task] = self._pending.get(task, 0) + sign * count

    def _count_late(self, keys: U64) -> None:
        for task, count in _by_task(keys).items():
            self.metrics.of(self._task_owner(task)[0]).late += count

    def _count_open(self) -> None:
        self.metrics.open_trees = len(self._trees)
        by_component = dict.fromkeys(self._tasks, 0)
        for task, count in self._pending.items():
            component = self._task_owner(task)[0]
            by_component[component] = by_component.get(component, 0) + count
        for component, count in by_component.items():
            self.metrics.of(component).pending = count

    def _slots(self, keys: U64) -> npt.NDArray[np.intp]:
        return _entry_slots(self._live_first, [live.entry.reserved for live in self._live], keys)

    def _lives_of(self, keys: U64) -> list[Live | None]:
        """The entry of each key; None where there is none, as for trees that a window began."""
        return [self._live[slot] if slot >= 0 else None for slot in self._slots(keys).tolist()]

    def _settle(self, keys: U64, sign: int) -> None:
        """Count unfinished trees of entries up or down."""
        slots = self._slots(keys)
        counts = np.bincount(slots[slots >= 0], minlength=0)
        for slot in np.flatnonzero(counts).tolist():
            live = self._live[slot]
            live.unfinished += sign * int(counts[slot])
            check(
                live.unfinished >= 0,
                f"{live.entry} of micro-batch {live.micro_batch_id} has finished too many trees",
            )
            if live.entry.source is not None:
                self._moved.add((self._spouts[live.entry.task].component, live.entry.source))

    def _sweep_live(self) -> None:
        self._live = [live for live in self._live if live.unfinished]
        self._live_first = [live.entry.first_key for live in self._live]

    def _move_progress(self, promotion: Promotion) -> None:
        """Find the first unfinished position of each source of which something was planned or finished."""
        first: dict[tuple[str, str], int] = {}
        if not self._moved:
            return
        for component, source, position in self._retries:
            place = component, source
            first[place] = min(first.get(place, position), position)
        for live in self._live:
            entry = live.entry
            if entry.source is None:
                continue
            place = self._spouts[entry.task].component, entry.source
            if place in self._moved:
                position = self._first_unfinished(entry)
                first[place] = min(first.get(place, position), position)
        for component, source in sorted(self._moved):
            ends = self.progress.get(component, {})
            if source not in ends:
                continue
            position = min(first.get((component, source), ends[source]), ends[source])
            if position > self.finished[component][source]:
                self.finished[component][source] = position
                promotion.progress_moved.setdefault(component, {})[source] = position

    def _first_unfinished(self, entry: Entry) -> int:
        last = entry.first_key + entry.reserved - 1
        if entry.positions is not None:
            keys = self._trees.between(entry.first_key, last).tolist()
            return min(entry.position_of(split_key(key)[1]) for key in keys)
        key = self._trees.first_between(entry.first_key, last)
        check(key is not None, f"{entry} is unfinished and has no open tree")
        return entry.position_of(split_key(key or 0)[1])


def _by_task(keys: U64, counts: I64 | None = None) -> dict[int, int]:
    """How many keys each task has, or the sum of their counts; neighbours of one task are counted at once."""
    tasks = keys >> np.uint64(SEQUENCE_BITS)
    starts = run_starts(tasks)
    if len(starts) == 0:
        return {}
    each = np.diff(starts, append=len(keys)) if counts is None else np.add.reduceat(counts, starts)
    totals: dict[int, int] = {}
    for task, count in zip(tasks[starts].tolist(), each.tolist(), strict=True):
        totals[task] = totals.get(task, 0) + count
    return totals


def _entry_slots(first_keys: Sequence[int], reserved: Sequence[int], keys: U64) -> npt.NDArray[np.intp]:
    """For each key the index of the entry that reserved it, -1 where none did; ``first_keys`` rise."""
    if not first_keys or len(keys) == 0:
        return np.full(len(keys), -1, dtype=np.intp)
    first = np.array(first_keys, dtype=np.uint64)
    size = np.array(reserved, dtype=np.uint64)
    slots = np.searchsorted(first, keys, side="right") - 1
    at = np.maximum(slots, 0)
    slots[(slots >= 0) & (keys - first[at] >= size[at])] = -1
    return slots
