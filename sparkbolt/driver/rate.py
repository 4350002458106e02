"""The rate: how much a micro-batch reads.

A micro-batch should take ``micro_batch_target_ms``, or twice its floor if that is longer. The floor is the duration
that does not depend on the size, so at least as much time goes into work as into the floor. Floor and cost per position
are measured from micro-batches of different sizes: the cost is the median slope over all pairs of the last ones, so
that one outlier has no effect (Theil and Sen), and the floor is the rest of the duration.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

from sparkbolt.api.ranges import Range
from sparkbolt.wire.plan import Entry

FULL = 0.9
"""A micro-batch that used less than this share of its budget is no measure for larger ones."""
SEEN_MAX = 8
"""How many of the last micro-batches are used to estimate floor and cost."""
SPREAD = 1.25
"""Two micro-batches give a cost only if one has more than this many times the positions of the other."""
FLOOR_RISE = 1.02
"""The floor is at most the duration of the shortest micro-batch, which grows by this factor with each later one."""


@dataclass
class RateController:
    """The budget of one spout, in positions; in records if its records have no positions.

    It starts small. In one step it at most halves, and at most doubles once it has met the target. The first
    micro-batch of a life also starts processes, so its measurement is dropped as soon as there is a second one.
    """

    target_ms: float
    budget: int
    budget_max: int = 1 << 62
    growth: float = 2.0
    """How many times larger than the one before a micro-batch may be; 2 once the target was met for the first time."""
    records_per_position: float = 1.0
    """Trees per position in the last micro-batch that read any; 1 until then, which is the maximum."""
    outlook: int = field(init=False)
    """The estimated number of positions in the micro-batch after the next one."""
    _seen: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=SEEN_MAX))
    """(positions, milliseconds) of the last micro-batches that read any."""
    _idle: tuple[int, float] | None = None
    """(0, milliseconds) of the last micro-batch that read none."""
    _is_first: bool = True
    _floor_ms: float | None = None
    """None until two micro-batches of different sizes were observed."""
    _floor_max_ms: float = float("inf")

    def __post_init__(self) -> None:
        """Keep the first budget within the limit, too."""
        self.budget = max(1, min(self.budget, self.budget_max))
        self.outlook = int(self.growth * self.budget)

    def observe(self, elapsed_ms: float, positions: int, trees: int) -> None:
        """Learn from a finished micro-batch.

        Args:
            elapsed_ms: the time from its plan to its promotion, in milliseconds.
            positions: how many positions of the spout it covered.
            trees: how many trees the spout started in it.
        """
        self._floor_max_ms = min(FLOOR_RISE * self._floor_max_ms, elapsed_ms)
        if positions <= 0:
            self._idle = 0, elapsed_ms
            return
        self.records_per_position = min(1.0, max(trees, 1) / positions)
        if len(self._seen) == 1 and self._is_first:
            self._seen.clear()
            self._is_first = False
        self._seen.append((positions, elapsed_ms))
        wanted = self._factor(elapsed_ms, positions)
        if wanted <= 1 or positions >= FULL * self.budget:
            factor = min(self.growth, max(0.5, wanted))
            budget = int(positions * factor) if factor < 1 else int(self.budget * factor)
            self.budget = max(1, min(self.budget_max, budget))
        self.outlook = int(min(self.growth * self.budget, max(self.budget, positions * wanted)))

    def _factor(self, elapsed_ms: float, positions: int) -> float:
        """The factor by which the last micro-batch's positions must change to meet the target duration."""
        seen = [*self._seen, self._idle] if self._idle is not None and not self._is_first else list(self._seen)
        pairs = ((one, other) if one[0] > other[0] else (other, one) for one, other in combinations(seen, 2))
        slopes = [
            (large[1] - small[1]) / (large[0] - small[0]) for large, small in pairs if large[0] > SPREAD * small[0]
        ]
        cost = max(0.0, median(slopes)) if slopes else None
        if cost is not None:
            self._floor_ms = median(elapsed - cost * count for count, elapsed in seen)
        if self._floor_ms is None:
            return self.target_ms / elapsed_ms if elapsed_ms > self.target_ms else 2.0
        floor = max(0.0, min(self._floor_ms, self._floor_max_ms))
        if cost is None:
            cost = max(0.0, median((elapsed - floor) / count for count, elapsed in self._seen))
        aim = max(self.target_ms, 2 * floor)
        factor = (aim - floor) / max(cost * positions, 1.0)
        if factor < 2.0:
            self.growth = 2.0
        return factor

    def limit(self, target_ms: float, budget_max: int) -> None:
        """Continue with another target and another limit; the measurements remain."""
        self.target_ms, self.budget_max = target_ms, budget_max
        self.budget = max(1, min(self.budget, budget_max))

    def positions_for(self, trees: int) -> int:
        """How many positions may be read so that at most about ``trees`` trees begin."""
        return int(trees / self.records_per_position)


def positions_read(
    entries: Iterable[Entry], reads: Iterable[tuple[str, Range, int]], task_owner: Callable[[int], tuple[str, int]]
) -> Counter[str]:
    """How many new positions of each component a micro-batch has read: as measured where it was, else as planned.

    Of a ``Spout``, records that are retried count too: they travel with the plan, like new ones.

    Args:
        entries: the entries of its plan that were read.
        reads: the ranges that executors have read, as in ``Feedback``.
        task_owner: (component, index) of a task number.
    """
    planned, measured = Counter[str](), Counter[str]()
    for entry in entries:
        if entry.letters is None and (entry.positions is None or entry.source is None):
            planned[task_owner(entry.task)[0]] += entry.reserved
    for component, range_, _ in reads:
        measured[component] += range_.end - range_.start
    return Counter({**planned, **+measured})
