"""Text arrays: hashes, numbers, sorts and joins many strings at once.

A loop over Python strings in the order of their hashes waits for memory at each string, 100 to 150 ns. So the strings
are first copied into one Arrow array, in the order in which they were created.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt.base.native import kernels

_SEED = id(kernels) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
"""The seed: an address in memory, which those who choose the words do not know. Only the time depends on it."""


def text_of(values: Sequence[Any]) -> pa.StringArray | None:
    """Return the values as an Arrow array if all of them are str that UTF-8 can encode; else None."""
    if set(map(type, values)) != {str}:
        return None
    try:
        text = pa.array(values, type=pa.string())
    except UnicodeEncodeError:  # a lone surrogate
        return None
    return text if isinstance(text, pa.StringArray) else None  # Arrow splits more than 2 GB into chunks


def dictionary_of(array: pa.Array) -> pa.DictionaryArray:
    """Return ``array.dictionary_encode()``, in less time if the array has strings and there are kernels.

    >>> dictionary_of(pa.array(["to", "be", "to"])).dictionary.to_pylist()
    ['to', 'be']
    """
    native = kernels()
    if native is None or not pa.types.is_string(array.type) or array.null_count or not len(array):
        return array.dictionary_encode()
    offsets, data = buffers_of(array)
    codes, firsts = native.encode_texts(offsets, data, _SEED)
    distinct = array.take(pa.array(np.frombuffer(firsts, dtype=np.int32)))
    return pa.DictionaryArray.from_arrays(np.frombuffer(codes, dtype=np.int32), distinct, safe=False)


def strings_of(array: pa.Array) -> list[Any]:
    """Return ``array.to_pylist()``, in less time if the array has strings and there are kernels.

    >>> strings_of(pa.array(["to", "be"])), strings_of(pa.array([1, None]))
    (['to', 'be'], [1, None])
    """
    native = kernels()
    if native is None or not pa.types.is_string(array.type) or array.null_count or not len(array):
        plain: list[Any] = array.to_pylist()
        return plain
    strings: list[Any] = native.texts_of(*buffers_of(array))
    return strings


def buffers_of(text: pa.StringArray) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return where each string begins and ends, int32[strings + 1]; and the bytes of all."""
    _, offset_buffer, data_buffer = text.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[text.offset : text.offset + len(text) + 1]
    data = np.frombuffer(data_buffer, dtype=np.uint8) if data_buffer is not None else np.empty(0, dtype=np.uint8)
    return offsets, data


def _table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC_OF_BYTE = _table()


def crc32s(text: pa.StringArray) -> npt.NDArray[np.uint32]:
    """Return ``zlib.crc32`` of each string's UTF-8 bytes, as uint32[strings].

    It works byte after byte, for all strings that still have one.

    >>> from zlib import crc32
    >>> crc32s(pa.array(["to", "", "being"])).tolist() == [crc32(b"to"), 0, crc32(b"being")]
    True
    """
    offsets, data = buffers_of(text)
    native = kernels()
    if native is not None and len(text):
        return np.frombuffer(native.crc32s(offsets, data, _CRC_OF_BYTE), dtype=np.uint32)
    result = np.full(len(text), 0xFFFFFFFF, dtype=np.uint32)
    left = np.diff(offsets)
    rows = np.flatnonzero(left)
    at, left, crcs = offsets[rows].astype(np.intp), left[rows], result[rows]
    while len(rows):
        crcs = _CRC_OF_BYTE.take((crcs ^ data.take(at)) & np.uint32(255)) ^ (crcs >> np.uint32(8))
        at += 1
        left -= 1
        more = left > 0
        if not more.all():
            done = ~more
            result[rows[done]] = crcs[done]
            rows, at, left, crcs = rows[more], at[more], left[more], crcs[more]
    return ~result


def order_of(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.intp]:
    """Return the indices that sort the hashes, as intp[n]; equal hashes stay in their order.

    Args:
        hashes: uint32[n].
    """
    places = hashes.astype(np.uint64) << np.uint64(32)
    places |= np.arange(len(hashes), dtype=np.uint64)
    places.sort()  # sorting distinct numbers is faster than a stable argsort
    return (places & np.uint64(0xFFFFFFFF)).astype(np.intp)


def has_nul(text: pa.StringArray) -> bool:
    r"""Return whether one of the strings contains a NUL.

    >>> has_nul(pa.array(["to", ""])), has_nul(pa.array(["a\0b", "c"])), has_nul(pa.array(["a\0b", "c"]).slice(1))
    (False, True, False)
    """
    offsets, data = buffers_of(text)
    return not bool(data[offsets[0] : offsets[-1]].all())


def joined(text: pa.StringArray) -> bytes | None:
    r"""Return the strings as UTF-8, separated by NULs; None if one of them contains a NUL.

    >>> joined(pa.array(["to", "", "be"])), joined(pa.array(["a\0b", "c"]))
    (b'to\x00\x00be', None)
    """
    whole = pa.ListArray.from_arrays(pa.array([0, len(text)], pa.int32()), text)
    data: bytes = pc.binary_join(whole, "\0")[0].as_buffer().to_pybytes()
    return data if data.count(b"\0") == len(text) - 1 else None


def separated(data: bytes) -> pa.StringArray | None:
    r"""Return the strings that ``joined`` has made the data of; None if they are not UTF-8, or longer than 2 GiB.

    >>> separated(b"to\0\0be").to_pylist()
    ['to', '', 'be']
    """
    if len(data) >= 1 << 31:
        return None
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError:
        return None
    letters = np.frombuffer(data, dtype=np.uint8)
    is_letter = letters != 0
    ends = np.append(np.flatnonzero(~is_letter), len(data))
    offsets = np.append(np.int64(0), ends - np.arange(len(ends)))
    return text_from(offsets.astype(np.int32).tobytes(), letters[is_letter].tobytes())


def text_from(offsets: bytes, data: bytes) -> pa.StringArray:
    """Return strings of int32[strings + 1], where each begins and ends, and their UTF-8."""
    return pa.StringArray.from_buffers(len(offsets) // 4 - 1, pa.py_buffer(offsets), pa.py_buffer(data))
