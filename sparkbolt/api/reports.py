"""Reports: what a running topology reports about its trees."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.outage import OutageChange
from sparkbolt.api.story import Hop, Story, root_text
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.ids import I64, U64, empty_u64
from sparkbolt.base.intervals import Interval
from sparkbolt.errors import (
    CheckpointError,
    ConfigError,
    EmitError,
    EngineError,
    InvalidTopology,
    SparkboltError,
    SpoutAwayError,
    StateError,
    WorkerStartError,
)


@dataclass(frozen=True)
class Fail:
    """The failure of one tuple of a tree; ``FailedTree.fail``.

    >>> fail = Fail(1 << 48, "charge", 0, Cause.EXCEPTION, "ValueError: no price", micro_batch_id=3)
    >>> f"{fail.component}[{fail.task}]: {fail.cause}, {fail.reason}"
    'charge[0]: exception, ValueError: no price'
    """

    key: int
    component: str
    task: int
    """The task's index within the component."""
    cause: Cause
    """``exception``, ``fail`` (by the bolt), ``timeout``, ``killed``, ``unreadable``, ``emit``, ``read`` (reading the
    range failed at this position, and the tree represents all later positions of the range, too), ``cut`` (reading
    failed after this record, which may be incomplete), ``away`` and ``interrupted`` (like ``read`` and ``cut``, because
    the source is unavailable), ``postponed`` (like ``read``, because the range was too large to be read at once),
    ``misplaced`` (the record came after records of later positions, or from outside the range) or others; each is a
    str."""
    reason: str
    """One line: the exception's type and text, or the reason that the bolt gave."""
    micro_batch_id: int
    traceback: str | None = None


@dataclass(frozen=True)
class ErrorReport:
    """An error that a component reported, or that failed one of its tuples; for logs, never for verdicts.

    >>> ErrorReport("charge", 0, "ValueError: no price").text
    'ValueError: no price'
    """

    component: str
    task: int
    text: str
    traceback: str | None = None
    is_note: bool = False
    """Whether it is a hint to log once in a run, and not an error."""


@dataclass(frozen=True)
class FailedTree:
    """A tree that failed, and what happens to its message.

    >>> fail = Fail(1 << 48, "charge", 0, Cause.EXCEPTION, "ValueError: no price", micro_batch_id=3)
    >>> tree = FailedTree(fail.key, "orders", 0, "orders.txt", 40, 1, fail, MessageOutcome.RETRY, "root ...")
    >>> tree.next_attempt, tree.to_story().message, tree.to_story().why
    (2, 'orders[0] orders.txt@40', 'by charge[0] in micro-batch 3: ValueError: no price')
    """

    key: int
    component: str
    task: int
    """The index of the spout task."""
    source: str | None
    position: int | None
    """The position of the record in its source; for a record of a ``Spout``, which has no source, the sequence of its
    first attempt."""
    attempt: int
    fail: Fail
    outcome: MessageOutcome
    """``retry``, ``given_up`` (after the last attempt), ``dead_letter`` (after the last attempt; a letter will be
    written) or ``spout`` (its spout is notified and decides); each is a str."""
    story: str
    """The story in one line."""
    message_id: str | None = None
    """The ``repr`` of the message id, for a ``Spout``."""
    started_in: int | None = None
    """The micro-batch that started the tree; None if unknown, as for a tree that a window started."""
    started_ms: int | None = None
    ended_in: int | None = None
    ended_ms: int | None = None
    hops: tuple[Hop, ...] = ()
    end: int | None = None
    """The range's end, if the tree represents the unread rest of a range."""
    due_ms: int | None = None
    """The earliest time at which the message is retried, or its dead letter is written; None if neither happens."""
    letter: bool = False
    """Whether the tree belongs to a dead letter, not to a message."""
    counted: bool = True
    """Whether the failure counts as an attempt; failures in an outage do not."""

    @property
    def next_attempt(self) -> int:
        """The number of the next attempt, if there is one."""
        return self.attempt + 1 if self.counted else self.attempt

    def to_story(self) -> Story:
        """Return the story of the tree."""
        own = {part.name: getattr(self, part.name) for part in fields(Story) if hasattr(self, part.name)}
        fail, position = self.fail, self.position if self.source is not None else None
        ended = {"state": TreeState.FAILED, "why": why(fail), "cause": fail.cause, "traceback": fail.traceback}
        return Story(**{**own, **ended, "position": position})


class Completed(NamedTuple):
    """Trees of one task of a spout that began together and are acked now."""

    component: str
    task: int
    """The index of the task."""
    born_ms: int
    """The time of the micro-batch in which they began, in milliseconds since the epoch."""
    trees: int
    key: int
    """The key of one of them."""

    @property
    def root(self) -> str:
        """Its root, 16 hexadecimal digits."""
        return root_text(self.key)


@dataclass
class Promotion:
    """The results of the promotion of one micro-batch.

    >>> first = np.array([1 << 48], dtype=np.uint64)
    >>> promotion = Promotion(3, acked_first=first, acked_last=first + np.uint64(9), acked_counts=np.array([10]))
    >>> sum(trees for _, _, trees in promotion.acked), len(promotion.failed)
    (10, 0)
    """

    micro_batch_id: int
    acked_first: U64 = field(default_factory=empty_u64)
    """First keys of ranges of complete trees, uint64[ranges]."""
    acked_last: U64 = field(default_factory=empty_u64)
    """Last keys of these ranges, inclusive, uint64[ranges]."""
    acked_counts: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """How many trees are in each range, int64[ranges]: all trees that the micro-batch started in it."""
    failed: list[FailedTree] = field(default_factory=list)
    """Messages whose trees failed, and dead letters that are given up themselves."""
    letters: list[tuple[int, int, int]] = field(default_factory=list)
    """Dead letters that are durable now, as (first key, last key, how many); they are not in ``acked``."""
    letters_failed: list[FailedTree] = field(default_factory=list)
    """Dead letters that could not be written, and are retried."""
    progress_moved: dict[str, dict[str, int]] = field(default_factory=dict)
    """Component -> source -> the position below which everything is finished now; only positions that moved."""
    traced: list[Story] = field(default_factory=list)
    """The stories of trees that were followed, and are acked now."""
    reports: list[ErrorReport] = field(default_factory=list)
    outages: list[OutageChange] = field(default_factory=list)
    """Bolts whose outage begins or ends with this micro-batch."""
    completed: list[Completed] = field(default_factory=list)
    """When the trees in ``acked`` began; those of a bolt are left out."""

    def complete(self, first: U64, last: U64, counts: I64, letters: npt.NDArray[np.bool_]) -> None:
        """Store the complete trees.

        Args:
            first: uint64[ranges], first keys.
            last: uint64[ranges], last keys, inclusive.
            counts: int64[ranges], how many trees each range has.
            letters: bool[ranges], whether the range consists of dead letters.
        """
        written = first[letters].tolist(), last[letters].tolist(), counts[letters].tolist()
        self.letters = list(zip(*written, strict=True))
        self.acked_first, self.acked_last, self.acked_counts = first[~letters], last[~letters], counts[~letters]

    def fail(self, trees: Iterable[FailedTree]) -> list[FailedTree]:
        """Store the failed trees; return those in ``failed``: all but the dead letters that are retried."""
        all_trees = list(trees)
        self.letters_failed += [tree for tree in all_trees if tree.letter and tree.due_ms is not None]
        failed = [tree for tree in all_trees if not tree.letter or tree.due_ms is None]
        self.failed += failed
        return failed

    @property
    def acked(self) -> list[tuple[int, int, int]]:
        """The complete trees as (first key, last key, how many), single trees too; a new list on each access."""
        columns = (self.acked_first.tolist(), self.acked_last.tolist(), self.acked_counts.tolist())
        return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class MicroBatchReport:
    """The argument of listeners after each promotion (``RunningTopology.on_micro_batch``).

    >>> def listener(report: MicroBatchReport) -> None:
    ...     trees = sum(count for _, _, count in report.promotion.acked)
    ...     print(f"micro-batch {report.promotion.micro_batch_id}: {trees} acked in {report.elapsed_ms:.0f} ms")
    >>> listener(MicroBatchReport(Promotion(3), TopologyMetrics(), 412.0))
    micro-batch 3: 0 acked in 412 ms
    """

    promotion: Promotion
    """The results of the micro-batch."""
    metrics: TopologyMetrics
    """The totals after it."""
    elapsed_ms: float
    """How long it took from its plan to its promotion, in milliseconds."""


def why(fail: Fail) -> str:
    """Describe which task failed a tree, and why: the end of a sentence that begins with the tree."""
    if fail.cause == Cause.TIMEOUT:
        return fail.reason
    return f"by {fail.component}[{fail.task}] in micro-batch {fail.micro_batch_id}: {fail.reason}"


@dataclass(frozen=True)
class SourceView:
    """The state of one source of a ``PartitionedSpout``; valid only while its ``on_sources_changed`` runs."""

    planned: int
    """The end of all ranges that were ever planned."""
    finished: int
    """The position below which every message is acked or given up."""
    waiting: int
    """How many records, or ranges that could not be read, wait for a retry."""
    open: int
    """How many trees are neither acked nor failed."""
    away: int
    """How many micro-batches in a row found the source unavailable; unless it is 0, nothing new is planned."""
    _done: Callable[[int], list[Interval]] = field(repr=False, compare=False)

    def done(self, limit: int) -> list[Interval]:
        """Return the first ``limit`` intervals [start, end) beyond ``finished`` in which everything is finished.

        Each call computes them, at a cost that grows with ``open``. Call it only in ``on_sources_changed``.
        """
        return self._done(limit)


HOPELESS = (StateError, EmitError, CheckpointError, ConfigError, EngineError, InvalidTopology)
"""Errors of Sparkbolt that every further start would repeat."""


FREE = (WorkerStartError, SpoutAwayError)
"""Errors that are raised before anything of the topology has run."""


@dataclass(frozen=True)
class QueryFailure:
    """The reason why a query ended.

    >>> QueryFailure("bolt 'count': attribute 'socket' cannot be kept", StateError).hopeless
    True
    >>> QueryFailure("ConnectionResetError: by peer").hopeless
    False
    """

    text: str
    """For users: the failure, and how to correct it."""
    kind: type[SparkboltError] | None = None
    """The type of the error, if it is one of Sparkbolt's."""

    @property
    def hopeless(self) -> bool:
        """Whether every start would repeat it."""
        return self.kind is not None and issubclass(self.kind, HOPELESS)

    @property
    def free(self) -> bool:
        """Whether nothing of the topology has run, so that the failure uses up no restart."""
        return self.kind is not None and issubclass(self.kind, FREE)
