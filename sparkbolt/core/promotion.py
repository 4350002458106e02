"""Promotions: what becomes known when a micro-batch counts.

Which question it answers: which trees were acked, which failed, and how far have the sources come, with this
micro-batch?

Read before: ``fates``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparkbolt.core.acker import I64, Report, empty_u64
from sparkbolt.core.fates import FailedTree
from sparkbolt.core.ids import U64
from sparkbolt.core.metrics import TopologyMetrics
from sparkbolt.core.outages import OutageChange


@dataclass
class Promotion:
    """What became known with the promotion of one micro-batch."""

    micro_batch_id: int
    acked_first: U64 = field(default_factory=empty_u64)
    acked_last: U64 = field(default_factory=empty_u64)
    acked_counts: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Complete trees as (first key, last key, how many); of a range, all trees that the micro-batch started
    in it."""
    failed: list[FailedTree] = field(default_factory=list)
    """Messages whose trees failed, and dead letters that are given up themselves."""
    letters: list[tuple[int, int, int]] = field(default_factory=list)
    """Dead letters that are durable now, as (first key, last key, how many); they are not among ``acked``."""
    letters_failed: list[FailedTree] = field(default_factory=list)
    """Dead letters that could not be written, and come again."""
    progress_moved: dict[str, dict[str, int]] = field(default_factory=dict)
    """Component -> source -> the position below which all is finished now; only what moved."""
    reports: list[Report] = field(default_factory=list)
    outages: list[OutageChange] = field(default_factory=list)
    """Bolts that are taken for broken from now on, or for well again."""

    def complete(self, first: U64, last: U64, counts: I64, letters: npt.NDArray[np.bool_]) -> None:
        """These trees are complete; ``letters`` says which of the ranges are of dead letters."""
        written = first[letters].tolist(), last[letters].tolist(), counts[letters].tolist()
        self.letters = list(zip(*written, strict=True))
        self.acked_first, self.acked_last, self.acked_counts = first[~letters], last[~letters], counts[~letters]

    def fail(self, trees: Iterable[FailedTree]) -> list[FailedTree]:
        """These trees failed; those of them that are no dead letters which come again."""
        found = list(trees)
        self.letters_failed += [tree for tree in found if tree.letter and tree.due_ms is not None]
        failed = [tree for tree in found if not tree.letter or tree.due_ms is None]
        self.failed += failed
        return failed

    @property
    def acked(self) -> list[tuple[int, int, int]]:
        """(first key, last key, how many), single trees too; made anew on each call."""
        columns = (self.acked_first.tolist(), self.acked_last.tolist(), self.acked_counts.tolist())
        return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class MicroBatchReport:
    """What listeners are told after each promotion."""

    promotion: Promotion
    metrics: TopologyMetrics
    elapsed_ms: float
