"""Key-value state: Storm's key-value state, whose cost grows with the keys that a micro-batch touches.

Rule 1: a commit appends one delta, a segment with the puts and deletes of the micro-batch. Each bucket has a
segment with all keys of a range of hashes, up to some delta. Commits rewrite a few buckets at a time, the oldest first,
and drop a delta once every bucket includes it. So the cost of a commit grows with the touched keys and a small share of
all keys.
Rule 2: deltas form a line. The content up to a delta never changes, and the delta's random stamp proves it. If a
worker's cache ends at a delta that is still listed, the worker reads the later deltas, whatever was rewritten since. If
its stamp is not listed (its attempt was never committed, or the worker missed too many commits), it starts with an
empty cache.
Rule 3: uncommitted values are only in ``_dirty``, and ``_attach`` clears it.
Rule 4: a returned value is a cached object only if nothing can change it in place (``segments``, rule 3).
Rule 5: with compiled kernels, keys and values are in a ``TextNumbers`` instead of dicts, as long as all of them are
strings and integers. With the first other value, they move to the dicts for good.

The first bits of a hash choose the bucket. So when the number of buckets doubles, the two halves of a bucket share its
segment until each is rewritten. Prior art: log-structured stores, linear hashing (Litwin, 1980).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np

from sparkbolt.api.pickling import CannotKeepError, Pickling
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import line_of, pass_on, printed
from sparkbolt.base.native import kernels
from sparkbolt.base.text_arrays import buffers_of, text_from
from sparkbolt.errors import StateError, check
from sparkbolt.worker.state.bucket_contents import all_of, content_of, due, rewritten
from sparkbolt.worker.state.bucket_table import BucketTable
from sparkbolt.worker.state.segments import (
    HASH_BITS,
    TOMBSTONE,
    Entries,
    PickledValue,
    SegmentStore,
    Tombstone,
    freeze,
    has_tombstones,
    key_hash,
    key_hashes,
    physical_key,
    read_segment,
)

BUCKET_KEYS = 2048
"""When buckets have more keys than this on average, their number doubles."""
CACHED_KEYS_MAX = 4_000_000
"""With more cached keys than this a worker drops its cache between two micro-batches."""
CACHED_NUMBERS_MAX = 6_000_000
"""The same for keys and numbers without an object for each; a short one takes 90 bytes instead of 137."""
DROPPED_KEYS_MAX = 10_000
"""How many keys from attempts that did not count the cache may have, besides as many as its live keys."""

_BITS_MAX = 20
_BUCKET_NAME = "kv/b"
_DELTA_NAME = "kv/d"
_MISSING: Any = object()
_NO_BUCKETS = BucketTable()


def _listed(values: Any) -> list[Any]:
    """The elements of an Arrow array, a numpy array or an iterable, as Python values."""
    for name in ("to_pylist", "tolist"):
        if hasattr(values, name):
            elements = getattr(values, name)()
            return elements if type(elements) is list else list(elements)
    return list(values)


class _Dirty(dict[Any, Any]):
    """Uncommitted values; a missing key is looked up in the committed values, and not inserted."""

    def __init__(self, committed: Callable[[Any], Any]) -> None:
        self._committed = committed

    def __missing__(self, key: Any) -> Any:
        return self._committed(key)


def _reader(dirty: dict[Any, Any]) -> Callable[..., Any]:
    """``get`` as a closure over all that it reads."""

    def get(key: Any, default: Any = None) -> Any:
        value = dirty[key]
        return default if value is TOMBSTONE else value

    return get


def _writer(dirty: dict[Any, Any]) -> Callable[[Any, Any], None]:
    """``put`` as a closure over all that it writes."""

    def put(key: Any, value: Any) -> None:
        dirty[key] = value

    return put


class KeyValueTable:
    """The ``KeyValueState`` of one task; the engine commits it with the micro-batch.

    >>> state = KeyValueTable()
    >>> state.put("be", state.get("be", 0) + 1)
    >>> state.get("be"), "or" in state, list(state), state.delete("be"), len(state)
    (1, False, [('be', 1)], 1, 0)
    """

    def __init__(self, pickling: Pickling | None = None) -> None:
        self._pickling = pickling or Pickling({})
        self._dirty: dict[Any, Any] = _Dirty(self._committed)
        """Uncommitted: key to new value or ``TOMBSTONE``. Hot keys are here, so ``get`` looks here first."""
        self._thawed: dict[Any, Any] = {}
        """Key to unpickled value, for frozen values that were read in this micro-batch."""
        self._encoded: tuple[Entries, bytes, bool] | None = None
        """The dirty values, ready to be written."""
        self._held: dict[Any, list[Tuple]] = {}
        """Key to the tuples in its committed value, for values that were read in this micro-batch."""
        self._put_tuples: list[Tuple] = []
        """The tuples in the values that are ready to be written."""
        self._store: SegmentStore | None = None
        self._table = _NO_BUCKETS
        self._synced = True
        self._native = kernels()
        self._direct: Any = None
        if self._native is not None:
            self._direct = self._native.KeyValues(self._dirty, self._committed, self._put_otherwise, TOMBSTONE)
            self._direct.numbers = self._native.TextNumbers()
        self._forget()
        self._note_loaded()
        # Both are called for every tuple: without a method in between, a get and a put cost half as much.
        if self._direct is None:
            self.get = _reader(self._dirty)  # type: ignore[method-assign]
            self.put = _writer(self._dirty)  # type: ignore[method-assign, assignment]
        else:
            self.get, self.put = self._direct.get, self._direct.put  # type: ignore[method-assign]

    def _forget(self) -> None:
        if self._numbers is not None:
            _, uncommitted = self._numbers.content()
            self._direct.numbers = self._native.TextNumbers()
            self._direct.put_many(list(uncommitted), list(uncommitted.values()))
        self._values: dict[Any, Any] = {}
        """Committed values: all keys of loaded buckets, and the keys of the deltas that are not deleted."""
        self._window: dict[int, Entries] = {}
        """The stored deltas by stamp."""
        self._as_of = 0
        self._loaded = np.zeros(1 << self._table.bits, dtype=bool)

    @property
    def native(self) -> Any:
        """``get`` and ``put`` as the kernels have them; None: there are no kernels."""
        return self._direct

    # Methods for users.

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
        return vars(self)["get"](key, default)  # as __init__ has chosen it, which callers of an instance get at once

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        vars(self)["put"](key, value)

    def delete(self, key: Any) -> Any:
        """Remove a key; returns its old value, or None if it was not there."""
        self._leave_numbers()
        value = self.get(key, _MISSING)
        if value is _MISSING:
            return None
        self._dirty[key] = TOMBSTONE
        return value

    def get_many(self, keys: Any, default: Any = None) -> list[Any]:
        """See ``KeyValueState.get_many``.

        >>> state = KeyValueTable()
        >>> state.put_many(["be", "or"], [2, 1])
        >>> state.get_many(["or", "not", "be"], 0)
        [1, 0, 2]
        """
        wanted = _listed(keys)
        if self._numbers is not None:
            self._load_all_of(wanted)
            numbers = self._numbers
            if numbers is not None:
                known: list[Any] | None = numbers.get_many(wanted, default)
                if known is not None:
                    return known
                self._leave_numbers()
        self._load_all_of(wanted)
        found = list(map(self._values.get, wanted, repeat(TOMBSTONE)))
        if self._dirty:
            found = list(map(self._dirty.get, wanted, found))
        kinds = set(map(type, found))
        if PickledValue in kinds:
            found = [self._committed(k) if type(v) is PickledValue else v for k, v in zip(wanted, found, strict=True)]
        return [default if value is TOMBSTONE else value for value in found] if Tombstone in kinds else found

    def put_many(self, keys: Any, values: Any) -> None:
        """See ``KeyValueState.put_many``."""
        names, items = _listed(keys), _listed(values)
        if len(names) != len(items):
            raise StateError(f"put_many got {len(names)} keys and {len(items)} values, expected as many")
        if self._numbers is not None:
            if self._direct.put_many(names, items):
                return
            self._leave_numbers()
        self._dirty.update(zip(names, items, strict=True))

    def __contains__(self, key: Any) -> bool:
        return self.get(key, _MISSING) is not _MISSING

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """All (key, value) pairs in any order, uncommitted ones too; put and delete are allowed during the iteration.

        Keys that are put during the iteration are not returned. It loads all keys.
        """
        for key in self._keys():
            value = self.get(key, _MISSING)
            if value is not _MISSING:
                yield key, value

    def __len__(self) -> int:
        """The number of keys; it loads all keys."""
        return len(self._keys())

    def __reduce__(self) -> Any:
        raise TypeError("a KeyValueState belongs to its task: keep it in an attribute of the bolt")

    # Reading.

    def _committed(self, key: Any) -> Any:
        """The committed value of a key, or ``TOMBSTONE``; its bucket is loaded if necessary."""
        if not self._synced:
            self._sync()
        numbers = self._numbers
        if numbers is not None:
            number = self._number_of(numbers, key)
            if self._numbers is not None:
                return number
            if key in self._dirty:
                return self._dirty[key]
        value = self._values.get(key, _MISSING)
        if value is _MISSING:
            bucket = key_hash(key) >> (HASH_BITS - self._table.bits)
            if self._loaded[bucket]:
                return TOMBSTONE
            self._load(bucket)
            value = self._values.get(key, _MISSING)
            if value is _MISSING:
                return TOMBSTONE
        if type(value) is not PickledValue:
            return value
        if key not in self._thawed:
            try:
                self._thawed[key] = self._pickling.loads(value.data)
                if self._pickling.restored:
                    self._held[key] = self._pickling.restored
            except Exception as error:
                raise StateError(
                    f"key-value state: the value of {printed(key):.200} cannot be read: {self._pickling.why(error)}"
                ) from error
        return self._thawed[key]

    @property
    def _numbers(self) -> Any:
        """Keys and values, committed and not, while all are strings and integers; None: they are in the dicts."""
        return None if self._direct is None else self._direct.numbers

    def _number_of(self, numbers: Any, key: Any) -> Any:
        """The value of a key, or ``TOMBSTONE``; its bucket is loaded if necessary. It may leave ``_numbers``."""
        value = numbers.find_value(key)
        if value is None and not numbers.complete:
            bucket = key_hash(key) >> (HASH_BITS - self._table.bits)
            if not self._loaded[bucket]:
                self._load(bucket)
            value = numbers.find_value(key)
        if value is False:
            self._leave_numbers()
        return TOMBSTONE if value is None else value

    def _put_otherwise(self, key: Any, value: Any) -> None:
        """Put a key or value that ``_numbers`` cannot hold."""
        self._leave_numbers()
        self._dirty[key] = value

    def _leave_numbers(self) -> None:
        """Move all keys and values to the dicts."""
        if self._direct is not None:
            self._direct.leave(self._values)

    def _note_loaded(self) -> None:
        numbers = self._numbers
        if numbers is not None:
            numbers.current = self._synced
            numbers.complete = self._synced and bool(self._loaded.all())

    def _load_all_of(self, keys: Sequence[Any]) -> None:
        """Load the buckets of some keys."""
        if not self._synced:
            self._sync()
        if not self._loaded.all():
            if self._numbers is not None:
                unknown = self._numbers.without_committed(keys)
            else:
                unknown = [key for key in keys if key not in self._values]
            buckets = key_hashes(unknown).astype(np.int64) >> (HASH_BITS - self._table.bits)
            for bucket in np.unique(buckets).tolist():
                if not self._loaded[bucket]:
                    self._load(bucket)

    def _keys(self) -> list[Any]:
        if not self._synced:
            self._sync()
        for bucket in np.flatnonzero(~self._loaded).tolist():
            if not self._loaded[bucket]:
                self._load(bucket)
        if self._numbers is not None:
            all_keys: list[Any] = self._numbers.keys()
            return all_keys
        dirty = self._dirty
        keys = [key for key in self._values if dirty.get(key) is not TOMBSTONE]
        return keys + [key for key, value in dirty.items() if value is not TOMBSTONE and key not in self._values]

    def _sync(self) -> None:
        """Bring the cache up to the newest delta, or start with an empty cache."""
        table = self._table
        stamps = table.deltas
        if self._as_of not in stamps or self._too_many():
            self._forget()
        elif len(self._loaded) != len(table.stamps):
            self._loaded = np.repeat(self._loaded, len(table.stamps) // len(self._loaded))
        new = stamps[stamps.index(self._as_of) + 1 :] if self._as_of else stamps
        for stamp in new:
            self._window[stamp] = self._read(_DELTA_NAME, stamp)
            if not self._take_arrays(self._window[stamp], newer=True):
                self._window[stamp].apply_to(self._values)
        listed = set(stamps)
        for stamp in [stamp for stamp in self._window if stamp not in listed]:
            del self._window[stamp]
        self._as_of = stamps[-1] if stamps else 0
        self._synced = True
        self._note_loaded()

    def _too_many(self) -> bool:
        """Whether the cache is too large, or has mostly keys of attempts that did not count."""
        numbers = self._numbers
        if numbers is None:
            return len(self._values) > CACHED_KEYS_MAX
        return bool(numbers.entries > CACHED_NUMBERS_MAX or numbers.entries > 2 * len(numbers) + DROPPED_KEYS_MAX)

    def _take_arrays(self, entries: Entries, *, newer: bool) -> bool:
        """Take committed entries into ``_numbers``, and leave those if the entries cannot be there.

        Args:
            entries: any.
            newer: whether they are newer than the cached entries; otherwise they are older.

        Returns:
            Whether they were taken.
        """
        numbers = self._numbers
        if numbers is None:
            return False
        arrays = entries.arrays()
        if arrays is None:
            self._leave_numbers()
            return False
        numbers.apply(*buffers_of(arrays[0]), arrays[1], newer)
        return True

    def _read(self, name: str, stamp: int) -> Entries:
        check(self._store is not None, "a KeyValueState was read before its task began")
        assert self._store is not None
        data = read_segment(self._store, name, stamp)
        try:
            return Entries.decode(data, self._pickling)
        except Exception as error:
            why = self._pickling.why(error)
            raise StateError(f"key-value state: some of its keys or values cannot be read: {why}") from error

    def _bucket_of(self, stamp: int) -> Entries:
        return self._read(_BUCKET_NAME, stamp)

    def _load(self, bucket: int) -> None:
        """Load a bucket, and the buckets that still share its segment."""
        table = self._table
        stamp = table.stamps[bucket]
        sharing = np.flatnonzero((table.stamps == stamp) & ~self._loaded)
        # Deltas are applied already, so an empty bucket has nothing to add to them.
        if stamp:
            base = self._bucket_of(int(stamp))
            bounds = base.bounds(table.bits)
            if self._numbers is not None and base.arrays() is None:
                self._leave_numbers()
            for part in sharing.tolist():  # the segment may also have keys of buckets that have newer ones
                if self._numbers is not None:
                    self._take_arrays(base.cut(bounds[part], bounds[part + 1]), newer=False)
                else:
                    self._values.update(content_of(table, self._window, part, base))
        self._loaded[sharing] = True
        self._note_loaded()

    # Methods for the division of the state.

    def _content(self) -> Entries:
        """All committed keys and values, as they are stored."""
        window = {stamp: self._read(_DELTA_NAME, stamp) for stamp in self._table.deltas}
        return all_of(self._table, window, self._bucket_of)

    def _fill(self, content: Entries, stamps: Callable[[], int]) -> bytes:
        """Write the first content, and return the table."""
        bits = min(_BITS_MAX, max(0, (len(content.hashes) - 1).bit_length() - BUCKET_KEYS.bit_length() + 1))
        bounds = np.array(content.bounds(bits))
        table = BucketTable(bits, np.zeros(1 << bits, np.uint64), np.zeros(1 << bits, np.int64))
        for bucket in np.flatnonzero(np.diff(bounds)).tolist():
            table.stamps[bucket] = stamps()
            data = content.chosen(np.arange(bounds[bucket], bounds[bucket + 1])).encode(self._pickling)
            self._put(_BUCKET_NAME, int(table.stamps[bucket]), data)
        return replace(table, counts=np.diff(bounds).astype(np.uint32)).encode()

    # Methods for the task's state.

    def _attach(self, store: SegmentStore, table: bytes | None) -> None:
        """Begin a micro-batch: drop uncommitted values."""
        self._drop_uncommitted()
        self._encoded = None
        self._held.clear()
        self._put_tuples = []
        self._store = store
        self._table = BucketTable.decode(table) if table is not None else _NO_BUCKETS
        self._synced = False
        self._note_loaded()

    def _drop_uncommitted(self) -> None:
        self._dirty.clear()
        self._thawed.clear()
        if self._numbers is not None:
            self._numbers.undo()

    def _uncommitted(self) -> int:
        return len(self._dirty) if self._numbers is None else self._numbers.uncommitted

    def _commit(self, stamps: Callable[[], int]) -> tuple[bytes, int] | None:
        """Write the dirty entries; returns the new table and the number of bytes written, None if nothing is dirty.

        Raises:
            StateError: a key or value cannot be pickled.
        """
        changed = self._uncommitted()
        if not changed:
            return None
        if not self._synced:
            self._sync()
        delta, data, plain = self._encoded or self._encode_dirty()
        self._encoded = None
        stamp = stamps()
        self._put(_DELTA_NAME, stamp, data)
        if self._numbers is not None:
            fresh = self._numbers.fresh
            self._numbers.commit()
        else:
            count = len(self._values)
            if plain:  # in the order of the puts: in the order of hashes each key would wait for memory
                self._values.update(self._dirty)
            else:
                delta.apply_to(self._values)
            fresh = max(0, len(self._values) - count)
        table, number = self._table, self._table.last + 1
        fresh_counts = np.append(table.fresh, np.uint32(fresh))
        table = replace(table, last=number, deltas=(*table.deltas, stamp), fresh=fresh_counts)
        size = table.size()
        bits = table.bits
        while size > BUCKET_KEYS << bits and bits < _BITS_MAX:
            bits += 1
        if bits != table.bits:
            table = table.doubled(bits)
            self._loaded = np.repeat(self._loaded, len(table.stamps) // len(self._loaded))
        self._table = table
        self._window[stamp] = delta
        self._as_of = stamp
        written = len(data) + self._rewrite_oldest(size // changed * 2, stamps)
        self._drop_included()
        self._drop_uncommitted()
        return self._table.encode(), written

    def _put(self, name: str, stamp: int, data: bytes) -> None:
        check(self._store is not None, "a KeyValueState was written before its task began")
        assert self._store is not None
        self._store.put(physical_key(name, stamp), data)

    def _tuples(self) -> list[Tuple]:
        """The tuples in values that will be written, and in committed values that were read and stay.

        Call it after ``_make_ready``.
        """
        dirty = self._dirty
        return [*self._put_tuples, *(tup for key, held in self._held.items() if key not in dirty for tup in held)]

    def _make_ready(self) -> None:
        """Encode the dirty entries, for the next ``_commit``.

        Raises:
            StateError: a key or value cannot be kept.
        """
        self._encoded = self._encode_dirty() if self._uncommitted() else None

    def _encode_dirty(self) -> tuple[Entries, bytes, bool]:
        """The dirty entries, their bytes, and whether the values are stored as they are."""
        if self._numbers is not None:
            changes = self._numbers.changes_of()
            if changes is not None:
                offsets, text, numbers = changes
                delta = Entries.of_arrays(text_from(offsets, text), np.frombuffer(numbers, dtype=np.int64))
                return delta, delta.encode(self._pickling), True
            self._leave_numbers()
        keys, values = list(self._dirty), list(self._dirty.values())
        tuples: list[Tuple] = []
        try:
            frozen = freeze(values, self._pickling, tuples)
            self._put_tuples = tuples
            delta = Entries.of(keys, frozen, deletes=has_tombstones(values))
            data = delta.encode(self._pickling)
            return delta, data, not delta.deletes and type(frozen[0]) is not PickledValue
        except BaseException as error:  # keys and values call user code, which may raise anything
            pass_on(error)
            raise self._explain(error) from error

    def _explain(self, error: BaseException) -> StateError:
        for key, value in self._dirty.items():
            for what, thing in (("key", key), ("value", value)):
                try:
                    self._pickling.proved(thing)
                except CannotKeepError as cause:
                    return StateError(
                        f"key-value state: the {what} of the entry {printed(key):.200} is of type "
                        f"{type(thing).__module__}.{type(thing).__qualname__} and cannot be kept ({cause})"
                    )
        return StateError(f"key-value state: what was put cannot be kept ({line_of(error)})")

    def _rewrite_oldest(self, wanted: int, stamps: Callable[[], int]) -> int:
        """Rewrite the buckets that lack the most deltas; returns the number of bytes written.

        ``wanted`` is the number of deltas that may accumulate: together they have twice as many keys as the state. Each
        commit rewrites its share of the buckets, so that all buckets include the oldest delta before twice as many
        deltas have accumulated.
        """
        table = self._table
        chosen = due(table, wanted)
        if not chosen:
            return 0
        new_stamps, included, counts = table.stamps.copy(), table.included.copy(), table.counts.copy()
        included[chosen] = table.last
        written = 0
        for bucket, content in rewritten(table, self._window, chosen, self._bucket_of).items():
            counts[bucket] = len(content.hashes)
            new_stamps[bucket] = stamps() if counts[bucket] else 0
            if counts[bucket]:
                data = content.encode(self._pickling)
                self._put(_BUCKET_NAME, int(new_stamps[bucket]), data)
                written += len(data)
        assert self._store is not None
        for old in set(table.stamps[chosen].tolist()) - set(new_stamps.tolist()) - {0}:
            self._store.delete(physical_key(_BUCKET_NAME, old))
        self._table = replace(table, stamps=new_stamps, included=included, counts=counts)
        return written

    def _drop_included(self) -> None:
        """Delete the deltas that every bucket includes, except the last: its stamp proves caches."""
        table = self._table
        assert self._store is not None
        oldest_needed = min(int(table.included.min()) + 1, table.last)
        dropped = len(table.deltas) - (table.last - oldest_needed + 1)
        if dropped <= 0:
            return
        for stamp in table.deltas[:dropped]:
            self._store.delete(physical_key(_DELTA_NAME, stamp))
            self._window.pop(stamp, None)
        self._table = replace(table, deltas=table.deltas[dropped:], fresh=table.fresh[dropped:])
