"""How much a micro-batch reads.

Which question it answers: how many positions of each spout may the next plan cover?
Rule: start small, grow at most twofold, shrink at most twofold; aim at ``micro_batch_target_ms``, but never below
what the floor of a micro-batch justifies: at least as much time for work as the floor takes.

Read before: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

FULL = 0.9
"""A micro-batch that used less than this share of its budget says nothing about a larger one."""


@dataclass
class Pacer:
    """The budget of one spout, in positions."""

    target_ms: float
    budget: int
    budget_max: int = 1 << 62
    records_per_position: float = 1.0
    """Trees that a position became, by the last micro-batch that read any; 1 until then, which is the most."""
    _floor_ms: float = float("inf")

    def __post_init__(self) -> None:
        """Keep the first budget within the limit too."""
        self.budget = max(1, min(self.budget, self.budget_max))

    def observe(self, elapsed_ms: float, positions: int, trees: int) -> None:
        """Learn from a finished micro-batch.

        Args:
            elapsed_ms: from its plan to its promotion.
            positions: how many positions of the spout it covered.
            trees: how many trees the spout started in it.
        """
        self._floor_ms = min(self._floor_ms, elapsed_ms)
        if positions <= 0:
            return
        self.records_per_position = min(1.0, max(trees, 1) / positions)
        aim = max(self.target_ms, 2 * self._floor_ms)
        work = max(elapsed_ms - 0.8 * self._floor_ms, 1.0)
        factor = (aim - 0.8 * self._floor_ms) / work
        if factor > 1 and positions < FULL * self.budget:
            return
        factor = min(2.0, max(0.5, factor))
        self.budget = max(1, min(self.budget_max, int(positions * factor) if factor < 1 else int(self.budget * factor)))

    def positions_for(self, trees: int) -> int:
        """How many positions may be read so that about so many trees are started, at most."""
        return int(trees / self.records_per_position)
