"""Named fields: the fields that a class declares, and the values of one tuple in the order of its fields.

A class is a NamedTuple, a dataclass or a TypedDict; values by name are a mapping, or an instance of such a class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache, partial
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias, get_type_hints, is_typeddict

Fields: TypeAlias = Sequence[str] | type[Any]
"""The fields of a stream: a list of names, or a class that declares them."""

NO_LISTS: Final = (str, bytes, bytearray, memoryview, Mapping, Set)
"""Types that have a length and can be iterated over, but are neither a list of values nor a column."""


def fields_of_class(declaring: type) -> tuple[str, ...]:
    """Return the fields that a class declares, in order.

    Raises:
        ValueError: it is none of the classes that declare fields.

    >>> from typing import NamedTuple
    >>> class Order(NamedTuple):
    ...     customer: str
    ...     amount: float
    >>> fields_of_class(Order)
    ('customer', 'amount')
    """
    names = tuple(declaring.__annotations__) if is_typeddict(declaring) else _names_in(declaring)
    if names is None:
        raise ValueError(
            f"the class {declaring.__qualname__} declares no fields, expected a NamedTuple, a dataclass or a TypedDict"
        )
    return names


def types_of(fields: object) -> dict[str, Any]:
    """Return the types of fields that a class declares; empty for a list of names, or if they cannot be found."""
    if not isinstance(fields, type):
        return {}
    try:
        hints = get_type_hints(fields)
    except Exception:  # noqa: BLE001  an annotation may name anything
        return {}
    return {name: hints[name] for name in fields_of_class(fields) if name in hints}


@cache
def _names_in(kind: type[Any]) -> tuple[str, ...] | None:
    """Return the names of the values in instances of a NamedTuple or a dataclass; None for any other class."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    names = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
    return names if isinstance(names, tuple) else None


def by_name(values: Any) -> Mapping[Any, Any] | None:
    """Return values that have names as a mapping; None if they have none.

    >>> by_name({"word": "be"}), by_name(["be"])
    ({'word': 'be'}, None)
    """
    if isinstance(values, Mapping):
        return values
    names = _names_in(values.__class__)
    return None if names is None else {name: getattr(values, name) for name in names}


def _in_order(values: Any, fields: tuple[str, ...]) -> list[Any] | None:
    """Return values that have names in the order of the fields; None if their names are not those of the fields.

    >>> _in_order({"n": 1, "word": "be"}, ("word", "n")), _in_order({"word": "be"}, ("word", "n"))
    (['be', 1], None)
    """
    kind = values.__class__
    if kind is dict or isinstance(values, Mapping):
        if len(values) != len(fields) or not all(name in values for name in fields):
            return None
        return [values[name] for name in fields]
    names = _names_in(kind)
    if names is None or (names != fields and (len(names) != len(fields) or set(names) != set(fields))):
        return None
    return [getattr(values, name) for name in fields]


def row_of(values: Any, fields: tuple[str, ...]) -> Sequence[Any] | None:
    """Return the values of one tuple in the order of the fields; None if they are not values of these fields.

    The values are a sequence, whose length is not checked, or have the names of the fields, or are one value for the
    only field. An exception of a sequence is passed on.

    >>> row_of(["be", 1], ("word", "n")), row_of({"n": 1, "word": "be"}, ("word", "n")), row_of("be", ("word",))
    (['be', 1], ['be', 1], ['be'])
    """
    if values.__class__ is str:
        return [values] if len(fields) == 1 else None
    row = _in_order(values, fields)
    if row is not None:
        return row
    if len(fields) == 1 and _is_single(values):
        return [values]
    if isinstance(values, (*NO_LISTS, type)) or not hasattr(values, "__len__"):
        return None
    try:
        return list(values)
    except TypeError:  # an array without dimensions has a length that raises
        return None


def reader_of(kind: Any, fields: tuple[str, ...]) -> Callable[[Any], Sequence[Any] | None]:
    """Return ``row_of`` for these fields and for instances of one class, as fast as the class allows.

    >>> reader_of(dict, ("word", "n"))({"n": 1, "word": "be"})
    ('be', 1)
    """
    names, single = _names_in(kind), len(fields) == 1
    if kind is dict and fields:
        return partial(_picked, itemgetter(*fields) if not single else lambda values: [values[fields[0]]], len(fields))
    if names == fields and issubclass(kind, tuple):
        return tuple
    if names is not None and len(fields) > 1 and set(names) == set(fields):
        return attrgetter(*fields)
    if single and kind in (str, int, float, bool, bytes):
        return lambda value: [value]
    return lambda values: row_of(values, fields)


def _picked(pick: Callable[[Any], Sequence[Any]], width: int, values: Any) -> Sequence[Any] | None:
    """Return the values of a dict by name; None if it has other names."""
    if len(values) != width:
        return None
    try:
        return pick(values)
    except KeyError:
        return None


def _is_single(value: Any) -> bool:
    """Whether an emitted object is surely the value of the only field: it is no container, None or mistake.

    >>> [_is_single(value) for value in ("be", 2, ["be"], {"be"}, None, print)]
    [True, True, False, False, False, False]
    """
    if isinstance(value, str | bytes | bytearray | memoryview):
        return True
    return not (value is None or hasattr(value, "__len__") or callable(value) or lazy_advice(value))


def lazy_advice(value: Any) -> str:
    """Advice for a value that does nothing until it is awaited or iterated over; empty for any other value."""
    if hasattr(value, "__await__"):
        return "nothing awaits it here: only an AsyncBolt runs coroutines"
    if hasattr(value, "__aiter__"):
        return "nothing goes through it here: only an AsyncBolt runs asynchronous generators"
    if isinstance(value, Iterator):
        return "emit each list that it gives"
    return ""
