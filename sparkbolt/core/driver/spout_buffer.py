"""Spout buffers: where the records of a ``Spout`` wait for a plan, and its verdicts for the spout.

Which question it answers: which records of one task wait, which are planned, and which message ids are open?
Rule 1: a buffer holds as much as its spout may have under way, and of what waits for a plan no more than about the next
two micro-batches take: what waits longer is no nearer to its end, and comes again when the driver dies.
Rule 2: where the spout has a policy, the records of open trees are kept here, and given again when they fail and are
due; what waits for that holds up nothing that is new.

Rule 3: what is given up and is to become a dead letter stays here until the letter is durable; then its spout hears
that it is done.

Read before: ``plan``, ``source_reader``, ``attempt_store``.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from sparkbolt.core.base.ids import split_key
from sparkbolt.core.driver.retry_entries import LETTERS_PER_ENTRY_MAX
from sparkbolt.core.model.causes import MessageOutcome
from sparkbolt.core.model.reports import FailedTree
from sparkbolt.core.model.story import short
from sparkbolt.core.protocol.attempts import NO_ATTEMPTS
from sparkbolt.core.protocol.plan import Entry, Record

SPOUT_BUFFER_RECORDS_MAX = 65_536
"""Records of one ``Spout`` task that wait for a plan, where ``max_spout_pending`` does not say less."""


@dataclass(frozen=True)
class Dying:
    """A message that is given up and waits for its dead letter."""

    key: int
    """The tree that failed last."""
    record: Record
    message_id: Any
    letter: str
    """What is told of it (``ExhaustedMessage``, dumped)."""
    due_ms: int
    attempt: int = 1
    """Which attempt at the letter comes next."""


@dataclass
class SpoutBuffer:
    """The records of one ``Spout`` task: those that wait, those of the plan in force, and the ids of open trees."""

    number: int
    pending_max: int
    keeps: bool = False
    """Whether records are kept until their trees are finished, to be given again when they fail."""
    remembers: bool = False
    """Whether the attempts at a message are remembered, for its dead letter."""
    fails_lettered: bool = False
    """Whether the spout hears that a message failed once its dead letter is durable, rather than that it is done: so
    where nobody but us takes the letter."""
    waiting: deque[tuple[Record, Any]] = field(default_factory=deque)
    planned: list[tuple[Record, Any]] = field(default_factory=list)
    planned_base: int = 0
    message_ids: dict[int, Any] = field(default_factory=dict)
    """Sequence to message id, for tracked trees of promoted or planned micro-batches."""
    records: dict[int, Record] = field(default_factory=dict)
    """Sequence to record, for the same trees, where records are kept."""
    again: list[tuple[int, int, Record, Any]] = field(default_factory=list)
    """What failed and is to be given again: a heap of (when it is due, a number that rises, record, message id)."""
    failures: int = 0
    """How often something was put there; the numbers of the heap."""
    dying: list[Dying] = field(default_factory=list)
    """What waits for its dead letter, in the order in which it was given up."""
    writing: dict[int, Dying] = field(default_factory=dict)
    """Sequence to message, for dead letters in plans that are not finished."""
    waiting_max: int = SPOUT_BUFFER_RECORDS_MAX
    """How many records may wait for a plan: as of the pace of the component."""
    acks: deque[Any] = field(default_factory=deque)
    fails: deque[Any] = field(default_factory=deque)
    exhausted: bool = False

    @property
    def pending(self) -> int:
        """Tuples that were emitted and whose trees are not finished."""
        return len(self.waiting) + len(self.message_ids) + self.retries

    @property
    def retries(self) -> int:
        """How many messages wait to be given again, or for their dead letters."""
        return len(self.again) + len(self.dying) + len(self.writing)

    @property
    def open_for_more(self) -> bool:
        """Whether ``next_tuple`` may be called."""
        return self.room > 0

    @property
    def room(self) -> int:
        """How many more records there is use for now."""
        return max(0, min(self.pending_max - self.pending, self.waiting_max - len(self.waiting)))

    def ready(self, now_ms: float) -> int:
        """How many records a plan may have at this time."""
        return len(self.waiting) + sum(one[0] <= now_ms for one in self.again)

    @property
    def idle(self) -> bool:
        """Whether nothing waits here but retries, neither records nor verdicts that the spout has not heard."""
        return not (self.waiting or self.planned or self.acks or self.fails)

    def take_over(self, old: SpoutBuffer) -> None:
        """Begin as the buffer of the same task in an earlier life of the same driver, whose spout is still open.

        What was planned and not committed is planned again. What was committed and is open belongs to a life that is
        dead: it is given again where records are kept, and that is no further attempt; else the spout hears that it
        failed, and gives it again or does not.
        """
        planned = range(old.planned_base, old.planned_base + len(old.planned))
        lost = [(sequence, id_) for sequence, id_ in old.message_ids.items() if sequence not in planned]
        self.waiting.extend((old.records[sequence], id_) for sequence, id_ in lost if sequence in old.records)
        self.waiting.extend([*old.planned, *old.waiting])
        self.again, self.failures = old.again, old.failures
        self.dying = [*old.dying, *old.writing.values()]
        self.acks.extend(old.acks)
        self.fails.extend(old.fails)
        self.fails.extend(id_ for sequence, id_ in lost if sequence not in old.records)
        self.exhausted = old.exhausted

    # Plans.

    def plan(self, base: int, bytes_max: int, now_ms: float = math.inf, room: int | None = None) -> list[Entry]:
        """Put what waits, and what is due again, into a plan, as long as it is small enough: an entry an attempt.

        With ``room`` at most so many, half of them for what waits.
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
        """Put the messages into a plan that wait for their dead letters and are due, the first so many.

        Those that were tried before have entries of their own.
        """
        due = [one for one in self.dying if one.due_ms <= now_ms][:LETTERS_PER_ENTRY_MAX]
        self.dying = [one for one in self.dying if one not in due]
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
        """The records of an entry of the plan in force, with their message ids; fewer than it says if they are gone."""
        if entry.letters is not None:
            found = (self.writing.get(entry.base + place) for place in range(entry.end))
            return [(one.record, one.message_id) for one in found if one is not None]
        first = entry.base - self.planned_base
        return self.planned[first : first + entry.end] if first >= 0 else []

    def next_due_ms(self, not_before: int = 0) -> int | None:
        """When the first of what waits to be given again is due; messages not before a probe may have them."""
        waiting = [max(one[0], not_before) for one in self.again[:1]] + [one.due_ms for one in self.dying]
        return min(waiting, default=None)

    def text_of(self, sequence: int) -> str | None:
        """How the message id of an open tree, or of a dead letter's, prints; None where there is none."""
        if sequence in self.message_ids:
            return short(self.message_ids[sequence])
        return short(self.writing[sequence].message_id) if sequence in self.writing else None

    # Verdicts.

    def ack(self, sequence: int) -> None:
        """The tree of this sequence is complete: its spout is to hear of it, if it gave a message id."""
        if sequence in self.message_ids:
            self.acks.append(self.message_ids.pop(sequence))
            self.records.pop(sequence, None)

    def fail(self, tree: FailedTree) -> None:
        """A tree failed: its record is given again, or becomes a dead letter, or its spout is to hear of it."""
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
        if tree.fate == MessageOutcome.DEAD_LETTER:
            told = replace(attempts.exhausted(tree), message_id=short(message_id))
            self.dying.append(Dying(tree.key, record, message_id, told.dumps(), tree.due_ms))
        else:
            self.failures += 1
            heapq.heappush(self.again, (tree.due_ms, self.failures, record, message_id))

    # Dead letters.

    def written(self, sequence: int) -> None:
        """The dead letter of this sequence is durable: the message is done, and its spout is to hear of it."""
        one = self.writing.pop(sequence, None)
        if one is not None:
            (self.fails if self.fails_lettered else self.acks).append(one.message_id)

    def _fail_letter(self, sequence: int, tree: FailedTree) -> None:
        """A dead letter comes again, or is given up itself: its spout is to hear that it failed."""
        one = self.writing.pop(sequence, None)
        if one is None:
            return
        if tree.due_ms is not None:
            self.dying.append(replace(one, due_ms=tree.due_ms, attempt=tree.next_attempt))
        else:
            self.fails.append(one.message_id)
