"""Edges: the trees that rows belong to, and the edges of the tuples that are anchored to them.

Which question it answers: which roots and edges does row r have, and by which edges do its children belong to its
trees?
Rule 1: only here are edges made (``anchored``). What is added to a new tuple is added to its parent's account in the
same step, so that both halves of every edge reach the acker or neither does.
Rule 2: a parent's account is its root's: the edges of a tuple's children are reported in the micro-batch in which they
were emitted, its own edge when it is acked.
Rule 3: where neighbours have a parent in common, what can be said once for all of them is said once.

Read before: ``ids``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import (
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
    """What the edges of a block of rows were made of. Neighbours that have a parent in common are a run.

    >>> from sparkbolt.core.base.ids import edge_of
    >>> ids = np.array([7, 8], dtype=np.uint64)
    >>> edge_origins = EdgeOrigins(roots=ids, parents=ids, starts=np.array([0, 2]), count=3, ordinals=0, salt=99)
    >>> edge_origins.edges().tolist() == [edge_of(7, 0, 99), edge_of(7, 1, 99), edge_of(8, 0, 99)]
    True
    """

    roots: U64
    """The tree of each run."""
    parents: U64
    """The edge of each run's parent."""
    starts: npt.NDArray[np.intp]
    """The first row of each run; the first of them is 0."""
    count: int
    """How many rows there are."""
    ordinals: npt.NDArray[Any] | int
    """Of each row, unsigned: ``edges_of(its parent, its ordinal, salt)`` is its edge. Or that of the first row of each
    run, from which the others count on."""
    salt: int
    root_salt: int | None = None
    """If the parents were made of nothing but their roots: ``edges_of(root, 0, root_salt)`` is the parent's edge."""

    @property
    def lengths(self) -> npt.NDArray[np.intp]:
        """How many rows each run has."""
        return run_lengths(self.starts, self.count)

    @property
    def row_ordinals(self) -> npt.NDArray[Any]:
        """The ordinal of each row."""
        if not isinstance(self.ordinals, int):
            return self.ordinals
        return ordinals_within(np.repeat(np.arange(len(self.starts)), self.lengths)) + np.uint64(self.ordinals)

    def edges(self) -> U64:
        """The edge of each row."""
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
    """The trees of a block of rows, as pairs: pair i says that a row belongs to ``roots[i]`` by ``edges[i]``.

    ``offsets`` None: one pair a row. Otherwise row r has pairs ``offsets[r]`` to ``offsets[r + 1]``, maybe none.
    ``edge_origins`` may be known where there is one pair a row: then edges can be made again from fewer bytes, and
    roots are spread over the rows only if somebody asks for them. ``root_salt`` is known where each row has one pair,
    whose edge is ``edges_of(its root, 0, root_salt)``.
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
        """``roots`` may be None where ``edge_origins`` are given."""
        self._roots = roots
        self.edges = edges
        self.offsets = offsets
        self.edge_origins = edge_origins
        self.root_salt = root_salt

    @property
    def roots(self) -> U64:
        """The root of each pair."""
        if self._roots is None:
            assert self.edge_origins is not None
            self._roots = np.repeat(self.edge_origins.roots, self.edge_origins.lengths)
        return self._roots

    def by_tree(self) -> tuple[U64, U64]:
        """The keys of all trees, rising, and the XOR of each one's edges."""
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


def pairs_of_rows(
    offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Indices of the pairs of some rows, row after row, and the offsets of those rows in them."""
    starts = offsets[rows]
    counts = offsets[rows + 1] - starts
    new_offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(counts, out=new_offsets[1:])
    pairs = np.arange(new_offsets[-1], dtype=np.int64)
    pairs += np.repeat(starts - new_offsets[:-1], counts)
    return pairs, new_offsets


_SLOT = 0x9E3779B97F4A7C15


def slotted(edge: int, slot: int) -> int:
    """An anchor's edge as seen from its slot among the anchors; slot 0 is the edge itself."""
    if slot == 0:
        return edge
    mixed = np.array([edge ^ (slot * _SLOT & 0xFFFFFFFFFFFFFFFF)], dtype=np.uint64)
    return int(mix64_array(mixed)[0])


@dataclass
class Parents:
    """What emitted rows are anchored to, as pairs.

    Row r has pair r alone; or those that ``offsets`` say, as in ``Anchoring``; or ``of[r]``, as others may, too.
    """

    pair_roots: U64
    pair_edges: U64
    """The anchors' own edges, already told apart by anchor slot."""
    ordinals: npt.NDArray[Any] | int
    """They count the emissions of one anchor; unsigned. One for each row, or each pair where there are ``offsets``.
    Or that of the first row of each anchor: then they count on, among the anchor's rows that go to one task."""
    offsets: npt.NDArray[np.int64] | None = None
    of: npt.NDArray[np.int64] | None = None
    """Equal ones are neighbours where ``ordinals`` count on."""
    root_salt: int | None = None
    """As of ``Anchoring``, of the pairs."""

    @property
    def roots(self) -> U64:
        """The root of each row, or pair of a row where there are ``offsets``."""
        return self.pair_roots if self.of is None else self.pair_roots[self.of]

    @property
    def edges(self) -> U64:
        """The anchor's edge, likewise."""
        return self.pair_edges if self.of is None else self.pair_edges[self.of]

    @property
    def row_ordinals(self) -> npt.NDArray[Any]:
        """The ordinal of each row, or pair of a row where there are ``offsets``, as an array."""
        if not isinstance(self.ordinals, int):
            return self.ordinals
        if self.of is None:
            return np.full(len(self.pair_roots), self.ordinals, dtype=np.uint64)
        return ordinals_within(self.of) + np.uint64(self.ordinals)


def anchored(parents: Parents, rows: npt.NDArray[np.intp] | None, salt: int, account: U64) -> Anchoring:
    """New edges for some rows, put on the account of their parents too."""
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
    """``anchored`` where neighbours have their parent in common: most of it is done once a parent."""
    if rows is not None:
        of = of.take(rows)
    starts = run_starts(of)
    runs = of[starts]
    rising = rise(runs)
    ordinals = parents.ordinals if rising else parents.row_ordinals  # a parent of several runs is counted on only once
    if rows is not None and not isinstance(ordinals, int):
        ordinals = ordinals.take(rows)
    roots, anchors = parents.pair_roots[runs], parents.pair_edges[runs]
    edge_origins = EdgeOrigins(roots, anchors, starts, len(of), ordinals, salt, parents.root_salt)
    edges = edge_origins.edges()
    xors = xor_of_runs(edges, starts)
    if rising:
        account[runs] ^= xors
    else:  # a grouping may put rows in any order
        np.bitwise_xor.at(account, runs, xors)
    return Anchoring(None, edges, None, edge_origins)


def merge_roots(anchoring: Anchoring) -> Anchoring:
    """Fold the pairs of a row that name one root twice (a diamond) into one pair by XOR."""
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
