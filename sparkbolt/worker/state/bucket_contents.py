"""Bucket contents: the content of a bucket of keys, from its segment and the deltas that the segment lacks.

Buckets of strings and integers are merged together, as arrays; others one by one, in dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from sparkbolt.worker.state.bucket_table import BucketTable
from sparkbolt.worker.state.segments import TOMBSTONE, Entries, has_tombstones, merged

DELTAS_MIN = 8
"""Buckets are rewritten only after at least this many deltas; a worker may miss as many commits."""
DELTAS_MAX = 512
"""The oldest buckets are rewritten after at most this many deltas; never more than twice as many accumulate."""

Window: TypeAlias = Mapping[int, Entries]
"""The stored deltas by stamp."""
_Slice: TypeAlias = tuple[Entries, int, int]
"""Entries, the first row, and the row after the last."""


def due(table: BucketTable, wanted: int) -> list[int]:
    """The buckets that a commit rewrites: those that lack the most deltas.

    Each commit rewrites its share of the buckets, so that all buckets include the oldest delta before twice as many
    deltas as wanted have accumulated.

    Args:
        table: after the commit's delta.
        wanted: how many deltas may accumulate.
    """
    limit = min(max(wanted, DELTAS_MIN), DELTAS_MAX)
    late = np.flatnonzero(table.last - table.included >= limit)
    share = -(-len(table.stamps) // limit)
    chosen: list[int] = late[np.argsort(table.included[late], kind="stable")][:share].tolist()
    return chosen


def rewritten(
    table: BucketTable, window: Window, buckets: Sequence[int], read: Callable[[int], Entries]
) -> dict[int, Entries]:
    """By bucket, its content up to the newest delta; without the buckets whose segments include all of it.

    Args:
        table: of the newest delta.
        window: its deltas.
        buckets: those wanted.
        read: returns the bucket's segment with a stamp.
    """
    changes = {bucket: slices for bucket in buckets if (slices := _slices(table, window, bucket))}
    stamps = {bucket: int(table.stamps[bucket]) for bucket in changes}
    bases = {stamp: read(stamp) for stamp in dict.fromkeys(stamps.values()) if stamp}
    rows: list[_Slice] = []
    for bucket, newer in changes.items():
        base = bases.get(stamps[bucket])
        if base is not None:
            bounds = base.bounds(table.bits)
            if bounds[bucket] < bounds[bucket + 1]:
                rows.append((base, bounds[bucket], bounds[bucket + 1]))
        rows += newer
    whole = merged(rows) if rows else None
    if whole is not None:
        bounds = whole.bounds(table.bits)
        return {bucket: whole.cut(bounds[bucket], bounds[bucket + 1]) for bucket in changes}
    contents = {}
    for bucket in changes:
        content = content_of(table, window, bucket, bases.get(stamps[bucket]))
        contents[bucket] = Entries.of(list(content), list(content.values()))
    return contents


def all_of(table: BucketTable, window: Window, read: Callable[[int], Entries]) -> Entries:
    """All keys and values, up to the newest delta; a value that can be changed is a ``PickledValue``.

    A segment may include some of the deltas; applied once more, all of them in their order, these change nothing.

    Args:
        table: of the newest delta.
        window: its deltas.
        read: returns the bucket's segment with a stamp.
    """
    rows: list[_Slice] = []
    for stamp in np.unique(table.stamps[table.stamps > 0]).tolist():
        base = read(int(stamp))
        bounds = base.bounds(table.bits)
        for bucket in np.flatnonzero(table.stamps == np.uint64(stamp)).tolist():
            if bounds[bucket] < bounds[bucket + 1]:
                rows.append((base, bounds[bucket], bounds[bucket + 1]))
    deltas = [window[stamp] for stamp in table.deltas]
    all_rows = [*rows, *((delta, 0, len(delta.hashes)) for delta in deltas)]
    whole = merged(all_rows) if all_rows else None
    if whole is not None:
        return whole
    content: dict[Any, Any] = {}
    for base, start, stop in rows:
        content.update(zip(base.keys[start:stop], base.values[start:stop], strict=True))
    for delta in deltas:
        delta.apply_to(content)
    return Entries.of(list(content), list(content.values()))


def content_of(table: BucketTable, window: Window, bucket: int, base: Entries | None) -> dict[Any, Any]:
    """The bucket's keys and values, up to the newest delta.

    Args:
        table: of the newest delta.
        window: its deltas.
        bucket: its number.
        base: its segment, which may be shared with other buckets; None: there is none.
    """
    keys: list[Any] = []
    values: list[Any] = []
    if base is not None:
        bounds = base.bounds(table.bits)
        start, stop = bounds[bucket], bounds[bucket + 1]
        keys, values = base.keys[start:stop], base.values[start:stop]
    for entries, start, stop in _slices(table, window, bucket):
        keys += entries.keys[start:stop]
        values += entries.values[start:stop]
    content = dict(zip(keys, values, strict=True))
    if has_tombstones(values):
        return {key: value for key, value in content.items() if value is not TOMBSTONE}
    return content


def _slices(table: BucketTable, window: Window, bucket: int) -> list[_Slice]:
    """The parts of the deltas that the bucket's segment does not include, oldest first; no slice is empty."""
    first = table.last - len(table.deltas) + 1
    skipped = max(0, int(table.included[bucket]) + 1 - first)
    slices = []
    for stamp in table.deltas[skipped:]:
        entries = window[stamp]
        bounds = entries.bounds(table.bits)
        if bounds[bucket] < bounds[bucket + 1]:
            slices.append((entries, bounds[bucket], bounds[bucket + 1]))
    return slices
