"""The message log: the state of each position of one origin of trees.

An origin is a source of a ``PartitionedSpout``, the buffer of a ``Spout``'s task, or the outbox of a task that starts
trees. A position in a buffer or an outbox is the sequence of the message's first attempt. Messages that wait for
another attempt are in the ``RetrySchedule``.

A position is in one of these states:

========== ========================================= ============================================================
state      reason                                    what happens next
========== ========================================= ============================================================
unread     it is at or beyond ``planned``            a plan with its range is promoted: open, or done if nothing is
                                                     there or nothing is open of it
open       a promoted plan has read it, and its tree its tree is acked: done. It fails: waiting, or done where it
           is not finished                           is given up
waiting    it failed; it is due at ``due_ms``        a plan with its position and attempt is promoted: open, or done
done       it was acked or given up, or no record    everything before it is done: committed
           begins there
committed  it is below ``finished``                  nothing, ever
========== ========================================= ============================================================

Rule 1: ``finished`` is the first position that is neither acked nor given up. It may be committed, and never decreases:
a position below it may wait and be open again if an operator gives its dead letter back.
Rule 2: a waiting position delays no later one. It is read when it is due, together with new positions.
Rule 3: a retry waits until a plan that names its position and its attempt is promoted, so a plan that is made and
dropped loses nothing.
Rule 4: nothing is stored per position that succeeds. Positions that were read are stored as intervals, the entries of
plans, while one of their trees is open. The map of open trees knows which positions are open.
Rule 5: the cost of a step depends on its changes, not on the number of waiting positions.
Rule 6: while a source is unavailable, only its waiting positions are read, and nothing new. The same holds while the
rest of a range that was too large to be read at once is waiting.

Prior art: ``PartitionManager`` of Storm's first Kafka spout, and ``OffsetManager`` of its successor.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sparkbolt.api.reports import SourceView
from sparkbolt.base.codec import ROW
from sparkbolt.base.ids import I64, MAX_SEQUENCE, split_key
from sparkbolt.base.intervals import Interval, gaps
from sparkbolt.driver.ledger.open_trees import RotatingMap
from sparkbolt.driver.ledger.retry_schedule import LogName, Retry, RetrySchedule
from sparkbolt.errors import InvariantError, check
from sparkbolt.wire.plan import Entry


@dataclass
class Live:
    """An entry with unfinished trees; it maps a key back to a position."""

    JSON = ROW

    entry: Entry
    micro_batch_id: int
    born_ms: int
    """The time of its micro-batch, in milliseconds."""
    unfinished: int = 0


@dataclass
class LogState:
    """The durable state of a ``MessageLog``, without its entries."""

    JSON = ROW

    component: str
    source: str
    planned: int
    finished: int
    away: int
    retries: list[Retry]
    """In the order in which they failed."""


class MessageLog:
    """The positions of one origin of one component; part of ``Messages``, which counts unfinished trees.

    >>> log = MessageLog("lines", "a.txt", RetrySchedule())
    >>> live = Live(Entry(1, 0, "a.txt", 0, 100), 0, 0, unfinished=1)
    >>> log.admit(live.entry, live)
    >>> trees = RotatingMap(2)
    >>> trees.put(*(np.array([x], dtype) for x, dtype in (((1 << 48) + 40, "u8"), (7, "u8"), (0, "i4"))))
    >>> log.advance(trees), log.done(trees, limit=9)
    (40, [(41, 100)])
    """

    def __init__(self, component: str, source: str, retries: RetrySchedule) -> None:
        """Begin a log without planned positions; its waiting positions are in ``retries``."""
        self.component = component
        self.source = source
        self.name: LogName = (component, source)
        self.planned = 0
        """The end of all planned ranges; 0 if no range was ever planned, as for buffers and outboxes."""
        self.finished = 0
        self.away = 0
        """In how many consecutive micro-batches the source was unavailable."""
        self._retries = retries
        self._entries: list[Live] = []
        self._by_position: list[int] = []
        """A heap of positions; some of them may no longer wait."""
        self._postponed: set[int] = set()
        """The positions of waiting rests of ranges that were too large to be read at once.

        It is not durable: a new life may read new positions once while such a rest waits.
        """
        self._asked = self._gone = False
        """Whether the current promotion has read the source, and whether the source was unavailable."""

    def takes_more(self, max_uncommitted: int | None) -> bool:
        """Whether a new range may be planned.

        No new range is planned while the source is unavailable, while the rest of a range that was too large to be read
        at once is waiting, or if ``planned`` is ``max_uncommitted`` or more positions beyond ``finished``.
        """
        ready = self.away == 0 and not self._postponed
        return ready and (max_uncommitted is None or self.planned - self.finished < max_uncommitted)

    # The steps of a promotion.

    def admit(self, entry: Entry, live: Live | None) -> None:
        """Apply an entry of a promoted plan; ``live`` is set if trees of the entry may be unfinished."""
        self._asked = self._asked or entry.letters is None
        if entry.positions is None and entry.source is not None:
            if self.planned == 0:
                self.finished = entry.start
            self.planned = max(self.planned, entry.end)
        self._postponed.difference_update(self._retries.take(self.name, entry))
        if live is not None:
            self._entries.append(live)

    def wait(self, retry: Retry, *, away: bool = False, postponed: bool = False) -> None:
        """Let the record or range of a failed tree wait for a retry.

        Args:
            retry: the record or range, and when it is due.
            away: whether it failed because the source was unavailable.
            postponed: whether it is the rest of a range that was too large to be read at once.
        """
        if self.planned and retry.position not in self._retries.of(self.name):
            heapq.heappush(self._by_position, retry.position)
        self._retries.put(self.name, retry)
        if postponed:
            self._postponed.add(retry.position)
        self._gone = self._gone or away

    def advance(self, trees: RotatingMap) -> int | None:
        """End the promotion: drop finished entries; returns the position that may be committed, None if unchanged."""
        self._entries = [live for live in self._entries if live.unfinished]
        if self._gone or self._asked:
            self.away = self.away + 1 if self._gone else 0
        self._asked = self._gone = False
        if self.planned == 0:
            return None
        opens = (_first_open(live.entry, trees, self.finished) for live in self._entries)
        first = min((position for position in opens if position is not None), default=self.planned)
        position = min(self._first_waiting(), first, self.planned)
        if position <= self.finished:
            return None
        self.finished = position
        return position

    def _first_waiting(self) -> int:
        """The first waiting position; ``planned`` if none waits."""
        heap, waiting = self._by_position, self._retries.of(self.name)
        while heap and (heap[0] < self.finished or heap[0] not in waiting):
            heapq.heappop(heap)
        return heap[0] if heap else self.planned

    # Queries.

    def view(self, trees: RotatingMap) -> SourceView:
        """The view of the source for its spout."""
        return SourceView(
            planned=self.planned,
            finished=self.finished,
            waiting=len(self._retries.of(self.name)),
            open=sum(live.unfinished for live in self._entries),
            away=self.away,
            _done=lambda limit: self.done(trees, limit),
        )

    def done(self, trees: RotatingMap, limit: int) -> list[Interval]:
        """As in ``SourceView``."""
        return gaps(*self._unfinished(trees), self.planned, limit)

    def _unfinished(self, trees: RotatingMap) -> tuple[I64, I64]:
        """(starts, ends) of all open or waiting intervals: int64[intervals] each, starts ascending; they may touch."""
        parts = [_open_positions(live.entry, trees) for live in self._entries]
        single = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        single = single[single >= self.finished]
        retries = [retry for retry in self._retries.of(self.name).values() if retry.position >= self.finished]
        waiting = [(retry.position, retry.end or retry.position + 1) for retry in retries]
        pairs = np.array(waiting, dtype=np.int64).reshape(-1, 2)
        starts = np.concatenate((single, pairs[:, 0]))
        ends = np.concatenate((single + 1, pairs[:, 1]))
        order = np.argsort(starts, kind="stable")
        return starts[order], ends[order]

    def unfinished(self, trees: RotatingMap) -> list[Retry]:
        """All messages of a buffer that wait or are open; open ones are returned as retries that are due at once."""
        found = list(self._retries.of(self.name).values())
        for live in self._entries:
            entry = live.entry
            for key in trees.between(entry.first_key, entry.first_key + entry.reserved - 1).tolist():
                sequence = split_key(key)[1]
                letter = entry.letters[sequence - entry.base] if entry.letters is not None else None
                position = entry.position_of(sequence)
                record = entry.records[sequence - entry.base] if entry.records is not None else None
                found.append(Retry(entry.task, entry.source, position, entry.attempt, letter=letter, record=record))
        return found

    def wait_again(self, trees: RotatingMap) -> None:
        """Let the messages with open trees wait for the same attempt again; their trees are about to be dropped."""
        for retry in self.unfinished(trees):
            self.wait(retry)
        self._retries.forget_trees(self.name)
        self._entries = []

    def state(self) -> LogState:
        """The durable state."""
        retries = list(self._retries.of(self.name).values())
        return LogState(self.component, self.source, self.planned, self.finished, self.away, retries)

    @classmethod
    def restore(cls, state: LogState, entries: Iterable[Live], retries: RetrySchedule) -> MessageLog:
        """Restore a log from its ``state`` and its unfinished entries; waiting positions go to ``retries``."""
        log = cls(state.component, state.source, retries)
        log.planned, log.finished, log.away = state.planned, state.finished, state.away
        for retry in state.retries:
            log.wait(retry)
        log._entries = list(entries)
        return log


def _first_open(entry: Entry, trees: RotatingMap, least: int) -> int | None:
    """The first position of the entry with an open tree; None if it is below ``least``, as that of returned letters."""
    if entry.positions is not None:
        positions = _open_positions(entry, trees)
        check(len(positions) > 0, f"{entry} is unfinished and has no open tree")
        return min(positions[positions >= least].tolist(), default=None)
    key = trees.first_between(entry.first_key, entry.first_key + entry.reserved - 1)
    if key is None:
        raise InvariantError(f"{entry} is unfinished and has no open tree")
    position = entry.position_of(split_key(key)[1])
    return position if position >= least else None


def _open_positions(entry: Entry, trees: RotatingMap) -> I64:
    """int64[open]: the positions of the entry with open trees."""
    keys = trees.between(entry.first_key, entry.first_key + entry.reserved - 1)
    offsets = (keys & np.uint64(MAX_SEQUENCE)).astype(np.int64) - entry.base
    if entry.positions is None:
        return offsets + entry.start
    positions: I64 = np.array(entry.positions, dtype=np.int64)[offsets]
    return positions
