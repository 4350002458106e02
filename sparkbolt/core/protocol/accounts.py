"""Accounts: what one stage adds to the XORs of roots.

Which question it answers: how do the many sayings of a stage about trees become few?
Rule: XOR is all that is done here; what the sums mean, the acker and the ledger know.

Read before: ``ids``, ``edges``, ``acker``.
"""

from __future__ import annotations

from sparkbolt.core.base.ids import U64, xor_by_root
from sparkbolt.core.protocol.acker import Partials
from sparkbolt.core.protocol.edges import Anchoring


class Accounts:
    """Gathers (root, xor) pairs.

    >>> import numpy as np
    >>> accounts, roots = Accounts(), np.array([7], dtype=np.uint64)
    >>> accounts.add(roots, np.array([5], dtype=np.uint64))
    >>> accounts.add(roots, np.array([1], dtype=np.uint64))
    >>> [partials.ack_xors.tolist() for partials in accounts.partials()]
    [[4]]
    """

    def __init__(self) -> None:
        """Nothing was said yet."""
        self._known: list[tuple[U64, U64]] = []
        """(keys, xors), keys rising."""
        self._last: tuple[U64, U64] | None = None
        """(roots, xors)."""

    def add(self, roots: U64, xors: U64) -> None:
        """Add to the accounts of roots; the arrays must not be changed afterwards.

        A line of fused bolts speaks of the trees of one block of rows several times in a row: what is said of the
        same array of roots is put together before it costs anything else.
        """
        if self._last is not None and self._last[0] is roots:
            self._last = roots, self._last[1] ^ xors
        else:
            self._note_last()
            self._last = roots, xors

    def add_all(self, anchoring: Anchoring) -> None:
        """Add the edges of all rows of a block."""
        if anchoring.edge_origins is None:
            self.add(anchoring.roots, anchoring.edges)
        else:
            self._known.append(anchoring.by_tree())

    def partials(self) -> list[Partials]:
        """All that was said, in the order in which it was."""
        self._note_last()
        return [Partials(ack_keys=keys, ack_xors=xors) for keys, xors in self._known]

    def _note_last(self) -> None:
        if self._last is not None:
            self._known.append(xor_by_root(*self._last))
            self._last = None
