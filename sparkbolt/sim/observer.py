"""AttemptObserver: records the work of an attempt of a spark_task, and ends it at a fault.

Each attempt is recorded separately, so that its record can be discarded with it. Deliveries are identified by their
edges but never XORed: two deliveries with the same edge count as two.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkbolt.api.components import ColumnBolt
from sparkbolt.api.reports import Fail
from sparkbolt.base.exceptions import Interruption
from sparkbolt.base.ids import U64, mix64
from sparkbolt.layout.lane import Lane
from sparkbolt.sim.canonical import stable_bytes
from sparkbolt.sim.changed_values import Changes, ValueChange
from sparkbolt.wire.frames import python_values
from sparkbolt.worker.emissions import Output, Rows
from sparkbolt.worker.results import Work
from sparkbolt.worker.routing import RoutedRows
from sparkbolt.worker.tasks import BoltTask


class WorkerDied(Interruption):
    """A worker process has died; no user code catches this."""


@dataclass(frozen=True)
class TreeStep:
    """One event of a tree, for its story."""

    micro_batch_id: int
    root: int
    words: str


@dataclass
class Sightings:
    """The work of one attempt of one spark_task."""

    micro_batch_id: int
    started: list[U64] = field(default_factory=list)
    """Keys of trees that began, each ``uint64[trees]``."""
    sent: list[tuple[U64, U64]] = field(default_factory=list)
    """(roots, edges) of deliveries, each ``uint64[pairs]``: a pair for each tree that a delivery belongs to."""
    settled: list[tuple[U64, U64]] = field(default_factory=list)
    """(roots, edges) of acked deliveries, each ``uint64[pairs]``."""
    fails: list[Fail] = field(default_factory=list)
    hops: list[TreeStep] = field(default_factory=list)
    """Events of trees; recorded only if stories are wanted."""
    trail: list[tuple[str, int]] = field(default_factory=list)
    """(component, checksum of one of its actions), in order; recorded only if two runs are compared."""
    details: list[tuple[str, ...]] = field(default_factory=list)
    """``trail`` in words, some lines for each element; recorded only if stories are wanted, too."""
    deliveries: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By delivery id as ``trees`` computes it: (number of the task that received it, its values); recorded only if
    stories are wanted."""
    changes: list[ValueChange] = field(default_factory=list)
    """Values that were changed after they had been emitted; recorded only if stories are wanted."""


class _DyingRows(Rows):
    """Rows during whose iteration the worker dies."""

    died_at: int

    def values(self) -> Iterator[tuple[Any, ...]]:
        return self._until_death(super().values())

    def single(self) -> Sequence[Any]:
        return self._until_death(super().single())  # type: ignore[return-value]  # it is only iterated

    def _until_death(self, values: Any) -> Iterator[Any]:
        for row, value in enumerate(values):
            if row == self.died_at:
                raise WorkerDied
            yield value


class AttemptObserver:
    """Records the work of the current attempt; implements the ``Observer`` protocol of ``worker.environment``."""

    def __init__(self, lane: Lane, *, stories: bool = False, trails: bool = False) -> None:
        """Start with nothing recorded.

        Args:
            lane: The lane whose tasks are observed.
            stories: Whether to record each step of each tree in words.
            trails: Whether to record checksums of everything that tasks do.
        """
        self.lane = lane
        """The lane whose tasks are observed."""
        self._stories = stories
        self._trails = trails
        self.now = Sightings(-1)
        self._rows_left: int | None = None
        self._trees_left: int | None = None
        self.preparing = ""
        """The component of the task that was created last, until some task receives rows."""
        self._changes = Changes()

    def begin(self, micro_batch_id: int, *, rows_left: int | None = None, trees_left: int | None = None) -> Sightings:
        """Start a new attempt; return its record.

        Args:
            micro_batch_id: The micro-batch of the attempt.
            rows_left: The worker dies after bolts have received this many rows; None: it does not.
            trees_left: The spout's connection breaks after this many trees; None: it does not.
        """
        self.now = Sightings(micro_batch_id, changes=self._changes.begin())
        self._rows_left, self._trees_left = rows_left, trees_left
        self.preparing = ""
        return self.now

    def again(self) -> None:
        """See ``Observer``."""
        vars(self.now).update(vars(Sightings(self.now.micro_batch_id, changes=self._changes.begin())))

    # Called by stages.

    def emits(self, output: Output) -> None:
        """Record which task is created, and watch its emissions."""
        self.preparing = output.component
        if self._stories:
            self._changes.watch(output)

    def starting(self, task: BoltTask, rows: Rows) -> Rows:
        """Return the rows of a task, or rows during which the worker dies."""
        self.preparing = ""
        if self._stories and task.context.component in self.lane.fused_into:  # its values are the very ones emitted
            self._changes.giving(task.context.task, rows)
        if self._rows_left is None:
            return rows
        if rows.count <= self._rows_left:
            self._rows_left -= rows.count
            return rows
        if isinstance(task.bolt, ColumnBolt) or not rows.columns:
            raise WorkerDied
        dying = _DyingRows(rows.origin, rows.count, rows.columns, rows.anchoring, rows.attempts)
        dying.died_at = self._rows_left
        return dying

    def worked(self, work: Work) -> None:
        """Record the work of a task, and the values that it has changed."""
        if self._stories and work.output is not None:
            self._changes.sending(work)
        for keys in work.started:
            self._started(keys)
        for acked in work.done.acks:
            self._settled(work, acked.roots, acked.edges)
        for fail in work.done.fails:
            self._failed(fail)
        for sent in work.sent:
            for routed in sent.routed:
                self._sent(work, routed)

    def _started(self, keys: U64) -> None:
        """Record trees that begin; the spout's connection may break after them."""
        self.now.started.append(keys)
        if self._trees_left is not None:
            self._trees_left -= len(keys)
            if self._trees_left < 0:
                raise ConnectionError("the source has closed the connection")

    def wrote(self) -> None:
        """Record that a dead letter was written; its worker may die after it."""
        if self._rows_left is not None:
            self._rows_left -= 1
            if self._rows_left < 0:
                raise WorkerDied

    def _sent(self, work: Work, routed: RoutedRows) -> None:
        anchoring = routed.anchoring
        if anchoring is not None:
            self.now.sent.append((anchoring.roots, anchoring.edges))
        if self._trails or self._stories:
            self._note_routed(work, routed)

    def _settled(self, work: Work, roots: U64, edges: U64) -> None:
        """Record rows that were acked: ``roots`` and ``edges`` are ``uint64[pairs]``."""
        self.now.settled.append((roots, edges))
        who = f"{work.component}[{work.index}]"
        if self._trails:
            self.now.trail.append((work.component, zlib.crc32(np.sort(edges).tobytes())))
            if self._stories:
                self.now.details.append((f"{who} acked {len(roots)} tuple(s)",))
        if self._stories:
            for root in dict.fromkeys(roots.tolist()):
                count = int(np.count_nonzero(roots == np.uint64(root)))
                self._note(root, f"{who} acked {count} tuple(s) of it")

    def _failed(self, fail: Fail) -> None:
        self.now.fails.append(fail)
        if self._trails:
            self.now.trail.append((fail.component, fail.key & 0xFFFFFFFF))
            if self._stories:
                self.now.details.append((f"{fail.component}[{fail.task}] failed {fail.key:x}: {fail.reason}",))
        if self._stories:
            self._note(mix64(fail.key), f"{fail.component}[{fail.task}] failed it: {fail.reason}")

    def _note(self, root: int, words: str) -> None:
        self.now.hops.append(TreeStep(self.now.micro_batch_id, root, words))

    def _note_routed(self, work: Work, routed: RoutedRows) -> None:
        component, index = work.component, work.index
        columns = [python_values(column) for column in routed.columns]
        anchoring = routed.anchoring
        if self._trails:
            checksum = zlib.crc32(stable_bytes((routed.target, columns)))
            if anchoring is not None:
                checksum = zlib.crc32(anchoring.edges.tobytes(), checksum)
            self.now.trail.append((component, checksum))
        if not self._stories:
            return
        target, to = self.lane.topology.task_owner(routed.target)
        values = [f"{[column[row] for column in columns]!r:.80}" for row in range(routed.count)]
        words = [f"{component}[{index}] sent {text} to {target}[{to}]" for text in values]
        if self._trails:
            self.now.details.append(tuple(words))
        if anchoring is None:
            return
        offsets = anchoring.offsets
        for row in range(routed.count):
            pairs = range(row, row + 1) if offsets is None else range(int(offsets[row]), int(offsets[row + 1]))
            for pair in pairs:
                root, edge = int(anchoring.roots[pair]), int(anchoring.edges[pair])
                self._note(root, words[row])
                self.now.deliveries[edge ^ mix64(root)] = routed.target, values[row]
