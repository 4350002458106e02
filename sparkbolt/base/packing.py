"""Packing: encodes arrays of integers in few bytes, at the cost of one pass over them.

``pack`` is for data that is read soon after, ``pack_keys`` for data that is stored on disk.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import U64
from sparkbolt.errors import InvariantError, check

Buffer: TypeAlias = bytes | bytearray | memoryview

_WIDTHS = ("<u1", "<u2", "<u4", "<u8", "<i4", "<i8")
_DTYPES = tuple(map(np.dtype, _WIDTHS))
_WIDTH_OF = {dtype: index for index, dtype in enumerate(_DTYPES)}
_NARROW = (np.uint8, np.uint16, np.uint32)
_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQ")


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers >= 0 in the narrowest unsigned dtype that holds them all.

    >>> narrow(np.array([3, 255], dtype=np.uint64)).dtype, narrow(np.array([3, 256])).dtype
    (dtype('uint8'), dtype('uint16'))
    """
    if len(values) == 0:
        return values.astype(np.uint8)
    most = int(np.maximum.reduce(values))
    return values.astype(np.min_scalar_type(most), copy=False)


KEY_ARRAYS = 3
"""The number of arrays that ``keys_to_pack`` returns."""
_RARE = 32
"""At most one step in this many may be wide, and is then stored separately."""


def keys_to_pack(keys: U64) -> list[npt.NDArray[Any]]:
    """Return keys as arrays for ``pack``: the first key, the steps between neighbours, and (place, step) of wide steps.

    It saves space where keys ascend in small steps with few large ones; ``packed_keys`` restores any keys.

    Args:
        keys: uint64[n].

    Returns:
        First key: uint64[min(n, 1)]. Steps: unsigned integers[n - 1], 0 for a wide step. Wide steps: uint64[2 * wide],
        all places, then all steps.

    >>> keys = np.array([1 << 60, (1 << 60) + 7, (1 << 60) + 9], dtype=np.uint64)
    >>> keys_to_pack(keys)[1], packed_keys(*keys_to_pack(keys)).tolist() == keys.tolist()
    (array([7, 2], dtype=uint8), True)
    """
    steps = keys[1:] - keys[:-1]
    narrowed = narrow(steps)
    if narrowed.itemsize == 1 or len(steps) < _RARE:
        return [keys[:1], narrowed, keys[:0]]
    for kind in _NARROW[: narrowed.itemsize.bit_length() - 1]:
        wide = steps > np.iinfo(kind).max
        if int(np.count_nonzero(wide)) * _RARE <= len(steps):
            places = wide.nonzero()[0]
            leaps = np.concatenate((places.astype(np.uint64), steps[places]))
            steps[places] = 0
            return [keys[:1], steps.astype(kind), leaps]
    return [keys[:1], narrowed, keys[:0]]


def packed_keys(first: U64, steps: npt.NDArray[Any], leaps: U64) -> U64:
    """The inverse of ``keys_to_pack``."""
    if len(first) == 0:
        return np.empty(0, dtype=np.uint64)
    keys = np.empty(len(steps) + 1, dtype=np.uint64)
    keys[0] = first[0]
    keys[1:] = steps
    if len(leaps):
        places, wide = leaps.reshape(2, -1)
        keys[places.astype(np.intp) + 1] = wide
    return np.add.accumulate(keys, out=keys)


def pack(arrays: Sequence[npt.NDArray[Any]]) -> list[bytes]:
    """Return arrays as pieces of bytes: a table of types and lengths, then each array, padded to a multiple of 8 bytes.

    Args:
        arrays: one-dimensional, of unsigned integers, or of signed integers of 32 or 64 bits.

    Returns:
        The pieces, for the caller to join.
    """
    pieces = [_COUNT.pack(len(arrays))]
    pieces += [_ENTRY.pack(_WIDTH_OF[array.dtype], len(array)) for array in arrays]
    for array in arrays:
        data = array.tobytes()
        pieces.append(data)
        if len(data) % 8:
            pieces.append(bytes(-len(data) % 8))
    return pieces


def unpack(data: memoryview, at: int = 0) -> tuple[list[npt.NDArray[Any]], int]:
    """Return the arrays that ``pack`` wrote, which begin at the byte ``at``, and the byte at which they end.

    The arrays are views of ``data``.

    Raises:
        InvariantError: the bytes are cut off.

    >>> arrays, end = unpack(memoryview(b"".join(pack([np.array([1, 2], dtype=np.uint8)]))))
    >>> arrays, end
    ([array([1, 2], dtype=uint8)], 32)
    """
    end = len(data)
    check(at + _COUNT.size <= end, f"packed arrays are cut off at {end} bytes")
    (count,) = _COUNT.unpack_from(data, at)
    table = at + _COUNT.size
    at = table + count * _ENTRY.size
    check(at <= end, f"the table of {count} packed arrays is cut off at {end} bytes")
    arrays = []
    for width, length in _ENTRY.iter_unpack(data[table:at]):
        dtype = _DTYPES[width]
        size = dtype.itemsize * length
        if at + size > end:
            raise InvariantError(f"a packed array of {size} bytes is cut off after {end - at}")
        arrays.append(np.frombuffer(data, dtype, length, at))
        at += size + -size % 8
    return arrays, at


_LENGTH = struct.Struct("<Q")


def join_sections(sections: Sequence[Buffer]) -> bytes:
    """Join byte strings into one, each preceded by its length.

    >>> split_sections(join_sections([b"a", b""]))
    [b'a', b'']
    """
    return b"".join([piece for section in sections for piece in (_LENGTH.pack(len(section)), section)])


def split_sections(data: Buffer) -> list[bytes]:
    """The inverse of ``join_sections``."""
    view, sections, at, end = memoryview(data), [], 0, len(data)
    while at < end:
        (length,) = _LENGTH.unpack_from(view, at)
        at += 8
        if at + length > end:
            raise InvariantError(f"a section of {length} bytes is cut off after {end - at}")
        sections.append(bytes(view[at : at + length]))
        at += length
    return sections


_SMALL_BYTES = 256
_NO_KEYS = zlib.compress(b"", 1)


def compress(data: bytes) -> bytes:
    """Compress bytes with zlib at its fastest level."""
    if len(data) > _SMALL_BYTES:
        return zlib.compress(data, 1)
    if not data:
        return _NO_KEYS
    small = zlib.compressobj(1, wbits=10, memLevel=1)  # clears a few KB of tables instead of 256 KB
    return small.compress(data) + small.flush()


def pack_keys(keys: U64) -> bytes:
    """Compress uint64[n]: the differences of neighbours, grouped by the bytes' significance, then zlib.

    All values are restored exactly; values that ascend in small steps need the fewest bytes.
    """
    if len(keys) == 0:
        return _NO_KEYS
    steps = np.array(keys, dtype="<u8")
    steps[1:] -= keys[:-1]
    return compress(steps.view(np.uint8).reshape(-1, 8).T.tobytes())


def unpack_keys(data: Buffer) -> U64:
    """The inverse of ``pack_keys``."""
    if data == _NO_KEYS:
        return np.empty(0, dtype=np.uint64)
    planes = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(8, -1)
    steps = np.ascontiguousarray(planes.T).view("<u8").reshape(-1).astype(np.uint64, copy=False)
    return np.add.accumulate(steps)
