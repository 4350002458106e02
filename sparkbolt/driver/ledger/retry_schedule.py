"""The retry schedule: the failed messages of all logs, when each is due, and its attempts so far.

A message that is due stays here until a promoted plan names its position and its attempt (``take``), so a plan that is
made and dropped loses nothing. Attempts at a message that may become a dead letter are kept from its first failure
until it is acked or its dead letter is durable; of many attempts the first and the newest are kept, and all are
counted.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from sparkbolt.api.reports import FailedTree
from sparkbolt.base.codec import ROW
from sparkbolt.base.ids import U64, tree_key
from sparkbolt.wire.attempts import NO_ATTEMPTS, MessageAttempts
from sparkbolt.wire.plan import Entry

LogName: TypeAlias = tuple[str, str]
"""(component, source) of a message log."""
MessageKey: TypeAlias = tuple[str, str, int]
"""(component, source, position) of a message."""
FEW = 64
"""Up to this many new items are put in one by one; more are sorted, and merged with the items after the first of
them."""


@dataclass(frozen=True)
class Retry:
    """A message that must be read or emitted again, or the rest of a range that could not be read."""

    JSON = ROW

    task: int
    """The number of the task that read it."""
    source: str | None
    """None: a record of a ``Spout``."""
    position: int
    attempt: int
    """The number of the next attempt: 2 after the first failure."""
    end: int | None = None
    """The end of a range that must be read again; None: it is one record."""
    due_ms: int = 0
    """When it may be retried, in the plans' time, in milliseconds."""
    letter: str | None = None
    """If the record waits for its dead letter: the report on it (``ExhaustedMessage``, dumped).

    ``attempt`` then counts the attempts at writing the dead letter, from 1.
    """
    record: str | None = None
    """If its dead letter was given back: its record (``ReturnedRecord``, dumped)."""

    @property
    def is_rest(self) -> bool:
        """Whether it is a range that could not be read, and no record."""
        return self.end is not None and self.letter is None


Item: TypeAlias = tuple[int, str, str, int, Retry]
"""(due time in ms, component, source, ascending number, retry)."""
_NOTHING: Mapping[int, Retry] = {}


class RetrySchedule:
    """The retries of all message logs by position, and in the order in which they are due.

    >>> schedule = RetrySchedule()
    >>> for position, due_ms in ((10, 900), (20, 100), (30, 500)):
    ...     schedule.put(("lines", "a.txt"), Retry(1, "a.txt", position, 2, due_ms=due_ms))
    >>> [retry.position for retry in schedule.due(9, now_ms=500)], schedule.next_due_ms(), len(schedule)
    ([20, 30], 100, 3)
    """

    def __init__(self, attempts: Iterable[tuple[MessageKey, MessageAttempts]] = ()) -> None:
        """Begin without waiting messages, and with the attempts of another schedule."""
        self.attempts = dict(attempts)
        """The attempts at the messages that have failed and may become dead letters; other modules may read it."""
        self._running: dict[int, MessageKey] = {}
        """Tree key to message, for the messages with attempts that are being retried."""
        self._waiting: dict[LogName, dict[int, Retry]] = {}
        self._rests = Counter[LogName]()
        self._counts = Counter[str]()
        self._queues: dict[tuple[str, bool], _DueQueue] = {}
        """By (component, whether it waits for its dead letter)."""
        self._put = 0

    def __len__(self) -> int:
        """How many messages and rests of ranges wait."""
        return self._counts.total()

    def counts(self) -> dict[str, int]:
        """How many messages of each component wait; components without any are left out."""
        return dict(+self._counts)

    def of(self, log: LogName) -> Mapping[int, Retry]:
        """The waiting messages of one log, by position, in the order in which they were put."""
        return self._waiting.get(log, _NOTHING)

    def unread(self) -> set[LogName]:
        """The logs with a waiting rest of a range that could not be read."""
        return set(+self._rests)

    def put(self, log: LogName, retry: Retry) -> None:
        """Let a message wait; it replaces the one that waits at its position."""
        if self.of(log).get(retry.position) is retry:  # it waits already, and a second item would be due as well
            return
        self._remove(log, retry.position)
        self._waiting.setdefault(log, {})[retry.position] = retry
        self._rests[log] += retry.is_rest
        self._counts[log[0]] += 1
        self._put += 1
        queue = self._queues.setdefault((log[0], retry.letter is not None), _DueQueue(self._waiting))
        queue.put((retry.due_ms, *log, self._put, retry))

    def failed(self, log: LogName, position: int, tree: FailedTree) -> MessageAttempts:
        """Add a failed attempt at a message; return all attempts at it."""
        key = *log, position
        attempts = self.attempts[key] = self.attempts.get(key, NO_ATTEMPTS).with_failure(tree)
        return attempts

    def take(self, log: LogName, entry: Entry) -> list[int]:
        """Remove the messages that a promoted entry reads; return the positions that have waited."""
        waiting, lettered = self.of(log), entry.letters is not None
        positions = entry.positions or (entry.start,)
        for offset, position in enumerate(positions if self.attempts else ()):
            if (*log, position) in self.attempts:
                self._running[tree_key(entry.task, entry.base + offset)] = *log, position
        found = [
            position
            for position in positions
            if (retry := waiting.get(position)) is not None
            and (retry.letter is not None, retry.attempt) == (lettered, entry.attempt)
        ]
        for position in found:
            self._remove(log, position)
        return found

    def settle(self, open_among: Callable[[U64], Any]) -> None:
        """End a promotion: drop the attempts at the messages that are finished.

        Args:
            open_among: for uint64[keys], a mask bool[keys] of the keys whose trees are open.
        """
        trees = list(self._running)
        for tree, still_open in zip(trees, open_among(np.array(trees, dtype=np.uint64)).tolist(), strict=True):
            if not still_open:
                component, source, position = key = self._running.pop(tree)
                if position not in self.of((component, source)):
                    self.attempts.pop(key, None)

    def forget(self, log: LogName) -> None:
        """Drop all data on a log."""
        for position in list(self.of(log)):
            self._remove(log, position)
        self.attempts = {key: attempts for key, attempts in self.attempts.items() if key[:2] != log}
        self.forget_trees(log)

    def forget_trees(self, log: LogName) -> None:
        """Drop the trees of a log, whose messages wait again: the end of an old tree must not end its message."""
        self._running = {tree: key for tree, key in self._running.items() if key[:2] != log}

    def _remove(self, log: LogName, position: int) -> None:
        waiting = self._waiting.get(log, {})
        retry = waiting.pop(position, None)
        if retry is not None:
            self._rests[log] -= retry.is_rest
            self._counts[log[0]] -= 1
            if not waiting:
                del self._waiting[log]

    def due(self, limit: int, now_ms: int | None = None, rooms: Mapping[str, int] | None = None) -> list[Retry]:
        """Up to ``limit`` messages that are due at ``now_ms`` (None: at any time), by due time; they stay here.

        ``rooms`` limits the number of messages of some components, and the rest of a range uses all of it; messages
        that wait for dead letters have no limit.
        """
        left = rooms or {}
        queues = [
            _within(queue.due(now_ms), None if lettered else left.get(component))
            for (component, lettered), queue in self._queues.items()
        ]
        return [item[-1] for item in islice(heapq.merge(*queues), limit)]

    def next_due_ms(self, not_before: Mapping[str, int] | None = None) -> int | None:
        """When the first message is due; for components in ``not_before``, a retry is not due before that time."""
        least, dues = not_before or {}, list[int]()
        for (component, lettered), queue in self._queues.items():
            due_ms = queue.next_due_ms()
            if due_ms is not None:
                dues.append(due_ms if lettered else max(due_ms, least.get(component, 0)))
        return min(dues, default=None)


def _within(items: Iterator[Item], room: int | None) -> Iterator[Item]:
    """The first items, as many as there is room for; None: all."""
    for item in items if room != 0 else ():
        yield item
        if room is not None:
            room = room - 1 if item[-1].end is None else 0
            if room == 0:
                return


class _DueQueue:
    """Retries by due time; an item whose message no longer waits is dropped when it is the first.

    The items are a sorted list, and not a heap: a plan takes thousands of items that are due without removing them, and
    to walk a heap in order takes three times as long as to walk a list. The price: an item that is put before many
    others moves them. That is a copy of memory, and most new items are due after most waiting ones.
    """

    def __init__(self, waiting: Mapping[LogName, Mapping[int, Retry]]) -> None:
        self._waiting = waiting
        self._items: list[Item] = []
        """Sorted; those before ``_first`` are dropped."""
        self._first = 0
        self._new: list[Item] = []
        """The items that were put since the last look."""

    def put(self, item: Item) -> None:
        self._new.append(item)

    def next_due_ms(self) -> int | None:
        """When the first message is due; None if none waits."""
        self._sort_in()
        items = self._items
        while self._first < len(items) and not self._waits(items[self._first]):
            self._first += 1
        return items[self._first][0] if self._first < len(items) else None

    def due(self, now_ms: int | None) -> Iterator[Item]:
        """The items that are due (None: all), in order; do not put any during the iteration."""
        if self.next_due_ms() is None:
            return
        for place in range(self._first, len(self._items)):
            item = self._items[place]
            if now_ms is not None and item[0] > now_ms:
                return
            if self._waits(item):
                yield item

    def _waits(self, item: Item) -> bool:
        _, component, source, _, retry = item
        return self._waiting.get((component, source), _NOTHING).get(retry.position) is retry

    def _sort_in(self) -> None:
        """Sort in the new items; remove the dropped ones, once they are the larger part."""
        if 2 * self._first > len(self._items):
            del self._items[: self._first]
            self._first = 0
        if not self._new:
            return
        if len(self._new) <= FEW:
            for one in self._new:
                insort(self._items, one, self._first)
        else:
            self._new.sort()
            place = bisect_right(self._items, self._new[0], self._first)
            self._items[place:] = sorted(self._items[place:] + self._new)
        self._new = []
