"""Hashing: turns values into 64-bit numbers that are the same in every process.

Rule 1: the same value gives the same number in every process, on every machine, today and after a restart.
Rule 2: values that are equal in Python (1, 1.0, True and Decimal(1); a datetime in two zones) give the same number, and
a column gives the same numbers as an Arrow array and as a list. A numpy ``datetime64`` of a day equals both a date and
a datetime, which are not equal to each other; it gets the number of the datetime, because it has the same ``hash``.
Rule 3: a value without a stable identity (an object of the user's own class) is rejected with an error.

Texts and bytes of at most 256 bytes are read as 64-bit words, which are mixed one after the other, for all rows of a
column at once; longer ones are hashed by blake2b. A tuple and a list of the same elements give the same number, because
Arrow has one type for both. Prior art: Storm's ``TupleUtils.listHashCode``; the numbers here are different.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt.base.exceptions import line_of, pass_on, printed
from sparkbolt.base.ids import MASK64, U64, mix64, mix64_array
from sparkbolt.base.text_arrays import dictionary_of
from sparkbolt.errors import EmitError

Column: TypeAlias = pa.Array | Sequence[Any]
"""The values of one field: an Arrow array, or any sequence of Python objects."""

_LONG_BYTES = 256
_SAMPLE_ROWS = 1024
_FEW = 64
_SHORT_BYTES = 4096
_DIGITS_MAX = 4000
_STEP = 0x9E3779B97F4A7C15

_TEXT = mix64(1)
_BYTES = mix64(2)
_WHOLE = mix64(3)
_FLOAT = mix64(4)
_NONE = mix64(5)
_NAN = mix64(6)
_SEQUENCE = mix64(7)
_SET = mix64(8)
_MAPPING = mix64(9)
_BIG = mix64(10)
_MOMENT = mix64(11)
_NAIVE = mix64(12)
_DATE = mix64(13)
_TIME = mix64(14)
_LAPSE = mix64(15)
_UUID = mix64(16)
_MEMBER = mix64(17)
_DECIMAL = mix64(18)

_MEMOISED = frozenset({str, int, float, bool, bytes, datetime, date, UUID})
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class UnroutableError(EmitError):
    """A row cannot be routed to tasks because of its value or of its grouping; ``row`` is the row's index."""

    def __init__(self, message: str, row: int) -> None:
        """Store the message and the row's index within the emitted rows."""
        self.row = row
        super().__init__(message)

    def __reduce__(self) -> tuple[type[UnroutableError], tuple[str, int]]:
        """Pickle by both arguments."""
        return type(self), (str(self), self.row)


def combine(first: U64, second: U64) -> U64:
    """Combine two columns of hashes row by row; the order of the two matters.

    Args:
        first: uint64[rows].
        second: uint64[rows].

    Returns:
        uint64[rows].
    """
    return mix64_array((first + np.uint64(_STEP)) ^ second)


def hash_value(value: Any) -> int:
    """Return the number of one value, from 0 to 2**64 - 1.

    Args:
        value: None, str, bytes, bool, int, float, Decimal, datetime, date, time, timedelta, UUID, an Enum
            member, a numpy scalar, or a tuple, list, set, frozenset or dict of them.

    Raises:
        TypeError: the value, or one within it, is of another type; or a number has more than 4000 digits.

    >>> hash_value(1) == hash_value(1.0) == hash_value(True) != hash_value("1")
    True
    """
    if isinstance(value, str):
        return _hash_bytes(value.encode("utf-8", "surrogatepass"), _TEXT)
    if isinstance(value, int):
        return _hash_int(int(value))
    if value is None:
        return _NONE
    if isinstance(value, float):
        return _hash_float(float(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return _hash_bytes(bytes(value), _BYTES)
    if isinstance(value, Decimal):
        return _hash_decimal(value)
    if isinstance(value, tuple | list):
        return _fold((hash_value(element) for element in value), _SEQUENCE)
    if isinstance(value, Mapping):
        pairs = (_fold((hash_value(key), hash_value(held)), _MAPPING) for key, held in value.items())
        return mix64(sum(pairs) ^ _MAPPING)
    if isinstance(value, Set):
        return mix64(sum(hash_value(element) for element in value) ^ _SET)
    return _hash_scalar(value)


def _hash_scalar(value: Any) -> int:
    if isinstance(value, datetime):
        return _hash_datetime(value)
    if isinstance(value, date):
        return mix64(value.toordinal() ^ _DATE)
    if isinstance(value, time):
        offset = value.replace(fold=0).utcoffset()
        since = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
        return mix64((since - (offset or timedelta())) // _MICROSECOND ^ (_TIME if offset is None else mix64(_TIME)))
    if isinstance(value, timedelta):
        return mix64(value // _MICROSECOND ^ _LAPSE)
    if isinstance(value, UUID):
        return _hash_bytes(value.bytes, _UUID)
    if isinstance(value, Enum):
        return _hash_bytes(f"{type(value).__qualname__}.{value.name}".encode(), _MEMBER)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _hash_numpy_time(value)
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
        return hash_value(value.item())
    raise TypeError(f"{printed(value):.200} of type {type(value).__qualname__}")


def _fold(numbers: Any, seed: int) -> int:
    result = seed
    for number in numbers:
        result = mix64(((result + _STEP) & MASK64) ^ number)
    return result


def _hash_bytes(data: bytes, seed: int) -> int:
    """The scalar form of ``_hash_spans``."""
    length = len(data)
    if length > _LONG_BYTES:
        return mix64(int.from_bytes(blake2b(data, digest_size=8).digest(), "little") ^ seed)
    result = (seed ^ (length * _STEP)) & MASK64
    for start in range(0, max(length, 1), 8):
        result = mix64(result ^ int.from_bytes(data[start : start + 8], "little"))
    return result


def _hash_int(value: int) -> int:
    if -(1 << 63) <= value < (1 << 64):
        return mix64((value & MASK64) ^ _WHOLE)
    if value.bit_length() > _DIGITS_MAX * 10 // 3:
        raise TypeError(f"a number of more than {_DIGITS_MAX} digits")
    return _hash_bytes(value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True), _BIG)


def _hash_float(value: float) -> int:
    if math.isnan(value):
        return _NAN
    if math.isinf(value) or not value.is_integer():
        return mix64(int.from_bytes(struct.pack("<d", value), "little") ^ _FLOAT)
    return _hash_int(int(value))


def _hash_decimal(value: Decimal) -> int:
    if not value.is_finite():
        return _hash_float(float("nan") if value.is_nan() else float(value))
    if value.adjusted() > _DIGITS_MAX:
        raise TypeError(f"a number of more than {_DIGITS_MAX} digits")
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    if not stripped:
        return _hash_int(0)
    power = int(exponent) + len(text) - len(stripped)
    if power >= 0:
        return _hash_int(int(stripped) * 10**power * (-1 if sign else 1))
    if float(value) == value:
        return _hash_float(float(value))
    return _hash_bytes(f"{sign}:{stripped}:{power}".encode(), _DECIMAL)


def _hash_datetime(value: datetime) -> int:
    """Hash the instant if the datetime has a zone; ``fold`` is ignored, as Python does within one time zone."""
    offset = value.replace(fold=0).utcoffset()
    micros = (value.replace(tzinfo=None, fold=0) - _EPOCH) // _MICROSECOND
    nanos = getattr(value, "nanosecond", 0)
    if offset is None:
        return mix64((micros ^ _NAIVE) + nanos * _STEP)
    return mix64(((micros - offset // _MICROSECOND) ^ _MOMENT) + nanos * _STEP)


def _hash_numpy_time(value: np.datetime64 | np.timedelta64) -> int:
    """Hash like a datetime without a zone, or like a timedelta; NaT is hashed like None, to which numpy converts it."""
    if np.isnat(value):
        return _NONE
    if isinstance(value, np.timedelta64):
        return mix64(int(value.astype("timedelta64[us]").astype(np.int64)) ^ _LAPSE)
    micros = int(value.astype("datetime64[us]").astype(np.int64))
    nanos = int(value.astype(np.int64)) % 1000 if np.datetime_data(value.dtype) == ("ns", 1) else 0
    return mix64((micros ^ _NAIVE) + nanos * _STEP)


def hash_column(column: Column, field: str = "") -> U64:
    """Return ``hash_value`` of each value of a column, computed in one pass where the type allows it.

    Args:
        column: the values of one field; each distinct value of a dictionary array is hashed once.
        field: the name of the field, for errors.

    Returns:
        uint64[rows].

    Raises:
        UnroutableError: a value has a type that ``hash_value`` rejects.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.Array):
        return _hash_arrow(column, field)
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "iufb" and column.ndim == 1:
            return _hash_arrow(pa.array(column), field)
        column = list(column)
    array = _as_uniform(column)
    return _hash_arrow(array, field) if array is not None else _hash_objects(column, field)


def _as_uniform(values: Sequence[Any]) -> pa.Array | None:
    """Return the values as an Arrow array if all are of one type (str, bytes, int or float) or None; else None."""
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) != 1:
        return None
    arrow_type = {str: pa.large_string(), bytes: pa.large_binary(), int: pa.int64(), float: pa.float64()}.get(
        kinds.pop()
    )
    if arrow_type is None:
        return None
    try:
        return pa.array(values, arrow_type)
    except (UnicodeEncodeError, OverflowError, pa.ArrowInvalid):
        return None


def _hash_objects(values: Sequence[Any], field: str) -> U64:
    """Hash one value after the other; the number of a repeated value is looked up."""
    numbers: dict[Any, int] = {}
    result = np.empty(len(values), dtype=np.uint64)
    for row, value in enumerate(values):
        memoised = type(value) in _MEMOISED
        try:
            number = numbers.get(value) if memoised else None
            if number is None:
                number = hash_value(value)
                if memoised:
                    numbers[value] = number
        except BaseException as error:  # a mapping or a time zone of the user's own class may raise anything
            pass_on(error)
            what = str(error) if type(error) is TypeError else f"{type(value).__name__} ({line_of(error)})"
            raise UnroutableError(
                f"field {field!r} cannot choose a task: {what} may differ from process to "
                "process; expected None, str, bytes, a number, a date or time, UUID, Enum, or a tuple, "
                "list, set or dict of them: emit an id of the object in a field of its own",
                row,
            ) from error
        result[row] = number
    return result


def _hash_arrow(array: pa.Array, field: str) -> U64:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _hash_dictionary(array, field)
    if isinstance(array, pa.ExtensionArray):
        return _hash_objects(array.to_pylist(), field)
    if len(array) > _SAMPLE_ROWS and _is_text(kind) and _repeats(array):
        return _hash_dictionary(dictionary_of(array), field)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        result = _hash_spans(array, _TEXT)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        result = _hash_spans(array, _BYTES)
    elif pa.types.is_string_view(kind):
        return _hash_arrow(array.cast(pa.large_string()), field)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        wide = pa.uint64() if kind == pa.uint64() else pa.int64()
        whole = _filled(array, 0, wide).to_numpy(zero_copy_only=False).view(np.uint64)
        result = mix64_array(whole ^ np.uint64(_WHOLE))
    elif pa.types.is_floating(kind):
        result = _hash_floats(_filled(array, 0.0, pa.float64()).to_numpy(zero_copy_only=False))
    elif pa.types.is_nested(kind) or pa.types.is_null(kind):
        return _hash_objects(array.to_pylist(), field)
    else:
        try:
            encoded = array.dictionary_encode()
        except pa.ArrowNotImplementedError:  # of decimals of 32 bits, for example
            return _hash_objects(array.to_pylist(), field)
        return _hash_dictionary(encoded, field)
    if array.null_count:
        result[array.is_null().to_numpy(zero_copy_only=False)] = np.uint64(_NONE)
    return result


def _filled(array: pa.Array, value: object, kind: pa.DataType) -> pa.Array:
    wide = array.cast(kind)
    return pc.fill_null(wide, pa.scalar(value, kind)) if array.null_count else wide


def _hash_dictionary(array: pa.DictionaryArray, field: str) -> U64:
    """Hash each distinct value once, then look up the number of each row."""
    numbers, indices = hash_distinct(array, field)
    result: U64 = numbers.take(indices)
    return result


def hash_distinct(array: pa.DictionaryArray, field: str) -> tuple[U64, npt.NDArray[Any]]:
    """Return the number of each distinct value of a column, and each row's index into these numbers.

    Args:
        array: the values of one field.
        field: the name of the field, for errors.

    Returns:
        Numbers: uint64[distinct values], and one more for None if a row is null. Indices: integers[rows].

    Raises:
        UnroutableError: as for ``hash_column``.
    """
    distinct = array.dictionary
    try:
        numbers = _hash_few(distinct)
        if numbers is None:
            fast = _is_fast(distinct.type)
            numbers = _hash_arrow(distinct, field) if fast else _hash_objects(distinct.to_pylist(), field)
    except UnroutableError as error:
        row = int(np.argmax(array.indices.fill_null(-1).to_numpy(zero_copy_only=False) == error.row))
        raise UnroutableError(str(error), row) from error
    if array.indices.null_count:
        numbers = np.append(numbers, np.uint64(_NONE))
        indices = array.indices.cast(pa.int64()).fill_null(len(numbers) - 1)
    else:
        indices = array.indices
    return numbers, indices.to_numpy(zero_copy_only=False)


def _hash_few(distinct: pa.Array) -> U64 | None:
    """Return the numbers of a few short texts, hashed one by one, mostly from a cache; else None.

    For a few texts the vector form costs as much as for a thousand. The result is None if there are many values, or
    long ones, or values of another type.
    """
    if len(distinct) > _FEW or not pa.types.is_string(distinct.type) or distinct.null_count:
        return None
    if distinct.get_total_buffer_size() > _SHORT_BYTES:
        return None
    try:
        return np.array([_hash_text(text) for text in distinct.to_pylist()], dtype=np.uint64)
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=4096)
def _hash_text(text: str) -> int:
    return _hash_bytes(text.encode(), _TEXT)


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    return bool(text or types.is_binary(kind) or types.is_large_binary(kind))


def _repeats(array: pa.Array) -> bool:
    """Whether values repeat so often that a look-up is cheaper than hashing each; estimated from the first rows."""
    sample = array.slice(0, _SAMPLE_ROWS)
    return len(sample.unique()) * 2 < _SAMPLE_ROWS


def _is_fast(kind: pa.DataType) -> bool:
    types = pa.types
    return _is_text(kind) or bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _hash_floats(values: npt.NDArray[np.float64]) -> U64:
    """Hash whole numbers like the ints they equal, and all others by their bits."""
    whole = values == np.floor(values)
    inside = whole & (np.abs(values) < 2.0**63)
    bits = values.view(np.uint64) ^ np.uint64(_FLOAT)
    ints = np.where(inside, values, 0.0).astype(np.int64).view(np.uint64) ^ np.uint64(_WHOLE)
    result = mix64_array(np.where(inside, ints, bits))
    result[np.isnan(values)] = np.uint64(_NAN)
    for row in np.flatnonzero(whole & ~inside & np.isfinite(values)).tolist():
        result[row] = _hash_float(float(values[row]))
    return result


def _hash_spans(array: pa.Array, seed: int) -> U64:
    """The vector form of ``_hash_bytes``: mixes word after word, for all rows that still have one.

    The number of a null is meaningless here; the caller overwrites it.
    """
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offset_buffer, data = array.buffers()
    if len(array) == 0:
        return np.empty(0, dtype=np.uint64)
    offsets = np.frombuffer(offset_buffer, dtype=np.int64 if wide else np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64, copy=False)
    starts, lengths = offsets[:-1], np.diff(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    # Eight bytes of padding, so that a whole word can be read from any byte up to the last.
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        padded[:-8] = np.frombuffer(data, dtype=np.uint8, count=last - first, offset=first)
    words = np.ndarray(shape=(last - first + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
    result = (lengths.view(np.uint64) * np.uint64(_STEP)) ^ np.uint64(seed)
    at, left = starts - first, lengths
    result = _mix_words(result, words, at, left)
    rows = np.flatnonzero((lengths > 8) & (lengths <= _LONG_BYTES))
    at, left = at[rows] + 8, left[rows] - 8
    while len(rows):
        result[rows] = _mix_words(result[rows], words, at, left)
        keep = left > 8
        rows, at, left = rows[keep], at[keep] + 8, left[keep] - 8
    for row in np.flatnonzero(lengths > _LONG_BYTES).tolist():
        start = int(starts[row]) - first
        result[row] = _hash_bytes(padded[start : start + int(lengths[row])].tobytes(), seed)
    return result


_WORD_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)


def _mix_words(numbers: U64, words: U64, at: npt.NDArray[Any], left: npt.NDArray[Any]) -> U64:
    """Mix in the eight bytes that begin at ``at``; ``left`` of them belong to the value."""
    masks = _WORD_MASKS.take(left, mode="clip")
    return mix64_array(numbers ^ (words[at] & masks))  # take would copy all words: they overlap
