"""Desks: where the records of a ``Spout`` wait for a plan, and its verdicts for the spout.

Which question it answers: which records of one task wait, which are planned, and which message ids are open?
Rule 1: a desk holds as much as its spout may have under way, and never more.
Rule 2: where the spout has a policy, the records of open trees are kept here, and given again when they fail and are
due; what waits for that holds up nothing that is new.

Read before: ``plan``, ``reading``.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from sparkbolt.core.fates import FailedTree
from sparkbolt.core.ids import split_key
from sparkbolt.core.plan import Entry
from sparkbolt.core.reading import Record

DESK_RECORDS_MAX = 65_536
"""Records of one ``Spout`` task that wait for a plan, where ``max_spout_pending`` does not say less."""


@dataclass
class Desk:
    """The records of one ``Spout`` task: those that wait, those of the plan in force, and the ids of open trees."""

    number: int
    pending_max: int
    keeps: bool = False
    """Whether records are kept until their trees are finished, to be given again when they fail."""
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
    acks: deque[Any] = field(default_factory=deque)
    fails: deque[Any] = field(default_factory=deque)
    exhausted: bool = False

    @property
    def pending(self) -> int:
        """Tuples that were emitted and whose trees are not finished."""
        return len(self.waiting) + len(self.message_ids) + len(self.again)

    @property
    def open_for_more(self) -> bool:
        """Whether ``next_tuple`` may be called."""
        return self.pending < self.pending_max

    @property
    def idle(self) -> bool:
        """Whether nothing waits here but retries, neither records nor verdicts that the spout has not heard."""
        return not (self.waiting or self.planned or self.acks or self.fails)

    def take_over(self, old: Desk) -> None:
        """Begin as the desk of the same task in an earlier life of the same driver, whose spout is still open.

        What was planned and not committed is planned again. What was committed and is open belongs to a life that is
        dead: it is given again where records are kept, and that is no further attempt; else the spout hears that it
        failed, and gives it again or does not.
        """
        planned = range(old.planned_base, old.planned_base + len(old.planned))
        lost = [(sequence, id_) for sequence, id_ in old.message_ids.items() if sequence not in planned]
        self.waiting.extend((old.records[sequence], id_) for sequence, id_ in lost if sequence in old.records)
        self.waiting.extend([*old.planned, *old.waiting])
        self.again, self.failures = old.again, old.failures
        self.acks.extend(old.acks)
        self.fails.extend(old.fails)
        self.fails.extend(id_ for sequence, id_ in lost if sequence not in old.records)
        self.exhausted = old.exhausted

    # Plans.

    def plan(self, base: int, bytes_max: int, now_ms: float = math.inf) -> list[Entry]:
        """Put what waits, and what is due again, into a plan, as long as it is small enough: an entry an attempt."""
        size = 0
        taken: list[tuple[Record, Any]] = []
        while self.again and self.again[0][0] <= now_ms and size < bytes_max // 2:
            taken.append(heapq.heappop(self.again)[2:])
            size += _size(taken[-1][0])
        while self.waiting and size < bytes_max:
            taken.append(self.waiting.popleft())
            size += _size(taken[-1][0])
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

    def planned_of(self, entry: Entry) -> list[tuple[Record, Any]]:
        """The records of an entry of the plan in force, with their message ids; fewer than it says if they are gone."""
        first = entry.base - self.planned_base
        return self.planned[first : first + entry.end] if first >= 0 else []

    def next_due_ms(self) -> int | None:
        """When the first of what waits to be given again is due."""
        return self.again[0][0] if self.again else None

    # Verdicts.

    def ack(self, sequence: int) -> None:
        """The tree of this sequence is complete: its spout is to hear of it, if it gave a message id."""
        if sequence in self.message_ids:
            self.acks.append(self.message_ids.pop(sequence))
            self.records.pop(sequence, None)

    def fail(self, tree: FailedTree) -> None:
        """A tree failed: its record is given again, or its spout is to hear of it."""
        _, sequence = split_key(tree.key)
        if sequence not in self.message_ids:
            return
        message_id, record = self.message_ids.pop(sequence), self.records.pop(sequence, None)
        if record is not None and tree.due_ms is not None:
            self.failures += 1
            again = replace(record, attempt=tree.next_attempt)
            heapq.heappush(self.again, (tree.due_ms, self.failures, again, message_id))
        else:
            self.fails.append(message_id)


def _size(record: Record) -> int:
    return 64 + sum(len(value) if isinstance(value, str | bytes) else 64 for value in record.values)
