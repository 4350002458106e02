"""Due queues: what waits for a time, the earliest first.

Rule 1: a look costs what it finds, and not what waits.
Rule 2: what does not count any more is not looked for: it is dropped when it is the first.

The items are a sorted list, and not a heap: a plan takes thousands of items that are due without removing them, and to
walk a heap in order takes three times as long as to walk a list. The price: what is put before many others moves them.
That is a copy of memory, and most of what is put is due after most of what waits.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

FEW = 64
"""So many new items, or fewer, are put in one by one; more are sorted, and merged with what is due after the first."""


class DueQueue(Generic[T]):
    """Items by due time; items with equal times stay in the order in which they were put.

    >>> queue = DueQueue[str]()
    >>> for due_ms, item in ((900, "a"), (100, "b"), (500, "c"), (100, "d")):
    ...     queue.put(due_ms, item)
    >>> list(queue.due(500)), queue.next_due_ms(), queue.take(100), len(queue)
    (['b', 'd', 'c'], 100, 'b', 3)
    """

    def __init__(self, counts: Callable[[T], bool] | None = None) -> None:
        """Begin empty; ``counts`` says whether an item still counts, by default always.

        What does not count may be dropped at any time.
        """
        self._counts = counts
        self._items: list[tuple[int, int, T]] = []
        """(due time in ms, ascending number, item), sorted; those before ``_first`` are dropped."""
        self._first = 0
        self._new: list[tuple[int, int, T]] = []
        """What was put since the last look."""
        self._put = 0

    def __len__(self) -> int:
        """How many items there are; some of them may not count any more."""
        return len(self._items) - self._first + len(self._new)

    def put(self, due_ms: int, item: T) -> None:
        """Add an item."""
        self._put += 1
        self._new.append((due_ms, self._put, item))

    def next_due_ms(self) -> int | None:
        """When the first item is due; None if there is none."""
        self._sort_in()
        items, counts = self._items, self._counts
        while self._first < len(items) and counts is not None and not counts(items[self._first][2]):
            self._first += 1
        return items[self._first][0] if self._first < len(items) else None

    def due(self, now_ms: int | None = None) -> Iterator[T]:
        """The items that are due (None: all), in order; they stay, and nothing may be put or taken meanwhile."""
        if self.next_due_ms() is None:
            return
        for place in range(self._first, len(self._items)):
            due_ms, _, item = self._items[place]
            if now_ms is not None and due_ms > now_ms:
                return
            if self._counts is None or self._counts(item):
                yield item

    def take(self, now_ms: float) -> T | None:
        """Remove and return the first item that is due; None if none is."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        self._first += 1
        return self._items[self._first - 1][2]

    def _sort_in(self) -> None:
        """Sort in what is new; forget what was dropped, once it is the larger part."""
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
