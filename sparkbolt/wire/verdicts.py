"""Verdicts: the reports of tasks about trees, the verdicts of the acker, and the feedback to the driver.

This module has only the values; ``acker`` combines and encodes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.api.outage import Health, add_healths
from sparkbolt.api.reports import ErrorReport, Fail
from sparkbolt.api.story import Hop
from sparkbolt.base.ids import (
    I32,
    I64,
    U64,
    empty_u64,
)
from sparkbolt.observe.measurements import Measurements
from sparkbolt.wire.looped_frames import NOTHING_FED_BACK, FedBack, LoopedFrame
from sparkbolt.wire.peek import PeekedTuple

NO_HOLDER = 0
"""The holder of a tree for which no task reported a hold; task numbers start at 1."""


NO_TASKS: I32 = np.empty(0, dtype=np.int32)


def _no_tasks() -> I32:
    return NO_TASKS


@dataclass
class Partials:
    """Reports of tasks about trees in one micro-batch; the two arrays of a pair have equal lengths, in any order."""

    init_keys: U64 = field(default_factory=empty_u64)
    """uint64[inits]: the keys of trees that began."""
    init_xors: U64 = field(default_factory=empty_u64)
    """uint64[inits]: the XOR of the tree's init edges, and of the reports of the bolts that are fused into the
    spout."""
    ack_keys: U64 = field(default_factory=empty_u64)
    """uint64[acks]: the keys of trees with acked tuples or emitted children."""
    ack_xors: U64 = field(default_factory=empty_u64)
    """uint64[acks]: the XOR of these edges."""
    held_keys: U64 = field(default_factory=empty_u64)
    """uint64[held]: the keys of trees with held tuples."""
    held_by: I32 = field(default_factory=_no_tasks)
    """int32[held]: the number of a task that received a tuple of the tree in this micro-batch and neither acked nor
    failed it."""
    fails: list[Fail] = field(default_factory=list)
    touched_keys: U64 = field(default_factory=empty_u64)
    """uint64[touched]: the keys of trees whose timeout starts again (``reset_timeout``)."""

    @property
    def empty(self) -> bool:
        """Whether it contains no report."""
        some = len(self.ack_keys) or len(self.init_keys) or len(self.held_keys) or len(self.touched_keys)
        return not (some or self.fails)


@dataclass
class Verdicts:
    """The verdicts on one micro-batch, for the ledger."""

    done_first: U64 = field(default_factory=empty_u64)
    """uint64[ranges]: the first key of each range of complete trees."""
    done_last: U64 = field(default_factory=empty_u64)
    """uint64[ranges]: the last key of each range, inclusive. Every init of this micro-batch from the first to the last
    key is complete."""
    done_counts: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """int64[ranges]: the number of complete trees in each range."""
    failed: list[Fail] = field(default_factory=list)
    """At most one for each key."""
    open_keys: U64 = field(default_factory=empty_u64)
    """uint64[open], ascending: the keys of trees that stay open, or that were open before."""
    open_xors: U64 = field(default_factory=empty_u64)
    """uint64[open]: the XOR of each tree in this micro-batch."""
    open_holders: I32 = field(default_factory=_no_tasks)
    """int32[open]: the number of a task that holds a tuple of the tree, or ``NO_HOLDER``."""
    open_new: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    """bool[open]: whether the tree began in this micro-batch."""
    init_failed: U64 = field(default_factory=empty_u64)
    """uint64[init_failed]: the failed keys whose trees began in this micro-batch."""
    touched: U64 = field(default_factory=empty_u64)
    """uint64[touched]: the keys of trees whose timeout starts again."""


class KeptRows(NamedTuple):
    """Rows that a task of a committer has kept."""

    component: str
    task: int
    """The index of the task."""
    rows: list[bytes]
    """Each row, pickled."""


@dataclass(kw_only=True)
class StageFeedback:
    """The reports of a stage to the driver besides trees, from its own tasks and from the stages before it.

    >>> feedback = StageFeedback()
    >>> feedback.add(StageFeedback(metrics={"split": ComponentMetrics(errors=1)}))
    >>> feedback.add(StageFeedback(metrics={"split": ComponentMetrics(errors=2)}))
    >>> feedback.metrics["split"].errors
    3
    """

    metrics: dict[str, ComponentMetrics] = field(default_factory=dict)
    """By component: the counts that ``measured`` does not have; in the driver also the totals of ``measured``."""
    measured: Measurements = field(default_factory=Measurements)
    reports: list[ErrorReport] = field(default_factory=list)
    hops: list[Hop] = field(default_factory=list)
    """Hops of failed trees, of retried trees, and of trees that ``trace`` chose."""
    timers: dict[int, Any] = field(default_factory=dict)
    """Number of each task with a bolt runtime that ran, to its next timer (``plan.Timer``); None: it needs none."""
    marks: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    """The newest timestamps that windowed bolts have seen (``source_marks.Report``)."""
    healths: dict[str, Health] = field(default_factory=dict)
    """Bolt to the results of the tuples that it received."""
    peeked: list[PeekedTuple] = field(default_factory=list)
    """Tuples for operators who peek; they are not durable."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to report."""
        counts = self.measured.flows or self.metrics
        return not (counts or self.reports or self.hops or self.timers or self.healths or self.peeked)

    def add(self, other: StageFeedback) -> None:
        """Add the feedback of another stage."""
        for component, counts in other.metrics.items():
            self.metrics.setdefault(component, ComponentMetrics()).add(counts)
        self.measured.add(other.measured)
        self.reports += other.reports
        self.hops += other.hops
        self.timers.update(other.timers)
        self.marks += other.marks
        add_healths(self.healths, other.healths)
        self.peeked += other.peeked


@dataclass
class Feedback(StageFeedback):
    """The results that one micro-batch returns to the driver."""

    verdicts: Verdicts = field(default_factory=Verdicts)
    partials: int = 0
    """How many (key, xor) pairs the acker combined; this number decides where the next acker runs."""
    message_ids: dict[int, str] = field(default_factory=dict)
    """Tree key to the printed message id of a ``Spout`` or an inlet, for trees about which something is reported."""
    letters: list[bytes] = field(default_factory=list)
    """Dead letters for the checkpoint, sorted: lines of JSON that are not parsed on the way."""
    kept: list[KeptRows] = field(default_factory=list)
    """The rows of committers, those of one component by task."""
    looping: list[LoopedFrame] = field(default_factory=list)
    """The tuples for feedback subscriptions, sorted; a later micro-batch delivers them."""
    fed_back: FedBack = field(default_factory=lambda: NOTHING_FED_BACK)
    """The trees of these tuples."""
    reads: list[tuple[str, Any, int]] = field(default_factory=list)
    """(spout, the part of a range that was read (``Range``), bytes), sorted; only of spouts that measure their
    reads."""
