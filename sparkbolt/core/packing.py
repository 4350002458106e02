"""Packing: arrays of integers as few bytes, at the price of a pass over them.

Which question it answers: how do ids travel, where every byte of a tuple is copied half a dozen times on its way?
Rule: what comes out is what went in, value by value; only the width of an integer may be another one.

Read before: ``ids``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.core.ids import U64
from sparkbolt.errors import check

_WIDTHS = ("<u1", "<u2", "<u4", "<u8", "<i4", "<i8")
_DTYPES = tuple(map(np.dtype, _WIDTHS))
_WIDTH_OF = {dtype: index for index, dtype in enumerate(_DTYPES)}
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQ")


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers that are not negative in the narrowest unsigned type that holds them all.

    >>> narrow(np.array([3, 255], dtype=np.uint64)).dtype, narrow(np.array([3, 256])).dtype
    (dtype('uint8'), dtype('uint16'))
    """
    if len(values) == 0:
        return values.astype(np.uint8)
    most = int(values.max())
    return values.astype(np.min_scalar_type(most), copy=False)


def steps_of(keys: U64) -> npt.NDArray[Any]:
    """Keys as the first one and the steps between neighbours, narrowed where it pays: for keys that rise slowly.

    Any keys come back from ``keys_from``; the first is taken apart, as it is as wide as a key.

    >>> keys = np.array([1 << 60, (1 << 60) + 7, (1 << 60) + 9], dtype=np.uint64)
    >>> steps_of(keys), keys_from(int(keys[0]), steps_of(keys)).tolist() == keys.tolist()
    (array([7, 2], dtype=uint8), True)
    """
    return narrow(keys[1:] - keys[:-1])


def keys_from(first: int, steps: npt.NDArray[Any]) -> U64:
    """The inverse of ``steps_of``; one key more than there are steps."""
    keys = np.empty(len(steps) + 1, dtype=np.uint64)
    keys[0] = first
    keys[1:] = steps
    return np.cumsum(keys, dtype=np.uint64, out=keys)


def keys_to_pack(keys: U64) -> list[npt.NDArray[Any]]:
    """Keys as two arrays for ``pack``; the inverse is ``packed_keys``."""
    return [keys[:1], steps_of(keys)]


def packed_keys(first: U64, steps: npt.NDArray[Any]) -> U64:
    """The inverse of ``keys_to_pack``."""
    return keys_from(int(first[0]), steps) if len(first) else np.empty(0, dtype=np.uint64)


def pack(arrays: Sequence[npt.NDArray[Any]]) -> list[bytes]:
    """Arrays as bytes to be joined: a table of types and lengths, then each array, padded to eight bytes.

    Args:
        arrays: one-dimensional, of unsigned integers, or of signed ones of 32 or 64 bits.
    """
    pieces = [_COUNT.pack(len(arrays))]
    pieces += [_ENTRY.pack(_WIDTH_OF[array.dtype], len(array)) for array in arrays]
    for array in arrays:
        pieces.append(array.tobytes())
        pieces.append(bytes(-array.nbytes % 8))
    return pieces


def unpack(data: memoryview, at: int = 0) -> tuple[list[npt.NDArray[Any]], int]:
    """The arrays that ``pack`` put at ``at``, and where they end; they look into ``data``.

    Raises:
        InvariantError: the bytes are cut off.

    >>> arrays, end = unpack(memoryview(b"".join(pack([np.array([1, 2], dtype=np.uint8)]))))
    >>> arrays, end
    ([array([1, 2], dtype=uint8)], 32)
    """
    check(at + _COUNT.size <= len(data), f"packed arrays are cut off at {len(data)} bytes")
    (count,) = _COUNT.unpack_from(data, at)
    table = at + _COUNT.size
    at = table + count * _ENTRY.size
    check(at <= len(data), f"the table of {count} packed arrays is cut off at {len(data)} bytes")
    arrays = []
    for entry in range(count):
        width, length = _ENTRY.unpack_from(data, table + entry * _ENTRY.size)
        dtype = _DTYPES[width]
        size = dtype.itemsize * length
        check(at + size <= len(data), f"a packed array of {size} bytes is cut off after {len(data) - at}")
        arrays.append(np.frombuffer(data, dtype, length, at))
        at += size + -size % 8
    return arrays, at
