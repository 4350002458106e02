"""Desks: where the records of a ``Spout`` wait for a plan, and its verdicts for the spout.

Which question it answers: which records of one task wait, which are planned, and which message ids are open?
Rule: a desk holds as much as its spout may have under way, and never more.

Read before: ``plan``, ``reading``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.core.plan import Entry
from sparkbolt.core.reading import Record

DESK_RECORDS_MAX = 65_536
"""Records of one ``Spout`` task that wait for a plan, where ``max_spout_pending`` does not say less."""


@dataclass
class Desk:
    """The records of one ``Spout`` task: those that wait, those of the plan in force, and the ids of open trees."""

    number: int
    pending_max: int
    waiting: deque[tuple[Record, Any]] = field(default_factory=deque)
    planned: list[tuple[Record, Any]] = field(default_factory=list)
    planned_base: int = 0
    message_ids: dict[int, Any] = field(default_factory=dict)
    """Sequence to message id, for tracked trees of promoted or planned micro-batches."""
    acks: deque[Any] = field(default_factory=deque)
    fails: deque[Any] = field(default_factory=deque)
    exhausted: bool = False

    @property
    def pending(self) -> int:
        """Tuples that were emitted and whose trees are not finished."""
        return len(self.waiting) + len(self.message_ids)

    @property
    def open_for_more(self) -> bool:
        """Whether ``next_tuple`` may be called."""
        return self.pending < self.pending_max

    @property
    def idle(self) -> bool:
        """Whether nothing waits here, neither records nor verdicts that the spout has not heard."""
        return not (self.waiting or self.planned or self.acks or self.fails)

    def take_over(self, old: Desk) -> None:
        """Begin as the desk of the same task in an earlier life of the same driver, whose spout is still open.

        What was planned and not committed is planned again. What was committed and is open belongs to a life that is
        dead: the spout hears that it failed, and gives it again or does not.
        """
        planned = range(old.planned_base, old.planned_base + len(old.planned))
        self.waiting.extend([*old.planned, *old.waiting])
        self.acks.extend(old.acks)
        self.fails.extend(old.fails)
        self.fails.extend(message_id for sequence, message_id in old.message_ids.items() if sequence not in planned)
        self.exhausted = old.exhausted

    def plan(self, base: int, bytes_max: int) -> Entry | None:
        """Put what waits into a plan, as long as it is small enough."""
        size = 0
        while self.waiting and size < bytes_max:
            record, message_id = self.waiting.popleft()
            size += 64 + sum(len(value) if isinstance(value, str | bytes) else 64 for value in record.values)
            if record.tracked:
                self.message_ids[base + len(self.planned)] = message_id
            self.planned.append((record, message_id))
        if not self.planned:
            return None
        self.planned_base = base
        return Entry(self.number, base, None, 0, len(self.planned))
