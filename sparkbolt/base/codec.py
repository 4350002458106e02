"""Records (dataclasses, ``TypedDict``) as JSON values and back, by the annotations of their fields.

A dataclass with ``JSON = SPARSE`` is written without the fields that equal their defaults, and one with ``JSON = ROW``,
like a named tuple, as a list without the defaults at its end. A class with ``to_json`` and ``from_json`` is written and
read by them, and a field ``Annotated[TYPE, Coder(...)]`` by that coder.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from sparkbolt.base.words import EARLIER_NAMES, Word

_MICROSECOND = timedelta(microseconds=1)
SPARSE, ROW = "sparse", "row"
T = TypeVar("T")
Convert = Callable[[Any], Any]


class MismatchError(ValueError):
    """A value that does not have its type."""

    def __init__(self, text: str, place: str = "") -> None:
        """Store the mistake, and its place below the value that is read."""
        self.text, self.place = text, place
        super().__init__(f"{place or 'the value'} {text}")

    def below(self, name: str) -> MismatchError:
        """The same mistake, seen from the value around it."""
        dot = "" if not self.place or self.place.startswith("[") else "."
        return MismatchError(self.text, name + dot + self.place)


class Coder(NamedTuple):
    """How the values of a type are written and read."""

    encode: Convert
    decode: Convert


def encode(record: Any) -> Any:
    """Return a record as a JSON value."""
    return coder(type(record)).encode(record)


def decode(kind: type[T], value: Any) -> T:
    """The inverse of ``encode``.

    >>> from typing import TypedDict
    >>> class Point(TypedDict):
    ...     x: int
    ...     names: list[str]
    >>> decode(Point, {"x": 1, "names": ["a", 2]})
    Traceback (most recent call last):
    sparkbolt.base.codec.MismatchError: names[1] is not a string

    Raises:
        MismatchError: the value is no ``kind``.
    """
    return cast(T, coder(kind).decode(value))


def salvage(kind: type[T], value: Mapping[str, Any]) -> T:
    """Read a ``TypedDict`` from an object of another version, or one that was damaged.

    A field that is missing or has another type is empty: None, 0, "", [] or {}. Fields of other names are left out.

    >>> from typing import TypedDict
    >>> class Point(TypedDict):
    ...     x: int
    ...     label: str | None
    >>> salvage(Point, {"x": "one", "z": 2})
    {'x': 0, 'label': None}
    """
    values: dict[str, Any] = {}
    for name, hint in _hints(cast(Any, kind)).items():
        inner = value.get(name)
        if is_typeddict(hint):
            values[name] = salvage(hint, inner if isinstance(inner, dict) else {})
            continue
        try:
            values[name] = coder(hint).decode(inner)
        except MismatchError:
            values[name] = None if type(None) in get_args(hint) else (get_origin(hint) or hint)()
    return cast(T, values)


def coder(kind: Any) -> Coder:
    """The coder of a type.

    Raises:
        TypeError: the type has no form in JSON.
    """
    if kind not in _CODERS:
        _CODERS[kind] = _coder(kind)
    return _CODERS[kind]


def _coder(kind: Any) -> Coder:
    origin, of = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return next((note for note in of if isinstance(note, Coder)), None) or coder(of[0])
    if origin is NotRequired:
        return coder(of[0])
    if origin in (Union, types.UnionType) and len(of) == 2 and of[1] is type(None):
        inner = coder(of[0])
        return Coder(_unless_none(inner.encode), _unless_none(inner.decode))
    if origin in (dict, Mapping) or kind is dict:
        return _mapping(coder(of[1] if of else Any)) if not of or of[0] is str else _pairs(*of)
    if origin is tuple and of[-1] is not ...:
        return _fixed([coder(one) for one in of])
    if origin in (list, tuple):
        return _sequence(origin, coder(of[0]))
    if origin is frozenset:
        inner = _sequence(frozenset, coder(of[0]))
        return Coder(lambda value: inner.encode(sorted(value)), inner.decode)
    if hasattr(kind, "to_json") and hasattr(kind, "from_json"):
        return Coder(lambda value: value.to_json(), kind.from_json)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if getattr(kind, "JSON", None) == ROW or hasattr(kind, "_fields"):
        return _row(kind)
    if is_typeddict(kind) or is_dataclass(kind):
        return record(kind)
    raise TypeError(f"{kind!r} has no form in JSON: use a record, list, dict, tuple or a plain type")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def required_fields(kind: Any) -> list[str]:
    """The fields of a record that are never missing. ``__required_keys__`` is wrong where annotations are texts."""
    if is_dataclass(kind):
        return [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    hints = get_type_hints(kind, include_extras=True)
    return sorted(name for name, hint in hints.items() if kind.__total__ and get_origin(hint) is not NotRequired)


def record(kind: Any) -> Coder:
    """The coder of a record by its fields (but those with ``compare=False``), even if it has ``to_json``."""
    hints = get_type_hints(kind, include_extras=True)
    names = [one.name for one in fields(kind) if one.compare] if is_dataclass(kind) else list(hints)
    coders = {name: coder(hints[name]) for name in names}
    decoders = {name: one.decode for name, one in coders.items()}
    absent = _defaults(kind) if getattr(kind, "JSON", None) == SPARSE else {}
    required = frozenset(required_fields(kind))
    make: Any = kind if is_dataclass(kind) else dict

    def write(value: Any) -> dict[str, Any]:
        own = value if isinstance(value, dict) else vars(value)
        if absent:
            own = {name: own[name] for name in names if name not in absent or own[name] != absent[name]}
        return {name: one.encode(own[name]) for name, one in coders.items() if name in own}

    def read(value: Any) -> Any:
        values = _read_fields(value, decoders.get, names)
        if missing := required - values.keys():
            raise MismatchError(f"has no {min(missing)}")
        return make(**values)

    return Coder(write, read)


def _row(kind: Any) -> Coder:
    hints = get_type_hints(kind, include_extras=True)
    names = kind._fields if hasattr(kind, "_fields") else [one.name for one in fields(kind)]
    coders = [coder(hints[name]) for name in names]
    defaults = kind._field_defaults if hasattr(kind, "_fields") else _defaults(kind)
    absent = [defaults.get(name, MISSING) for name in names]
    required = absent.count(MISSING)

    def write(value: Any) -> list[Any]:
        own = [getattr(value, name) for name in names]
        while len(own) > required and own[-1] == absent[len(own) - 1]:
            own.pop()
        return [one.encode(inner) for one, inner in zip(coders, own, strict=False)]

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or not required <= len(value) <= len(names):
            raise MismatchError(f"is not an array of {required} to {len(names)}")
        return kind(**{name: one.decode(inner) for name, one, inner in zip(names, coders, value, strict=False)})

    return Coder(write, read)


def _enum(kind: type[Enum]) -> Coder:
    def read(value: Any) -> Any:
        try:
            return kind.of(value) if issubclass(kind, Word) else kind(value)
        except ValueError:
            raise MismatchError(f"is not one of {', '.join(str(one.value) for one in kind)}") from None

    return Coder(lambda value: str(value) if isinstance(value, str) else value.value, read)


def _pairs(key: Any, of: Any) -> Coder:
    inner = _sequence(list, _fixed([coder(key), coder(of)]))
    return Coder(lambda value: inner.encode(value.items()), lambda value: dict(inner.decode(value)))


def _defaults(kind: Any) -> dict[str, Any]:
    made = {one.name: one.default_factory() for one in fields(kind) if one.default_factory is not MISSING}
    return made | {one.name: one.default for one in fields(kind) if one.default is not MISSING}


def _read_fields(value: Any, decoder: Callable[[str], Convert | None], names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MismatchError("is not an object")
    values, name = {}, ""
    try:
        for name, inner in value.items():
            convert = decoder(name)
            if convert is None:
                name = EARLIER_NAMES.get(name, name)
                convert = decoder(name)
            if convert is None:
                break
            values[name] = convert(inner)
        else:
            return values
    except MismatchError as mismatch:
        raise mismatch.below(name) from None
    raise MismatchError(f"has {name!r}, which is not one of {', '.join(names) or 'none'}")


def _mapping(of: Coder) -> Coder:
    return Coder(
        lambda value: {name: of.encode(inner) for name, inner in value.items()},
        lambda value: _read_fields(value, lambda _: of.decode, ()),
    )


def _fixed(coders: Sequence[Coder]) -> Coder:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(coders):
            raise MismatchError(f"is not an array of {len(coders)}")
        return tuple(one.decode(inner) for one, inner in zip(coders, value, strict=True))

    return Coder(lambda value: [one.encode(inner) for one, inner in zip(coders, value, strict=True)], read)


def _sequence(kind: Any, of: Coder) -> Coder:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise MismatchError("is not an array")
        own: list[Any] = []
        try:
            for inner in value:
                own.append(of.decode(inner))
        except MismatchError as mismatch:
            raise mismatch.below(f"[{len(own)}]") from None
        return kind(own)

    return Coder(lambda value: [of.encode(inner) for inner in value], read)


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _plain(kinds: Any, noun: str) -> Coder:
    def read(value: Any) -> Any:
        if isinstance(value, kinds) and (kinds is bool or not isinstance(value, bool)):
            return value
        raise MismatchError(f"is not {noun}")

    return Coder(_same, read)


_CODERS: dict[Any, Coder] = {
    Any: Coder(_same, _same),
    str: _plain(str, "a string"),
    int: _plain(int, "an integer"),
    float: _plain((int, float), "a number"),
    bool: _plain(bool, "a boolean"),
    timedelta: Coder(lambda value: value // _MICROSECOND, lambda value: value * _MICROSECOND),
}
