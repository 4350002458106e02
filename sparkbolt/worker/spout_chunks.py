"""Spout chunks: what a spout's ``read`` has given, in a form that the source reader can rely on.

Rule 1: what cannot be accepted is an ``EmitError`` with the spout's name; it fails trees, never the task.
Rule 2: a spout may use its memory again for the next read. So what is kept beyond it is a copy, or cannot change.

It is apart from ``source_reader``, its only user, because it knows nothing of trees and micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.ranges import BadRecord
from sparkbolt.base.exceptions import line_of, pass_on, reason_of
from sparkbolt.errors import EmitError, EnoughRead
from sparkbolt.wire.frames import Column, part, sound_column, take

Chunk: TypeAlias = BadRecord | tuple[npt.NDArray[np.int64], Sequence[Any]]
"""A bad record, or (positions: int64[rows], one column for each field)."""
NO_REASON = "the spout gave no reason"
_CONSTANT = {str, bytes, int, float, bool, type(None)}
"""Types of values that nobody can change."""


def bad_record_of(who: str, record: BadRecord) -> BadRecord:
    """A ``BadRecord`` whose parts are of the types that it declares; a reason may also be an exception.

    If ``skipped`` cannot be used, the reason says so: it is still this record that cannot be read.

    Raises:
        EmitError: the position is no integer.

    >>> bad_record_of("spout 's'", BadRecord(np.int64(3), ValueError("no number")))
    BadRecord(position=3, reason='ValueError: no number', skipped=0)
    >>> bad_record_of("spout 's'", BadRecord(3, "no number", "one")).reason
    "TypeError: 'str' object cannot be interpreted as an integer: expected BadRecord(position: int, reason: str, ...)"
    """
    expected = "expected BadRecord(position: int, reason: str, ...)"
    try:
        position = index(record.position)
    except BaseException as error:  # noqa: BLE001  what user code has made may raise anything
        pass_on(error)
        raise EmitError(
            f"{who} read a BadRecord at {type(record.position).__name__} ({line_of(error)}): {expected}"
        ) from None
    try:
        return BadRecord(position, reason_of(record.reason)[0] or NO_REASON, index(record.skipped))
    except BaseException as error:  # noqa: BLE001  what user code has made may raise anything
        pass_on(error)
        return BadRecord(position, f"{line_of(error)}: {expected}")


def enough_read_of(who: str, error: EnoughRead) -> EnoughRead | EmitError:
    """An ``EnoughRead`` whose parts are of the types that it declares, or an error that says what they are."""
    try:
        return EnoughRead(index(error.position), reason_of(error.reason)[0] or NO_REASON)
    except BaseException as raised:  # noqa: BLE001  what user code has made may raise anything
        pass_on(raised)
        return EmitError(
            f"{who} raised an EnoughRead that cannot be used ({line_of(raised)}): expected "
            "EnoughRead(position: int, reason: str)"
        )


def sound_parts(positions: npt.NDArray[np.int64], given: Sequence[Any], fields: Sequence[str]) -> Iterator[Chunk]:
    """A chunk in parts, in which a record with a value that cannot be read is a bad record, with all of its tuples.

    Args:
        positions: int64[rows], which never fall.
        given: one column for each field.
        fields: their names.
    """
    columns, reasons, begin = [], {}, 0
    for field, (column, trouble) in zip(fields, map(sound_column, given), strict=True):
        columns.append(column)
        for row in range(len(positions) if trouble is not None else 0):
            reason = sound_column(part(column, row, row + 1))[1]
            if reason is not None:
                reasons[int(positions[row])] = f"field {field!r} cannot be read: {reason}"
    for position, reason in sorted(reasons.items()):
        first, last = np.searchsorted(positions, [position, position + 1]).tolist()
        yield positions[begin:first], [part(column, begin, first) for column in columns]
        yield BadRecord(position, reason)
        begin = last
    yield positions[begin:], [part(column, begin, len(positions)) for column in columns] if begin else columns


def kept_columns(columns: Sequence[Any]) -> list[Column] | None:
    """The columns as they stay whatever the spout does with its memory; None if that cannot be had cheaply.

    >>> memory = np.array([1, 2])
    >>> kept = kept_columns([pa.array(memory), ["a", "b"]])
    >>> memory[:] = 9
    >>> kept[0].to_pylist(), kept[1], kept_columns([[[1], [2]]])
    ([1, 2], ['a', 'b'], None)
    """
    kept = [_kept(column) for column in columns]
    whole = [column for column in kept if column is not None]
    return whole if len(whole) == len(kept) else None


def _kept(column: Any) -> Column | None:
    if isinstance(column, list | tuple):
        return list(column) if set(map(type, column)) <= _CONSTANT else None
    if not isinstance(column, pa.Array):
        return None
    if _is_text(column.type):
        return column  # Arrow makes text of its own
    if pa.types.is_primitive(column.type) or (pa.types.is_dictionary(column.type) and _is_text(column.type.value_type)):
        return take(column, np.arange(len(column)))  # it may be a view of an array of numpy
    return None


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    )
