"""Messages: what spouts read, where it came from, and how far each source has come.

Which question it answers: which record of which source does a tree stand for, which attempt at it was this, is
it to be read again, and below which position of its source is everything finished?

Rule 1: a source has progressed to the first position that is neither acked nor set aside.
Rule 2: a record stays in the queue of retries until a plan that names its position and its attempt is promoted,
so a plan that was made and dropped loses nothing.
Rule 3: nothing is kept per tree. A plan's entry stands for all its trees and is kept while one of them is
unfinished; which of them are open is asked of the map of open trees.
Rule 4: only a promotion of the ledger and the beginning of a life change anything here.

Prior art: the offset manager of Storm's Kafka spout.
Read before: ``plan``, ``acker``, ``rotating_map``, ``story``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from sparkbolt.core.acker import Fail
from sparkbolt.core.ids import AGAIN, SEQUENCE_BITS, U64, split_key, tree_key
from sparkbolt.core.plan import Entry, MicroBatchPlan, own_source
from sparkbolt.core.rotating_map import RotatingMap
from sparkbolt.core.story import NOTHING_TOLD, Hop, Story, Told, message_text, on_the_way, root_text
from sparkbolt.errors import InvariantError, check

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
    own: bool = False
    """Whether it is a bolt that starts trees: its tasks give out the sequences of first attempts themselves, keep what
    they emitted, and give it again; the source is ``own_source``."""


@dataclass(frozen=True)
class Retry:
    """A record of a ``PartitionedSpout`` that is to be read again, or what a bolt's task is to emit again."""

    task: int
    """The number of the task that read it."""
    source: str
    position: int
    attempt: int
    """The attempt to come: 2 after the first failure."""
    end: int | None = None
    """Where a range is to be read again: its end. None: one record."""


@dataclass(frozen=True)
class FailedTree:
    """A tree that failed, and what becomes of its message."""

    key: int
    component: str
    task: int
    """The index of the spout task."""
    source: str | None
    position: int | None
    """Where the record is; None, as ``source``, where it cannot be read again."""
    attempt: int
    fail: Fail
    fate: str
    """``retry``, ``set_aside`` (after the last attempt), or ``spout``: its spout is told and decides."""
    story: str
    """One line in words."""
    message_id: str | None = None
    """How the id prints that a ``Spout`` gave."""
    started_in: int | None = None
    """The micro-batch that started the tree; None where that is not known, as of what a window began."""
    started_ms: int | None = None
    ended_in: int | None = None
    ended_ms: int | None = None
    hops: tuple[Hop, ...] = ()
    end: int | None = None
    """Where the tree stands for a range of which nothing more could be read: its end."""

    def to_story(self) -> Story:
        """All that is known of it."""
        return Story(
            key=self.key,
            component=self.component,
            task=self.task,
            state="failed",
            source=self.source,
            position=self.position,
            message_id=self.message_id,
            attempt=self.attempt,
            started_in=self.started_in,
            started_ms=self.started_ms,
            ended_in=self.ended_in,
            ended_ms=self.ended_ms,
            why=why(self.fail),
            cause=self.fail.cause,
            fate=self.fate,
            traceback=self.fail.traceback,
            hops=self.hops,
        )


def why(fail: Fail) -> str:
    """Who failed a tree and why, as the end of a sentence that begins with the tree."""
    if fail.cause == "timeout":
        return fail.reason
    return f"by {fail.component}[{fail.task}] in micro-batch {fail.micro_batch_id}: {fail.reason}"


@dataclass
class Live:
    """An entry of which trees are unfinished; what turns a key back into a position."""

    entry: Entry
    micro_batch_id: int
    born_ms: int
    """The time of its micro-batch."""
    unfinished: int = 0


@dataclass
class MessagesState:
    """All of ``Messages`` that outlives its process."""

    progress: dict[str, dict[str, int]] = field(default_factory=dict)
    finished: dict[str, dict[str, int]] = field(default_factory=dict)
    next_sequence: dict[int, int] = field(default_factory=dict)
    live: list[Live] = field(default_factory=list)
    """They rise by first key."""
    retries: list[tuple[str, Retry]] = field(default_factory=list)
    """(component, retry), those that wait longest first."""
    set_aside: list[FailedTree] = field(default_factory=list)
    """Oldest first."""


class Messages:
    """The entries with unfinished trees, the retries and the progress of sources; part of the ledger.

    Arrays of keys may be in any order and name trees that no entry reserved, as those that a window began.

    >>> from sparkbolt.core.ids import tree_key
    >>> messages = Messages([SpoutInfo("lines", (1,), True, 3)], task_owner=lambda task: ("lines", task - 1))
    >>> keys = np.array([tree_key(1, 40), tree_key(1, 60)], np.uint64)
    >>> trees = RotatingMap(2)
    >>> trees.put(keys, np.array([7, 9], np.uint64), np.array([0, 0], np.int32))
    >>> plan = MicroBatchPlan(0, life=0, now_ms=0, entries=(Entry(1, 0, "a.txt", 0, 100),))
    >>> messages.admit(plan, keys)
    >>> messages.advance(trees)
    {'lines': {'a.txt': 40}}
    """

    def __init__(
        self,
        spouts: Sequence[SpoutInfo],
        *,
        task_owner: Callable[[int], tuple[str, int]],
        state: MessagesState | None = None,
    ) -> None:
        """Begin with what ``state`` says, by default with nothing.

        Args:
            spouts: the topology's spouts.
            task_owner: (component, index) of a task number.
            state: what ``state()`` gave; it is taken over, not copied.
        """
        state = state or MessagesState()
        self.progress = state.progress
        """Component -> source -> end of what was planned."""
        self.finished = state.finished
        """Component -> source -> the position below which all is finished."""
        self.set_aside: deque[FailedTree] = deque(state.set_aside, maxlen=SET_ASIDE_MAX)
        self._spouts = {task: spout for spout in spouts for task in spout.tasks}
        self.own_tasks = np.array([task for task, spout in self._spouts.items() if spout.own], dtype=np.uint64)
        """The tasks of bolts that start trees."""
        self._task_owner = task_owner
        self._next_sequence = state.next_sequence
        self._retries = {(component, r.source, r.position): r for component, r in state.retries}
        self._moved: set[tuple[str, str]] = set()
        self._keep(state.live)

    @property
    def retries(self) -> int:
        """How many records wait to be read again."""
        return len(self._retries)

    @property
    def entries(self) -> int:
        """How many entries have unfinished trees."""
        return len(self._live)

    def state(self) -> MessagesState:
        """All that outlives the process; what is in it changes with the next promotion."""
        return MessagesState(
            progress=self.progress,
            finished=self.finished,
            next_sequence=self._next_sequence,
            live=self._live,
            retries=[(component, retry) for (component, _, _), retry in self._retries.items()],
            set_aside=list(self.set_aside),
        )

    def next_sequence(self, task: int) -> int:
        """The first sequence of a task that no promoted plan has reserved."""
        spout = self._spouts.get(task)
        return self._next_sequence.get(task, AGAIN if spout is not None and spout.own else 0)

    def first_retries(self, limit: int) -> list[Retry]:
        """Up to ``limit`` records to be read again, those that wait longest first; they stay in the queue."""
        return list(islice(self._retries.values(), limit))

    def unreserved(self, plan: MicroBatchPlan, keys: U64) -> U64:
        """Those of the keys that no entry of the plan reserves, though they need one: a bolt's own trees do not."""
        if len(keys) == 0:
            return keys
        tasks = keys >> np.uint64(SEQUENCE_BITS)
        of_spouts = np.isin(tasks, np.array(list(self._spouts), dtype=np.uint64))
        first_own = np.isin(tasks, self.own_tasks) & (keys & np.uint64(AGAIN) == 0)
        entries = sorted(plan.reserving, key=lambda entry: entry.first_key)
        strangers: U64 = keys[of_spouts & ~first_own & (_slots(*_columns(entries), keys) < 0)]
        return strangers

    def lives_of(self, keys: U64) -> list[Live | None]:
        """The entry of each key; None where there is none, as for trees that a window began."""
        return [self._live[slot] if slot >= 0 else None for slot in self._slots_of(keys).tolist()]

    def first_keys_of(self, keys: Sequence[int]) -> list[int]:
        """For trees that bolts' tasks started, the keys of the first attempts at the same values, where known."""
        found = []
        for key, live in zip(keys, self.lives_of(np.array(keys, dtype=np.uint64)), strict=True):
            task, sequence = split_key(key)
            if sequence < AGAIN:
                found.append(key)
            elif live is not None:
                found.append(tree_key(task, live.entry.position_of(sequence)))
        return found

    # The steps of a promotion.

    def admit(self, plan: MicroBatchPlan, unfinished: U64) -> None:
        """Take over the plan's entries: sequences, progress, retries, and which have unfinished trees."""
        for entry in plan.reserving:
            self._next_sequence[entry.task] = max(self.next_sequence(entry.task), entry.base + entry.reserved)
            if entry.source is None:
                continue
            component = self._spouts[entry.task].component
            self._has_moved(entry)
            if entry.positions is None:
                ends = self.progress.setdefault(component, {})
                ends[entry.source] = max(ends.get(entry.source, 0), entry.end)
                self.finished.setdefault(component, {}).setdefault(entry.source, entry.start)
            for position in entry.positions or (entry.start,):
                queued = self._retries.get((component, entry.source, position))
                if queued is not None and queued.attempt == entry.attempt:
                    del self._retries[component, entry.source, position]
        new = [Live(entry, plan.micro_batch_id, plan.now_ms) for entry in plan.reserving if entry.reserved]
        self._keep(sorted([*self._live, *new], key=lambda live: live.entry.first_key))
        self._count(unfinished, 1)

    def finish(self, keys: U64) -> None:
        """These trees are complete, or ``fail`` has decided on them."""
        self._count(keys, -1)

    def fail(
        self, keys: U64, fails: Sequence[Fail], told: Mapping[int, Told] | None = None, ended_ms: int | None = None
    ) -> list[FailedTree]:
        """Decide on what happens to the messages of failed trees: ``fails[i]`` is of ``keys[i]``.

        Args:
            keys: the trees.
            fails: who failed them.
            told: what is known of the ways of some of them.
            ended_ms: the time of the micro-batch that ends them.
        """
        known = told or {}
        failed = [
            self._decide(fail, live, known.get(fail.key, NOTHING_TOLD), ended_ms)
            for fail, live in zip(fails, self.lives_of(keys), strict=True)
        ]
        self.finish(keys)
        return failed

    def advance(self, trees: RotatingMap) -> dict[str, dict[str, int]]:
        """End the promotion: drop the entries that are finished, and move the progress of their sources.

        Returns:
            Component -> source -> the position below which all is finished now; only what moved.
        """
        self._keep([live for live in self._live if live.unfinished])
        moved: dict[str, dict[str, int]] = {}
        first = self._first_unfinished(trees) if self._moved else {}
        for component, source in sorted(self._moved):
            ends = self.progress.get(component, {})
            if source not in ends:
                continue
            position = min(first.get((component, source), ends[source]), ends[source])
            if position > self.finished[component][source]:
                self.finished[component][source] = position
                moved.setdefault(component, {})[source] = position
        self._moved.clear()
        return moved

    # The beginning of a life.

    def forget_records(self) -> tuple[tuple[int, int], ...]:
        """Drop the entries of every ``Spout``, whose records died with their driver.

        Returns:
            (task number, first sequence that is not void) of each task that had started trees.
        """
        self._keep([live for live in self._live if live.entry.source is not None])
        return tuple(
            (task, self._next_sequence[task])
            for task, spout in sorted(self._spouts.items())
            if not spout.replayable and task in self._next_sequence
        )

    # How it is done.

    def _keep(self, live: list[Live]) -> None:
        self._live = live
        self._first_keys, self._reserved = _columns([one.entry for one in live])

    def _slots_of(self, keys: U64) -> npt.NDArray[np.intp]:
        return _slots(self._first_keys, self._reserved, keys)

    def _count(self, keys: U64, sign: int) -> None:
        """Count unfinished trees of entries up or down."""
        slots = self._slots_of(keys)
        counts = np.bincount(slots[slots >= 0])
        for slot in np.flatnonzero(counts).tolist():
            live = self._live[slot]
            live.unfinished += sign * int(counts[slot])
            check(
                live.unfinished >= 0,
                f"{live.entry} of micro-batch {live.micro_batch_id} has finished too many trees",
            )
            self._has_moved(live.entry)

    def _has_moved(self, entry: Entry) -> None:
        """The source of an entry may have progressed; what a bolt's task keeps has no progress."""
        spout = self._spouts[entry.task]
        if entry.source is not None and not spout.own:
            self._moved.add((spout.component, entry.source))

    def _decide(self, fail: Fail, live: Live | None, told: Told, ended_ms: int | None) -> FailedTree:
        """The fate of one failed tree; its message is put into the queue of retries or set aside."""
        number, sequence = split_key(fail.key)
        component, task = self._task_owner(number)
        entry = live.entry if live else None
        source = entry.source if entry else None
        position = entry.position_of(sequence) if entry and source is not None else None
        spout = self._spouts.get(number)
        if entry is None and spout is not None and spout.own:
            source, position = own_source(task), sequence
        attempt = entry.attempt if entry else 1
        fate, end = "spout", None
        if entry is not None and entry.positions is None:
            end = entry.end if fail.cause == "read" else None
            if end is None or position != entry.start:
                attempt = 1  # a range is read again from where nothing could be read: its records are new
        if source is not None and position is not None:
            fate = "retry" if attempt < self._spouts[number].max_attempts else "set_aside"
        hops = tuple(told.hops)
        tree = FailedTree(
            key=fail.key,
            component=component,
            task=task,
            source=source,
            position=position,
            attempt=attempt,
            fail=fail,
            fate=fate,
            story=(
                f"root {root_text(fail.key)}; {message_text(component, task, source, position, told.message_id)}, "
                f"attempt {attempt}; {on_the_way(hops)}{'' if fail.cause == 'timeout' else 'failed '}{why(fail)}"
            ),
            message_id=told.message_id,
            started_in=live.micro_batch_id if live else None,
            started_ms=live.born_ms if live else None,
            ended_in=fail.micro_batch_id,
            ended_ms=ended_ms,
            hops=hops,
            end=end,
        )
        if source is not None and position is not None and fate == "retry":
            self._retries[component, source, position] = Retry(number, source, position, attempt + 1, end)
        elif fate == "set_aside":
            self.set_aside.append(tree)
        return tree

    def _first_unfinished(self, trees: RotatingMap) -> dict[tuple[str, str], int]:
        """(component, source) -> the first position that waits for a retry or, if it moved, has an open tree."""
        first: dict[tuple[str, str], int] = {}
        for component, source, position in self._retries:
            place = component, source
            first[place] = min(first.get(place, position), position)
        for live in self._live:
            entry = live.entry
            if entry.source is None:
                continue
            place = self._spouts[entry.task].component, entry.source
            if place in self._moved:
                position = _first_open(entry, trees)
                first[place] = min(first.get(place, position), position)
        return first


def _first_open(entry: Entry, trees: RotatingMap) -> int:
    """The first position of the entry that has an open tree."""
    last = entry.first_key + entry.reserved - 1
    if entry.positions is not None:
        keys = trees.between(entry.first_key, last).tolist()
        return min(entry.position_of(split_key(key)[1]) for key in keys)
    key = trees.first_between(entry.first_key, last)
    if key is None:
        raise InvariantError(f"{entry} is unfinished and has no open tree")
    return entry.position_of(split_key(key)[1])


def _columns(entries: Sequence[Entry]) -> tuple[U64, U64]:
    """(first key, how many sequences are reserved) of each entry."""
    first = np.array([entry.first_key for entry in entries], dtype=np.uint64)
    return first, np.array([entry.reserved for entry in entries], dtype=np.uint64)


def _slots(first_keys: U64, reserved: U64, keys: U64) -> npt.NDArray[np.intp]:
    """For each key the index of the entry that reserved it, -1 where none did; ``first_keys`` rise."""
    if len(first_keys) == 0 or len(keys) == 0:
        return np.full(len(keys), -1, dtype=np.intp)
    slots = np.searchsorted(first_keys, keys, side="right") - 1
    at = np.maximum(slots, 0)
    slots[(slots >= 0) & (keys - first_keys[at] >= reserved[at])] = -1
    return slots
