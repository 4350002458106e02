"""Plan entries: what the next micro-batch reads, what it retries, and what it reads for dead letters.

Records of one source that are at the same attempt share an entry; a range that could not be read is an entry of its
own. A plan stays small: the number of dead letters and of their characters is limited, and the others wait.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.ranges import Range
from sparkbolt.base.ids import LETTERS
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.retry_schedule import Retry
from sparkbolt.driver.spout_buffer import SpoutBuffer
from sparkbolt.errors import EngineError, check
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.plan import Entry

RETRIES_PER_PLAN_MAX = 5000
LETTERS_PER_ENTRY_MAX = 100
LETTERS_PER_PLAN_MAX = 1000
LETTERS_ALONE_PER_PLAN_MAX = 50
LETTER_CHARACTERS_PER_PLAN_MAX = 1 << 20


class PlanEntries:
    """The entries of one plan, which reserve sequences; call each ``add`` at most once, in this order."""

    def __init__(
        self, lane: Lane, ledger: Ledger, spouts: Mapping[str, PartitionedSpout], buffers: Mapping[int, SpoutBuffer]
    ) -> None:
        """Begin a plan without entries; the arguments are those of the coordinator."""
        self.read: list[Entry] = []
        """The entries that spouts read."""
        self.again: list[Entry] = []
        """The entries that tasks emit again from their outboxes."""
        self._lane, self._ledger, self._spouts, self._buffers = lane, ledger, spouts, buffers
        self._bytes = lane.topology.config.micro_batch_bytes_max // max(1, len(buffers))
        """How many bytes the records of one task of a ``Spout`` may have."""
        self._bases: dict[int, int] = {}

    def add_retries(self, ready_ms: int, rooms: Mapping[str, int]) -> None:
        """Add the retries and dead letters that are due; retries of a component with a room have half of it.

        The other half is for records that were never planned.
        """
        half = {component: (room + 1) // 2 for component, room in rooms.items()}
        retries = list(self._that_fit(self._ledger.messages.retries.due(RETRIES_PER_PLAN_MAX, ready_ms, half)))
        entries = retry_entries(retries, self._base, self._reads_once)
        for entry in (*entries, *letter_entries(retries, self._ledger.messages.next_letter)):
            spec = self._lane.topology.components[self._lane.topology.task_owner(entry.task)[0]]
            (self.read if spec.is_spout and spec.id not in self._lane.inlets else self.again).append(entry)
            if entry.task in self._buffers and entry.source is None:
                self._buffers[entry.task].plan_again(entry)

    def add_ranges(self, offered: Mapping[str, Sequence[Range]]) -> None:
        """Add the ranges that spouts offer."""
        for component, ranges in offered.items():
            once, numbers = self._spouts[component].once, self._lane.topology.tasks(component)
            for range_ in ranges:
                task = numbers[range_.task]
                base = self._base(task, range_.end - range_.start)
                self.read.append(Entry(task, base, range_.source, range_.start, range_.end, once=once))

    def add_records(self, rooms: Mapping[str, int]) -> None:
        """Add records of each ``Spout`` that were never planned: the room of its component, divided by need."""
        again = Counter[str]()
        for entry in self.read:
            again[self._lane.topology.task_owner(entry.task)[0]] += 0 if entry.letters else entry.reserved
        for component in dict.fromkeys(self._lane.topology.task_owner(number)[0] for number in self._buffers):
            left, numbers = rooms[component] - again[component], self._lane.topology.tasks(component)
            by_need = sorted((len(self._buffers[number].waiting), number) for number in numbers)
            for place, (count, number) in enumerate(by_need):
                buffer = self._buffers[number]
                check(not buffer.planned, f"records of task {number} are still planned")
                share = min(count, math.ceil(left / (len(by_need) - place)))
                self.read += buffer.plan(self._base(number, 0), self._bytes, share)
                self._base(number, len(buffer.planned))
                left -= len(buffer.planned)

    def _that_fit(self, retries: Iterable[Retry]) -> Iterator[Retry]:
        """The retries without those of a ``Spout`` whose records exceed the bytes, and returned letters that do."""
        sizes, returned = Counter[int](), 0
        for retry in retries:
            if retry.record is not None and retry.letter is None:
                if returned > LETTER_CHARACTERS_PER_PLAN_MAX:
                    continue
                returned += len(retry.record)
            buffer = self._buffers.get(retry.task) if retry.source is None else None
            if buffer is None or sizes[retry.task] < self._bytes // 2:
                sizes[retry.task] += 0 if buffer is None else buffer.unfinished[retry.position].record.size
                yield retry

    def _reads_once(self, task: int) -> bool:
        spout = self._spouts.get(self._lane.topology.task_owner(task)[0])
        return spout is not None and spout.once

    def _base(self, task: int, reserve: int) -> int:
        """Reserve sequences of a task; returns the first of them."""
        base = self._bases.get(task, self._ledger.next_sequence(task))
        if base + reserve > LETTERS:
            component, index = self._lane.topology.task_owner(task)
            raise EngineError(
                f"{component}[{index}] has reserved {base:,} trees since the topology's first start, and cannot "
                f"reserve {reserve:,} more: each position of a range counts, be there a record or not, and a task has "
                f"{LETTERS:,}. Use positions without gaps (not nanoseconds), or more tasks, and a new checkpoint"
            )
        self._bases[task] = base + reserve
        return base


def retry_entries(
    retries: Iterable[Retry], base_of: Callable[[int, int], int], reads_once: Callable[[int], bool]
) -> list[Entry]:
    """The entries for the retries that are not dead letters.

    Args:
        retries: the retries that are due.
        base_of: reserves a number of sequences for a task, and returns the first of them.
        reads_once: whether the spout of a task emits each record at most once.

    >>> again = [Retry(1, "a.txt", 10, 2), Retry(1, "a.txt", 50, 2), Retry(1, "a.txt", 60, 2, end=90)]
    >>> found = retry_entries(again, lambda task, reserve: 7, lambda task: False)
    >>> [(entry.start, entry.end, entry.positions) for entry in found]
    [(60, 90, None), (10, 11, (10, 50))]
    """
    grouped: dict[tuple[int, str | None, int, bool], list[Retry]] = {}
    entries = []
    for retry in retries:
        if retry.letter is not None:
            continue
        if retry.end is None:
            grouped.setdefault((retry.task, retry.source, retry.attempt, retry.record is not None), []).append(retry)
        else:
            base, once = base_of(retry.task, retry.end - retry.position), reads_once(retry.task)
            entries.append(Entry(retry.task, base, retry.source, retry.position, retry.end, retry.attempt, once=once))
    for (task, source, attempt, returned), some in grouped.items():
        positions = tuple(retry.position for retry in some)
        records = tuple(retry.record or "" for retry in some) if returned else None
        base, first = base_of(task, len(positions)), positions[0]
        entries.append(Entry(task, base, source, first, first + 1, attempt, positions, records=records))
    return entries


def letter_entries(retries: Iterable[Retry], next_letter: Callable[[int], int]) -> list[Entry]:
    """The entries for the retries that wait for dead letters.

    Dead letters at their first attempt share an entry. One at a later attempt has an entry of its own, so that it
    alone succeeds or fails.

    Args:
        retries: the retries that are due, the longest first.
        next_letter: returns the first sequence of a task that is free for dead letters.

    >>> again = [Retry(1, "a.txt", at, attempt, letter="{}") for at, attempt in ((10, 1), (50, 2), (20, 1))]
    >>> [(entry.base, entry.positions) for entry in letter_entries(again, lambda task: 100)]
    [(100, (10, 20)), (102, (50,))]
    """
    groups: dict[tuple[int, str | None, int, int], list[tuple[int, str]]] = {}
    count = size = lone = 0
    for retry in retries:
        if retry.letter is None or (retry.attempt > 1 and lone == LETTERS_ALONE_PER_PLAN_MAX):
            continue
        lone += retry.attempt > 1
        if count == LETTERS_PER_PLAN_MAX or size > LETTER_CHARACTERS_PER_PLAN_MAX:
            break
        count, size = count + 1, size + len(retry.letter)
        alone = count // LETTERS_PER_ENTRY_MAX if retry.attempt == 1 else LETTERS_PER_PLAN_MAX + count
        groups.setdefault((retry.task, retry.source, retry.attempt, alone), []).append((retry.position, retry.letter))
    entries: list[Entry] = []
    bases: dict[int, int] = {}
    for (task, source, attempt, _), waiting in groups.items():
        positions, letters = tuple(position for position, _ in waiting), tuple(letter for _, letter in waiting)
        base = bases.get(task, next_letter(task))
        bases[task] = base + len(positions)
        first = positions[0]
        entries.append(Entry(task, base, source, first, first + 1, attempt, positions, letters=letters))
    return entries
