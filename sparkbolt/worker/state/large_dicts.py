"""Large dicts: writes a large dict in a bolt's attribute by its changes.

A dict has a line of segments: the first has all of it, each later one the changes of a micro-batch, by their places in
the dict, so the order of the keys survives. When these take as many bytes as the first, a new line begins. The changes
are found by comparing the dict with that of the last commit, as long as the instance is the one of the last commit
(``task_state``, rule 2).
"""

from __future__ import annotations

import pickle
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress, count
from operator import is_, is_not
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import numpy as np

from sparkbolt.errors import check
from sparkbolt.worker.state.plain_reading import loads

ENTRIES_MIN = 10_000
"""A dict with fewer entries is pickled with the other attributes."""
CHANGES_MAX = 64
"""After this many segments with changes a new line begins."""
PREFIX = "__dict/"

_KINDS = (dict, Counter, defaultdict)
_KEYS: frozenset[type] = frozenset({str, bytes, int, type(None)})
"""Types of keys: no two keys of different types are equal."""
_VALUES: frozenset[type] = _KEYS | {float, bool}


class _Changes(NamedTuple):
    """The changes of a dict: first entries were removed, then values were set, then entries were added."""

    removed: bytes
    """int32, ascending: the places of the removed entries, before anything was changed."""
    places: bytes
    """int32, ascending: the places of the values that were set, once entries were removed."""
    values: list[Any]
    """The values that were set."""
    new_keys: list[Any]
    new_values: list[Any]

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not (self.removed or self.places or self.new_keys)


class Segments(Protocol):
    """The part of ``TaskState`` that this module uses."""

    def own_names(self, prefix: str) -> list[str]:
        """The committed segments of the engine whose names begin with ``prefix``, sorted."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a segment."""

    def write_own(self, name: str, data: bytes, decoded: Any = None, *, alone: bool = False) -> None:
        """Stage a segment of the engine."""

    def drop(self, name: str) -> None:
        """Stage the removal of a segment."""

    def unstage(self, prefix: str) -> None:
        """Undo the staging of the segments whose names begin with ``prefix``."""


@dataclass(eq=False)
class DictReference:
    """Takes the place of a separate dict in the pickle of the other attributes."""

    kind: type
    factory: Any = None
    """The ``default_factory`` of a ``defaultdict``."""

    def build(self, content: dict[Any, Any]) -> dict[Any, Any]:
        """A dict of this kind with this content."""
        built: dict[Any, Any] = defaultdict(self.factory) if self.kind is defaultdict else self.kind()
        dict.update(built, content)
        return built


@dataclass
class _Line:
    """The segments of one dict, as they were committed, and its content then."""

    keys: list[Any]
    values: list[Any]
    first: int = 0
    """The number of the segment with all of it."""
    sizes: list[int] = field(default_factory=list)
    """The bytes of each segment."""

    def names(self, attribute: str) -> list[str]:
        """The names of the segments."""
        return [_name(attribute, self.first + place) for place in range(len(self.sizes))]

    @property
    def is_full(self) -> bool:
        """Whether a new line is to begin."""
        return len(self.sizes) > CHANGES_MAX or sum(self.sizes[1:]) > self.sizes[0]


class LargeDicts:
    """The dicts of one bolt instance that are stored separately.

    In each micro-batch ``take_out`` finds them, ``stage`` stages their segments, and ``committed`` is called when these
    are committed; the first two may be called several times before it.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        """By attribute."""
        self._found: dict[str, tuple[_Line, _Changes | None]] = {}
        """By attribute: the content of each dict that was taken out, and its changes; None: everything changed."""
        self._next: dict[str, _Line] = {}
        """The lines after the commit of the staged segments."""

    def take_out(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes with a ``DictReference`` in the place of each separate dict.

        Args:
            attributes: the only reference to an attribute's value beside the instance's own.
        """
        self._found = {}
        result: dict[str, Any] = {}
        for name in attributes:
            kind = type(attributes[name])
            if kind in _KINDS and len(attributes[name]) >= ENTRIES_MIN and sys.getrefcount(attributes[name]) == _ALONE:
                content = self._content(name, attributes[name])
                if content is not None:
                    self._found[name] = content
                    result[name] = DictReference(kind, getattr(attributes[name], "default_factory", None))
                    continue
            result[name] = attributes[name]
        return result

    def _content(self, name: str, value: dict[Any, Any]) -> tuple[_Line, _Changes | None] | None:
        """The keys and values of a dict, and its changes; None if it cannot be stored separately.

        It can if only its attribute refers to it, and all its keys and values are plain and immutable.
        """
        if getattr(value, "__dict__", None):  # attributes of its own, as a Counter may have
            return None
        whole = dict.copy(value)  # at once: a thread of the user's may change it between two looks at it
        line, before = _Line(list(whole), list(whole.values())), self._lines.get(name)
        changes = _changes(before.keys, before.values, line.keys, line.values) if before is not None else None
        keys, values = (line.keys, line.values) if changes is None else (changes.new_keys, changes.new_values)
        if not (_are_plain(keys, _KEYS) and _are_plain(values, _VALUES)):
            return None
        if changes is not None and not _are_plain(changes.values, _VALUES):
            return None
        return line, changes

    def stage(self, segments: Segments) -> None:
        """Stage the segments of the dicts that ``take_out`` has found, and the removal of all others."""
        segments.unstage(PREFIX)
        self._next = {}
        for name, (line, changes) in self._found.items():
            before = self._lines.get(name)
            if before is not None and changes is not None and changes.is_empty:
                self._next[name] = before
                continue
            number = 0 if before is None else before.first + len(before.sizes)
            if before is None or changes is None or before.is_full:
                data = pickle.dumps((b"", b"", [], line.keys, line.values), 5)
                line.first, line.sizes = number, [len(data)]
            else:
                data = pickle.dumps(tuple(changes), 5)
                line.first, line.sizes = before.first, [*before.sizes, len(data)]
            segments.write_own(_name(name, number), data, alone=True)
            self._next[name] = line
        wanted = {segment for name, line in self._next.items() for segment in line.names(name)}
        for segment in segments.own_names(PREFIX):
            if segment not in wanted:
                segments.drop(segment)

    def committed(self) -> None:
        """The staged segments are committed: remember their content."""
        self._lines, self._next, self._found = self._next, {}, {}

    def restore(self, attributes: dict[str, Any], segments: Segments | None) -> None:
        """Put the committed dicts in the places of their ``DictReference``."""
        self._lines, self._next, self._found = {}, {}, {}
        for name, value in attributes.items():
            if isinstance(value, DictReference):
                check(segments is not None, f"attribute {name!r} is a large dict, whose segments are not given")
                assert segments is not None
                line = self._lines[name] = _read(name, segments)
                attributes[name] = value.build(dict(zip(line.keys, line.values, strict=True)))


def _read(name: str, segments: Segments) -> _Line:
    numbers = [int(segment.rpartition("/")[2]) for segment in segments.own_names(_name(name, None))]
    check(bool(numbers), f"attribute {name!r} is a large dict, and has no segments")
    line = _Line([], [], numbers[0])
    for number in numbers:
        data = segments.read(_name(name, number))
        assert data is not None
        _apply(line, _Changes(*loads(data)))
        line.sizes.append(len(data))
    return line


def _name(attribute: str, number: int | None) -> str:
    """The name of a segment; None: what the names of all segments of the attribute begin with."""
    quoted = quote(attribute, safe="", errors="surrogatepass")
    return f"{PREFIX}{quoted}/" + ("" if number is None else f"{number:012d}")


def _apply(line: _Line, changes: _Changes) -> None:
    if changes.removed:
        stays = [True] * len(line.keys)
        for place in _numbers(changes.removed):
            stays[place] = False
        line.keys, line.values = list(compress(line.keys, stays)), list(compress(line.values, stays))
    for place, value in zip(_numbers(changes.places), changes.values, strict=True):
        line.values[place] = value
    line.keys += changes.new_keys
    line.values += changes.new_values


def _changes(keys: list[Any], values: list[Any], keys_now: list[Any], values_now: list[Any]) -> _Changes | None:
    r"""The changes of a dict, by its keys and values before and now; None if keys have moved.

    >>> _changes(["to", "or"], [1, 2], ["or", "be"], [3, 4])
    _Changes(removed=b'\x00\x00\x00\x00', places=b'\x00\x00\x00\x00', values=[3], new_keys=['be'], new_values=[4])
    >>> _changes(["to", "or"], [1, 2], ["or", "to"], [2, 1]) is None
    True
    """
    removed: list[int] = []
    if not (len(keys) <= len(keys_now) and all(map(is_, keys, keys_now))):
        if not _are_plain(keys_now, _KEYS):  # a key of another type may run user code when it is looked up
            return None
        left = set(keys_now)
        stays = [key in left for key in keys]
        removed = [place for place, stayed in enumerate(stays) if not stayed]
        keys, values = list(compress(keys, stays)), list(compress(values, stays))
        if not all(map(is_, keys, keys_now)):
            return None
    places = list(compress(count(), map(is_not, values, values_now)))
    return _Changes(
        np.array(removed, dtype=np.int32).tobytes(),
        np.array(places, dtype=np.int32).tobytes(),
        [values_now[place] for place in places],
        keys_now[len(keys) :],
        values_now[len(keys) :],
    )


def _numbers(data: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(data, dtype=np.int32).tolist()
    return numbers


def _are_plain(values: Iterable[Any], plain: frozenset[type]) -> bool:
    """Whether all values are of plain types, or tuples of such.

    >>> _are_plain([1, ("to", 2)], _VALUES), _are_plain([[1]], _VALUES), _are_plain([(1, [2])], _VALUES)
    (True, False, False)
    """
    others = set(map(type, values)) - plain
    if not others:
        return True
    return others == {tuple} and all(set(map(type, value)) <= plain for value in values if type(value) is tuple)


def _references_of_an_attribute() -> int:
    """How many references ``sys.getrefcount`` counts in ``take_out`` for a dict that only its attribute refers to."""

    def count(attributes: Mapping[str, Any]) -> int:
        for name in attributes:
            return sys.getrefcount(attributes[name])
        return 0

    instance: dict[str, Any] = {"of an instance": {}}
    return count(dict(instance))


_ALONE = _references_of_an_attribute()
