"""Spout buffers: where records of a ``Spout`` wait for a plan, and where its verdicts wait for the spout.

Rule 1: a buffer holds at most as many unfinished tuples as its spout may have pending. Of these, only about as many
wait for a plan as the next two micro-batches take: a longer queue would not make any message finish earlier, and all of
it is emitted again when the driver dies.
Rule 2: if the spout has a retry policy, the buffer keeps the records of open trees, and retries them when they have
failed and are due. A waiting retry delays no new record.

Rule 3: an exhausted message that becomes a dead letter stays in the buffer until the dead letter is durable; then the
spout is notified that the message is done.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from sparkbolt.api.causes import MessageOutcome
from sparkbolt.api.reports import FailedTree
from sparkbolt.api.story import short
from sparkbolt.base.ids import split_key
from sparkbolt.driver.ledger.due_queue import DueQueue
from sparkbolt.driver.retry_entries import LETTERS_PER_ENTRY_MAX
from sparkbolt.wire.attempts import NO_ATTEMPTS
from sparkbolt.wire.plan import Entry, Record

SPOUT_BUFFER_RECORDS_MAX = 65_536
"""The limit of records of one ``Spout`` task that wait for a plan, unless ``max_spout_pending`` is lower."""


@dataclass(frozen=True)
class Dying:
    """An exhausted message that waits for its dead letter."""

    key: int
    """The key of the tree that failed last."""
    record: Record
    message_id: Any
    letter: str
    """The report on the message (``ExhaustedMessage``, dumped)."""
    due_ms: int
    attempt: int = 1
    """The number of the next attempt at writing the dead letter."""


@dataclass
class SpoutBuffer:
    """The records of one ``Spout`` task: those that wait, those of the plan in force, and the ids of open trees."""

    number: int
    pending_max: int
    keeps: bool = False
    """Whether records are kept until their trees are finished, to be retried if they fail."""
    remembers: bool = False
    """Whether failed attempts at a message are kept, for its dead letter."""
    fails_lettered: bool = False
    """Whether the spout's ``fail`` is called, and not its ``ack``, once the dead letter of a message is durable.

    This is so if only the checkpoint receives the dead letter.
    """
    waiting: deque[tuple[Record, Any]] = field(default_factory=deque)
    planned: list[tuple[Record, Any]] = field(default_factory=list)
    planned_base: int = 0
    message_ids: dict[int, Any] = field(default_factory=dict)
    """Sequence to message id, for tracked trees of promoted or planned micro-batches."""
    records: dict[int, Record] = field(default_factory=dict)
    """Sequence to record, for the same trees, if records are kept."""
    again: list[tuple[int, int, Record, Any]] = field(default_factory=list)
    """Failed records that wait for a retry: a heap of (due time in ms, ascending number, record, message id)."""
    failures: int = 0
    """How many records were ever put into the heap; gives the ascending numbers."""
    doomed: DueQueue[Dying] = field(default_factory=DueQueue)
    """Messages that wait for their dead letters."""
    writing: dict[int, Dying] = field(default_factory=dict)
    """Sequence to message, for dead letters in plans that are not finished yet."""
    waiting_max: int = SPOUT_BUFFER_RECORDS_MAX
    """How many records may wait for a plan; follows from the rate of the component."""
    acks: deque[Any] = field(default_factory=deque)
    fails: deque[Any] = field(default_factory=deque)
    exhausted: bool = False

    @property
    def pending(self) -> int:
        """Tuples that were emitted and whose trees are not finished."""
        return len(self.waiting) + len(self.message_ids) + self.retries

    @property
    def retries(self) -> int:
        """How many messages wait for a retry or for their dead letters."""
        return len(self.again) + len(self.doomed) + len(self.writing)

    @property
    def dying(self) -> list[Dying]:
        """The messages that wait for their dead letters, by due time; a new list on each access."""
        return list(self.doomed.due())

    @property
    def open_for_more(self) -> bool:
        """Whether ``next_tuple`` may be called."""
        return self.room > 0

    @property
    def room(self) -> int:
        """How many more records the buffer takes now."""
        return max(0, min(self.pending_max - self.pending, self.waiting_max - len(self.waiting)))

    def ready(self, now_ms: float, most: float = math.inf) -> int:
        """How many records are ready for a plan at ``now_ms``; from ``most`` on, it is not counted further."""
        count, places = len(self.waiting), [0]
        while places and count < most:
            place = places.pop()
            if place < len(self.again) and self.again[place][0] <= now_ms:  # what is below it is due later
                count += 1
                places += (2 * place + 1, 2 * place + 2)
        return count

    @property
    def idle(self) -> bool:
        """Whether neither records nor undelivered verdicts wait here; retries may wait."""
        return not (self.waiting or self.planned or self.acks or self.fails)

    def take_over(self, old: SpoutBuffer) -> None:
        """Continue from the same task's buffer in an earlier life of this driver, whose spout is still open.

        Records that were planned and not committed are planned again. Records that were committed and whose trees are
        open belong to the dead life. They are emitted again if records are kept, which does not count as another
        attempt. Otherwise the spout is notified that they failed, and decides whether to emit them again.
        """
        planned = range(old.planned_base, old.planned_base + len(old.planned))
        lost = [(sequence, id_) for sequence, id_ in old.message_ids.items() if sequence not in planned]
        self.waiting.extend((old.records[sequence], id_) for sequence, id_ in lost if sequence in old.records)
        self.waiting.extend([*old.planned, *old.waiting])
        self.again, self.failures = old.again, old.failures
        for one in (*old.dying, *old.writing.values()):
            self.doomed.put(one.due_ms, one)
        self.acks.extend(old.acks)
        self.fails.extend(old.fails)
        self.fails.extend(id_ for sequence, id_ in lost if sequence not in old.records)
        self.exhausted = old.exhausted

    # Plans.

    def plan(self, base: int, bytes_max: int, now_ms: float = math.inf, room: int | None = None) -> list[Entry]:
        """Put waiting records and due retries into a plan, up to ``bytes_max``; one entry for each attempt number.

        With ``room``, at most that many records; half of them are reserved for waiting records.
        """
        size, most = 0, math.inf if room is None else room
        taken: list[tuple[Record, Any]] = []
        while self.again and self.again[0][0] <= now_ms and size < bytes_max // 2 and 2 * len(taken) < most:
            taken.append(heapq.heappop(self.again)[2:])
            size += taken[-1][0].size
        while self.waiting and size < bytes_max and len(taken) < most:
            taken.append(self.waiting.popleft())
            size += taken[-1][0].size
        taken.sort(key=lambda pair: pair[0].attempt)
        self.planned += taken
        self.planned_base = base
        for sequence, (record, message_id) in enumerate(taken, base):
            if record.tracked:
                self.message_ids[sequence] = message_id
                if self.keeps:
                    self.records[sequence] = record
        entries = []
        for attempt, group in groupby(taken, key=lambda pair: pair[0].attempt):
            count = len(list(group))
            entries.append(Entry(self.number, base, None, 0, count, attempt))
            base += count
        return entries

    def plan_letters(self, base: int, now_ms: float = math.inf) -> list[Entry]:
        """Put messages that wait for their dead letters and are due into a plan, up to ``LETTERS_PER_ENTRY_MAX``.

        A dead letter at a later attempt has an entry of its own.
        """
        due: list[Dying] = []
        while len(due) < LETTERS_PER_ENTRY_MAX and (one := self.doomed.take(now_ms)) is not None:
            due.append(one)
        first = [one for one in due if one.attempt == 1]
        groups = [*([first] if first else []), *([one] for one in due if one.attempt > 1)]
        entries = []
        for group in groups:
            letters = tuple(one.letter for one in group)
            entries.append(Entry(self.number, base, None, 0, len(group), group[0].attempt, letters=letters))
            self.writing.update(enumerate(group, base))
            base += len(group)
        return entries

    def planned_of(self, entry: Entry) -> list[tuple[Record, Any]]:
        """The records of an entry of the plan in force, with their message ids; fewer than planned if some are lost."""
        if entry.letters is not None:
            found = (self.writing.get(entry.base + place) for place in range(entry.end))
            return [(one.record, one.message_id) for one in found if one is not None]
        first = entry.base - self.planned_base
        return self.planned[first : first + entry.end] if first >= 0 else []

    def next_due_ms(self, not_before: int = 0) -> int | None:
        """When the first retry or dead letter is due; a retry is not due before ``not_before``, the next probe."""
        waiting = [max(one[0], not_before) for one in self.again[:1]]
        letter_ms = self.doomed.next_due_ms()
        return min(waiting if letter_ms is None else [*waiting, letter_ms], default=None)

    def text_of(self, sequence: int) -> str | None:
        """The printed message id of an open tree or of a dead letter's tree; None if there is none."""
        if sequence in self.message_ids:
            return short(self.message_ids[sequence])
        return short(self.writing[sequence].message_id) if sequence in self.writing else None

    # Verdicts.

    def ack(self, sequence: int) -> None:
        """Handle a complete tree: its spout will be notified if it gave a message id."""
        if sequence in self.message_ids:
            self.acks.append(self.message_ids.pop(sequence))
            self.records.pop(sequence, None)

    def fail(self, tree: FailedTree) -> None:
        """Handle a failed tree: its record is retried or becomes a dead letter, or its spout will be notified."""
        _, sequence = split_key(tree.key)
        if tree.letter:
            self._fail_letter(sequence, tree)
            return
        if sequence not in self.message_ids:
            return
        message_id, record = self.message_ids.pop(sequence), self.records.pop(sequence, None)
        if record is None or tree.due_ms is None:
            self.fails.append(message_id)
            return
        attempts = record.attempts.with_failure(tree) if self.remembers else NO_ATTEMPTS
        record = replace(record, attempt=tree.next_attempt, attempts=attempts)
        if tree.outcome == MessageOutcome.DEAD_LETTER:
            told = replace(attempts.exhausted(tree), message_id=short(message_id))
            self.doomed.put(tree.due_ms, Dying(tree.key, record, message_id, told.dumps(), tree.due_ms))
        else:
            self.failures += 1
            heapq.heappush(self.again, (tree.due_ms, self.failures, record, message_id))

    # Dead letters.

    def written(self, sequence: int) -> None:
        """Handle a durable dead letter: its message is done, and its spout will be notified."""
        one = self.writing.pop(sequence, None)
        if one is not None:
            (self.fails if self.fails_lettered else self.acks).append(one.message_id)

    def _fail_letter(self, sequence: int, tree: FailedTree) -> None:
        """Retry a dead letter; if it may not be retried, its spout will be notified that the message failed."""
        one = self.writing.pop(sequence, None)
        if one is None:
            return
        if tree.due_ms is not None:
            self.doomed.put(tree.due_ms, replace(one, due_ms=tree.due_ms, attempt=tree.next_attempt))
        else:
            self.fails.append(one.message_id)


def printed_ids(buffers: Mapping[int, SpoutBuffer], keys: Iterable[int], limit: int) -> dict[int, str]:
    """Tree key to the printed message id of a ``Spout``, for at most ``limit`` of these trees.

    Args:
        buffers: the buffer of each spout task, by number.
        keys: the keys of trees, of any spout or bolt.
        limit: the most message ids that are printed.
    """
    found: dict[int, str] = {}
    for key in keys if buffers else ():
        task, sequence = split_key(key)
        buffer = buffers.get(task)
        text = buffer.text_of(sequence) if buffer is not None and len(found) < limit else None
        if text is not None:
            found[key] = text
    return found
