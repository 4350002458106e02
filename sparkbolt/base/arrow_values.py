"""Python values in Arrow columns, without loss.

Whether a value fits a type depends on the value and the type alone. Arrow itself takes the type of a column from some
of its values and cuts the others: a datetime beside a date loses its time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt.base.exceptions import printed

_is = pa.types
_Kind: TypeAlias = Any
"""A ``pa.DataType``."""
_CANNOT = (pa.ArrowException, ArithmeticError, TypeError, ValueError)
"""The exceptions of Arrow for a value that it rejects."""
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def array_of(values: Any, kind: _Kind) -> pa.Array:
    """Return a column (an Arrow array, a NumPy array or a sequence) as an Arrow array of the type ``kind``.

    Raises:
        TypeError: a value does not fit the type, or would lose a part.

    >>> array_of([1, None, 2.5], pa.float64()).to_pylist()
    [1.0, None, 2.5]
    >>> array_of([dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12)], pa.date32())
    Traceback (most recent call last):
    TypeError: datetime.datetime(2024, 2, 29, 12, 0) is a datetime, expected a date
    """
    if isinstance(values, pa.Array):
        if _is.is_dictionary(values.type) and not _is.is_dictionary(kind):
            values = values.dictionary_decode()
        if values.type == kind:
            return values
        if _is.is_null(values.type):
            return pa.nulls(len(values), kind)
    try:
        if isinstance(values, np.ndarray) and values.dtype != object:
            return array_of(pa.array(values), kind)
        if isinstance(values, pa.Array):
            if any(source(values.type) and target(kind) for source, target in _CASTS):
                return _in_range(values.cast(kind), values)
            values = values.to_pylist()
        return _array(values, kind)
    except TypeError:
        raise
    except _CANNOT as error:
        raise TypeError(str(error)) from error


def field_of(name: str, values: Any, kind: _Kind) -> pa.Array:
    """Return the values of a field as its column.

    Raises:
        TypeError: as for ``array_of``; it names the field.
    """
    try:
        return array_of(values, kind)
    except TypeError as error:
        raise TypeError(f"field {name!r} does not fit its column of type {kind}: {error}") from error


def widens(kind: _Kind, wider: _Kind) -> bool:
    """Whether values of a type without children may be in one column with a wider type.

    >>> widens(pa.int64(), pa.float64()), widens(pa.string(), pa.binary()), widens(pa.decimal128(9, 2), pa.float64())
    (True, False, False)
    """
    if kind == wider or _is.is_null(kind) or (_is.is_integer(kind) and _is.is_decimal(wider)):
        return True
    return any(source(kind) and target(wider) for source, target in _CASTS)


def inferred_array(values: Any) -> pa.Array:
    """Return a column as an Arrow array of the type that Arrow infers.

    Raises:
        TypeError: the values have no type in common that holds each of them.

    >>> inferred_array([1, 2.5]).to_pylist()
    [1.0, 2.5]
    >>> inferred_array(["a", b"b"])
    Traceback (most recent call last):
    TypeError: b'b' is bytes, expected a str
    """
    try:
        if isinstance(values, np.ndarray) and values.dtype != object:
            return pa.array(values)
        kind = pa.infer_type(values)
    except _CANNOT as error:
        raise TypeError(str(error)) from error
    if _is.is_decimal(kind) or _is.is_floating(kind):
        types = set(map(type, values))
        if Decimal in types and float in types:
            raise TypeError("no type holds Decimals and floats as they are")
    return array_of(values, kind)


def _is_text(kind: _Kind) -> bool:
    return bool(_is.is_string(kind) or _is.is_large_string(kind) or _is.is_string_view(kind))


def _is_bytes(kind: _Kind) -> bool:
    return bool(_is.is_binary(kind) or _is.is_large_binary(kind) or _is.is_binary_view(kind))


def _is_zoned(kind: _Kind) -> bool:
    return bool(_is.is_timestamp(kind) and kind.tz is not None)


def _is_naive(kind: _Kind) -> bool:
    return bool(_is.is_timestamp(kind) and kind.tz is None)


_CASTS: Sequence[tuple[Callable[[_Kind], bool], Callable[[_Kind], bool]]] = (
    (_is.is_integer, lambda kind: _is.is_integer(kind) or _is.is_float32(kind) or _is.is_float64(kind)),
    (_is.is_floating, _is.is_floating),
    (_is.is_decimal, _is.is_decimal),
    (_is_text, _is_text),
    (lambda kind: _is_bytes(kind) or _is.is_fixed_size_binary(kind), _is_bytes),
    (_is.is_date, _is.is_date),
    (_is.is_time, _is.is_time),
    (_is.is_duration, _is.is_duration),
    (_is_zoned, _is_zoned),
    (_is_naive, _is_naive),
)
"""The types between which Arrow's cast is as strict as ``_array``; ``_in_range`` adds the missing checks."""


def _in_range(column: pa.Array, given: pa.Array) -> pa.Array:
    """Return a column of floats that was made from others, if each of them is in its range."""
    if not _is.is_floating(column.type) or not _is.is_floating(given.type):
        return column
    before, after = (array.cast(pa.float64()) for array in (given, column))
    beyond = pc.and_(pc.is_inf(after), pc.invert(pc.is_inf(before)))
    vanished = pc.and_(pc.equal(after, 0.0), pc.not_equal(before, 0.0))
    lost = pc.or_(beyond, vanished)
    if pc.any(lost).as_py():
        value = before.filter(lost)[0].as_py()
        raise TypeError(f"{value!r} is beyond the range of {column.type}")
    return column


def _array(values: Sequence[Any], kind: _Kind) -> pa.Array:
    """Return Python values as an array."""
    nested = next((make for matches, make in _NESTED if matches(kind)), None)
    if nested is not None:
        return nested(values, kind)
    types = set(map(type, values)) - {type(None)}
    _, exact, convert = next(leaf for leaf in _LEAVES if leaf[0](kind))
    if not types <= exact or not _is_plain(values, kind):
        values = [None if value is None else convert(value, kind) for value in values]
    column = pa.array(values, kind)
    if _is.is_floating(kind) and kind != pa.float64():
        return _in_range(column, pa.array(values, pa.float64()))
    return column


def _is_plain(values: Sequence[Any], kind: _Kind) -> bool:
    """Whether Arrow converts datetimes unchanged, as it does with values of each other type in ``_LEAVES``."""
    if not _is.is_timestamp(kind):
        return True
    zones = {value.tzinfo for value in values if value is not None}
    return kind.unit == "us" and (None not in zones if kind.tz else zones <= {None})


def _wrong(value: Any, expected: str) -> TypeError:
    name = type(value).__name__
    article = "" if name == "bytes" else "an " if name[:1].lower() in "aeio" else "a "
    return TypeError(f"{printed(value):.60} is {article}{name}, expected {expected}")


def _python(value: Any) -> Any:
    """Return a value of NumPy as one of Python, if Python has its type; it has no type for nanoseconds."""
    item = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(item, int) and isinstance(value, np.datetime64 | np.timedelta64) else item


def _bool(value: Any, _kind: _Kind) -> bool:
    value = _python(value)
    if not isinstance(value, bool):
        raise _wrong(value, "a bool")
    return value


def _int(value: Any, _kind: _Kind) -> int:
    value = _python(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise _wrong(value, "an int")
    if isinstance(value, float) and not value.is_integer():
        raise _wrong(value, "an int: it is no whole number")
    return int(value)


def _float(value: Any, kind: _Kind) -> float:
    value = _python(value)
    if isinstance(value, Decimal):
        near = float(value)
        if value.is_finite() and Decimal(repr(near)) != value:
            raise TypeError(f"{value!r} has more digits than {kind} holds")
        return near
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(value, "a number")
    if isinstance(value, int) and abs(value) > 1 << {16: 11, 32: 24, 64: 53}[kind.bit_width]:
        raise TypeError(f"{printed(value):.60} is beyond the ints that {kind} holds")
    return float(value)


def _decimal(value: Any, kind: _Kind) -> Decimal:
    value = _python(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong(value, "a Decimal")
    number = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise TypeError(f"{value!r} is no number that {kind} holds")
    return number


def _text(value: Any, _kind: _Kind) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a str")
    return str.__str__(value)


def _bytes(value: Any, _kind: _Kind) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(value, "bytes")
    return bytes(value)


def _date(value: Any, _kind: _Kind) -> dt.date:
    value = _python(value)
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise _wrong(value, "a date")
    return value


def _timestamp(value: Any, kind: _Kind) -> int:
    moment, more = _python(value), getattr(value, "nanosecond", 0)  # a pandas.Timestamp has them
    if isinstance(moment, np.datetime64):
        return _count(_nanoseconds(moment), kind, moment)
    if not isinstance(moment, dt.datetime) or moment != moment:  # NaT equals nothing
        raise _wrong(value, "a datetime")
    if (moment.tzinfo is None) != (kind.tz is None):
        raise _wrong(value, f"a datetime {'without' if kind.tz is None else 'with'} a time zone")
    moment = moment.to_pydatetime(warn=False) if hasattr(moment, "to_pydatetime") else moment
    passed = moment - (_EPOCH if kind.tz is None else _EPOCH_UTC)
    return _count(passed // _MICROSECOND * 1000 + more, kind, value)


def _time(value: Any, kind: _Kind) -> int:
    if not isinstance(value, dt.time) or value.tzinfo is not None:
        raise _wrong(value, "a time without a time zone")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _count(seconds * 10**9 + value.microsecond * 1000, kind, value)


def _duration(value: Any, kind: _Kind) -> int:
    lapse = _python(value)
    if isinstance(lapse, np.timedelta64):
        return _count(_nanoseconds(lapse), kind, lapse)
    if not isinstance(lapse, dt.timedelta):
        raise _wrong(value, "a timedelta")
    microseconds = ((lapse.days * 86400 + lapse.seconds) * 10**6) + lapse.microseconds
    return _count(microseconds * 1000 + getattr(lapse, "nanoseconds", 0), kind, value)


def _nanoseconds(value: Any) -> int:
    """Return the nanoseconds of a time of NumPy whose unit Python has no type for."""
    unit, factor = np.datetime_data(value.dtype)
    if unit != "ns" or np.isnat(value):
        raise _wrong(value, "nanoseconds or a coarser unit")
    return int(value.astype(np.int64)) * int(factor)


def _count(nanoseconds: int, kind: _Kind, value: Any) -> int:
    count, rest = divmod(nanoseconds, _NANOSECONDS[kind.unit])
    if rest:
        raise TypeError(f"{printed(value):.80} is finer than the unit of {kind}")
    return count


def _any(value: Any, kind: _Kind) -> Any:
    """Return a value of a type without a rule of its own: Arrow must return it unchanged."""
    back = pa.array([value], kind)[0].as_py()
    if back != value or type(back) is not type(value):
        raise _wrong(value, f"what {kind} holds")
    return value


_LEAVES: Sequence[tuple[Callable[[_Kind], bool], frozenset[type], Callable[[Any, _Kind], Any]]] = (
    (_is.is_boolean, frozenset({bool}), _bool),
    (_is.is_integer, frozenset({int, np.int64, np.int32}), _int),
    (_is.is_floating, frozenset({float, int, np.float64, np.float32}), _float),
    (_is.is_decimal, frozenset({Decimal, int}), _decimal),
    (_is_text, frozenset({str}), _text),
    (lambda kind: _is_bytes(kind) or _is.is_fixed_size_binary(kind), frozenset({bytes}), _bytes),
    (_is.is_date, frozenset({dt.date}), _date),
    (_is.is_timestamp, frozenset({dt.datetime}), _timestamp),
    (_is.is_time, frozenset(), _time),
    (_is.is_duration, frozenset(), _duration),
    (lambda _: True, frozenset(), _any),
)
"""For types without children: a test for the type, the Python types that Arrow converts without loss, and the function
that converts or refuses a value of any other type."""


def _list(values: Sequence[Any], kind: _Kind) -> pa.Array:
    rows, absent = _rows(values, frozenset({list, tuple}), _items)
    if not _is.is_fixed_size_list(kind):
        items = _child(list(_flat(rows, absent)), kind.value_field)
        return _assembled(kind, rows, absent, [_offsets(rows, kind)], [items])
    size = kind.list_size
    wrong = next((row for row in rows if row is not None and len(row) != size), None)
    if wrong is not None:
        raise TypeError(f"{printed(wrong):.60} has {len(wrong)} items, expected {size}")
    padded = list(chain.from_iterable([None] * size if row is None else row for row in rows))
    return _assembled(kind, rows, absent, [], [_child(padded, kind.value_field, absent * size)])


def _items(value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple | set | frozenset | np.ndarray):
        raise _wrong(value, "a list")
    return list(value)


def _map(values: Sequence[Any], kind: _Kind) -> pa.Array:
    rows, absent = _rows(values, frozenset(), _pairs)
    pairs = list(_flat(rows, absent))
    keys = _child([key for key, _ in pairs], kind.key_field)
    items = _child([item for _, item in pairs], kind.item_field)
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return _assembled(kind, rows, absent, [_offsets(rows, kind)], [entries])


def _pairs(value: Any) -> Sequence[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if not isinstance(value, list | tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        raise _wrong(value, "a dict")
    return value


def _struct(values: Sequence[Any], kind: _Kind) -> pa.Array:
    names = [field.name for field in kind]
    rows, absent = _rows(values, frozenset({dict}), lambda value: _parts(value, names))
    more = set(_flat(rows, absent)).difference(names)
    if more:
        wrong = next(row for row in rows if row is not None and not more.isdisjoint(row))
        keys = [key for key in wrong if key in more]
        raise TypeError(f"{printed(keys):.80} of {printed(dict(wrong)):.80} are none of its fields {names}")
    parts = []
    for field in kind:
        name = field.name
        column = (
            [row.get(name) for row in rows] if not absent else [None if row is None else row.get(name) for row in rows]
        )
        parts.append(_child(column, field, absent))
    return _assembled(kind, rows, absent, [], parts)


def _parts(value: Any, names: Sequence[str]) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, tuple):
        raise _wrong(value, f"a dict with the keys {names}")
    of_its_own = getattr(value, "_fields", None) or getattr(value, "__fields__", None)  # a NamedTuple, or Spark's Row
    fields = names if of_its_own is None else of_its_own
    if len(fields) != len(value):
        raise TypeError(f"{printed(value):.60} has {len(value)} values, expected one for each of {names}")
    return dict(zip(fields, value, strict=True))


def _rows(values: Sequence[Any], exact: frozenset[type], convert: Callable[[Any], Any]) -> tuple[Sequence[Any], int]:
    """Return nested values in a form that has their items, and how many are None."""
    types = set(map(type, values))
    absent = 0
    if type(None) in types:
        types.discard(type(None))
        absent = sum(value is None for value in values)
    return (values if types <= exact else [None if value is None else convert(value) for value in values]), absent


def _child(values: Sequence[Any], field: pa.Field, absent: int = 0) -> pa.Array:
    """Return the values within lists, structs or maps; ``absent`` of them belong to rows that are None themselves."""
    try:
        column = _array(values, field.type)
    except _CANNOT as error:
        raise TypeError(f"in {field.name!r}: {error}") from error
    if not field.nullable and column.null_count > absent:
        raise TypeError(f"in {field.name!r}: None, expected a value")
    return column


def _flat(rows: Sequence[Any], absent: int) -> Iterable[Any]:
    return chain.from_iterable(filter(None, rows) if absent else rows)


def _offsets(rows: Sequence[Any], kind: _Kind) -> Any:
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) if row else 0 for row in rows], out=ends[1:])
    if not _is.is_large_list(kind) and ends[-1] > np.iinfo(np.int32).max:
        raise TypeError(f"{ends[-1]} items are more than one column of {kind} holds")
    return pa.py_buffer(ends if _is.is_large_list(kind) else ends.astype(np.int32))


def _assembled(kind: _Kind, rows: Sequence[Any], absent: int, buffers: list[Any], children: list[pa.Array]) -> pa.Array:
    present = pa.array([row is not None for row in rows]).buffers()[1] if absent else None
    return pa.Array.from_buffers(kind, len(rows), [present, *buffers], absent, children=children)


_NESTED: Sequence[tuple[Callable[[_Kind], bool], Callable[[Sequence[Any], _Kind], pa.Array]]] = (
    (lambda kind: _is.is_list(kind) or _is.is_large_list(kind) or _is.is_fixed_size_list(kind), _list),
    (_is.is_map, _map),
    (_is.is_struct, _struct),
)
