"""Segments: the content of a task's store, and the columns of a key-value segment.

Rule 1: a segment never changes. Rewritten content gets a new stamp and so a new physical key.
Rule 2: entries are sorted by the hash of their key, so a bucket is a slice, whatever the number of buckets.
Rule 3: a value that could be changed in place is stored as its own pickle until it is read, so that only ``put``
changes the state.

A column of str, of int or of float is packed into one buffer. Strings are joined by NUL: splitting takes 30 ns per key,
while Arrow's ``to_pylist`` takes 150 ns. Any other column is pickled. Keys that are strings whose values are integers
(counts by word) are worked on as arrays, without an object for each.
"""

from __future__ import annotations

import pickle
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt.api.pickling import Pickling
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import printed
from sparkbolt.base.hashing import hash_value
from sparkbolt.base.text_arrays import crc32s, has_nul, joined, order_of, separated, text_of
from sparkbolt.errors import StateError
from sparkbolt.worker.state.plain_reading import loads

U32: TypeAlias = npt.NDArray[np.uint32]
Arrays: TypeAlias = tuple[pa.StringArray, npt.NDArray[np.int64]]
"""Keys, none with a NUL; and their values, int64[keys]."""

_Packed: TypeAlias = tuple[str, bytes]
"""(encoding, bytes)."""
_Column: TypeAlias = list[Any] | _Packed

HASH_BITS = 32
_MANY = 1024
"""From this number of keys on, vectorized code is faster."""
_INTEGERS = ("<i4", "<i8")
_ATOMS = frozenset({int, str, float, bytes, bool, type(None), complex})


class SegmentStore(Protocol):
    """The durable map of one task: on Spark a ``MapState``, where a call takes 50 to 100 us; otherwise a dict.

    All puts and deletes become durable together when the micro-batch commits, or none does.
    """

    def get(self, key: str) -> bytes | None:
        """The value of a key, or None."""

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""

    def delete(self, key: str) -> None:
        """Remove a key that may or may not be there."""

    def keys(self) -> Iterable[str]:
        """All keys, in any order."""


def physical_key(name: str, stamp: int) -> str:
    """The key under which the store holds a segment.

    >>> physical_key("window/7", 255)
    'window/7@00000000000000ff'
    """
    return f"{name}@{stamp:016x}"


def read_segment(store: SegmentStore, name: str, stamp: int) -> bytes:
    """A segment that the directory lists.

    Raises:
        StateError: the store does not have it.
    """
    data = store.get(physical_key(name, stamp))
    if data is None:
        raise StateError(
            f"the state lists segment {name!r} with stamp {stamp:016x}, but the store does not have it: "
            "the state in the checkpoint is damaged"
        )
    return data


class Tombstone:
    """Stands in place of the value of a deleted key."""


TOMBSTONE = Tombstone()


class PickledValue:
    """The pickle of a value that could be changed in place."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def key_hash(key: object) -> int:
    """The 32-bit hash that chooses a key's bucket: the same in every process, and for equal keys.

    Keys of types without a stable identity (objects of the user's own classes, Fraction, complex) share one hash, and
    so one bucket. This is correct, but slow if there are many.
    """
    if isinstance(key, str):
        return crc32(key.encode("utf-8", "surrogatepass"))
    try:
        return hash_value(key) >> HASH_BITS
    except TypeError:
        return 0


def key_hashes(keys: Sequence[object]) -> U32:
    """uint32[keys]: ``key_hash`` of each key, in order."""
    try:
        return np.array([crc32(key.encode()) for key in keys], dtype=np.uint32)  # type: ignore[attr-defined]
    except (AttributeError, UnicodeEncodeError):
        return np.array([key_hash(key) for key in keys], dtype=np.uint32)


class Entries:
    """Keys and values sorted by hash, in three columns of equal length; a value may be a ``PickledValue``.

    The value of a deleted key is ``TOMBSTONE``.
    Columns of many strings or numbers stay packed, or arrays, until they are read.
    """

    __slots__ = ("_arrays", "_bounds", "_bounds_bits", "_keys", "_values", "deletes", "hashes")

    def __init__(
        self,
        hashes: U32,
        keys: _Column | None,
        values: _Column | None,
        *,
        deletes: bool = False,
        arrays: Arrays | None = None,
    ) -> None:
        self.hashes = hashes
        self._keys = keys
        self._values = values
        self._arrays: Arrays | bool | None = arrays
        """Keys and values as arrays; None: not known; False: they cannot be arrays. Columns that are None are in it."""
        self.deletes = deletes
        """Whether ``TOMBSTONE`` is among the values."""
        self._bounds = array("i")
        self._bounds_bits = -1

    @classmethod
    def of(cls, keys: Sequence[Any], values: Sequence[Any], *, deletes: bool = False) -> Entries:
        """Create sorted entries from keys and values in any order, each key once."""
        text = text_of(keys) if len(keys) >= _MANY else None
        numbers = _numbers_of(values) if text is not None and not has_nul(text) else None
        if text is not None and numbers is not None:
            return cls.of_arrays(text, numbers)
        hashes = key_hashes(keys) if text is None else crc32s(text)
        order = order_of(hashes)
        data = joined(text.take(pa.array(order))) if text is not None else None
        sorted_keys: _Column = ("str", data) if data is not None else [keys[row] for row in order.tolist()]
        return cls(hashes[order], sorted_keys, [values[row] for row in order.tolist()], deletes=deletes)

    @classmethod
    def of_arrays(cls, text: pa.StringArray, numbers: npt.NDArray[np.int64]) -> Entries:
        """Create sorted entries from at least one key, none with a NUL, in any order, each once; and int64[keys]."""
        hashes = crc32s(text)
        order = order_of(hashes)
        return cls(hashes[order], None, None, arrays=(text.take(pa.array(order)), numbers[order]))

    def arrays(self) -> Arrays | None:
        """Keys and values as arrays; None unless all keys are strings without NUL, and all values int of 64 bits."""
        if self._arrays is None:
            self._arrays = self._as_arrays() or False
        return self._arrays or None  # type: ignore[return-value]

    def _as_arrays(self) -> Arrays | None:
        if self.deletes or not len(self.hashes):
            return None
        assert self._keys is not None
        assert self._values is not None
        numbers = _numbers_of(self._values)
        if numbers is None:
            return None
        if isinstance(self._keys, tuple):
            text = separated(self._keys[1]) if self._keys[0] == "str" else None
        else:
            text = text_of(self._keys)
        return None if text is None or has_nul(text) else (text, numbers)

    def cut(self, start: int, stop: int) -> Entries:
        """Some rows of entries that are arrays."""
        arrays = self.arrays()
        assert arrays is not None
        return Entries(
            self.hashes[start:stop], None, None, arrays=(arrays[0].slice(start, stop - start), arrays[1][start:stop])
        )

    def chosen(self, rows: npt.NDArray[np.intp]) -> Entries:
        """Some rows, which ascend."""
        hashes, arrays = self.hashes[rows], self.arrays()
        if arrays is not None:
            return Entries(hashes, None, None, arrays=(arrays[0].take(pa.array(rows)), arrays[1][rows]))
        keys, values = self.keys, self.values
        return Entries(hashes, [keys[row] for row in rows.tolist()], [values[row] for row in rows.tolist()])

    @property
    def keys(self) -> list[Any]:
        """The keys."""
        self._keys = _unpacked(self._packed_keys())
        return self._keys

    @property
    def values(self) -> list[Any]:
        """The values."""
        self._values = _unpacked(self._packed_values())
        return self._values

    def _packed_keys(self) -> _Column:
        if self._keys is None:
            assert isinstance(self._arrays, tuple)
            data = joined(self._arrays[0])
            assert data is not None
            return "str", data
        return self._keys

    def _packed_values(self) -> _Column:
        if self._values is None:
            assert isinstance(self._arrays, tuple)
            return _pack_wide(self._arrays[1])
        return self._values

    def bounds(self, bits: int) -> array[int]:
        """int[2**bits + 1], ascending: the first row of each of ``2**bits`` buckets, and the end."""
        if bits != self._bounds_bits:
            edges = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(HASH_BITS - bits)
            inner = np.searchsorted(self.hashes, edges.astype(np.uint32)).tolist()
            self._bounds = array("i", [0, *inner, len(self.hashes)])
            self._bounds_bits = bits
        return self._bounds

    def apply_to(self, target: dict[Any, Any]) -> None:
        """Apply all entries to a dict; deleted keys are removed from it."""
        keys, values = _unpacked(self._packed_keys()), _unpacked(self._packed_values())
        target.update(zip(keys, values, strict=True))
        if self.deletes:
            for key, value in zip(keys, values, strict=True):
                if value is TOMBSTONE:
                    target.pop(key, None)  # two keys may be one in a dict and two here, if their class defines it so

    def encode(self, pickling: Pickling) -> bytes:
        """The bytes of the entries.

        Raises:
            CannotKeepError: a key, or a value that is not frozen yet, cannot be pickled or unpickled.
        """
        keys, values, deleted_rows = self._packed_keys(), self._packed_values(), b""
        if self.deletes:
            values = self.values
            rows = [row for row, value in enumerate(values) if value is TOMBSTONE]
            deleted_rows = np.array(rows, dtype=np.uint32).tobytes()
            values = [value for value in values if value is not TOMBSTONE]
        if not isinstance(keys, tuple):
            keys = _pack(keys, pickling)
        if keys[0] == "pickle" and pickling.doubtful:
            dict.fromkeys(pickling.loads(keys[1]))  # they must work as keys of a dict again, or raise now
        packed = values if isinstance(values, tuple) else _pack_values(values, pickling)
        return pickle.dumps((self.hashes.tobytes(), deleted_rows, keys, packed), 5)

    @classmethod
    def decode(cls, data: bytes, pickling: Pickling) -> Entries:
        """The inverse of ``encode``."""
        hashes, deleted_rows, packed_keys, packed_values = loads(data)
        keys, values = _unpack(packed_keys, pickling), _unpack(packed_values, pickling)
        if deleted_rows:
            live = iter(_unpacked(values))
            deleted = set(np.frombuffer(deleted_rows, dtype=np.uint32).tolist())
            values = [TOMBSTONE if row in deleted else next(live) for row in range(len(hashes) // 4)]
        return cls(np.frombuffer(hashes, dtype=np.uint32), keys, values, deletes=bool(deleted_rows))


def united(parts: Sequence[Entries]) -> Entries:
    """The entries of all parts.

    Raises:
        StateError: two parts have one key.
    """
    expected = sum(len(part.hashes) for part in parts)
    result = merged([(part, 0, len(part.hashes)) for part in parts if len(part.hashes)]) if expected else None
    if result is None:
        content: dict[Any, Any] = {}
        for part in parts:
            part.apply_to(content)
        result = Entries.of(list(content), list(content.values()))
    if len(result.hashes) != expected:
        seen = Counter(key for part in parts for key in part.keys)
        raise StateError(f"key {printed(seen.most_common(1)[0][0]):.200} is in the state of two tasks")
    return result


def merged(slices: Sequence[tuple[Entries, int, int]]) -> Entries | None:
    """The newest entry of each key in some rows of entries; None if some of them cannot be arrays.

    Args:
        slices: entries, first row, and the row after the last; the oldest first, none of them empty.
    """
    texts, numbers = [], []
    for entries, start, stop in slices:
        arrays = entries.arrays()
        if arrays is None:
            return None
        texts.append(arrays[0].slice(start, stop - start))
        numbers.append(arrays[1][start:stop])
    hashes = np.concatenate([entries.hashes[start:stop] for entries, start, stop in slices])
    if sum(one.nbytes for one in texts) >= 1 << 31:
        return None
    text = pa.concat_arrays(texts)
    order = order_of(hashes)  # equal hashes stay in their order, so the newest is the last
    hashes = hashes[order]
    newest = np.append(hashes[1:] != hashes[:-1], True)
    followed = np.flatnonzero(~newest)
    equal = pc.equal(text.take(pa.array(order[followed])), text.take(pa.array(order[followed + 1])))
    for shared in np.unique(hashes[followed[~np.asarray(equal)]]).tolist():  # different keys with one hash
        rows = range(*np.searchsorted(hashes, [shared, shared + 1]).tolist())
        last = {text[order[row]].as_py(): row for row in rows}
        newest[rows.start : rows.stop] = False
        newest[list(last.values())] = True
    chosen = order[newest]
    arrays = text.take(pa.array(chosen)), np.concatenate(numbers)[chosen]
    return Entries(hashes[newest], None, None, arrays=arrays)


def freeze(values: Sequence[Any], pickling: Pickling, tuples: list[Tuple] | None = None) -> list[Any]:
    """The values, each value that could be changed in place as its own pickle.

    Except for ``TOMBSTONE``, either all values are pickled or none is: a column is either plain or pickles. The tuples
    in the values are appended to ``tuples``, once for each value that contains them.

    Raises:
        CannotKeepError: a value cannot be pickled or unpickled.
    """
    kinds = set(map(type, values)) - {Tombstone}
    if kinds <= _ATOMS or (kinds <= _ATOMS | {tuple} and all(map(_is_plain, values))):
        return list(values)

    def dumps(value: Any) -> bytes:
        data = pickling.proved(value)
        if tuples is not None:
            tuples.extend(pickling.tuples)
        return data

    return [
        value if value is TOMBSTONE or type(value) is PickledValue else PickledValue(dumps(value)) for value in values
    ]


def has_tombstones(values: Sequence[Any]) -> bool:
    """Whether ``TOMBSTONE`` is among the values."""
    return Tombstone in set(map(type, values))


def _is_plain(value: object) -> bool:
    return type(value) is not tuple or all(type(part) in _ATOMS for part in value)


def _pack_values(values: list[Any], pickling: Pickling) -> _Packed:
    frozen = freeze(values, pickling)
    if frozen and type(frozen[0]) is PickledValue:
        return "frozen", pickle.dumps([value.data for value in frozen], 5)
    return _pack(frozen, pickling)


def _pack(values: list[Any], pickling: Pickling) -> _Packed:
    """A column as (encoding, bytes)."""
    kinds = set(map(type, values))
    if kinds == {str}:
        text = "\0".join(values)
        if text.count("\0") == len(values) - 1:
            return "str", text.encode("utf-8", "surrogatepass")
    elif kinds == {int}:
        numbers = _numbers_of(values)
        return _pack_wide(numbers) if numbers is not None else ("pickle", pickling.proved(values))
    elif kinds == {float}:
        return "<f8", np.array(values, dtype=np.float64).tobytes()
    return "pickle", pickling.proved(values)


def _pack_wide(wide: npt.NDArray[np.int64]) -> _Packed:
    small = wide.astype(np.int32)
    return ("<i4", small.tobytes()) if bool((small == wide).all()) else ("<i8", wide.tobytes())


def _numbers_of(column: _Column | Sequence[Any]) -> npt.NDArray[np.int64] | None:
    """A column as int64[rows]; None if a value is not an int of 64 bits."""
    if isinstance(column, tuple):
        how, data = column
        return np.frombuffer(data, dtype=np.dtype(how)).astype(np.int64) if how in _INTEGERS else None
    if set(map(type, column)) != {int}:
        return None
    try:
        return np.array(column, dtype=np.int64)
    except OverflowError:
        return None


def _unpack(packed: _Packed, pickling: Pickling) -> _Column:
    """A column, packed if it has strings or numbers."""
    how, data = packed
    if how == "pickle":
        values: list[Any] = pickling.loads(data)
        return values
    if how == "frozen":
        return [PickledValue(one) for one in loads(data)]
    return packed


def _unpacked(column: _Column) -> list[Any]:
    """The values of a column that is a list or packed."""
    if not isinstance(column, tuple):
        return column
    how, data = column
    if how == "str":
        return data.decode("utf-8", "surrogatepass").split("\0")
    plain: list[Any] = np.frombuffer(data, dtype=np.dtype(how)).tolist()
    return plain
