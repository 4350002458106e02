"""Holding: which tuples a bolt still has in its hands.

Which question it answers: when a tree times out, what exactly is it that somebody holds?
Rule: looking costs at most ``LOOKS_MAX`` looks, and is done only for trees that time out, by the tasks that the
ledger names as their holders.

It looks where ``forgetting`` does: attributes, containers in them, attributes of objects in them; what is in a
``KeyValueState`` is not seen. Read before: ``tuples``, ``forgetting``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, MutableSequence, Set
from typing import Any

from sparkbolt.core.base.exceptions import pass_on
from sparkbolt.core.model.tuples import Tuple

LOOKS_MAX = 100_000


def held_tuples(attributes: Mapping[str, Any], roots: Collection[int]) -> list[Tuple]:
    """The tuples of some trees that are in attributes or whatever they contain, each once.

    Args:
        attributes: a bolt's ``__dict__``.
        roots: the roots of the trees.
    """
    found: list[Tuple] = []
    seen: set[int] = set()
    waiting: deque[Any] = deque(attributes.values())
    while waiting and len(seen) < LOOKS_MAX:
        value = waiting.popleft()
        if id(value) in seen or value is None or isinstance(value, str | bytes | int | float | type):
            continue
        seen.add(id(value))
        if isinstance(value, Tuple):
            if any(root in roots for root, _ in value.anchors):
                found.append(value)
            continue
        try:
            waiting.extend(_inside(value))
        except BaseException as error:  # noqa: BLE001  a container of the user's own may raise anything
            pass_on(error)
            continue
    return found


def _inside(value: Any) -> Iterable[Any]:
    """What is in a container, or in the attributes of an object."""
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, Set | MutableSequence | deque | tuple):
        return list(value)
    inner = getattr(value, "__dict__", None)
    return [inner] if isinstance(inner, dict) else ()
