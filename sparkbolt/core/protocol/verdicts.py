"""Verdicts: values that tasks report about trees, that the acker computes from them, and that reach the driver.

Which question it answers: what is said about the trees of one micro-batch, before and after the acker?
Rule: values only. How they are combined, ``acker`` knows; how they travel, ``acker``.

Read before: ``ids``, ``story``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import (
    I32,
    I64,
    U64,
    empty_u64,
)
from sparkbolt.core.model.metrics import ComponentMetrics
from sparkbolt.core.model.reports import ErrorReport, Fail
from sparkbolt.core.model.story import Hop

NO_HOLDER = 0
"""The holder of a tree of which nobody said that they hold it; task numbers start at 1."""


NO_TASKS: I32 = np.empty(0, dtype=np.int32)


def _no_tasks() -> I32:
    return NO_TASKS


@dataclass
class Partials:
    """What tasks say of trees in one micro-batch; arrays of one pair have equal lengths, in any order."""

    init_keys: U64 = field(default_factory=empty_u64)
    init_xors: U64 = field(default_factory=empty_u64)
    """Of spout tasks: the XOR of the init edges, with whatever was fused behind the spout already in it."""
    ack_keys: U64 = field(default_factory=empty_u64)
    ack_xors: U64 = field(default_factory=empty_u64)
    held_keys: U64 = field(default_factory=empty_u64)
    held_by: I32 = field(default_factory=_no_tasks)
    """The number of a task that got a tuple of the tree in this micro-batch and neither acked nor failed
    it."""
    fails: list[Fail] = field(default_factory=list)
    touched_keys: U64 = field(default_factory=empty_u64)
    """Trees that get a full timeout again (``reset_timeout``)."""

    @property
    def empty(self) -> bool:
        """Whether nothing is said at all."""
        some = len(self.ack_keys) or len(self.init_keys) or len(self.held_keys) or len(self.touched_keys)
        return not (some or self.fails)


@dataclass
class Verdicts:
    """What the ledger is told of one micro-batch."""

    done_first: U64 = field(default_factory=empty_u64)
    done_last: U64 = field(default_factory=empty_u64)
    """Ranges of complete trees, first and last key, both inclusive: every init of this micro-batch between is
    complete."""
    done_counts: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    failed: list[Fail] = field(default_factory=list)
    """At most one for each key."""
    open_keys: U64 = field(default_factory=empty_u64)
    open_xors: U64 = field(default_factory=empty_u64)
    open_holders: I32 = field(default_factory=_no_tasks)
    open_new: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    """Whether the tree was started in this micro-batch."""
    init_failed: U64 = field(default_factory=empty_u64)
    """Which of the failed keys were started in this micro-batch."""
    touched: U64 = field(default_factory=empty_u64)
    """Trees that get a full timeout again."""


@dataclass
class Feedback:
    """All that comes back to the driver from one micro-batch."""

    verdicts: Verdicts = field(default_factory=Verdicts)
    metrics: dict[str, ComponentMetrics] = field(default_factory=dict)
    reports: list[ErrorReport] = field(default_factory=list)
    partials: int = 0
    """How many (key, xor) pairs the acker combined: where the next one runs is decided by it."""
    hops: list[Hop] = field(default_factory=list)
    """Of failed trees, of those that are given again, and of those that ``trace`` chose."""
    message_ids: dict[int, str] = field(default_factory=dict)
    """How the ids print that a ``Spout`` gave to trees of which something is told, by key."""
    timers: dict[int, Any] = field(default_factory=dict)
    """By the numbers of tasks with a runtime that ran: when each is to be told the time next (``runtime.Timer``, or
    None)."""
    healths: dict[str, Any] = field(default_factory=dict)
    """Of each bolt that got tuples what became of them (``outages.Health``)."""
    letters: list[bytes] = field(default_factory=list)
    """Dead letters for the checkpoint, sorted: lines of JSON, which nobody looks into on their way."""
    reads: list[tuple[str, Any, int]] = field(default_factory=list)
    """(spout, what was read of one of its ranges (``Range``), bytes), sorted; of spouts that measure what they read."""
