"""Edges: the trees that rows belong to, and the edges of the tuples that are anchored to them.

Rule 1: edges are made only here (``anchored``). The same step adds an edge to the new tuple and to its parent's
account, so that both halves of every edge reach the acker or neither does.
Rule 2: a parent's account is its root's account. The edges of a tuple's children are reported in the micro-batch in
which they were emitted; the tuple's own edge is reported when the tuple is acked.
Rule 3: data that neighbouring rows with a common parent share is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import (
    U64,
    edges_of,
    edges_of_runs,
    mix64_array,
    ordinals_within,
    rise,
    run_lengths,
    run_starts,
    xor_by_root,
    xor_of_runs,
)


@dataclass
class EdgeOrigins:
    """The inputs from which the edges of a block of rows were derived.

    Neighbouring rows with a common parent form a run.

    >>> from sparkbolt.base.ids import edge_of
    >>> ids = np.array([7, 8], dtype=np.uint64)
    >>> edge_origins = EdgeOrigins(roots=ids, parents=ids, starts=np.array([0, 2]), count=3, ordinals=0, salt=99)
    >>> edge_origins.edges().tolist() == [edge_of(7, 0, 99), edge_of(7, 1, 99), edge_of(8, 0, 99)]
    True
    """

    roots: U64
    """uint64[runs]: the root of each run's tree."""
    parents: U64
    """uint64[runs]: the edge of each run's parent."""
    starts: npt.NDArray[np.intp]
    """intp[runs], ascending: the first row of each run; ``starts[0]`` is 0."""
    count: int
    """The number of rows."""
    ordinals: npt.NDArray[Any] | int
    """Unsigned integers[rows], or an int.

    An array holds the ordinal of each row: ``edges_of(parent, ordinal, salt)`` is the row's edge. An int is the ordinal
    of the first row of each run; the other rows of the run continue from it.
    """
    salt: int
    root_salt: int | None = None
    """Set if the parents' edges were derived from their roots alone: ``edges_of(root, 0, root_salt)`` is the parent's
    edge."""

    @property
    def lengths(self) -> npt.NDArray[np.intp]:
        """intp[runs]: the number of rows of each run."""
        return run_lengths(self.starts, self.count)

    @property
    def row_ordinals(self) -> npt.NDArray[Any]:
        """Unsigned integers[rows]: the ordinal of each row."""
        if not isinstance(self.ordinals, int):
            return self.ordinals
        return ordinals_within(np.repeat(np.arange(len(self.starts)), self.lengths)) + np.uint64(self.ordinals)

    def edges(self) -> U64:
        """uint64[rows]: the edge of each row."""
        if isinstance(self.ordinals, int):
            return edges_of_runs(self.parents, self.starts, self.count, self.ordinals, self.salt)
        return edges_of(np.repeat(self.parents, self.lengths), self.ordinals, self.salt)

    def take(self, rows: npt.NDArray[np.intp]) -> EdgeOrigins:
        """The edge origins of some rows, in any order."""
        of = np.repeat(np.arange(len(self.starts)), self.lengths)[rows]
        starts = run_starts(of)
        runs = of[starts]
        taken = self.row_ordinals[rows].astype(np.uint64)
        return EdgeOrigins(self.roots[runs], self.parents[runs], starts, len(rows), taken, self.salt, self.root_salt)


class Anchoring:
    """The trees of a block of rows, as pairs: in pair i a row belongs to the tree ``roots[i]`` with ``edges[i]``.

    ``roots`` and ``edges`` are uint64[pairs]. If ``offsets`` is None, row r has pair r alone. Otherwise ``offsets`` is
    int64[rows + 1], ascending, and row r has the pairs ``offsets[r]`` to ``offsets[r + 1]``, possibly none.
    ``edge_origins`` may be given where each row has one pair: then fewer bytes are enough to derive the edges again,
    and the root of each row is computed on first use. ``root_salt`` is given where each row has one pair whose edge is
    ``edges_of(root, 0, root_salt)``.
    """

    __slots__ = ("_roots", "edge_origins", "edges", "offsets", "root_salt")

    def __init__(
        self,
        roots: U64 | None,
        edges: U64,
        offsets: npt.NDArray[np.int64] | None = None,
        edge_origins: EdgeOrigins | None = None,
        root_salt: int | None = None,
    ) -> None:
        """Store the arrays; ``roots`` may be None if ``edge_origins`` is given."""
        self._roots = roots
        self.edges = edges
        self.offsets = offsets
        self.edge_origins = edge_origins
        self.root_salt = root_salt

    @property
    def roots(self) -> U64:
        """uint64[pairs]: the root of each pair."""
        if self._roots is None:
            assert self.edge_origins is not None
            self._roots = np.repeat(self.edge_origins.roots, self.edge_origins.lengths)
        return self._roots

    def by_tree(self) -> tuple[U64, U64]:
        """(keys, xors): uint64[trees] each, keys ascending; the XOR of the edges of each tree."""
        if self.edge_origins is None:
            return xor_by_root(self.roots, self.edges)
        return xor_by_root(self.edge_origins.roots, xor_of_runs(self.edges, self.edge_origins.starts))

    def take(self, rows: npt.NDArray[np.intp]) -> Anchoring:
        """The anchoring of some rows."""
        if self.edge_origins is not None:
            return Anchoring(None, self.edges[rows], None, self.edge_origins.take(rows))
        if self.offsets is None:
            return Anchoring(self.roots[rows], self.edges[rows], root_salt=self.root_salt)
        pairs, offsets = pairs_of_rows(self.offsets, rows)
        return Anchoring(self.roots[pairs], self.edges[pairs], offsets)

    def rows_outside(self, roots: U64) -> npt.NDArray[np.intp]:
        """intp[rows]: the rows that belong to a tree besides those of ``roots``, or to no tree at all.

        >>> pairs = Anchoring(np.array([7, 8, 7], np.uint64), np.zeros(3, np.uint64), np.array([0, 2, 3, 3]))
        >>> pairs.rows_outside(np.array([7], np.uint64)).tolist()
        [0, 2]
        """
        inside = np.isin(self.roots, roots)
        if self.offsets is None:
            return np.flatnonzero(~inside)
        before = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(inside)))
        pairs = np.diff(self.offsets)
        return np.flatnonzero((np.diff(before[self.offsets]) < pairs) | (pairs == 0))


def joined_anchorings(parts: Sequence[Anchoring]) -> Anchoring:
    """The trees of the rows of several blocks, one block after the other."""
    roots, edges = (np.concatenate(arrays) for arrays in zip(*((one.roots, one.edges) for one in parts), strict=True))
    if all(one.offsets is None for one in parts):
        salts = {one.root_salt for one in parts}
        return Anchoring(roots, edges, root_salt=salts.pop() if len(salts) == 1 else None)
    offsets = [np.zeros(1, dtype=np.int64)]
    for one in parts:
        own = np.arange(len(one.edges) + 1) if one.offsets is None else one.offsets
        offsets.append(own[1:] + offsets[-1][-1])
    return Anchoring(roots, edges, np.concatenate(offsets))


def pairs_of_rows(
    offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The indices of the pairs of some rows, row after row, and the offsets of these rows in them.

    Args:
        offsets: int64[all rows + 1], ascending.
        rows: intp[rows], in any order.

    Returns:
        (pairs, new_offsets): int64[pairs] and int64[rows + 1], ascending.
    """
    starts = offsets[rows]
    counts = offsets[rows + 1] - starts
    new_offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(counts, out=new_offsets[1:])
    pairs = np.arange(new_offsets[-1], dtype=np.int64)
    pairs += np.repeat(starts - new_offsets[:-1], counts)
    return pairs, new_offsets


_SLOT = 0x9E3779B97F4A7C15


def slotted(edge: int, slot: int) -> int:
    """The edge of an anchor in a slot of the list of anchors; in slot 0 it is the edge itself."""
    if slot == 0:
        return edge
    mixed = np.array([edge ^ (slot * _SLOT & 0xFFFFFFFFFFFFFFFF)], dtype=np.uint64)
    return int(mix64_array(mixed)[0])


@dataclass
class Parents:
    """The anchors of emitted rows, as pairs.

    Row r has pair r alone, or the pairs that ``offsets`` gives, as in ``Anchoring``, or the pair ``of[r]``, which
    several rows may share.
    """

    pair_roots: U64
    pair_edges: U64
    """uint64[pairs]: the anchors' own edges, already mixed with their slots (``slotted``)."""
    ordinals: npt.NDArray[Any] | int
    """Unsigned integers, or an int: the number of an emission among those of its anchor.

    An array has one ordinal for each row, or for each pair if ``offsets`` is given. An int is the ordinal of each
    anchor's first row; it continues among the rows of this anchor that go to one task.
    """
    offsets: npt.NDArray[np.int64] | None = None
    of: npt.NDArray[np.int64] | None = None
    """int64[rows]: the pair of each row. Equal values are neighbours if ``ordinals`` is an int."""
    root_salt: int | None = None
    """As in ``Anchoring``, for the pairs."""

    @property
    def roots(self) -> U64:
        """uint64[rows or pairs]: the root of each row, or of each pair if ``offsets`` is given."""
        return self.pair_roots if self.of is None else self.pair_roots[self.of]

    @property
    def edges(self) -> U64:
        """uint64[rows or pairs]: the anchor's edge of each row, or of each pair if ``offsets`` is given."""
        return self.pair_edges if self.of is None else self.pair_edges[self.of]

    @property
    def row_ordinals(self) -> npt.NDArray[Any]:
        """Unsigned integers[rows or pairs]: the ordinal of each row, or of each pair if ``offsets`` is given."""
        if not isinstance(self.ordinals, int):
            return self.ordinals
        if self.of is None:
            return np.full(len(self.pair_roots), self.ordinals, dtype=np.uint64)
        return ordinals_within(self.of) + np.uint64(self.ordinals)


def anchored(parents: Parents, rows: npt.NDArray[np.intp] | None, salt: int, account: U64) -> Anchoring:
    """Make new edges for some rows, and add them to the accounts of their parents.

    Args:
        parents: the anchors of the emitted rows.
        rows: intp[rows], the rows that get edges; None: all.
        salt: goes into each edge.
        account: uint64[pairs], changed in place: each parent's XOR.
    """
    if parents.of is not None:
        return _derive(parents, parents.of, rows, salt, account)
    roots, anchors, ordinals, offsets = parents.pair_roots, parents.pair_edges, parents.ordinals, parents.offsets
    pairs = rows
    if rows is not None:
        if offsets is not None:
            pairs, offsets = pairs_of_rows(offsets, rows)
        roots, anchors = roots[pairs], anchors[pairs]
        ordinals = ordinals if isinstance(ordinals, int) else ordinals[pairs]
    edges = edges_of(anchors, ordinals, salt)
    if pairs is None:
        account ^= edges
    else:
        account[pairs] ^= edges
    of_roots = parents.pair_edges is parents.pair_roots and isinstance(ordinals, int) and ordinals == 0
    return merge_roots(Anchoring(roots, edges, offsets, root_salt=salt if of_roots else None))


def _derive(
    parents: Parents, of: npt.NDArray[np.int64], rows: npt.NDArray[np.intp] | None, salt: int, account: U64
) -> Anchoring:
    """``anchored`` for rows whose neighbours share a parent: most work is done once per parent."""
    if rows is not None:
        of = of.take(rows)
    starts = run_starts(of)
    runs = of[starts]
    rising = rise(runs)
    ordinals = parents.ordinals if rising else parents.row_ordinals  # the ordinals of a parent continue across its runs
    if rows is not None and not isinstance(ordinals, int):
        ordinals = ordinals.take(rows)
    roots, anchors = parents.pair_roots[runs], parents.pair_edges[runs]
    edge_origins = EdgeOrigins(roots, anchors, starts, len(of), ordinals, salt, parents.root_salt)
    edges = edge_origins.edges()
    xors = xor_of_runs(edges, starts)
    if rising:
        account[runs] ^= xors
    else:  # a grouping may return rows in any order
        np.bitwise_xor.at(account, runs, xors)
    return Anchoring(None, edges, None, edge_origins)


def merge_roots(anchoring: Anchoring) -> Anchoring:
    """Combine pairs of one row that have the same root (a diamond) into one pair by XOR."""
    offsets = anchoring.offsets
    if offsets is None or len(anchoring.roots) == 0:
        return anchoring
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((anchoring.roots, row))
    roots, row = anchoring.roots[order], row[order]
    change = np.ones(len(roots), dtype=bool)
    change[1:] = (roots[1:] != roots[:-1]) | (row[1:] != row[:-1])
    starts = np.flatnonzero(change)
    if len(starts) == len(roots):
        return anchoring
    edges = np.bitwise_xor.reduceat(anchoring.edges[order], starts)
    counts = np.bincount(row[starts], minlength=len(offsets) - 1)
    merged = np.zeros(len(offsets), dtype=np.int64)
    np.cumsum(counts, out=merged[1:])
    return Anchoring(roots[starts], edges, merged)
