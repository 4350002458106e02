"""Messages: what spouts read, where it came from, and how far each source has advanced.

Nothing is stored per tree: a plan's entry represents all its trees, and is kept while one of them is unfinished. Only a
promotion of the ledger and the beginning of a life change anything here. The states of positions are in ``MessageLog``
and ``RetrySchedule``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from sparkbolt.api.causes import EXHAUSTED, Cause, MessageOutcome
from sparkbolt.api.dead_letters import ExhaustedMessage
from sparkbolt.api.reports import Completed, Fail, FailedTree, SourceView
from sparkbolt.api.story import NO_NOTES, TreeNotes
from sparkbolt.base.ids import (
    AGAIN,
    I64,
    LETTERS,
    MAX_SEQUENCE,
    SEQUENCE_BITS,
    U64,
    split_key,
    tree_key,
)
from sparkbolt.driver.ledger.message_log import Live, LogState, MessageLog
from sparkbolt.driver.ledger.open_trees import RotatingMap
from sparkbolt.driver.ledger.outages import Outages
from sparkbolt.driver.ledger.outcomes import SpoutInfo, Terms, Whose, decide
from sparkbolt.driver.ledger.retry_schedule import LogName, MessageKey, Retry, RetrySchedule
from sparkbolt.errors import check
from sparkbolt.wire.attempts import MessageAttempts
from sparkbolt.wire.plan import Entry, MicroBatchPlan, own_source
from sparkbolt.wire.returned import ReturnedLetter, is_returned_source

Mask = npt.NDArray[np.bool_]
RETURNED_FILES_MAX = 1000
"""Of how many files of returned letters it is known which lines were taken; a file is removed once all are."""
GIVEN_UP_MAX = 1000
"""How many of the newest trees of messages that were given up are kept with their stories; all are counted."""


@dataclass
class MessagesState:
    """The durable state of ``Messages``."""

    logs: list[LogState] = field(default_factory=list)
    next_sequence: dict[int, int] = field(default_factory=dict)
    next_letter: dict[int, int] = field(default_factory=dict)
    attempts: list[tuple[MessageKey, MessageAttempts]] = field(default_factory=list)
    live: list[Live] = field(default_factory=list)
    """Sorted by first key."""
    given_up: list[FailedTree] = field(default_factory=list)
    """Oldest first."""
    returned: dict[str, list[int]] = field(default_factory=dict)
    """As in ``Messages``."""


class Messages:
    """The entries with unfinished trees, and all message logs; part of the ledger.

    Arrays of keys are uint64[keys], in any order. They may contain trees that no entry reserved, such as those that a
    window began.

    >>> from sparkbolt.base.ids import tree_key
    >>> from sparkbolt.api.retry import at_once
    >>> messages = Messages([SpoutInfo("lines", (1,), True, at_once(3))], task_owner=lambda task: ("lines", task - 1))
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
        patience_ms: int | None = None,
        outages: Outages | None = None,
        state: MessagesState | None = None,
    ) -> None:
        """Begin with ``state``, by default empty.

        Args:
            spouts: the topology's spouts.
            task_owner: (component, index) of a task number.
            patience_ms: as in ``Terms``.
            outages: the outages of bolts, only read here; by default there are none.
            state: the result of ``state()``; it is taken over, not copied.
        """
        state = state or MessagesState()
        self.given_up: deque[FailedTree] = deque(state.given_up, maxlen=GIVEN_UP_MAX)
        self.terms = Terms(
            {spout.component: spout.retry for spout in spouts},
            frozenset(spout.component for spout in spouts if spout.dead_letters),
            patience_ms,
        )
        """The terms for messages that fail from now on."""
        self.changed: dict[str, dict[str, MessageLog]] = {}
        """Component -> source -> log, for the logs that the last promotion changed."""
        self._spouts = {task: spout for spout in spouts for task in spout.tasks}
        self.own_tasks = np.array([task for task, spout in self._spouts.items() if spout.own], dtype=np.uint64)
        """uint64[tasks]: the numbers of the tasks of inlets, and of bolts that start trees."""
        self._planned_from = np.full(max(self._spouts, default=0) + 2, MAX_SEQUENCE + 1, dtype=np.uint64)
        for task, spout in self._spouts.items():  # the first sequence of a task that needs an entry
            self._planned_from[task] = AGAIN if spout.own else 0
        self._task_owner = task_owner
        self._outages = outages or Outages()
        self._next_sequence = state.next_sequence
        self._next_letter = state.next_letter
        self._logs: dict[str, dict[str, MessageLog]] = {}
        self._progress: dict[str, dict[str, int]] = {}
        self.retries = RetrySchedule(state.attempts)
        """The messages that have failed and are not finished; other modules may read it."""
        self.live = LiveEntries(state.live)
        """The entries with unfinished trees; other modules may read it."""
        self.returned = state.returned
        """File of returned letters -> the lines that promoted plans have taken; the newest files only. Other modules
        may read it."""
        self._restore(state.logs)

    def _restore(self, logs: Sequence[LogState]) -> None:
        entries: dict[LogName, list[Live]] = {}
        for live in self.live:
            entries.setdefault(self._name_of(live.entry), []).append(live)
            self.retries.take(self._name_of(live.entry), live.entry)
        for of in logs:
            log = MessageLog.restore(of, entries.get((of.component, of.source), ()), self.retries)
            self._logs.setdefault(of.component, {})[of.source] = log
        self._show_progress(self._logs)

    def state(self) -> MessagesState:
        """The durable state; it shares its content with this object, so the next promotion changes it."""
        return MessagesState(
            logs=[log.state() for log in sorted(self._all_logs(), key=lambda log: (log.component, log.source))],
            next_sequence=self._next_sequence,
            next_letter=self._next_letter,
            attempts=list(self.retries.attempts.items()),
            live=list(self.live),
            given_up=list(self.given_up),
            returned=self.returned,
        )

    # Queries.

    @property
    def entries(self) -> int:
        """How many entries have unfinished trees."""
        return len(self.live)

    @property
    def progress(self) -> Mapping[str, Mapping[str, int]]:
        """Component -> source -> end of the planned ranges.

        A component's map never changes: a promotion that plans more makes a new one. So the same map can be given out
        at each poll.
        """
        return {component: MappingProxyType(ends) for component, ends in self._progress.items()}

    @property
    def finished(self) -> dict[str, dict[str, int]]:
        """Component -> source -> the position below which all is finished; a new dict on each call."""
        found: dict[str, dict[str, int]] = {}
        for log in self._all_logs():
            if log.planned:
                found.setdefault(log.component, {})[log.source] = log.finished
        return found

    def next_sequence(self, task: int) -> int:
        """The first sequence of a task that no promoted plan has reserved."""
        spout = self._spouts.get(task)
        return self._next_sequence.get(task, AGAIN if spout is not None and spout.own else 0)

    def next_letter(self, task: int) -> int:
        """The first sequence of a task that no promoted plan has reserved for a dead letter."""
        return self._next_letter.get(task, LETTERS)

    def letters_among(self, keys: U64) -> Mask:
        """bool[keys]: which of the keys belong to dead letters."""
        letters: Mask = keys & np.uint64(MAX_SEQUENCE) >= np.uint64(LETTERS)
        return letters

    def takes_more(self, component: str, source: str, max_uncommitted: int | None) -> bool:
        """Whether a new range of the source may be planned, as in ``MessageLog.takes_more``."""
        log = self._logs.get(component, {}).get(source)
        return log is None or log.takes_more(max_uncommitted)

    def views(self, component: str, trees: RotatingMap, *, changed: bool) -> dict[str, SourceView]:
        """The views of a component's sources for its spout: of all, or of those that the last promotion changed."""
        logs = (self.changed if changed else self._logs).get(component, {})
        return {source: log.view(trees) for source, log in logs.items() if log.planned}

    def unreserved(self, plan: MicroBatchPlan, keys: U64) -> U64:
        """The keys that need an entry and have none in the plan; first attempts of bolts' tasks need none."""
        if len(keys) == 0:
            return keys
        tasks = (keys >> np.uint64(SEQUENCE_BITS)).astype(np.intp)
        needed = keys & np.uint64(MAX_SEQUENCE) >= self._planned_from.take(tasks, mode="clip")
        entries = _columns(sorted(plan.reserving, key=lambda entry: entry.first_key))
        strangers: U64 = keys[needed & (_slots(*entries, keys) < 0)]
        return strangers

    def lives_of(self, keys: U64) -> list[Live | None]:
        """The entry of each key; None if there is none, as for trees that a window began."""
        return [self.live[slot] if slot >= 0 else None for slot in self.live.slots_of(keys).tolist()]

    def completed(self, keys: U64, counts: I64) -> list[Completed]:
        """When the trees of these keys began, ``counts[i]`` of them for ``keys[i]``; not those that bolts started.

        The entries of trees that have just finished are known until ``advance``.
        """
        unique, first, places = np.unique(self.live.slots_of(keys), return_index=True, return_inverse=True)
        trees = np.bincount(places, weights=counts, minlength=len(unique))
        found = []
        for slot, at, count in zip(unique.tolist(), first.tolist(), trees.tolist(), strict=True):
            if slot >= 0:
                live = self.live[slot]
                component, task = self._task_owner(live.entry.task)
                found.append(Completed(component, task, live.born_ms, int(count), int(keys[at])))
        return found

    def first_keys_of(self, keys: Sequence[int]) -> list[int]:
        """For trees that bolts' tasks started: the keys of the first attempts at the same values, where known."""
        found = []
        for key, live in zip(keys, self.lives_of(np.array(keys, dtype=np.uint64)), strict=True):
            task, sequence = split_key(key)
            if sequence < AGAIN:
                found.append(key)
            elif live is not None:
                found.append(tree_key(task, live.entry.position_of(sequence)))
        return found

    # The steps of a promotion.

    def admit(self, plan: MicroBatchPlan, unfinished: U64, life: int | None = None) -> None:
        """Apply the plan's entries: sequences, progress, retries, and which entries have unfinished trees.

        If ``life``, in which the micro-batch ran, is not that of the plan, no records of a ``Spout`` were read: the
        messages in the buffers continue to wait.
        """
        self.changed = {}
        new = []
        for entry in plan.reserving:
            if entry.letters is None:
                self._next_sequence[entry.task] = max(self.next_sequence(entry.task), entry.base + entry.reserved)
            else:
                self._next_letter[entry.task] = max(self.next_letter(entry.task), entry.base + entry.reserved)
            live = Live(entry, plan.micro_batch_id, plan.now_ms) if entry.reserved else None
            if live is not None:
                new.append(live)
            if entry.source is not None or life in (None, plan.life):
                self._change(self._name_of(entry)).admit(entry, live)
        for letter in plan.returned:
            self._give_back(letter, plan.now_ms)
        for file, line in plan.returned_from:
            self.returned.setdefault(file, []).append(line)
        while len(self.returned) > RETURNED_FILES_MAX:
            del self.returned[next(iter(self.returned))]
        self.live.add(new)
        self._count(unfinished, 1)

    def _give_back(self, letter: ReturnedLetter, now_ms: int) -> None:
        """Let the message of a returned letter wait in its log, with the attempts so far; it is due at once."""
        component, _ = self._task_owner(letter.task)
        count = len(letter.attempts) + letter.attempts_left_out
        log = self._change((component, letter.source))
        self.retries.attempts[(*log.name, letter.position)] = MessageAttempts(
            letter.attempts, letter.attempts_left_out, letter.record, count
        )
        retry = Retry(letter.task, letter.source, letter.position, 1, letter.end, now_ms, record=letter.record)
        log.wait(retry)

    def finish(self, keys: U64) -> None:
        """Count trees as finished: they are complete, or ``fail`` has decided their outcomes."""
        self._count(keys, -1)

    def fail(self, keys: U64, fails: Sequence[Fail], notes: Mapping[int, TreeNotes], now_ms: int) -> list[FailedTree]:
        """Decide the outcomes of failed trees' messages: ``fails[i]`` belongs to ``keys[i]``.

        Args:
            keys: uint64[trees].
            fails: the fail of each tree.
            notes: the known hops of some of them, by key.
            now_ms: the time of the micro-batch that ends them, in milliseconds.
        """
        failed = [
            self._decide(fail, live, notes.get(fail.key, NO_NOTES), now_ms)
            for fail, live in zip(fails, self.lives_of(keys), strict=True)
        ]
        self.finish(keys)
        return failed

    def advance(self, trees: RotatingMap) -> dict[str, dict[str, int]]:
        """End the promotion: drop the entries that are finished, and move the progress of their sources.

        Returns:
            Component -> source -> the position below which all is finished now; only positions that moved.
        """
        self.live.keep(attrgetter("unfinished"))
        self.retries.settle(lambda keys: trees.find(keys)[1])
        moved: dict[str, dict[str, int]] = {}
        for component in sorted(self.changed):
            for source, log in sorted(self.changed[component].items()):
                position = log.advance(trees)
                if position is not None:
                    moved.setdefault(component, {})[source] = position
        self._show_progress(self.changed)
        return moved

    # The beginning of a life.

    def forget_records(self, trees: RotatingMap) -> tuple[tuple[int, int], ...]:
        """Drop all data on the records of every ``Spout``, which were lost with their driver.

        Returned letters of a ``Spout`` are not lost: if their trees are open, they wait for the same attempt again.

        Args:
            trees: the open trees.

        Returns:
            (task number, first sequence that is not void) of each task that had started trees.
        """
        for log in self._all_logs():
            if is_returned_source(log.source):
                log.wait_again(trees)
        self.live.keep(lambda live: live.entry.source is not None and not is_returned_source(live.entry.source))
        for component, source in (self._buffer_of(task) for task, one in self._spouts.items() if not one.replayable):
            self._logs.get(component, {}).pop(source, None)
            self.retries.forget((component, source))
        return tuple(
            (task, self._next_letter.get(task, self._next_sequence[task]))
            for task, spout in sorted(self._spouts.items())
            if not spout.replayable and task in self._next_sequence
        )

    def take_over(self, old: Messages, trees: RotatingMap, kept: Mapping[int, Iterable[int]]) -> None:
        """Queue the records of each ``Spout`` from an earlier life of the same driver.

        Args:
            old: the messages of that life.
            trees: its open trees; their records wait for the same attempt again.
            kept: the positions of the records by task.
        """
        for task, positions in kept.items():
            name = self._buffer_of(task)
            log, before = self._change(name), old._logs.get(name[0], {}).get(name[1])
            known = {retry.position: retry for retry in before.unfinished(trees)} if before is not None else {}
            for position in positions:
                log.wait(known.get(position) or Retry(task, None, position, 1))
            self.retries.attempts |= {key: kept for key, kept in old.retries.attempts.items() if key[:2] == name}

    def _buffer_of(self, task: int) -> LogName:
        """The log of the records of a ``Spout``'s task: they have no source that others could read."""
        component, index = self._task_owner(task)
        return component, own_source(index)

    # Helpers.

    def _count(self, keys: U64, sign: int) -> None:
        """Add ``sign`` to the unfinished trees of an entry for each of its keys."""
        if len(keys) == 0:
            return
        found = self.live.slots_of(keys)
        counts = np.bincount(found[found >= 0])
        for slot in np.flatnonzero(counts).tolist():
            live = self.live[slot]
            live.unfinished += sign * int(counts[slot])
            check(
                live.unfinished >= 0,
                f"{live.entry} of micro-batch {live.micro_batch_id} has finished too many trees",
            )
            self._change(self._name_of(live.entry))

    def _name_of(self, entry: Entry) -> LogName:
        if entry.source is None:
            return self._buffer_of(entry.task)
        return self._spouts[entry.task].component, entry.source

    def _change(self, name: LogName) -> MessageLog:
        """The log that this promotion changes; created on first use."""
        component, source = name
        logs = self._logs.setdefault(component, {})
        if source not in logs:
            logs[source] = MessageLog(component, source, self.retries)
        return self.changed.setdefault(component, {}).setdefault(source, logs[source])

    def _decide(self, fail: Fail, live: Live | None, notes: TreeNotes, now_ms: int) -> FailedTree:
        """Decide the outcome of one failed tree; its message is queued for a retry or given up."""
        number, sequence = split_key(fail.key)
        component, task = self._task_owner(number)
        spout = self._spouts.get(number)
        log = position = None
        if live is not None:
            log, position = self._change(self._name_of(live.entry)), live.entry.position_of(sequence)
        elif spout is not None and spout.own:
            log, position = self._change((component, own_source(task))), sequence
        policy = self.terms.policies.get(component) if log is not None else None
        lettered = component in self.terms.lettered
        forgiven_ms = self._outages.wait_ms(fail) if self._outages.costs_nothing(fail) else None
        source = live.entry.source if live is not None else log.source if log is not None else None
        whose = Whose(component, task, source, position, log.away if log is not None else 0)
        tree = decide(fail, whose, live, policy, notes, now_ms, lettered=lettered, forgiven_ms=forgiven_ms)
        if log is not None and position is not None:
            letter = None
            if tree.letter and live is not None and live.entry.letters is not None:
                letter = live.entry.letters[sequence - live.entry.base]
            elif lettered:
                attempts = self.retries.failed(log.name, position, tree)
                letter = attempts.exhausted(tree).dumps() if tree.outcome == MessageOutcome.DEAD_LETTER else None
            if tree.due_ms is not None:
                attempt = 1 if letter is not None and not tree.letter else tree.next_attempt
                end = ExhaustedMessage.loads(letter).end if tree.letter and letter is not None else tree.end
                back = self.retries.attempts.get((*log.name, position))
                record = back.record if back is not None else None
                retry = Retry(number, source, position, attempt, end, tree.due_ms, letter, record)
                log.wait(retry, away=fail.cause == Cause.AWAY, postponed=fail.cause == Cause.POSTPONED)
        if tree.outcome in EXHAUSTED and not tree.letter:
            self.given_up.append(tree)
        return tree

    def _show_progress(self, changed: Mapping[str, Mapping[str, MessageLog]]) -> None:
        """Update ``progress`` with the planned ends of these sources."""
        for component, logs in changed.items():
            known = self._progress.get(component, {})
            ends = {source: log.planned for source, log in logs.items() if log.planned}
            if any(known.get(source) != end for source, end in ends.items()):
                self._progress[component] = known | ends

    def _all_logs(self) -> Iterator[MessageLog]:
        return (log for logs in self._logs.values() for log in logs.values())


class LiveEntries(list[Live]):
    """Entries by slot, ascending by key, with their columns; only ``add`` and ``keep`` may change the list.

    >>> entries = LiveEntries([])
    >>> entries.add([Live(Entry(2, 0, "b", 0, 9), 0, 0), Live(Entry(1, 0, "a", 0, 9), 0, 0, unfinished=1)])
    >>> entries.slots_of(np.array([(1 << 48) + 8, (2 << 48) + 9], dtype=np.uint64)).tolist()
    [0, -1]
    >>> entries.keep(lambda live: live.unfinished > 0)
    >>> [live.entry.source for live in entries]
    ['a']
    """

    def __init__(self, live: Iterable[Live]) -> None:
        """Begin with these entries, in any order."""
        self._first_keys, self._reserved = _columns([])
        self.add(live)

    def add(self, live: Iterable[Live]) -> None:
        """Add entries, none of which reserves a key of another."""
        new = sorted(live, key=lambda one: one.entry.first_key)
        first_keys, reserved = _columns([one.entry for one in new])
        places = np.searchsorted(self._first_keys, first_keys)
        merged: list[Live] = []
        start = 0
        for place, one in zip(places.tolist(), new, strict=True):
            merged += self[start:place]
            merged.append(one)
            start = place
        self[:] = merged + self[start:]
        self._first_keys = np.insert(self._first_keys, places, first_keys)
        self._reserved = np.insert(self._reserved, places, reserved)

    def keep(self, wanted: Callable[[Live], object]) -> None:
        """Drop the entries that are not wanted."""
        kept = list(map(wanted, self))
        if not all(kept):
            mask = np.array(kept, dtype=bool)
            self[:] = compress(self, kept)
            self._first_keys, self._reserved = self._first_keys[mask], self._reserved[mask]

    def slots_of(self, keys: U64) -> npt.NDArray[np.intp]:
        """intp[keys]: the slot of the entry that reserved each key, or -1."""
        return _slots(self._first_keys, self._reserved, keys)


def _columns(entries: Sequence[Entry]) -> tuple[U64, U64]:
    """(first key, number of reserved sequences) of each entry: uint64[entries] each."""
    first = np.array([entry.first_key for entry in entries], dtype=np.uint64)
    return first, np.array([entry.reserved for entry in entries], dtype=np.uint64)


def _slots(first_keys: U64, reserved: U64, keys: U64) -> npt.NDArray[np.intp]:
    """intp[keys]: the index of the entry that reserved each key, or -1; ``first_keys`` are ascending."""
    if len(first_keys) == 0 or len(keys) == 0:
        return np.full(len(keys), -1, dtype=np.intp)
    found = np.searchsorted(first_keys, keys, side="right") - 1
    found[keys - first_keys[found] >= reserved[found]] = -1  # true also for slot -1, because the difference wraps
    return found
