"""Arrow buffers: encodes Arrow arrays as their raw buffers, without Arrow's messages around them.

A plain column (no nulls, no slice, not nested) costs 2 us to write and 3 us to read, an Arrow stream 40 us and 30 us,
however few rows it has, because it describes its schema in each frame.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from sparkbolt.errors import check

Shape: TypeAlias = tuple[Any, ...]
"""The description of a plain column, for reading it: (type id, length, bytes of each buffer); for a dictionary array,
(shape of the indices, shape of the values)."""

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FIXED = {kind.id: kind for kind in (*_INTEGERS, pa.float32(), pa.float64(), pa.bool_())}
_TEXT = {
    kind.id: (kind, offset)
    for kind, offset in (
        (pa.string(), struct.Struct("<i")),
        (pa.binary(), struct.Struct("<i")),
        (pa.large_string(), struct.Struct("<q")),
        (pa.large_binary(), struct.Struct("<q")),
    )
}
_DICTIONARY: int = pa.dictionary(pa.int32(), pa.string()).id


def to_buffers(column: pa.Array) -> tuple[Shape, list[Any]] | None:
    """Return the shape and the buffers of a column, or None if it is not plain.

    >>> shape, buffers = to_buffers(pa.array([1, 2, 3]))
    >>> from_buffers(shape, pa.py_buffer(b"".join(buffers)), 0)[0].to_pylist()
    [1, 2, 3]
    >>> to_buffers(pa.array([1, None]))
    """
    kind, length = column.type.id, len(column)
    if kind == _DICTIONARY:
        indices, values = to_buffers(column.indices), to_buffers(column.dictionary)
        if indices is None or values is None or column.type.ordered:
            return None
        return (indices[0], values[0]), [*indices[1], *values[1]]
    if length == 0 or column.offset or column.null_count:
        return None
    if kind in _FIXED:
        size = -(-_FIXED[kind].bit_width * length // 8)
        return (kind, length, size), [_cut(column.buffers()[1], size)]
    if kind in _TEXT:
        form = _TEXT[kind][1]
        _, offsets, text = column.buffers()
        size, (end,) = form.size * (length + 1), form.unpack_from(offsets, form.size * length)
        return (kind, length, size, end), [_cut(offsets, size), _cut(text, end) if end else b""]
    return None


def all_to_buffers(columns: Sequence[Any]) -> tuple[dict[int, Shape], list[Any]]:
    """Return the shapes of the plain columns by index, and all their buffers, each padded to a multiple of 8 bytes."""
    shapes: dict[int, Shape] = {}
    pieces: list[Any] = []
    for index, column in enumerate(columns):
        taken_apart = to_buffers(column) if isinstance(column, pa.Array) else None
        if taken_apart is None:
            continue
        shapes[index] = taken_apart[0]
        for buffer in taken_apart[1]:
            pieces.append(buffer)
            if len(buffer) % 8:
                pieces.append(bytes(-len(buffer) % 8))
    return shapes, pieces


def from_buffers(shape: Shape, data: pa.Buffer, at: int) -> tuple[pa.Array, int]:
    """Read one column that ``all_to_buffers`` wrote.

    Args:
        shape: the column's shape.
        data: the bytes; the column is a view of them.
        at: the byte at which the column's buffers begin.

    Returns:
        The column, and the byte at which its buffers end.

    Raises:
        InvariantError: the bytes are cut off.
    """
    if isinstance(shape[0], tuple):
        indices, at = from_buffers(shape[0], data, at)
        values, at = from_buffers(shape[1], data, at)
        return pa.DictionaryArray.from_arrays(indices, values, safe=False), at
    kind, length, *sizes = shape
    buffers: list[pa.Buffer | None] = [None]
    for size in sizes:
        check(at + size <= data.size, f"a column of {length} rows is cut off at {data.size} bytes")
        buffers.append(data.slice(at, size))
        at += size + -size % 8
    type_ = _FIXED[kind] if kind in _FIXED else _TEXT[kind][0]
    return pa.Array.from_buffers(type_, length, buffers, 0), at


def _cut(buffer: pa.Buffer, size: int) -> pa.Buffer:
    return buffer if buffer.size == size else buffer.slice(0, size)
