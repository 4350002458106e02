"""Arrays with values that Python cannot hold: from a list that says of which rows."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def of(kind: pa.DataType, good: int, bad: int) -> Callable[[list[bool]], pa.Array]:
    return lambda is_bad: pa.array([bad if one else good for one in is_bad], pa.int64()).cast(kind, safe=False)
