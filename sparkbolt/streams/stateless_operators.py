"""Operators without state: map, flat_map, filter, branch and lookup. They run fused with their producer if it may be.

Each acks a tuple when its function returns; what it emits is anchored to the tuple. An exception fails the tuple.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from sparkbolt.api.components import AsyncBolt, BasicBolt
from sparkbolt.api.function_bolts import FunctionBolt
from sparkbolt.api.interfaces import BasicCollector
from sparkbolt.api.tuples import Outputs, Tuple, parse_outputs

if TYPE_CHECKING:
    from sparkbolt.connectors.lookup.lookup import Lookup

_EACH: frozenset[type[Any]] = frozenset({list, GeneratorType})
_SINGLE: frozenset[type[Any]] = frozenset({str, int, float, bool, bytes})
REST = "rest"
"""The stream of a branch to which the tuples go that no predicate accepts."""


class FlatMap(FunctionBolt):
    """Emits each of the values that a function returns for a tuple."""

    ignores_ticks = True

    def __init__(self, function: Callable[[Tuple], Any], outputs: Outputs) -> None:
        """Store the function, and declare the fields of what it returns."""
        super().__init__(_in_lists(function) if _has_one_field(outputs) else function, outputs)


def _has_one_field(outputs: Outputs) -> bool:
    return [len(stream.fields) for stream in parse_outputs(outputs)] == [1]


def _in_lists(function: Callable[[Tuple], Any]) -> Callable[[Tuple], Any]:
    """A function whose single values are lists of one value, which are emitted twice as fast."""

    @functools.wraps(function)
    def call(tup: Tuple) -> Any:
        returned = function(tup)
        return _each(returned) if returned.__class__ in _EACH else returned

    return call


def _each(returned: Iterable[Any]) -> Iterator[Any]:
    for value in returned:
        yield [value] if value.__class__ in _SINGLE else value


class Map(BasicBolt):
    """Emits what a function returns for a tuple."""

    stateless = True
    ignores_ticks = True

    def __init__(self, function: Callable[[Tuple], Any], outputs: Outputs) -> None:
        """Store the function, and declare the fields of what it returns."""
        self.function = function
        self.outputs = outputs
        self.has_one_field = _has_one_field(outputs)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Emit the result."""
        value = self.function(tup)
        collector.emit([value] if self.has_one_field and value.__class__ in _SINGLE else value)


class Filter(BasicBolt):
    """Emits the tuples for which a function is true, as they are."""

    stateless = True
    ignores_ticks = True

    def __init__(self, function: Callable[[Tuple], Any], fields: Sequence[str]) -> None:
        """Store the function, and declare the fields of the tuples."""
        self.function = function
        self.outputs = list(fields)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Emit the tuple, or nothing."""
        if self.function(tup):
            collector.emit(list(tup.values()))


def branch_name(number: int) -> str:
    """The stream of the predicate with a number, from 0."""
    return f"branch-{number + 1}"


class Branch(BasicBolt):
    """Emits a tuple, as it is, on the stream of the first function that is true for it, or on the stream ``rest``."""

    stateless = True
    ignores_ticks = True

    def __init__(self, predicates: Sequence[Callable[[Tuple], Any]], fields: Sequence[str]) -> None:
        """Store the functions, and declare a stream for each."""
        self.predicates = [(branch_name(number), predicate) for number, predicate in enumerate(predicates)]
        self.outputs = {name: list(fields) for name in [*(name for name, _ in self.predicates), REST]}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Emit the tuple on one stream."""
        stream = next((name for name, predicate in self.predicates if predicate(tup)), REST)
        collector.emit(list(tup.values()), stream)


class Enrich(AsyncBolt):
    """Adds a field with the value that a lookup has for a key of the tuple."""

    stateless = True
    ignores_ticks = True
    awaited_in_outage = "the source of its lookup"

    def __init__(self, lookup: Lookup, key: Sequence[str], into: str, default: Any, fields: Sequence[str]) -> None:
        """Store the lookup; ``fields`` are those of the tuples."""
        self.lookup = lookup
        self.key = tuple(key)
        self.default = default
        self.outputs = [*fields, into]

    async def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Wait for the value, and emit the tuple with it."""
        values = list(tup.values())
        value = await self.lookup.get(key_of(tup, self.key), self.default)
        collector.emit([*values, value])

    def cleanup(self) -> None:
        """Close the lookup."""
        self.lookup.close()


def key_of(tup: Tuple, key: tuple[str, ...]) -> Any:
    """The key of a tuple: the value of the only field, or a tuple with the value of each."""
    return tup[key[0]] if len(key) == 1 else tuple([tup[name] for name in key])
