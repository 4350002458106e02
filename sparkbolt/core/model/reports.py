"""Reports: what a running topology tells of its trees.

Which question it answers: which trees were acked, which failed, and why, with this micro-batch?
Rule: values only; who makes them, ``acker``, ``outcomes`` and ``ledger`` say.

Read before: ``causes``, ``metrics``, ``story``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import I64, U64, empty_u64
from sparkbolt.core.base.intervals import Interval
from sparkbolt.core.model.causes import Cause, MessageOutcome
from sparkbolt.core.model.metrics import TopologyMetrics
from sparkbolt.core.model.outage import OutageChange
from sparkbolt.core.model.story import Hop, Story, TreeState


@dataclass(frozen=True)
class Fail:
    """Somebody failed a tuple of a tree."""

    key: int
    component: str
    task: int
    """The task's index within the component."""
    cause: Cause
    """``exception``, ``fail`` (said by the bolt), ``timeout``, ``killed``, ``unreadable``, ``emit``, ``read`` (its
    range broke off here, and the tree stands for all positions behind its own, too), ``cut`` (it broke off behind
    this record, which may not be whole), ``away`` and ``interrupted`` (as ``read`` and ``cut``, since its source is
    away), ``postponed`` (as ``read``, since the range was too large to be read at once) or ``misplaced`` (the record
    came behind later ones) and others; each is a str."""
    reason: str
    """One line: the exception's type and text, or what the bolt said."""
    micro_batch_id: int
    traceback: str | None = None


@dataclass(frozen=True)
class ErrorReport:
    """An error that a component reported, or that failed one of its tuples; for logs, never for verdicts."""

    component: str
    task: int
    text: str
    traceback: str | None = None


@dataclass(frozen=True)
class FailedTree:
    """A tree that failed, and what becomes of its message."""

    key: int
    component: str
    task: int
    """The index of the spout task."""
    source: str | None
    position: int | None
    """Where the record is; None, as ``source``, where it cannot be read again."""
    attempt: int
    fail: Fail
    fate: MessageOutcome
    """``retry``, ``set_aside`` (after the last attempt), ``dead_letter`` (the same, and its letter is to be written),
    or ``spout``: its spout is told and decides; each is a str."""
    story: str
    """One line in words."""
    message_id: str | None = None
    """How the id prints that a ``Spout`` gave."""
    started_in: int | None = None
    """The micro-batch that started the tree; None where that is not known, as of what a window began."""
    started_ms: int | None = None
    ended_in: int | None = None
    ended_ms: int | None = None
    hops: tuple[Hop, ...] = ()
    end: int | None = None
    """Where the tree stands for a range of which nothing more could be read: its end."""
    due_ms: int | None = None
    """When the message is given again, or its dead letter is written, at the earliest; None where neither is."""
    letter: bool = False
    """Whether it is the tree of a dead letter, and not of a message."""
    counted: bool = True
    """Whether it was an attempt, rather than an outage."""

    @property
    def next_attempt(self) -> int:
        """The number of the attempt to come, where there is one."""
        return self.attempt + 1 if self.counted else self.attempt

    def to_story(self) -> Story:
        """All that is known of it."""
        return Story(
            key=self.key,
            component=self.component,
            task=self.task,
            state=TreeState.FAILED,
            source=self.source,
            position=self.position,
            message_id=self.message_id,
            attempt=self.attempt,
            started_in=self.started_in,
            started_ms=self.started_ms,
            ended_in=self.ended_in,
            ended_ms=self.ended_ms,
            why=why(self.fail),
            cause=self.fail.cause,
            fate=self.fate,
            traceback=self.fail.traceback,
            hops=self.hops,
        )


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
    reports: list[ErrorReport] = field(default_factory=list)
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


def why(fail: Fail) -> str:
    """Who failed a tree and why, as the end of a sentence that begins with the tree."""
    if fail.cause == Cause.TIMEOUT:
        return fail.reason
    return f"by {fail.component}[{fail.task}] in micro-batch {fail.micro_batch_id}: {fail.reason}"


@dataclass(frozen=True)
class SourceView:
    """What is known of one source of a ``PartitionedSpout``; true while its ``on_sources_changed`` runs."""

    planned: int
    """Where the ranges end that were ever planned."""
    finished: int
    """The position below which everything is acked or given up."""
    waiting: int
    """How many records, or ranges that could not be read, wait to be given again."""
    open: int
    """How many trees are neither acked nor failed."""
    away: int
    """How many micro-batches in a row have found the source away; while there are any, nothing new is planned."""
    _done: Callable[[int], list[Interval]] = field(repr=False, compare=False)

    def done(self, limit: int) -> list[Interval]:
        """The first ``limit`` intervals [start, end) beyond ``finished`` in which nothing is unfinished.

        They are looked up when this is called, at a cost that rises with ``open``. Call it in ``on_sources_changed``
        only.
        """
        return self._done(limit)
