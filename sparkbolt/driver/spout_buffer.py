"""Spout buffers: the records of a ``Spout``'s task, until their trees are finished.

A buffer is a message log in the driver's memory that is lost with its life. It keeps the records; the ledger decides
which of them are retried or become dead letters, and when. A record's position is the sequence of its first attempt.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sparkbolt.api.reports import FailedTree
from sparkbolt.api.story import short
from sparkbolt.base.ids import split_key
from sparkbolt.wire.plan import Entry, Record

SPOUT_BUFFER_RECORDS_MAX = 65_536
"""The limit of records of one ``Spout`` task that wait for a plan, unless ``max_spout_pending`` is lower."""


class BufferedRecord(NamedTuple):
    """A record that a spout has emitted."""

    record: Record
    message_id: Any


@dataclass
class SpoutBuffer:
    """The records of one ``Spout`` task: those that wait for their first plan, and those of unfinished messages."""

    number: int
    pending_max: int
    keeps: bool = False
    """Whether the ledger retries messages; otherwise the spout is notified of each failure, and decides."""
    fails_lettered: bool = False
    """Whether the spout's ``fail`` is called, and not its ``ack``, once the dead letter of a message is durable.

    True if only the checkpoint receives the dead letter.
    """
    waiting: deque[BufferedRecord] = field(default_factory=deque)
    planned: list[BufferedRecord] = field(default_factory=list)
    """The records whose first attempts are in the plan in force."""
    planned_base: int = 0
    unfinished: dict[int, BufferedRecord] = field(default_factory=dict)
    """Position to record, for tracked messages that were planned and are not finished."""
    later: dict[int, int] = field(default_factory=dict)
    """Sequence to position, for planned attempts that are not the first, and for dead letters."""
    waiting_max: int = SPOUT_BUFFER_RECORDS_MAX
    """How many records may wait for a plan; follows from the rate of the component."""
    acks: deque[Any] = field(default_factory=deque)
    fails: deque[Any] = field(default_factory=deque)
    exhausted: bool = False

    @property
    def pending(self) -> int:
        """Tuples that were emitted and whose messages are not finished."""
        return len(self.waiting) + len(self.unfinished)

    @property
    def room(self) -> int:
        """How many more records the buffer takes now."""
        return max(0, min(self.pending_max - self.pending, self.waiting_max - len(self.waiting)))

    @property
    def idle(self) -> bool:
        """Whether neither records nor undelivered verdicts wait here; retries may wait."""
        return not (self.waiting or self.planned or self.acks or self.fails)

    def emit(self, record: Record, message_id: Any) -> None:
        """Add a record that the spout has emitted."""
        self.waiting.append(BufferedRecord(record, message_id))

    def take_over(self, old: SpoutBuffer) -> None:
        """Continue from the same task's buffer in an earlier life of this driver, whose spout is still open.

        Records that were planned for the first time and not committed are planned again. Messages whose attempts were
        committed stay here if the ledger retries them (``Messages.take_over``). Otherwise the spout is notified that
        those failed, and decides whether to emit them again.
        """
        planned = range(old.planned_base, old.planned_base + len(old.planned))
        committed = {position: one for position, one in old.unfinished.items() if position not in planned}
        self.waiting.extend([*old.planned, *old.waiting])
        self.acks.extend(old.acks)
        self.fails.extend(old.fails)
        if self.keeps:
            self.unfinished = committed
        else:
            self.fails.extend(one.message_id for one in committed.values())
        self.exhausted = old.exhausted

    # Plans.

    def plan(self, base: int, bytes_max: int, most: float = math.inf) -> list[Entry]:
        """Put waiting records into a plan, at most ``most`` and about ``bytes_max``; an entry, or none."""
        size = 0
        while self.waiting and size < bytes_max and len(self.planned) < most:
            self.planned.append(self.waiting.popleft())
            size += self.planned[-1].record.size
        self.planned_base = base
        self.unfinished.update((at, one) for at, one in enumerate(self.planned, base) if one.record.tracked)
        end = base + len(self.planned)
        return [Entry(self.number, base, None, base, end)] if self.planned else []

    def plan_again(self, entry: Entry) -> None:
        """Note the sequences of an entry with retries or dead letters."""
        self.later.update(enumerate(entry.positions or (), entry.base))

    def planned_of(self, entry: Entry) -> list[BufferedRecord]:
        """The records of an entry of the plan in force; fewer than planned if some are lost."""
        if entry.positions is None:
            return self.planned if entry.base == self.planned_base else []
        found = [self.unfinished[position] for position in entry.positions if position in self.unfinished]
        if entry.letters is None:
            return found
        return [BufferedRecord(replace(one.record, message_id=short(one.message_id)), one.message_id) for one in found]

    def text_of(self, sequence: int) -> str | None:
        """The printed message id of an open tree or of a dead letter's tree; None if there is none."""
        one = self.unfinished.get(self.later.get(sequence, sequence))
        return short(one.message_id) if one is not None else None

    # Verdicts.

    def ack(self, sequence: int) -> None:
        """Handle a complete tree: its spout will be notified if it gave a message id."""
        self._finish(sequence, self.acks)

    def written(self, sequence: int) -> None:
        """Handle a durable dead letter: its message is done, and its spout will be notified."""
        self._finish(sequence, self.fails if self.fails_lettered else self.acks)

    def fail(self, tree: FailedTree) -> None:
        """Handle a failed tree: its spout will be notified, unless the ledger retries the message or its letter."""
        sequence = split_key(tree.key)[1]
        if tree.due_ms is not None:
            self.later.pop(sequence, None)
        else:
            self._finish(sequence, self.fails)

    def _finish(self, sequence: int, verdicts: deque[Any]) -> None:
        one = self.unfinished.pop(self.later.pop(sequence, sequence), None)
        if one is not None:
            verdicts.append(one.message_id)


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
