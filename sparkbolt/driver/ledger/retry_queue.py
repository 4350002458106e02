"""The retry queue: the sources with records that wait for a retry, or for their dead letters.

Rule: a look costs the sources whose records are due, and not the sources whose records wait.

It is apart from ``messages``, its only user, because it needs nothing of trees.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import islice, repeat

from sparkbolt.driver.ledger.due_queue import DueQueue
from sparkbolt.driver.ledger.partition_manager import PartitionManager, Retry


class RetryQueue:
    """The managers whose records wait; part of ``Messages``.

    >>> manager, queue = PartitionManager("lines", "a.txt"), RetryQueue()
    >>> manager.wait(Retry(1, "a.txt", 40, 2, due_ms=900))
    >>> queue.note(manager)
    >>> queue.next_due_ms(), queue.first(9, now_ms=899), [retry.position for retry in queue.first(9, now_ms=900)]
    (900, [], [40])
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._waiting: dict[tuple[str, str], tuple[int, PartitionManager]] = {}
        """(component, source) to when the first of its records is due, in milliseconds, and its manager."""
        self._dues = DueQueue[tuple[tuple[str, str], int]](self._counts)

    def _counts(self, due: tuple[tuple[str, str], int]) -> bool:
        known = self._waiting.get(due[0])
        return known is not None and known[0] == due[1]

    def note(self, manager: PartitionManager) -> None:
        """Note whether records of a source wait now, and until when; call it once they have changed."""
        place, due_ms = (manager.component, manager.source), manager.next_due_ms()
        known = self._waiting.get(place)
        if due_ms is None:
            self._waiting.pop(place, None)
        elif known is None or known[0] != due_ms:
            self._waiting[place] = due_ms, manager
            self._dues.put(due_ms, (place, due_ms))

    def unread(self) -> set[tuple[str, str]]:
        """(component, source) of each source with a range that could not be read yet."""
        return {place for place, (_, manager) in self._waiting.items() if manager.has_unread}

    def counts(self) -> dict[str, int]:
        """How many records of each component wait; components without any are left out."""
        counts: dict[str, int] = {}
        for (component, _), (_, manager) in self._waiting.items():
            counts[component] = counts.get(component, 0) + manager.waiting
        return counts

    def first(self, limit: int, now_ms: int | None = None, rooms: Mapping[str, int] | None = None) -> list[Retry]:
        """Up to ``limit`` records that are due at ``now_ms`` (None: at any time), by due time; they stay queued.

        ``rooms`` limits the number of records of some components; records that wait for dead letters have no limit.
        """
        left = dict(rooms or {})
        places = sorted({place for place, _ in self._dues.due(now_ms)})
        managers = [self._waiting[place][1] for place in places]
        queues = [
            zip(one.due(now_ms), repeat(one.component))
            for one in managers
            if left.get(one.component) != 0 or one.has_letters
        ]
        merged = heapq.merge(*queues, key=lambda pair: pair[0].due_ms)
        return list(islice((retry for retry, component in merged if _has_room(retry, component, left)), limit))

    def next_due_ms(self, not_before: Mapping[str, int] | None = None) -> int | None:
        """When the first record is due; for components in ``not_before``, not before that time."""
        if not not_before:
            return self._dues.next_due_ms()
        dues: list[int] = []
        for (component, _), (due_ms, manager) in self._waiting.items():
            least = not_before.get(component, 0)
            dues.append(max(due_ms, least))
            if least and manager.has_letters:
                dues.append(next(retry.due_ms for retry in manager.due() if retry.letter is not None))
        return min(dues, default=None)


def _has_room(retry: Retry, component: str, left: dict[str, int]) -> bool:
    """Whether a record fits into the room that is left for its component; a range uses all of it."""
    if component not in left or retry.letter is not None:
        return True
    if left[component] == 0:
        return False
    left[component] = left[component] - 1 if retry.end is None else 0
    return True
