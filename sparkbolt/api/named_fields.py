"""Named fields: the fields that a class declares, and the values of one tuple by the names of its fields.

A class is a NamedTuple, a dataclass or a TypedDict; values by name are a mapping, or an instance of such a class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, get_type_hints, is_typeddict

Fields: TypeAlias = Sequence[str] | type[Any]
"""The fields of a stream: a list of names, or a class that declares them."""


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
    if dataclasses.is_dataclass(declaring):
        return tuple(field.name for field in dataclasses.fields(declaring))
    if is_typeddict(declaring):
        return tuple(declaring.__annotations__)
    names = _names_of_named_tuple(declaring) if issubclass(declaring, tuple) else None
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


def _names_of_named_tuple(thing: Any) -> tuple[str, ...] | None:
    """Return the names of a NamedTuple, or of its instance; None for any other tuple."""
    names = getattr(thing, "_fields", None)
    return names if isinstance(names, tuple) else None


def by_name(values: Any) -> Mapping[Any, Any] | None:
    """Return values that have names as a mapping; None if they have none.

    >>> by_name({"word": "be"}), by_name(["be"])
    ({'word': 'be'}, None)
    """
    if isinstance(values, Mapping):
        return values
    if isinstance(values, tuple):
        names = _names_of_named_tuple(values)
        return None if names is None else dict(zip(names, values, strict=True))
    if dataclasses.is_dataclass(values) and not isinstance(values, type):
        return {field.name: getattr(values, field.name) for field in dataclasses.fields(values)}
    return None


def in_order(values: Any, fields: Sequence[str]) -> list[Any] | None:
    """Return values that have names in the order of the fields; None if their names are not those of the fields.

    >>> in_order({"n": 1, "word": "be"}, ["word", "n"]), in_order({"word": "be"}, ["word", "n"])
    (['be', 1], None)
    """
    named = by_name(values)
    if named is None or len(named) != len(fields) or not all(name in named for name in fields):
        return None
    return [named[name] for name in fields]
