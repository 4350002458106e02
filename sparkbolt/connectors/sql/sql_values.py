"""Converts values for the columns of a database without loss.

Whether a value fits depends only on the value and the type of the column. A database accepts more than fits: it rounds
1.5 for a column of whole numbers, and drops the time of a datetime for a column of days.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from sparkbolt.base.arrow_values import array_of
from sparkbolt.base.exceptions import printed
from sparkbolt.connectors.json_values import check_keys
from sparkbolt.connectors.sql.sql_link import WITHOUT_ZONES, without_zone

Check: TypeAlias = Callable[[Any], Any]
"""Returns a value as the column holds it; raises ``TypeError`` if something of it would be lost."""
PLAIN = frozenset({str, int, float, bool, bytes})
_FRACTION = re.compile(r"\.(\d+)")
_NO_LETTERS = re.compile(r"[\W_]+")
_FINEST = 6
"""How many digits a second has at most, in Python and in every database."""


class ColumnCheck(NamedTuple):
    """How the values for a column are checked."""

    as_is: frozenset[type]
    """Types whose values need no look."""
    check: Check


def plain(value: Any) -> Any:
    """Return a value of numpy or pandas, a bytearray or a mapping as a type that drivers know.

    Raises:
        TypeError: It is NaT, or a time that Python's types do not hold.

    >>> plain(np.int64(3)), plain(bytearray(b"a")), plain((1, 2))
    (3, b'a', [1, 2])
    >>> plain(np.datetime64("2026-01-02T03:00:00.000000000"))
    datetime.datetime(2026, 1, 2, 3, 0)
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _moment_of_numpy(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dt.datetime | dt.timedelta):
        return _moment_of_pandas(value)
    if hasattr(value, "keys") and not isinstance(value, dict):  # a LateTuple
        return dict(value)
    return value


def _moment_of_numpy(value: Any) -> Any:
    item = value.item()
    if isinstance(item, int):  # Python has no type for its unit, such as nanoseconds
        finest = value.astype(f"{value.dtype.kind}8[us]")
        item = finest.item() if finest == value else None
    if item is None or isinstance(item, int):
        raise TypeError(f"{value!r} is no time in whole microseconds between the years 1 and 9999")
    return item


def _moment_of_pandas(value: Any) -> Any:
    if type(value) is dt.datetime:
        return value
    if value != value:
        raise TypeError("NaT is no time: emit None for NULL")
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise TypeError(f"{value!r} has nanoseconds, and columns hold microseconds")
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime()
    return value.to_pytimedelta() if hasattr(value, "to_pytimedelta") else value


def coarse(value: Any) -> str:
    """Return a text that is the same for all keys that a database may find equal, whatever its types and collation.

    >>> len(set(map(coarse, [5, "5", 5.0, Decimal("5.00"), " 5"])))
    1
    >>> coarse("Straße ") == coarse("STRASSE"), coarse("a") == coarse("b")
    (True, False)
    """
    try:
        text = str(int(value) if isinstance(value, bool) else value).strip()
    except Exception:  # noqa: BLE001  a value's own __str__ may raise anything
        return ""
    if text[:1].isalpha() and text.isascii():
        return _NO_LETTERS.sub("", text.lower())
    try:
        return repr(float(text))
    except ValueError:
        pass
    try:
        return str(without_zone(dt.datetime.fromisoformat(text)))
    except (OverflowError, ValueError):
        return _NO_LETTERS.sub("", unicodedata.normalize("NFKD", text).casefold())


@dataclass(frozen=True)
class _Column:
    """The properties of a column that a check needs."""

    scale: int | None
    """How many digits it holds after the point."""
    digits: int
    """How many digits of a second it holds: by default none in MySQL, and six elsewhere."""
    has_zone: bool
    length: int | None
    is_duration: bool
    """Whether it is a ``TIME`` of MySQL."""
    stores_floats: bool
    """Whether the database has no other numbers with a fraction."""
    item: Check | None
    """The check of the items of an array."""

    @classmethod
    def of(cls, kind: Any, dialect: str) -> _Column:
        """Return the properties of a column from its reflected type."""
        precision = getattr(kind, "precision", None)
        return cls(
            scale=2 if isinstance(kind, postgresql.MONEY) else getattr(kind, "scale", None),
            digits=(kind.fsp or 0) if hasattr(kind, "fsp") else _FINEST if precision is None else precision,
            has_zone=bool(getattr(kind, "timezone", False)) and dialect not in WITHOUT_ZONES,
            length=getattr(kind, "length", None),
            is_duration=hasattr(kind, "fsp"),
            stores_floats=dialect == "sqlite",
            item=check_of(kind.item_type, dialect).check if isinstance(kind, sa.ARRAY) else None,
        )


def check_of(kind: Any, dialect: str) -> ColumnCheck:
    """Return how values for a column of a reflected type are checked.

    >>> check_of(sa.Numeric(10, 2), "postgresql").check(Decimal("1.234"))
    Traceback (most recent call last):
    TypeError: Decimal('1.234') has 3 digits after the point, and the column holds 2
    """
    kind = getattr(kind, "data_type", kind)  # of a domain
    for matches, looked_at, check in _CHECKS:
        if isinstance(kind, matches):
            return ColumnCheck(PLAIN - looked_at, partial(check, _Column.of(kind, dialect)))
    return ColumnCheck(PLAIN, lambda value: value)


def _number_of(value: Any) -> Decimal | None:
    """Return a finite number, also in a text, exactly; None for anything else."""
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except (ArithmeticError, TypeError, ValueError):
        return None
    return number if number.is_finite() else None


def _scale_of(number: Decimal) -> int:
    """Return how many digits after the point a number needs."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    needed = "".join(map(str, digits)).rstrip("0")
    return max(0, -(exponent + len(digits) - len(needed))) if needed else 0


def _check_scale(value: Any, number: Decimal, scale: int | None) -> None:
    if scale is not None and _scale_of(number) > scale:
        raise TypeError(
            f"{printed(value):.80} has {_scale_of(number)} digits after the point, and the column holds {scale}"
        )


def _whole(_: _Column, value: Any) -> Any:
    if not isinstance(value, float | Decimal | str):
        return value
    number = _number_of(value)
    if number is None:
        if isinstance(value, str):
            return value  # the database knows its meaning
        raise TypeError(f"{value!r} is no whole number")
    _check_scale(value, number, 0)
    return value if isinstance(value, str) else int(value)


def _near(column: _Column, value: Any) -> Any:
    number = None if isinstance(value, bool) else _number_of(value)
    if number is not None:
        _check_scale(value, number, column.scale)
        if not isinstance(value, float):
            array_of([value if isinstance(value, int) else number], pa.float64())
    return value


def _exact(column: _Column, value: Any) -> Any:
    if column.stores_floats:
        return _near(column, value)
    number = None if isinstance(value, bool) else _number_of(value)
    if number is None:
        return value
    _check_scale(value, number, column.scale)
    return number if isinstance(value, float) else value  # PostgreSQL reads 15 digits of a float


def _check_digits(value: Any, digits: int) -> None:
    if digits == _FINEST and not isinstance(value, str):
        return
    if isinstance(value, str):
        found = _FRACTION.search(value)
        fraction = found[1] if found else ""
    else:
        fraction = f"{getattr(value, 'microseconds', None) or getattr(value, 'microsecond', 0):06}"
    if len(fraction.rstrip("0")) > digits:
        raise TypeError(f"{printed(value):.80} has a fraction of a second of which the column holds {digits} digits")


def _moment_in(value: Any) -> dt.datetime | None:
    """Return a datetime, or the one in a text; None for anything else."""
    if isinstance(value, dt.datetime) or not isinstance(value, str):
        return value if isinstance(value, dt.datetime) else None
    try:
        return dt.datetime.fromisoformat(value)
    except ValueError:
        return None


def _day(_: _Column, value: Any) -> Any:
    if isinstance(value, dt.time | dt.timedelta):
        raise TypeError(f"{value!r} is no day, which the column holds")
    moment = without_zone(_moment_in(value))
    if moment is None:
        return value
    if moment.time() != dt.time():
        raise TypeError(f"{printed(value):.80} has a time (in UTC: {moment.time()}), and the column holds days")
    return moment.date() if isinstance(value, dt.datetime) else value


def _moment(column: _Column, value: Any) -> Any:
    if isinstance(value, dt.time | dt.timedelta):
        raise TypeError(f"{value!r} is no day and time, which the column holds")
    _check_digits(value, column.digits)
    if column.has_zone:
        return value
    moment = _moment_in(value)  # PostgreSQL would drop the zone of a text
    return value if moment is None or moment.tzinfo is None else without_zone(moment)


def _time(column: _Column, value: Any) -> Any:
    if isinstance(value, dt.date) or (isinstance(value, dt.timedelta) and not column.is_duration):
        raise TypeError(f"{value!r} is no time of a day, which the column holds")
    _check_digits(value, column.digits)
    return value if column.has_zone else without_zone(value)


def _duration(column: _Column, value: Any) -> Any:
    _check_digits(value, column.digits)
    return value


def _json(_: _Column, value: Any) -> Any:
    check_keys(value)
    return value


def _list(column: _Column, value: Any) -> Any:
    assert column.item is not None
    value = plain(value)
    return [column.item(one) for one in value] if isinstance(value, list) else column.item(value)


def _text(column: _Column, value: Any) -> Any:
    # A database refuses a longer text, unless only spaces are too much: those are cut.
    length = column.length
    if length and isinstance(value, str) and len(value) > length and not value[length:].strip(" "):
        raise TypeError(f"{printed(value):.80} has {len(value)} characters, and the column holds {length}")
    return value


_CHECKS: Sequence[tuple[Any, frozenset[type], Callable[[_Column, Any], Any]]] = (
    (sa.Integer, frozenset({float, str}), _whole),
    (sa.Float, frozenset({float, int, str}), _near),
    ((sa.Numeric, postgresql.MONEY), frozenset({float, int, str}), _exact),
    (sa.Date, frozenset({str}), _day),
    (sa.DateTime, frozenset({str}), _moment),
    (sa.Time, frozenset({str}), _time),
    ((sa.Interval, postgresql.INTERVAL), frozenset({str}), _duration),
    (sa.ARRAY, frozenset(), _list),
    (sa.JSON, frozenset(), _json),
    (sa.String, frozenset({str}), _text),
)
"""By type of a column: the types of ``PLAIN`` whose values need a look, and the check."""
