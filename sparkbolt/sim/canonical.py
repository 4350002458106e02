"""Values compared by what they hold.

Which question it answers: are two values, perhaps from two processes, the same?
Rule: identity never shows. A pickle of equal values differs where one of them holds one object twice; these do not.

Read before: ``core.model.tuples``.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sparkbolt.core.model.tuples import Tuple

_ATOMS = (int, str, float, bytes, bool, type(None))
_DEPTH_MAX = 50


def stable_bytes(value: Any) -> bytes:
    """Bytes that are the same for the same value, as far as its classes pickle the same way.

    A set's order shows, as it should: whoever iterates over it sees it.

    >>> word = "be" * 2
    >>> stable_bytes([word, word]) == stable_bytes([word, "".join(["be", "be"])])
    True
    """
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 5)
    pickler.fast = True  # no memory of objects that came before, so that identity does not show
    try:
        pickler.dump(value)
    except (RecursionError, ValueError):  # what refers to itself needs that memory
        return pickle.dumps(value, 5)
    return buffer.getvalue()


def same(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether two values hold the same.

    Containers are compared by their elements, tuples by values and anchors, other objects by their attributes.

    >>> same({"a": [1.0, {2}]}, {"a": [1.0, {2}]}), same([1], (1,))
    (True, False)
    """
    if one is other:
        return True
    if type(one) is not type(other) or depth > _DEPTH_MAX:
        return False
    if isinstance(one, _ATOMS):
        return bool(one == other) or (one != one and other != other)
    if isinstance(one, Tuple):
        return same((one._origin, one.values, one.anchors), (other._origin, other.values, other.anchors), depth + 1)
    if isinstance(one, Mapping):
        return len(one) == len(other) and all(
            key in other and same(value, other[key], depth + 1) for key, value in one.items()
        )
    if isinstance(one, AbstractSet):
        return bool(one == other)
    if isinstance(one, Sequence) or hasattr(one, "popleft"):
        return len(one) == len(other) and all(same(a, b, depth + 1) for a, b in zip(one, other, strict=True))
    inner = getattr(one, "__dict__", None)
    if inner is not None:
        return same(inner, other.__dict__, depth + 1)
    try:
        if bool(one == other):
            return True
    except Exception:  # noqa: BLE001  what cannot be compared (an array) is compared by its pickle
        pass
    return stable_bytes(one) == stable_bytes(other)
