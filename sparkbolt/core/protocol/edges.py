"""Anchoring: the trees that a block of rows belongs to.

Which question it answers: which roots and edges does row r have, and what were its edges made of?
Rule: where neighbours have a parent in common, what can be said once for all of them is said once.

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
    ordinals_within,
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
        """The births of some rows, in any order."""
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
