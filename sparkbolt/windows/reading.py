"""Reads the times, keys and message ids of the rows that a windowed bolt gets.

A row without a valid one fails alone, with a message that names its value; without a valid time it fails for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import FunctionType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.arguments import is_number
from sparkbolt.api.causes import Cause
from sparkbolt.api.story import time_text
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import pass_on, printed
from sparkbolt.base.intervals import add
from sparkbolt.errors import EmitError, Reject
from sparkbolt.windows.content import I64
from sparkbolt.windows.kinds import UNITS, Window
from sparkbolt.wire.frames import python_values
from sparkbolt.worker.emissions import Rows
from sparkbolt.worker.failures import Failure, failure_of
from sparkbolt.worker.results import Settlements

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64 = 1 << 63
_DAY_MS = 24 * 3600 * 1000
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FRACTIONS = (float, Decimal, np.floating)
SECONDS = 10**9, 10**10
"""Numbers from here to there (exclusive) count seconds, as it seems: as such they are of 2001 to 2286."""
MESSAGE_ID_RUNS_KEPT = 10_000
"""How many runs of message ids are stored for each source: those with the highest ids."""


def times_of(rows: Rows, windowing: Window, now_ms: int, counts: Settlements) -> tuple[I64, npt.NDArray[np.bool_]]:
    """Read the timestamp of each row; rows without one are added to ``counts.failures``, and are not retried.

    Args:
        rows: the rows.
        windowing: the settings, with the place and the unit of the timestamp.
        now_ms: the micro-batch's time.
        counts: takes the failures.

    Returns:
        The timestamps in milliseconds, int64[rows]; and bool[rows], true for the rows that have one.
    """
    timestamp, unit = windowing.timestamp, windowing.unit
    column: Any
    if callable(timestamp):
        column = _extracted(rows, timestamp, counts)
    else:
        column = rows.columns[rows.origin.fields.index(timestamp)]
    if isinstance(column, pa.Array) and pa.types.is_int64(column.type) and not column.null_count:
        column = column.to_numpy()
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        times, good = _scaled(column.astype(np.int64), unit), np.ones(rows.count, dtype=bool)
        numbers = good.copy()
    else:
        times, good, numbers = _each_time(python_values(column), windowing, counts)
    for wrong, why in _checks(times, numbers, now_ms, windowing):
        for row in np.flatnonzero(good & wrong).tolist():
            counts.failures[row] = Failure(Cause.UNREADABLE, f"{_giver(windowing)}: {why(int(times[row]))}")
    good[[row for row in counts.failures if row < rows.count]] = False
    return times, good


def time_of(value: Any, windowing: Window, now_ms: int) -> int:
    """Read one timestamp, as ``times_of`` reads those of rows; returns milliseconds since the epoch.

    Args:
        value: the timestamp.
        windowing: the settings, with the place and the unit of the timestamp.
        now_ms: the micro-batch's time.

    Raises:
        Reject: it is not a valid time; the message names it.

    >>> time_of(datetime(1970, 1, 2, tzinfo=UTC), Window(timestamp="at"), 0)
    86400000
    """
    if type(value) is int and windowing.unit in (None, "ms") and SECONDS[1] <= value <= now_ms:
        return value  # no check below refuses it
    counts = Settlements()
    times, _, numbers = _each_time([value], windowing, counts)
    if counts.failures:
        raise Reject(counts.failures[0].reason)
    time_ms = int(times[0])
    for wrong, why in _checks(times, numbers, now_ms, windowing):
        if wrong[0]:
            raise Reject(f"{_giver(windowing)}: {why(time_ms)}")
    return time_ms


def _checks(
    times: I64, numbers: npt.NDArray[np.bool_], now_ms: int, windowing: Window
) -> Iterator[tuple[npt.NDArray[np.bool_], Callable[[int], str]]]:
    """Yield which rows fail a check of their times, bool[rows], and the error of such a time; the last counts."""
    first, last = SECONDS
    if windowing.unit is None and now_ms >= 1000 * first:  # a clock of before 2001 belongs to a test
        yield (
            numbers & (times >= first) & (times < last),
            lambda time_ms: (
                f"{time_ms} ms is {time_text(time_ms)}. Did you give seconds? Then say "
                f"{_with_unit(windowing, 's')}; if the number counts milliseconds, say unit='ms' there"
            ),
        )
    yield (  # watermarks begin at the epoch; in Storm, too, the first watermark is 0, and there such tuples are late
        times < 0,
        lambda time_ms: (
            f"{time_ms} ms is before 1970-01-01T00:00:00Z, where event time begins. Use windows on arrival for such "
            "tuples, or count the milliseconds from an earlier date"
        ),
    )
    limit_ms = windowing.max_future_ms
    yield (  # such a tuple would move the watermark so far that every later one would be late
        times > now_ms + limit_ms,
        lambda time_ms: (
            f"{time_ms} ms is {_span(time_ms - now_ms)} ahead of the micro-batch's time, and max_future allows "
            f"{_span(limit_ms)}: everything after it would be late. {_likely(time_ms, now_ms, windowing)}"
        ),
    )


def _giver(windowing: Window) -> str:
    field = windowing.timestamp
    return f"the timestamp field {field!r}" if isinstance(field, str) else "the function of the timestamp"


def _with_unit(windowing: Window, unit: str) -> str:
    timestamp = repr(windowing.timestamp) if isinstance(windowing.timestamp, str) else "..."
    return f"timestamp={timestamp}, unit={unit!r}"


def _span(duration_ms: int) -> str:
    if duration_ms >= 2 * _DAY_MS:
        return f"{duration_ms // _DAY_MS:,} days"
    return f"{duration_ms / 1000:,.3f}".rstrip("0").rstrip(".") + " s"


def _likely(time_ms: int, now_ms: int, windowing: Window) -> str:
    units = list(UNITS)
    finer = units[units.index(windowing.unit or "ms") + 1 :]
    for place, name in enumerate(finer, 1):
        if now_ms // 2 < time_ms // 1000**place < 2 * now_ms:
            return f"Did you give {UNITS[name]}? Then say {_with_unit(windowing, name)}"
    return "Is a clock wrong? If not, raise max_future"


def _extracted(rows: Rows, extractor: Callable[[Tuple], Any], counts: Settlements) -> list[Any]:
    extracted: list[Any] = []
    for row, values in enumerate(rows.values()):
        try:
            extracted.append(extractor(Tuple.of(rows.origin, values)))
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            counts.failures[row] = failure_of(error)
            extracted.append(0)
    return extracted


def _each_time(
    values: Sequence[Any], windowing: Window, counts: Settlements
) -> tuple[I64, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """The times of values; which values are times, and which are numbers, each bool[values]."""
    unit = windowing.unit
    times = np.zeros(len(values), dtype=np.int64)
    good, numbers = np.ones(len(values), dtype=bool), np.ones(len(values), dtype=bool)
    for row, value in enumerate(values):
        if row in counts.failures:
            good[row] = False
        elif type(value) is int and unit is None and -_INT64 <= value < _INT64:
            times[row] = value
        else:
            try:
                numbers[row] = not isinstance(value, datetime)
                time_ms = _milliseconds(value, unit)
            except BaseException as error:  # noqa: BLE001  a user's own zone may raise anything
                good[row] = False
                counts.failures[row] = failure_of(error)
                continue
            if time_ms is None or not -_INT64 <= time_ms < _INT64:
                good[row] = False
                counts.failures[row] = Failure(Cause.UNREADABLE, _no_time(value, windowing))
            else:
                times[row] = time_ms
    return times, good, numbers


def _no_time(value: Any, windowing: Window) -> str:
    unit = windowing.unit
    number = f"{UNITS[unit]} since the epoch" if unit else "milliseconds since the epoch (an int)"
    text = f"{_giver(windowing)}: expected {number} or a datetime with a zone, got {printed(value):.60}"
    if unit is None and isinstance(value, _FRACTIONS):
        text += f". If it counts seconds, say {_with_unit(windowing, 's')}"
    return text


def _milliseconds(value: Any, unit: str | None) -> int | None:
    """The time of a value in milliseconds; None if the value is not a valid time."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value) * 1000 // _PER_SECOND[unit or "ms"]
    if unit is not None and isinstance(value, _FRACTIONS) and math.isfinite(value):
        return round(value * 1_000_000 / _PER_SECOND[unit]) // 1000
    return None


def _scaled(numbers: I64, unit: str | None) -> I64:
    """Numbers that count a unit, as milliseconds; a number of seconds that is too large becomes the largest time."""
    per_second = _PER_SECOND[unit or "ms"]
    if per_second >= 1000:
        return numbers // (per_second // 1000) if per_second > 1000 else numbers
    most = (_INT64 - 1) // 1000
    return np.clip(numbers, -most, most) * 1000


def groups_of(
    rows: Rows, key: tuple[str, ...], good: npt.NDArray[np.bool_], counts: Settlements
) -> dict[Any, npt.NDArray[np.intp]]:
    """The good rows of each key, intp[rows], in the order of the keys' first rows; rows without a valid key fail.

    A value that equals only itself is not a valid key: after a NaN, or an object of a class without ``__eq__``, was
    pickled and read again, it would not find its window. ``good``, bool[rows], becomes false for rows that fail.
    """
    what = f"the key {', '.join(map(repr, key))}"
    columns = [python_values(rows.columns[rows.origin.fields.index(name)]) for name in key]
    values: Sequence[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    rows_by_key: dict[Any, list[int]] = {}
    for row in np.flatnonzero(good).tolist():
        try:
            rows_by_key.setdefault(values[row], []).append(row)
        except BaseException as error:  # noqa: BLE001  the user's __hash__ and __eq__ may raise anything
            pass_on(error)
            good[row] = False
            text = f"{what}: expected values that can be keys of a dict, got {printed(values[row]):.60}"
            counts.failures[row] = failure_of(EmitError(text))
    for value in [value for value in rows_by_key if not _equals_again(value)]:
        text = (
            f"{what}: {printed(value):.60} equals nothing but itself, so each tuple would have a window of its own: "
            "fail or replace such values before the window, or key by a field that names them"
        )
        for row in rows_by_key.pop(value):
            good[row] = False
            counts.failures[row] = failure_of(EmitError(text))
    return {value: np.array(places, dtype=np.intp) for value, places in rows_by_key.items()}


_EQUAL_AGAIN = frozenset({str, int, bool, bytes, type(None)})


def _equals_again(value: Any) -> bool:
    """Whether a value still equals itself after it was pickled and read again."""
    if type(value) in _EQUAL_AGAIN:
        return True
    if isinstance(value, tuple | frozenset):
        return all(map(_equals_again, value))
    if isinstance(value, type | FunctionType):
        return True  # it is unpickled by its name, as the same object
    hashes: Any = type(value).__hash__
    return hashes is not object.__hash__ and bool(value == value)


class MessageIds:
    """The message ids that arrived before, by source task and stream.

    An id that is not stored counts as new: a message that failed before it got here is retried after any number of
    newer messages, and it is better to show a tuple twice than to lose it.
    """

    def __init__(self) -> None:
        self._runs: dict[tuple[str, int, str], tuple[list[int], list[int]]] = {}
        """By source: (starts, ends) of runs of ids, the ends exclusive."""

    def new_of(self, rows: Rows, field: str, good: npt.NDArray[np.bool_], counts: Settlements) -> npt.NDArray[np.bool_]:
        """Find the good rows whose id is new, bool[rows], and store their ids.

        A row whose id is not a whole number fails, and ``good``, bool[rows], becomes false for it.
        """
        origin = rows.origin
        starts, ends = self._runs.setdefault((origin.component, origin.task, origin.stream), ([], []))
        new = good.copy()
        values = python_values(rows.columns[origin.fields.index(field)])
        for row in np.flatnonzero(good).tolist():
            value = values[row]
            if is_number(value) and value % 1 == 0:
                new[row] = add(starts, ends, int(value))
            else:
                new[row] = good[row] = False
                error = EmitError(f"the message id field {field!r}: expected a whole number, got {printed(value):.60}")
                counts.failures[row] = failure_of(error)
        for column in (starts, ends):
            del column[: max(0, len(column) - MESSAGE_ID_RUNS_KEPT)]
        return new

    def save(self) -> Any:
        """Return the argument of ``load``, as picklable values."""
        return {source: (list(starts), list(ends)) for source, (starts, ends) in self._runs.items()}

    def load(self, state: Any) -> None:
        """Restore the result of ``save``."""
        self._runs = {source: (list(starts), list(ends)) for source, (starts, ends) in state.items()}
