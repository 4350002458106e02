"""Rows: a block of tuples that one task works on, and what their emissions are anchored to.

Which question it answers: which trees does row r belong to, and which ids do the tuples need that it gave birth to?

Read before: ``tuples``, ``frames``, ``collectors``, ``routing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.core.base.ids import U64, mix64_array, ordinals_within
from sparkbolt.core.model.pickling import CannotKeepError, Pickling
from sparkbolt.core.model.tuples import AnchorPairs, Origin
from sparkbolt.core.protocol.edges import Anchoring
from sparkbolt.core.protocol.frames import Column, Path, part, python_values
from sparkbolt.core.worker.emission import StreamOut
from sparkbolt.core.worker.routing import EmittedRows, Parents

_SLOT = 0x9E3779B97F4A7C15


class Rows:
    """Rows of one frame, or of a fused producer; obeys the ``Chunk`` protocol of ``tuples``."""

    def __init__(
        self,
        origin: Origin,
        count: int,
        columns: Sequence[Column],
        anchoring: Anchoring | None,
        attempts: npt.NDArray[np.uint8] | None,
        path: Path = (),
    ) -> None:
        """Keep what came with the frame."""
        self.origin = origin
        self.count = count
        self.columns = columns
        self.anchoring = anchoring
        self.attempts = attempts
        self.path = path

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples of Python values."""
        if not self.columns:
            return iter([()] * self.count)
        return zip(*map(python_values, self.columns), strict=True)

    def part(self, start: int, stop: int) -> Rows:
        """Rows ``start`` to ``stop`` (exclusive); these rows themselves if that is all of them."""
        if (start, stop) == (0, self.count):
            return self
        columns = [part(column, start, stop) for column in self.columns]
        anchoring = self.anchoring.take(np.arange(start, stop)) if self.anchoring is not None else None
        attempts = self.attempts[start:stop] if self.attempts is not None else None
        return Rows(self.origin, stop - start, columns, anchoring, attempts, self.path)

    def unkeepable(self) -> str | None:
        """Why a value cannot be kept; None if all can."""
        for name, column in zip(self.origin.fields, self.columns, strict=True):
            if not isinstance(column, pa.Array):
                try:
                    Pickling({}).proved(list(column))
                except CannotKeepError as error:
                    return f"field {name!r}: {error}"
        return None

    def single(self) -> Sequence[Any]:
        """The Python values of the only column."""
        return python_values(self.columns[0])

    def anchors_of(self, row: int) -> AnchorPairs:
        """The (root, edge) pairs of a row."""
        anchoring = self.anchoring
        if anchoring is None:
            return ()
        if anchoring.offsets is None:
            return ((int(anchoring.roots[row]), int(anchoring.edges[row])),)
        pairs = range(int(anchoring.offsets[row]), int(anchoring.offsets[row + 1]))
        return tuple((int(anchoring.roots[i]), int(anchoring.edges[i])) for i in pairs)

    def attempt_of(self, row: int) -> int:
        """The attempt of a row, from 1; with ``TRACED`` if it is traced."""
        return 1 if self.attempts is None else int(self.attempts[row])

    def pairs_where(self, chosen: npt.NDArray[np.bool_]) -> tuple[U64, U64]:
        """Roots and edges of the rows for which ``chosen`` is true; empty if nothing is tracked."""
        anchoring = self.anchoring
        if anchoring is None:
            nothing = np.empty(0, dtype=np.uint64)
            return nothing, nothing
        if anchoring.offsets is not None:
            chosen = np.repeat(chosen, np.diff(anchoring.offsets))
        return anchoring.roots[chosen], anchoring.edges[chosen]


def emitted_rows_of(out: StreamOut, rows: Rows, tracked: bool) -> Iterator[EmittedRows]:
    """What a task emitted on one stream while it worked on ``rows``."""
    ordinal_base = 0
    if out.ends is not None:
        ends = np.array([0, *out.ends], dtype=np.int64)
        per_row = (ends[1:] - ends[:-1]) // out.width
        if len(out.values) > ends[-1]:  # a thread of the user's was emitting when the last row ended
            del out.values[int(ends[-1]) :]
        parents = np.arange(rows.count, dtype=np.int64).repeat(per_row)
    else:
        parents = np.array(out.parents, dtype=np.int64)
    if len(parents):
        direct_to = np.array(out.direct_to, dtype=np.int64) if out.direct_to else None
        columns = [out.values[field :: out.width] for field in range(out.width)]
        order = None
        if not out.extras and bool(np.any(parents[1:] < parents[:-1])):  # coroutines finish in any order
            order = np.argsort(parents, kind="stable")
            parents = parents[order]
            columns = [[column[i] for i in order.tolist()] for column in columns]
            direct_to = direct_to[order] if direct_to is not None else None
        yield _block(out, rows, columns, parents, direct_to, tracked, ordinal_base)
        ordinal_base += len(parents)
    for columns_, parents in out.columns:
        if bool(np.any(parents[1:] < parents[:-1])):
            order = np.argsort(parents, kind="stable")
            parents = parents[order]
            columns_ = [_reordered(column, order) for column in columns_]
        yield _block(out, rows, columns_, parents, None, tracked, ordinal_base)
        ordinal_base += len(parents)


def _reordered(column: Any, order: npt.NDArray[np.intp]) -> Any:
    return column.take(order) if hasattr(column, "take") else [column[i] for i in order.tolist()]


def _block(
    out: StreamOut,
    rows: Rows,
    columns: Sequence[Any],
    parents: npt.NDArray[np.int64],
    direct_to: npt.NDArray[np.int64] | None,
    tracked: bool,
    ordinal_base: int,
) -> EmittedRows:
    anchored = _parents(out, rows, parents, ordinal_base) if tracked else None
    attempts = _attempts(out, rows, parents)
    return EmittedRows(out.routes, columns, len(parents), out.first + ordinal_base, anchored, attempts, direct_to)


def _attempts(out: StreamOut, rows: Rows, parents: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8] | None:
    if rows.attempts is None and max(out.extra_attempts, default=1) == 1:
        return None
    attempts = np.ones(len(parents), dtype=np.uint8)
    if rows.attempts is not None:
        attempts[parents >= 0] = rows.attempts[parents[parents >= 0]]
    if out.extras:
        attempts[parents < -1] = np.array(out.extra_attempts, dtype=np.uint8)[-2 - parents[parents < -1]]
    return attempts


def _parents(out: StreamOut, rows: Rows, parents: npt.NDArray[np.int64], ordinal_base: int) -> Parents | None:
    """The pairs that emissions are anchored to; None if none is anchored to a tracked tuple."""
    anchoring = rows.anchoring
    if anchoring is not None and anchoring.offsets is None and not out.extras and parents[0] >= 0:  # they rise
        return Parents(anchoring.roots, anchoring.edges, ordinal_base, None, parents, anchoring.root_salt)
    if anchoring is None and not out.extras:
        return None
    return _mixed_parents(out, rows, parents, ordinal_base)


def _mixed_parents(out: StreamOut, rows: Rows, parents: npt.NDArray[np.int64], ordinal_base: int) -> Parents:
    """The general case: no anchor, one row with any number of trees, or a list of tuples."""
    anchoring = rows.anchoring
    counts = np.zeros(len(parents), dtype=np.int64)
    on_row = parents >= 0
    row_offsets = None
    if anchoring is not None:
        row_offsets = anchoring.offsets
        if row_offsets is None:
            row_offsets = np.arange(rows.count + 1, dtype=np.int64)
        counts[on_row] = np.diff(row_offsets)[parents[on_row]]
    extra_of = np.flatnonzero(parents < -1)
    counts[extra_of] = [len(out.extras[-2 - parents[i]]) for i in extra_of]
    offsets = np.zeros(len(parents) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    roots, edges, ordinals = (np.zeros(offsets[-1], dtype=np.uint64) for _ in range(3))
    if anchoring is not None and row_offsets is not None and bool(on_row.any()):
        of_row = parents[on_row]
        places = np.repeat(offsets[:-1][on_row] - _starts(counts[on_row]), counts[on_row]) + np.arange(
            counts[on_row].sum()
        )
        pairs = np.repeat(row_offsets[of_row] - _starts(counts[on_row]), counts[on_row]) + np.arange(len(places))
        order = np.argsort(of_row, kind="stable")
        within = np.empty(len(of_row), dtype=np.uint64)
        within[order] = ordinals_within(of_row[order])
        roots[places], edges[places] = anchoring.roots[pairs], anchoring.edges[pairs]
        ordinals[places] = np.repeat(within + np.uint64(ordinal_base), counts[on_row])
    for i in extra_of.tolist():
        place = int(offsets[i])
        for root, edge, ordinal, slot in out.extras[-2 - int(parents[i])]:
            roots[place], ordinals[place] = root, ordinal
            edges[place] = slotted(edge, slot)
            place += 1
    return Parents(roots, edges, ordinals, offsets)


def slotted(edge: int, slot: int) -> int:
    """An anchor's edge as seen from its slot among the anchors; slot 0 is the edge itself."""
    if slot == 0:
        return edge
    mixed = np.array([edge ^ (slot * _SLOT & 0xFFFFFFFFFFFFFFFF)], dtype=np.uint64)
    return int(mix64_array(mixed)[0])


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.cumsum(counts) - counts
