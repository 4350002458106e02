"""From rows to content: times, keys and message ids of what came.

Which question it answers: when did each row happen, whose window is it for, and was it seen before?
Rule: a row whose time or key is none fails alone, with a sentence that says what came.

Read before: ``core.rows``, ``settings``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.core.frames import python_values
from sparkbolt.core.rows import Rows
from sparkbolt.core.tasks import Counts, failure_of
from sparkbolt.core.tuples import Tuple
from sparkbolt.errors import EmitError
from sparkbolt.windows.content import I64

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64 = 1 << 63
MESSAGE_IDS_KEPT = 10_000
"""How many of the newest message ids of one source are known one by one."""


def times_of(
    rows: Rows, field: str | None, extractor: Callable[[Tuple], Any] | None, counts: Counts
) -> tuple[I64, npt.NDArray[np.bool_]]:
    """The timestamp of each row in milliseconds, and which rows have one; the others are in ``counts.failures``."""
    if extractor is not None:
        return _each_time(_extracted(rows, extractor, counts), "with_timestamp_extractor", counts)
    assert field is not None
    column = rows.columns[rows.origin.fields.index(field)]
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        return column.astype(np.int64), np.ones(rows.count, dtype=bool)
    if isinstance(column, pa.Array) and pa.types.is_int64(column.type) and not column.null_count:
        return column.to_numpy(), np.ones(rows.count, dtype=bool)
    return _each_time(python_values(column), f"the timestamp field {field!r}", counts)


def _extracted(rows: Rows, extractor: Callable[[Tuple], Any], counts: Counts) -> list[Any]:
    found: list[Any] = []
    for row, values in enumerate(rows.values()):
        try:
            found.append(extractor(Tuple.of(rows.origin, values)))
        except Exception as error:  # noqa: BLE001  user code may raise anything
            counts.failures[row] = failure_of(error)
            found.append(0)
    return found


def _each_time(values: Sequence[Any], what: str, counts: Counts) -> tuple[I64, npt.NDArray[np.bool_]]:
    times = np.zeros(len(values), dtype=np.int64)
    good = np.ones(len(values), dtype=bool)
    for row, value in enumerate(values):
        if row in counts.failures:
            good[row] = False
        elif type(value) is int and -_INT64 <= value < _INT64:
            times[row] = value
        elif isinstance(value, datetime) and value.tzinfo is not None:
            times[row] = (value - _EPOCH) // timedelta(milliseconds=1)
        else:
            good[row] = False
            expected = "expected milliseconds since the epoch (an int) or a datetime with a zone"
            counts.failures[row] = failure_of(EmitError(f"{what}: {expected}, got {value!r:.60}"))
    return times, good


def groups_of(
    rows: Rows, key: tuple[str, ...], good: npt.NDArray[np.bool_], counts: Counts
) -> dict[Any, npt.NDArray[np.intp]]:
    """The good rows of each key, in the order of the keys' first rows; ``good`` is false for what has failed."""
    columns = [python_values(rows.columns[rows.origin.fields.index(name)]) for name in key]
    values: Sequence[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    found: dict[Any, list[int]] = {}
    for row in np.flatnonzero(good).tolist():
        try:
            found.setdefault(values[row], []).append(row)
        except TypeError:
            good[row] = False
            what = f"with_key({', '.join(map(repr, key))})"
            error = EmitError(f"{what}: expected values that can be keys of a dict, got {values[row]!r:.60}")
            counts.failures[row] = failure_of(error)
    return {value: np.array(places, dtype=np.intp) for value, places in found.items()}


class SeenIds:
    """The message ids that were seen of each source task and stream."""

    def __init__(self) -> None:
        self._sources: dict[Hashable, tuple[int | float | None, set[Any]]] = {}
        """(what is not above this was seen, what is above it and was seen)."""

    def new_of(self, rows: Rows, field: str, good: npt.NDArray[np.bool_], counts: Counts) -> npt.NDArray[np.bool_]:
        """Which good rows have an id that was not seen; they count as seen now."""
        origin = rows.origin
        source = (origin.component, origin.task, origin.stream)
        floor, known = self._sources.get(source, (None, set()))
        fresh = good.copy()
        values = python_values(rows.columns[origin.fields.index(field)])
        for row in np.flatnonzero(good).tolist():
            value = values[row]
            if not isinstance(value, int | float) or isinstance(value, bool):
                fresh[row] = good[row] = False
                error = EmitError(f"the message id field {field!r}: expected a number, got {value!r:.60}")
                counts.failures[row] = failure_of(error)
            elif value in known or (floor is not None and value <= floor):
                fresh[row] = False
            else:
                known.add(value)
        if len(known) > MESSAGE_IDS_KEPT:
            kept = sorted(known)
            floor, known = kept[-MESSAGE_IDS_KEPT - 1], set(kept[-MESSAGE_IDS_KEPT:])
        self._sources[source] = floor, known
        return fresh

    def save(self) -> Any:
        """What ``load`` needs."""
        return {source: (floor, sorted(known)) for source, (floor, known) in self._sources.items()}

    def load(self, state: Any) -> None:
        """Take over what ``save`` gave."""
        self._sources = {source: (floor, set(known)) for source, (floor, known) in state.items()}
