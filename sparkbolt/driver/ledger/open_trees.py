"""The open trees: columns of trees, each with a life of a fixed number of rotations.

Keys are strictly ascending, and a look-up of many keys is one binary search for all of them. The bucket is a column of
one byte, not one map per bucket as in Storm's ``RotatingMap``, so one search finds a tree, however many buckets there
are. The price: a put between other keys copies all columns once, about 15 ms for a million trees; a put after the last
key copies only the new entries.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import I32, U64, empty_u64, rise, run_starts
from sparkbolt.errors import check
from sparkbolt.wire.acker import locate
from sparkbolt.wire.verdicts import NO_HOLDER

_T = TypeVar("_T", bound=np.generic)

MAX_BUCKETS = 250
_DEAD = np.uint8(255)
_SLACK = 8
"""Room for growth, and the limit of dead slots: one eighth of the living."""


class RotatingMap:
    """Open trees: key -> (XOR so far, holder); of the holders this class interprets only ``NO_HOLDER``.

    All arguments ``keys`` are uint64[keys], strictly ascending; ``xors`` are uint64[keys] and ``holders`` int32[keys].

    >>> trees = RotatingMap(2)
    >>> trees.put(np.array([5, 9], np.uint64), np.array([1, 2], np.uint64), np.array([0, 7], np.int32))
    >>> trees.rotate()[0].tolist(), trees.rotate()[0].tolist(), len(trees)
    ([], [5, 9], 0)
    """

    def __init__(self, buckets: int) -> None:
        """Create an empty map.

        Args:
            buckets: the rotation after its put on which an entry expires; 2 to ``MAX_BUCKETS``.

        Raises:
            ValueError: ``buckets`` is out of its range.
        """
        if not 2 <= buckets <= MAX_BUCKETS:
            raise ValueError(f"a RotatingMap has 2 to {MAX_BUCKETS} buckets, got {buckets}")
        self.buckets = buckets
        self._keys: U64 = empty_u64()
        self._xors: U64 = empty_u64()
        self._holders: I32 = np.empty(0, dtype=np.int32)
        self._bucket: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._used = 0
        self._dead = 0
        self._turn = 0

    def __len__(self) -> int:
        """How many trees are open."""
        return self._used - self._dead

    @property
    def nbytes(self) -> int:
        """The size of the columns in bytes, with their room for growth."""
        return self._keys.nbytes + self._xors.nbytes + self._holders.nbytes + self._bucket.nbytes

    def put(self, keys: U64, xors: U64, holders: I32) -> None:
        """Add or replace entries; their lives begin now."""
        _check_rising(keys)
        if len(keys) == 0:
            return
        if self._used == 0 or keys[0] > self._keys[self._used - 1]:
            self._append(keys, xors, holders)
            return
        slots, there = locate(self._keys[: self._used], keys)
        if there.any():
            at = slots[there]
            self._dead -= int(np.count_nonzero(self._bucket[at] == _DEAD))
            self._xors[at] = xors[there]
            self._holders[at] = holders[there]
            self._bucket[at] = self._turn
            fresh = ~there
            keys, xors, holders = keys[fresh], xors[fresh], holders[fresh]
        if len(keys):
            self._insert(keys, xors, holders)

    def find(self, keys: U64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """(index, found) of each key: intp[keys] and bool[keys]; an index is valid until the map changes."""
        slots, there = locate(self._keys[: self._used], keys)
        if self._dead and len(keys):
            there &= self._bucket[np.minimum(slots, self._used - 1)] != _DEAD
        return slots, there

    def holders_of(self, keys: U64) -> I32:
        """int32[keys]: the holder of each tree; ``NO_HOLDER`` if the key is unknown or no task reported a hold."""
        slots, known = self.find(keys)
        holders = np.full(len(keys), NO_HOLDER, dtype=np.int32)
        holders[known] = self._holders[slots[known]]
        return holders

    def xor(self, keys: U64, xors: U64, holders: I32) -> tuple[U64, U64]:
        """Add XOR values to trees; a holder replaces the earlier one unless it is ``NO_HOLDER``.

        Returns:
            (complete, unknown): the keys whose XOR became zero, which are removed, and the keys that are not in the
            map.
        """
        _check_rising(keys)
        slots, known = self.find(keys)
        unknown = empty_u64()
        if not known.all():
            unknown = keys[~known]
            slots, keys, xors, holders = slots[known], keys[known], xors[known], holders[known]
        values = self._xors[slots] ^ xors
        self._xors[slots] = values
        named = holders != NO_HOLDER
        self._holders[slots[named]] = holders[named]
        zero = values == 0
        self._kill(slots[zero])
        return keys[zero], unknown

    def remove(self, keys: U64) -> npt.NDArray[np.bool_]:
        """Remove keys; returns bool[keys], which of them were there."""
        _check_rising(keys)
        slots, known = self.find(keys)
        self._kill(slots[known])
        return known

    def touch(self, keys: U64) -> npt.NDArray[np.bool_]:
        """Restart the lives of trees (Storm's ``resetTimeout``); returns bool[keys], which of them are there."""
        slots, known = self.find(keys)
        self._bucket[slots[known]] = self._turn
        return known

    def rotate(self) -> tuple[U64, U64, I32]:
        """Advance one rotation: remove and return (keys, xors, holders) of the entries that expired."""
        self._turn = (self._turn + 1) % self.buckets
        slots = np.flatnonzero(self._bucket[: self._used] == self._turn)
        ended = self._keys[slots], self._xors[slots], self._holders[slots]
        self._kill(slots)
        return ended

    def between(self, first: int, last: int) -> U64:
        """The open keys from ``first`` to ``last``, both inclusive."""
        low, high = self._bounds(first, last)
        keys: U64 = self._keys[low:high]
        open_keys: U64 = keys[self._bucket[low:high] != _DEAD]
        return open_keys

    def first_between(self, first: int, last: int) -> int | None:
        """The smallest open key from ``first`` to ``last``, both inclusive; None if there is none."""
        low, high = self._bounds(first, last)
        step = 64
        while low < high:
            living = self._bucket[low : min(low + step, high)] != _DEAD
            at = int(living.argmax())
            if living[at]:
                return int(self._keys[low + at])
            low += step
            step *= 2
        return None

    def arrays(self) -> tuple[U64, U64, I32]:
        """(keys, xors, holders) of all entries, for a snapshot; copies."""
        living = self._bucket[: self._used] != _DEAD
        used = slice(self._used)
        return self._keys[used][living], self._xors[used][living], self._holders[used][living]

    @classmethod
    def restore(cls, buckets: int, keys: U64, xors: U64, holders: I32) -> RotatingMap:
        """Create a map from the result of ``arrays``; all lives begin now."""
        restored = cls(buckets)
        restored.put(keys, xors, holders)
        return restored

    def _bounds(self, first: int, last: int) -> tuple[int, int]:
        used = self._keys[: self._used]
        low = int(np.searchsorted(used, np.uint64(first), side="left"))
        return low, int(np.searchsorted(used, np.uint64(last), side="right"))

    def _append(self, keys: U64, xors: U64, holders: I32) -> None:
        if self._used + len(keys) > len(self._keys):
            self._rebuild(len(keys))
        new = slice(self._used, self._used + len(keys))
        self._keys[new] = keys
        self._xors[new] = xors
        self._holders[new] = holders
        self._bucket[new] = self._turn
        self._used += len(keys)

    def _insert(self, keys: U64, xors: U64, holders: I32) -> None:
        """Insert keys that are not in the columns, not even as dead slots."""
        used = slice(self._used)
        places = np.searchsorted(self._keys[used], keys)
        turn = np.full(len(keys), self._turn, dtype=np.uint8)
        total = self._used + len(keys)
        capacity = total + total // _SLACK
        self._keys = _merged(capacity, places, self._keys[used], keys)
        self._xors = _merged(capacity, places, self._xors[used], xors)
        self._holders = _merged(capacity, places, self._holders[used], holders)
        self._bucket = _merged(capacity, places, self._bucket[used], turn)
        self._used = total

    def _kill(self, slots: npt.NDArray[np.intp]) -> None:
        self._bucket[slots] = _DEAD
        self._dead += len(slots)
        if self._dead > len(self) // _SLACK + 1024:
            self._rebuild(0)

    def _rebuild(self, extra: int) -> None:
        """Remove dead slots, and make room for ``extra`` more entries and an eighth."""
        living = np.flatnonzero(self._bucket[: self._used] != _DEAD)
        total = len(living) + extra
        capacity = total + total // _SLACK
        self._keys = _moved(capacity, living, self._keys)
        self._xors = _moved(capacity, living, self._xors)
        self._holders = _moved(capacity, living, self._holders)
        self._bucket = _moved(capacity, living, self._bucket)
        self._used, self._dead = len(living), 0


def _merged(capacity: int, places: npt.NDArray[np.intp], old: npt.NDArray[_T], new: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """A column of length ``capacity`` that begins with ``old``, with ``new[i]`` inserted before index ``places[i]``.

    New values mostly go to a few places, one for each spout task; then whole slices are copied.
    """
    column = np.empty(capacity, dtype=old.dtype)
    filled = column[: len(old) + len(new)]
    starts = run_starts(places)
    if len(starts) <= 1000:
        cuts = [0, *places[starts].tolist(), len(old)]
        bounds = [*starts.tolist(), len(new)]
        pieces = [old[: cuts[1]]]
        for i in range(len(starts)):
            pieces += [new[bounds[i] : bounds[i + 1]], old[cuts[i + 1] : cuts[i + 2]]]
        np.concatenate(pieces, out=filled)
        return column
    at = places + np.arange(len(new))
    kept = np.ones(len(filled), dtype=bool)
    kept[at] = False
    filled[kept] = old
    filled[at] = new
    return column


def _moved(capacity: int, living: npt.NDArray[np.intp], column: npt.NDArray[_T]) -> npt.NDArray[_T]:
    moved = np.empty(capacity, dtype=column.dtype)
    np.take(column, living, out=moved[: len(living)], mode="clip")
    return moved


def distinct(keys: U64) -> U64:
    """Each key once, ascending: uint64[keys] in any order.

    ``np.unique`` puts them into a hash table, which takes a microsecond a key: twenty times as long as to sort them.

    >>> distinct(np.array([7, 5, 7], dtype=np.uint64)).tolist()
    [5, 7]
    """
    if rise(keys):
        return keys
    ordered = np.sort(keys, kind="stable")
    once: U64 = ordered[run_starts(ordered)]
    return once


def _check_rising(keys: U64) -> None:
    check(rise(keys), "keys of open trees must be strictly rising: the acker combines them")
