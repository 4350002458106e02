"""Canonical bytes: compare values by their content, whichever objects in them are identical."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from sparkbolt.api.tuples import Tuple

_ATOMS = (int, str, float, bytes, bool, type(None))
_DEPTH_MAX = 50


def stable_bytes(value: Any) -> bytes:
    """Return bytes that are equal for equal values, provided that their classes pickle deterministically.

    The order of a set affects the bytes, as it should: code that iterates over the set sees it.

    >>> word = "be" * 2
    >>> stable_bytes([word, word]) == stable_bytes([word, "".join(["be", "be"])])
    True
    """
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 5)
    pickler.fast = True  # no memo of earlier objects, so that identity has no effect
    try:
        pickler.dump(value)
    except Exception:  # noqa: BLE001  a value that refers to itself needs the memo, and so does a DataFrame
        return pickle.dumps(value, 5)
    return buffer.getvalue()


def same(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether two values have the same content.

    Containers are compared by their elements, tuples by values and anchors, other objects by their attributes.

    >>> same({"a": [1.0, {2}]}, {"a": [1.0, {2}]}), same([1], (1,))
    (True, False)
    >>> import pandas as pd
    >>> same(pd.Series([1, 2]), pd.Series([1, 2])), same(pd.Series([1, 2]), pd.Series([1, 3]))
    (True, False)
    """
    if one is other:
        return True
    if type(one) is not type(other) or depth > _DEPTH_MAX:
        return False
    if isinstance(one, _ATOMS):
        return bool(one == other) or (one != one and other != other)
    if isinstance(one, Tuple):
        return same((one._origin, dict(one), one.anchors), (other._origin, dict(other), other.anchors), depth + 1)
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
        return _pickles_equal(one, other) or same(inner, other.__dict__, depth + 1)
    try:
        if bool(one == other):
            return True
    except Exception:  # noqa: BLE001  values that cannot be compared (arrays) are compared by their pickles
        pass
    return _pickles_equal(one, other)


def _pickles_equal(one: Any, other: Any) -> bool:
    try:
        return stable_bytes(one) == stable_bytes(other)
    except Exception:  # noqa: BLE001  a part of a value may refuse what the value itself does not (of a DataFrame)
        return False
