"""Held tuples: finds the tuples that a bolt holds in its attributes, and drops tuples of void trees.

A search covers attributes, containers in them, and attributes of objects in them; tuples in a ``KeyValueState`` stay.
It visits at most ``LOOKS_MAX`` objects, and only the tasks that the ledger names as holders of a tree that times out
make one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Set,
)
from itertools import islice
from typing import Any

from sparkbolt.api.pickling import attributes_of
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import pass_on
from sparkbolt.base.ids import split_key, unmix64

LOOKS_MAX = 100_000


def held_tuples(attributes: Mapping[str, Any], roots: Collection[int]) -> list[Tuple]:
    """Find the tuples of some trees in attributes and in all their contents, each tuple once.

    Args:
        attributes: a bolt's ``__dict__``.
        roots: the roots of the trees.
    """
    reached = islice(_reached(attributes.values()), LOOKS_MAX)
    return [value for value in reached if isinstance(value, Tuple) and any(root in roots for root, _ in value.anchors)]


_LEAVES = (str, bytes, int, float, type, type(None))


def _reached(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values and all their contents, each object once; an object is yielded before its contents are read."""
    seen: set[int] = set()
    waiting = deque(values)  # not by recursion: a value may be nested deeper than Python's stack
    while waiting:
        value = waiting.popleft()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        try:
            waiting.extend(() if isinstance(value, Tuple) else _inside(value))
        except BaseException as error:  # noqa: BLE001  a container of the user's own may raise anything
            pass_on(error)


def _inside(value: Any) -> Iterable[Any]:
    """The contents of a container, or the attributes of an object."""
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, Set | MutableSequence | deque | tuple):
        return list(value)
    inner = getattr(value, "__dict__", None)
    return [inner] if isinstance(inner, dict) else ()


def forget_in(instance: object, void: Mapping[int, int]) -> int:
    """Call ``forget`` for all attributes of a bolt, including those in ``__slots__``."""
    attributes = attributes_of(instance)
    before = dict(attributes)
    found = forget(attributes, void)
    for name, value in attributes.items():
        if value is not before[name]:
            setattr(instance, name, value)
    return found


def forget(attributes: MutableMapping[str, Any], void: Mapping[int, int]) -> int:
    """Remove void tuples from attributes and from all their contents, before the bolt gets the next tuple.

    Args:
        attributes: a bolt's ``__dict__``; an attribute whose value is a void tuple becomes None.
        void: by task number, the sequence below which the task's trees are void.

    Returns:
        How many places held a void tuple.
    """

    def is_void(value: Any) -> bool:
        if not isinstance(value, Tuple):
            return False
        keys = [split_key(unmix64(root)) for root, _ in value.anchors]
        return bool(keys) and all(sequence < void.get(task, 0) for task, sequence in keys)

    found = 0
    for name, value in attributes.items():
        if is_void(value):
            attributes[name] = None
            found += 1
    for value in _reached(list(attributes.values())):
        try:
            found += _drop(value, is_void)
        except BaseException as error:  # noqa: BLE001  a container of the user's own may raise anything, and keeps what it has
            pass_on(error)
    return found


def _drop(value: Any, is_void: Callable[[Any], bool]) -> int:
    """Remove void tuples from a container; return how many were removed."""
    if isinstance(value, Tuple):
        return 0
    if isinstance(value, MutableMapping):
        gone = [key for key, held in value.items() if is_void(held) or is_void(key)]
        for key in gone:
            del value[key]
        return len(gone)
    if isinstance(value, MutableSet):
        gone = [held for held in value if is_void(held)]
        for held in gone:
            value.discard(held)
        return len(gone)
    if isinstance(value, MutableSequence | deque):
        kept = [held for held in value if not is_void(held)]
        lost = len(value) - len(kept)
        if lost:
            value.clear()
            value.extend(kept)
        return lost
    return 0
