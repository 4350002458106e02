"""Promotions: what becomes known when a micro-batch counts.

Which question it answers: which trees were acked, which failed, and how far have the sources come, with this
micro-batch?

Read before: ``fates``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sparkbolt.core.acker import I64, Report, empty_u64
from sparkbolt.core.fates import FailedTree
from sparkbolt.core.ids import U64
from sparkbolt.core.metrics import TopologyMetrics


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
    progress_moved: dict[str, dict[str, int]] = field(default_factory=dict)
    """Component -> source -> the position below which all is finished now; only what moved."""
    reports: list[Report] = field(default_factory=list)

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
