"""Arrays with values that Python cannot hold: from a list that says of which rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa


def damaged_text(is_bad: list[bool]) -> pa.Array:
    data = b"".join(b"\xff" if bad else b"a" for bad in is_bad)
    offsets = np.arange(len(is_bad) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(len(is_bad), pa.py_buffer(offsets), pa.py_buffer(data))


def of(kind: pa.DataType, good: int, bad: int) -> Callable[[list[bool]], pa.Array]:
    return lambda is_bad: pa.array([bad if one else good for one in is_bad], pa.int64()).cast(kind, safe=False)


def in_structs(is_bad: list[bool]) -> pa.Array:
    return pa.StructArray.from_arrays([of(pa.timestamp("us"), 1, 1 << 62)(is_bad)], ["at"])


def unused(is_bad: list[bool]) -> pa.Array:
    """A dictionary with a damaged value that no row has."""
    return pa.DictionaryArray.from_arrays(np.zeros(len(is_bad), dtype=np.int32), damaged_text([False, True]))


def of_other_machines(is_bad: list[bool]) -> np.ndarray:
    return np.arange(len(is_bad)).astype(">i4")


UNREADABLE: dict[str, Callable[[list[bool]], pa.Array]] = {
    "text": damaged_text,
    "dictionary": lambda is_bad: damaged_text(is_bad).dictionary_encode(),
    "chunks": lambda is_bad: pa.chunked_array([damaged_text(is_bad)]),
    "timestamp": of(pa.timestamp("us"), 1, 1 << 62),
    "timestamp with zone": of(pa.timestamp("us", "Europe/Berlin"), 1, -(1 << 62)),
    "date": of(pa.date64(), 86_400_000, 86_400_000 * 10**9),
    "duration": of(pa.duration("s"), 1, 1 << 62),
    "struct": in_structs,
}
