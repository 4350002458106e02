"""Obstacles: which part of an attribute cannot be pickled, and what it is.

A bolt's attribute may hold a connection deep in a dict of lists. This module finds the path to it, for the error, and
tells a thing that a bolt uses (a connection, a lock, a client) from data that the bolt would lose.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import islice
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

from sparkbolt.api.pickling import CannotKeepError, Pickling, attributes_of
from sparkbolt.base.exceptions import pass_on, printed

DEPTH_MAX = 10
PARTS_MAX = 1000
"""How many parts of one object are examined; each is pickled for it."""
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, SimpleNamespace)


class Obstacle(NamedTuple):
    """What cannot be kept in an attribute."""

    path: str
    """The path from the attribute, such as ``['db']``; empty for the attribute itself."""
    value: object
    reason: str
    is_nameless: bool
    """Whether it is an instance of a class that cannot be found by its name: data, rather than a connection."""


def is_container(value: object) -> bool:
    """Whether a value is a container of data, as a dict or a dataclass is; its content is lost with it."""
    return isinstance(value, _CONTAINERS) or dataclasses.is_dataclass(type(value))


def obstacle_in(value: object, pickling: Pickling) -> Obstacle | None:
    """Return the innermost part of a value that cannot be kept; None if the value can be kept."""
    found = None
    deeper = _obstacle("", value, pickling)
    for _ in range(DEPTH_MAX):
        if deeper is None:
            break
        found = deeper
        deeper = _first(found, pickling)
    return found


def _first(found: Obstacle, pickling: Pickling) -> Obstacle | None:
    """The first part of an obstacle that cannot be kept; None if all can, so that it is the obstacle itself."""
    try:
        parts = (_obstacle(found.path + step, part, pickling) for step, part in _parts(found.value))
        return next((part for part in parts if part is not None), None)
    except BaseException as error:  # noqa: BLE001  an object of user code may raise anything
        pass_on(error)
        return None


def _obstacle(path: str, value: object, pickling: Pickling) -> Obstacle | None:
    try:
        pickling.proved(value)
    except CannotKeepError as error:
        cls = type(value)
        by_name = isinstance(error.__cause__, pickle.PicklingError | AttributeError)
        is_local = "<locals>" in cls.__qualname__ or cls.__module__ == "__main__"
        return Obstacle(path, value, str(error), by_name and is_local)
    return None


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    """Yield (step, part) for the parts of an object: items, elements or attributes."""
    if isinstance(value, defaultdict):
        yield ".default_factory", value.default_factory
    if isinstance(value, dict):
        for key, item in islice(dict.items(value), PARTS_MAX):
            yield f"[{printed(key):.60}]", item
            yield f" (the key {printed(key):.60})", key
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{index}]", item) for index, item in enumerate(islice(value, PARTS_MAX)))
    elif isinstance(value, set | frozenset):
        yield from ((f" (the element {printed(item):.60})", item) for item in islice(value, PARTS_MAX))
    elif not isinstance(value, type | FunctionType):
        yield from ((f".{name}", item) for name, item in islice(attributes_of(value).items(), PARTS_MAX))
