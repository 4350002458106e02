"""Aggregates: ``("amount", "sum")`` and the like, as a step from one tuple to the next.

A result so far is an immutable value, so that a step that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.named_fields import row_of
from sparkbolt.api.tuples import DEFAULT_STREAM, Origin, Tuple
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError, EmitError
from sparkbolt.worker.returned_values import misfit

COUNT = "count"
Aggregates: TypeAlias = Mapping[str, tuple[str, str] | str]
"""By output field: (field, kind), or ``"count"`` for the number of tuples."""


@dataclass(frozen=True)
class _Kind:
    first: Callable[[Any], Any]
    """The result so far from the first value."""
    step: Callable[[Any, Any], Any]
    """The result so far from the one before and the next value."""
    result: Callable[[Any], Any]
    empty: Callable[[], Any] = lambda: None
    """Makes the result without a value."""


def _same(value: Any) -> Any:
    return value


def _distinct(before: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return before if value in before else (*before, value)


_KINDS = {
    COUNT: _Kind(lambda _: 1, lambda before, _: before + 1, _same, int),
    "sum": _Kind(_same, lambda before, value: before + value, _same),
    "min": _Kind(_same, min, _same),
    "max": _Kind(_same, max, _same),
    "mean": _Kind(
        lambda value: (value, 1),
        lambda before, value: (before[0] + value, before[1] + 1),
        lambda pair: pair[0] / pair[1],
    ),
    "first": _Kind(_same, lambda before, _: before, _same),
    "last": _Kind(_same, lambda _, value: value, _same),
    "list": _Kind(lambda value: (value,), lambda before, value: (*before, value), list, list),
    "set": _Kind(lambda value: (value,), _distinct, list, list),
}
KINDS = tuple(_KINDS)
"""The names of the kinds."""


class Aggregator:
    """Several aggregates of the same tuples; None, and fields that are None, are left out, as in SQL."""

    def __init__(self, aggregates: Aggregates, fields: Sequence[str]) -> None:
        """Check the aggregates; ``fields`` are those of the tuples.

        Raises:
            ConfigError: an aggregate is not a field and a kind.
        """
        if not aggregates:
            raise ConfigError('aggregate() has no aggregate: write aggregate(total=("amount", "sum"))')
        self.names = list(aggregates)
        self.parts = [_part(name, given, fields) for name, given in aggregates.items()]

    def step(self, before: tuple[Any, ...] | None, tup: Tuple) -> tuple[Any, ...]:
        """Return the state after one more tuple; ``before`` is None at the first one.

        >>> at = Origin("orders", 0, "default", ("amount",))
        >>> both = Aggregator({"n": "count", "total": ("amount", "sum")}, ["amount"])
        >>> both.results(both.step(both.step(None, Tuple.of(at, [3])), Tuple.of(at, [4])))
        [2, 7]
        """
        states = before if before is not None else ((),) * len(self.parts)
        return tuple([_next(state, part, tup) for state, part in zip(states, self.parts, strict=True)])

    def results(self, state: tuple[Any, ...]) -> list[Any]:
        """Return the values of the aggregates."""
        return [
            _KINDS[kind].result(held[0]) if held else _KINDS[kind].empty()
            for held, (_, kind) in zip(state, self.parts, strict=True)
        ]


def _next(state: tuple[Any, ...], part: tuple[str | None, str], tup: Tuple) -> tuple[Any, ...]:
    field, kind = part
    value = tup if field is None else tup[field]
    if value is None:
        return state
    return (_KINDS[kind].step(state[0], value),) if state else (_KINDS[kind].first(value),)


def _part(name: str, given: Any, fields: Sequence[str]) -> tuple[str | None, str]:
    """Return the field, None for the tuple itself, and the kind of an aggregate."""
    if given == COUNT:
        return None, COUNT
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ConfigError(f'{name}={printed(given)}: expected a field and a kind, such as {name}=("amount", "sum")')
    field, kind = given
    if kind not in _KINDS:
        hint = did_you_mean(str(kind), KINDS) or f": the kinds are {', '.join(KINDS)}"
        raise ConfigError(f"{name}={printed(given)}: there is no kind {printed(kind)}{hint}")
    if field not in fields:
        raise ConfigError(f"{name}={printed(given)}: there is no field {field!r}: the fields are {list(fields)}")
    return field, kind


class Reducer:
    """Makes one tuple of two with a user's function, again and again."""

    def __init__(self, function: Callable[[Tuple, Tuple], Any], fields: Sequence[str], key: Sequence[str]) -> None:
        """Store the function; ``fields`` are those of the tuples, and ``key`` those that all have in common."""
        self.function = function
        self.fields = tuple(fields)
        self.key = tuple(key)

    def step(self, before: Sequence[Any] | None, tup: Tuple, component: str) -> Sequence[Any]:
        """Return the values after one more tuple; ``before`` is None at the first one."""
        if before is None:
            return list(tup.values())
        origin = Origin(tup.source_component, tup.source_task, tup.source_stream, self.fields)
        returned = self.function(Tuple.of(origin, before), tup)
        if isinstance(returned, Mapping):
            returned = {**{name: tup[name] for name in self.key}, **returned}
        return checked_row(returned, self.fields, component)


def checked_row(returned: Any, fields: tuple[str, ...], component: str) -> Sequence[Any]:
    """Return what a user's function returned as the values of fields.

    Raises:
        EmitError: it has other values.
    """
    row = row_of(returned, fields)
    if row is None or len(row) != len(fields):
        raise EmitError(misfit(returned, component, DEFAULT_STREAM, fields))
    return row
