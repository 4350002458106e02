"""The partition manager: the state of each position of one source.

A position is in one of these states:

========== ========================================= ============================================================
state      it is so because                          what happens next
========== ========================================= ============================================================
unread     it is at or beyond ``planned``            a plan with its range is promoted: open, or done if nothing is
                                                     there or nothing is open of it
open       a promoted plan has read it, and its tree its tree is acked: done. It fails: waiting, or done where it
           is not finished                           is given up (set aside)
waiting    it failed; it is due at ``due_ms``        a plan with its position and attempt is promoted: open, or done
done       it was acked or given up, or no record    everything before it is done: committed
           begins there
committed  it is below ``finished``                  nothing, ever
========== ========================================= ============================================================

Rule 1: ``finished`` is the first position that is neither acked nor given up. It may be committed, and never decreases.
Rule 2: a waiting position delays no later one. It is read when it is due, together with new positions.
Rule 3: a retry waits until a plan that names its position and its attempt is promoted, so a plan that is made and
dropped loses nothing.
Rule 4: nothing is stored per position that succeeds. Positions that were read are stored as intervals, the entries of
plans, while one of their trees is open. The map of open trees knows which positions are open.
Rule 5: a step costs what it changes, whatever waits beside it.
Rule 6: while a source is away, only its waiting positions are read, and nothing new. The same holds while the rest of a
range that was too large to be read at once is waiting.

Prior art: ``PartitionManager`` of Storm's first Kafka spout, and ``OffsetManager`` of its successor.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from sparkbolt.api.reports import SourceView
from sparkbolt.base.ids import I64, MAX_SEQUENCE, split_key
from sparkbolt.base.intervals import Interval, gaps
from sparkbolt.driver.ledger.due_queue import DueQueue
from sparkbolt.driver.ledger.open_trees import RotatingMap
from sparkbolt.errors import InvariantError, check
from sparkbolt.wire.plan import Entry


@dataclass(frozen=True)
class Retry:
    """A record of a ``PartitionedSpout`` that must be read again, or a value that a bolt's task must emit again."""

    task: int
    """The number of the task that read it."""
    source: str
    position: int
    attempt: int
    """The attempt to come: 2 after the first failure."""
    end: int | None = None
    """The end of a range that must be read again; None: it is one record."""
    due_ms: int = 0
    """When it may be retried, in the plans' time, in milliseconds."""
    letter: str | None = None
    """If the record waits for its dead letter: the report on it (``ExhaustedMessage``, dumped).

    ``attempt`` then counts the attempts at writing the dead letter, from 1.
    """

    @property
    def is_rest(self) -> bool:
        """Whether it is a range that could not be read, and no record."""
        return self.end is not None and self.letter is None


@dataclass
class Live:
    """An entry with unfinished trees; it maps a key back to a position."""

    entry: Entry
    micro_batch_id: int
    born_ms: int
    """The time of its micro-batch, in milliseconds."""
    unfinished: int = 0


@dataclass
class SourceState:
    """The durable state of a ``PartitionManager``, without its entries."""

    component: str
    source: str
    planned: int
    finished: int
    away: int
    retries: list[Retry]
    """In the order in which they failed."""


class PartitionManager:
    """The positions of one source of one component; part of ``Messages``, which counts what is unfinished.

    >>> manager = PartitionManager("lines", "a.txt")
    >>> live = Live(Entry(1, 0, "a.txt", 0, 100), 0, 0, unfinished=1)
    >>> manager.admit(live.entry, live)
    >>> trees = RotatingMap(2)
    >>> trees.put(*(np.array([x], dtype) for x, dtype in (((1 << 48) + 40, "u8"), (7, "u8"), (0, "i4"))))
    >>> manager.advance(trees), manager.done(trees, limit=9)
    (40, [(41, 100)])
    """

    def __init__(self, component: str, source: str) -> None:
        """Begin a source of which nothing was planned."""
        self.component = component
        self.source = source
        self.planned = 0
        """The end of all planned ranges; 0 if no range was ever planned, as for the outbox of a bolt's task."""
        self.finished = 0
        self.away = 0
        """In how many consecutive micro-batches the source was away."""
        self._entries: list[Live] = []
        self._waiting: dict[int, Retry] = {}
        self._by_due = DueQueue[Retry](lambda retry: self._waiting.get(retry.position) is retry)
        self._by_position: list[int] = []
        """A heap of positions; some of them may not wait any more."""
        self._letters = 0
        """How many of the waiting records wait for their dead letters."""
        self._rests = 0
        """How many of the waiting records are unread rests of ranges."""
        self._postponed: set[int] = set()
        """The positions of waiting rests of ranges that were too large to be read at once.

        It is not durable: a new life may read something new beside such a rest, once.
        """
        self._asked = self._gone = False
        """Whether the current promotion has read the source, and whether the source was away."""

    # What the next plan asks.

    @property
    def waiting(self) -> int:
        """How many records or ranges wait for a retry."""
        return len(self._waiting)

    def waits(self, position: int) -> bool:
        """Whether the record at this position waits for a retry or for its dead letter."""
        return position in self._waiting

    @property
    def has_letters(self) -> bool:
        """Whether any record waits for its dead letter."""
        return self._letters > 0

    @property
    def has_unread(self) -> bool:
        """Whether the rest of a range waits that could not be read."""
        return self._rests > 0

    def due(self, now_ms: int | None = None) -> Iterator[Retry]:
        """The retries due at ``now_ms`` (None: at any time), by due time; they stay until a promotion removes them."""
        return self._by_due.due(now_ms)

    def next_due_ms(self) -> int | None:
        """When the first waiting retry is due, in milliseconds; None if there is none."""
        return self._by_due.next_due_ms()

    def takes_more(self, max_uncommitted: int | None) -> bool:
        """Whether a new range may be planned.

        No new range is planned while the source is away, while the rest of a range that was too large to be read at
        once is waiting, or if ``planned`` is ``max_uncommitted`` or more positions beyond ``finished``.
        """
        ready = self.away == 0 and not self._postponed
        return ready and (max_uncommitted is None or self.planned - self.finished < max_uncommitted)

    # The steps of a promotion.

    def admit(self, entry: Entry, live: Live | None) -> None:
        """Apply an entry of a promoted plan; ``live`` is set if trees of the entry may be unfinished."""
        self._asked = self._asked or entry.letters is None
        if entry.positions is None:
            if self.planned == 0:
                self.finished = entry.start
            self.planned = max(self.planned, entry.end)
        for position in entry.positions or (entry.start,):
            queued = self._waiting.get(position)
            same_kind = queued is not None and (queued.letter is None) == (entry.letters is None)
            if queued is not None and same_kind and queued.attempt == entry.attempt:
                self._letters -= queued.letter is not None
                self._rests -= queued.is_rest
                del self._waiting[position]
                self._postponed.discard(position)
        if live is not None:
            self._entries.append(live)

    def wait(self, retry: Retry, *, away: bool = False, postponed: bool = False) -> None:
        """Queue the record or range of a failed tree for a retry.

        Args:
            retry: the record or range, and when it is due.
            away: whether it failed because the source was away.
            postponed: whether it is the rest of a range that was too large to be read at once.
        """
        self._queue(retry)
        if postponed:
            self._postponed.add(retry.position)
        self._gone = self._gone or away

    def _queue(self, retry: Retry) -> None:
        before = self._waiting.pop(retry.position, None)  # so that the dict keeps the order of this queue
        if before is None:
            heapq.heappush(self._by_position, retry.position)
        self._letters += (retry.letter is not None) - (before is not None and before.letter is not None)
        self._rests += retry.is_rest - (before is not None and before.is_rest)
        self._waiting[retry.position] = retry
        self._by_due.put(retry.due_ms, retry)

    def advance(self, trees: RotatingMap) -> int | None:
        """End the promotion: drop finished entries; returns the position that may be committed, None if unchanged."""
        self._entries = [live for live in self._entries if live.unfinished]
        if self._gone or self._asked:
            self.away = self.away + 1 if self._gone else 0
        self._asked = self._gone = False
        if self.planned == 0:
            return None
        first = min((_first_open(live.entry, trees) for live in self._entries), default=self.planned)
        position = min(self._first_waiting(), first, self.planned)
        if position <= self.finished:
            return None
        self.finished = position
        return position

    def _first_waiting(self) -> int:
        """The first waiting position; ``planned`` if none waits."""
        heap = self._by_position
        while heap and heap[0] not in self._waiting:
            heapq.heappop(heap)
        return heap[0] if heap else self.planned

    # What is known.

    def view(self, trees: RotatingMap) -> SourceView:
        """The view of the source for its spout."""
        return SourceView(
            planned=self.planned,
            finished=self.finished,
            waiting=self.waiting,
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
        waiting = [(retry.position, retry.end or retry.position + 1) for retry in self._waiting.values()]
        pairs = np.array(waiting, dtype=np.int64).reshape(-1, 2)
        starts = np.concatenate((single, pairs[:, 0]))
        ends = np.concatenate((single + 1, pairs[:, 1]))
        order = np.argsort(starts, kind="stable")
        return starts[order], ends[order]

    def state(self) -> SourceState:
        """The durable state."""
        retries = list(self._waiting.values())
        return SourceState(self.component, self.source, self.planned, self.finished, self.away, retries)

    @classmethod
    def restore(cls, state: SourceState, entries: Iterable[Live]) -> PartitionManager:
        """Restore a manager from its ``state`` and the source's entries with unfinished trees."""
        manager = cls(state.component, state.source)
        manager.planned, manager.finished, manager.away = state.planned, state.finished, state.away
        for retry in state.retries:
            manager._queue(retry)
        manager._entries = list(entries)
        return manager


def _first_open(entry: Entry, trees: RotatingMap) -> int:
    """The first position of the entry with an open tree."""
    if entry.positions is not None:
        positions = _open_positions(entry, trees)
        check(len(positions) > 0, f"{entry} is unfinished and has no open tree")
        return int(positions.min())
    key = trees.first_between(entry.first_key, entry.first_key + entry.reserved - 1)
    if key is None:
        raise InvariantError(f"{entry} is unfinished and has no open tree")
    return entry.position_of(split_key(key)[1])


def _open_positions(entry: Entry, trees: RotatingMap) -> I64:
    """int64[open]: the positions of the entry with open trees."""
    keys = trees.between(entry.first_key, entry.first_key + entry.reserved - 1)
    offsets = (keys & np.uint64(MAX_SEQUENCE)).astype(np.int64) - entry.base
    if entry.positions is None:
        return offsets + entry.start
    positions: I64 = np.array(entry.positions, dtype=np.int64)[offsets]
    return positions
