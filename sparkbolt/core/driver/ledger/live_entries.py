"""Live entries: the entries of promoted plans that have unfinished trees, sorted by their keys.

Which question it answers: which entry has reserved this key?

Rule: a promotion costs what it adds and drops, and for each of the others a copy of two numbers and a look: each
source with an open tree has an entry here.

Read before: ``plan``, ``partition_manager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import U64
from sparkbolt.core.driver.ledger.partition_manager import Live
from sparkbolt.core.protocol.plan import Entry


class LiveEntries:
    """The entries, by slot; a slot is valid until entries are added or dropped.

    >>> entries = LiveEntries([])
    >>> entries.add([Live(Entry(2, 0, "b", 0, 9), 0, 0), Live(Entry(1, 0, "a", 0, 9), 0, 0, unfinished=1)])
    >>> entries.slots_of(np.array([(1 << 48) + 8, (2 << 48) + 9], dtype=np.uint64)).tolist()
    [0, -1]
    >>> entries.keep(lambda live: live.unfinished > 0)
    >>> [live.entry.source for live in entries]
    ['a']
    """

    def __init__(self, live: Iterable[Live]) -> None:
        """Begin with these entries, in any order."""
        self._live: list[Live] = []
        self._first_keys, self._reserved = columns_of([])
        self.add(live)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._live)

    def __iter__(self) -> Iterator[Live]:
        """Iterate over the entries, ascending by key."""
        return iter(self._live)

    def __getitem__(self, slot: int) -> Live:
        """Return the entry at a slot."""
        return self._live[slot]

    def add(self, live: Iterable[Live]) -> None:
        """Add entries, none of which reserves a key of another."""
        new = sorted(live, key=lambda one: one.entry.first_key)
        first_keys, reserved = columns_of([one.entry for one in new])
        places = np.searchsorted(self._first_keys, first_keys)
        merged: list[Live] = []
        start = 0
        for place, one in zip(places.tolist(), new, strict=True):
            merged += self._live[start:place]
            merged.append(one)
            start = place
        self._live = merged + self._live[start:]
        self._first_keys = np.insert(self._first_keys, places, first_keys)
        self._reserved = np.insert(self._reserved, places, reserved)

    def keep(self, wanted: Callable[[Live], object]) -> None:
        """Drop the entries that are not wanted."""
        kept = list(map(bool, map(wanted, self._live)))
        if not all(kept):
            mask = np.array(kept, dtype=bool)
            self._live = [one for one, keeps in zip(self._live, kept, strict=True) if keeps]
            self._first_keys, self._reserved = self._first_keys[mask], self._reserved[mask]

    def slots_of(self, keys: U64) -> npt.NDArray[np.intp]:
        """intp[keys]: the slot of the entry that reserved each key, or -1."""
        return slots(self._first_keys, self._reserved, keys)


def columns_of(entries: Sequence[Entry]) -> tuple[U64, U64]:
    """(first key, number of reserved sequences) of each entry: uint64[entries] each."""
    first = np.array([entry.first_key for entry in entries], dtype=np.uint64)
    return first, np.array([entry.reserved for entry in entries], dtype=np.uint64)


def slots(first_keys: U64, reserved: U64, keys: U64) -> npt.NDArray[np.intp]:
    """intp[keys]: the index of the entry that reserved each key, or -1; ``first_keys`` are ascending."""
    if len(first_keys) == 0 or len(keys) == 0:
        return np.full(len(keys), -1, dtype=np.intp)
    found = np.searchsorted(first_keys, keys, side="right") - 1
    found[keys - first_keys[found] >= reserved[found]] = -1  # true also for slot -1, because the difference wraps
    return found
