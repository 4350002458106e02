"""Results: what a task returns of its work, and what a stage returns of all its tasks.

Which question it answers: what did user code do to the trees of its rows, and what leaves a stage?
Rule 1: data flows one way. A task calls nobody: it returns a ``TaskResult``, and what it emitted is in its ``Output``.
The stage folds both into one ``StageResult``.
Rule 2: values only. A ``StageResult`` becomes rows of Spark at the very end, with ``to_rows``.

Read before: ``verdicts``, ``failures``, ``tuple_batch``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import U64
from sparkbolt.core.model.lane import Lane
from sparkbolt.core.model.metrics import ComponentMetrics, pack
from sparkbolt.core.model.outage import Health
from sparkbolt.core.model.reports import ErrorReport, Fail
from sparkbolt.core.model.story import Hop
from sparkbolt.core.model.tuples import Tuple
from sparkbolt.core.protocol.acker import shards_of
from sparkbolt.core.protocol.edges import Anchoring
from sparkbolt.core.protocol.frames import FEEDBACK, PARTIALS, Moment, encode_control, wrap
from sparkbolt.core.protocol.plan import Timer
from sparkbolt.core.protocol.verdict_codec import encode_partials
from sparkbolt.core.protocol.verdicts import Partials
from sparkbolt.core.worker.failures import Failure

Row: TypeAlias = tuple[int, bytes]
"""(dest, frame): what moves between stages."""


@dataclass
class TaskResult:
    """What one task did with some rows, or in a ``flush``."""

    executed: int = 0
    acked: int = 0
    failed: int = 0
    errors: int = 0
    failures: dict[int, Failure] = field(default_factory=dict)
    """By row: why it failed."""
    held: npt.NDArray[np.bool_] | None = None
    """bool[rows]: rows that were neither acked nor failed; None if there are none."""
    acked_whole: Anchoring | None = None
    """The anchoring of the rows, where all of them are acked and tracked."""
    acks: list[tuple[U64, U64]] = field(default_factory=list)
    """(roots, edges), each uint64[pairs]: to be added to the accounts of the roots."""
    holds: list[U64] = field(default_factory=list)
    """Roots, uint64[pairs], of tuples that the task holds."""
    touched: list[U64] = field(default_factory=list)
    """Roots, uint64[pairs], that get a full timeout again."""
    fails: list[Fail] = field(default_factory=list)
    reports: list[ErrorReport] = field(default_factory=list)
    late_acks: list[Tuple] = field(default_factory=list)
    late_fails: list[Tuple] = field(default_factory=list)
    """Tuples that the task had kept from earlier rows, and acked or failed now."""
    of_windows: ComponentMetrics | None = None
    """What a bolt with a runtime of its own counts besides."""
    of_trees: list[tuple[int, Failure]] = field(default_factory=list)
    """How many trees, or tuples kept from earlier, failed besides those of its rows, and why."""
    flush_failure: Failure | None = None
    """Why ``flush``, and with it all that the task got, has failed."""


@dataclass
class StageResult:
    """What one process did for one stage of a micro-batch."""

    moment: Moment
    rows: list[Row] = field(default_factory=list)
    """Frames for later levels, and whatever passes through."""
    partials: Partials = field(default_factory=Partials)
    metrics: dict[str, ComponentMetrics] = field(default_factory=dict)
    """By component; with those of earlier stages that came here."""
    hops: list[Hop] = field(default_factory=list)
    reports: list[ErrorReport] = field(default_factory=list)
    timers: dict[int, Timer | None] = field(default_factory=dict)
    """By the numbers of tasks with a runtime that ran: when each is due next."""
    healths: dict[str, Health] = field(default_factory=dict)
    """By bolt: how its work went."""

    def to_rows(self, lane: Lane) -> list[Row]:
        """All rows that leave the stage: ``rows``, then partials by acker task, then one row of feedback."""
        rows = list(self.rows)
        if lane.tracked:
            for shard, partials in shards_of(self.partials, len(lane.acker_dests)).items():
                rows.append((lane.acker_dests[shard], wrap(PARTIALS, encode_partials(partials), self.moment)))
        if self.metrics or self.reports or self.hops or self.timers or self.healths:
            feedback = pack(self.metrics), self.reports, self.hops, self.timers, self.healths
            rows.append((lane.feedback_dest, encode_control(FEEDBACK, feedback, self.moment)))
        return rows
