"""The observer: what is seen of a spark_task's attempt, and where it dies.

Which question it answers: which deliveries were sent, which were acked, which trees began and which were failed?
Rule 1: what an attempt did is seen apart from all others, so that it can be thrown away with it.
Rule 2: deliveries are known by their edges but never XORed: two that have one edge are two.

Read before: ``core.worker.worker``, ``changes``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkbolt.core.base.exceptions import Interruption
from sparkbolt.core.base.ids import U64, mix64
from sparkbolt.core.model.components import ColumnBolt
from sparkbolt.core.model.lane import Lane
from sparkbolt.core.model.reports import Fail
from sparkbolt.core.protocol.frames import python_values
from sparkbolt.core.worker.routing import RoutedRows
from sparkbolt.core.worker.tasks import BoltTask
from sparkbolt.core.worker.tuple_batch import Output, Rows
from sparkbolt.sim.canonical import stable_bytes
from sparkbolt.sim.changes import Changes, ValueChange


class WorkerDied(Interruption):
    """A worker process is gone; no code of a user's catches it."""


@dataclass(frozen=True)
class TreeStep:
    """Something that happened to a tree, for its story."""

    micro_batch_id: int
    root: int
    words: str


@dataclass
class Sightings:
    """What one attempt of one spark_task did."""

    micro_batch_id: int
    started: list[U64] = field(default_factory=list)
    sent: list[tuple[U64, U64]] = field(default_factory=list)
    """(roots, edges) of deliveries; one pair for each tree that a delivery belongs to."""
    settled: list[tuple[U64, U64]] = field(default_factory=list)
    fails: list[Fail] = field(default_factory=list)
    hops: list[TreeStep] = field(default_factory=list)
    """Only where stories are told."""
    trail: list[tuple[str, int]] = field(default_factory=list)
    """(component, checksum of something that it did), in order; only where two runs are to be compared."""
    details: list[tuple[str, ...]] = field(default_factory=list)
    """The same in words, some lines for each element of ``trail``; only where stories are told, too."""
    deliveries: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Of each delivery, by the id that ``trees`` gives it: the task that it went to, by number, and its values; only
    where stories are told."""
    changes: list[ValueChange] = field(default_factory=list)
    """Values that somebody has changed after they had been emitted; only where stories are told."""


class _DyingRows(Rows):
    """Rows that end, with their worker, in the middle."""

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
    """Sees what the attempt that is running does; obeys the ``Observer`` protocol of ``core.worker.worker``."""

    def __init__(self, lane: Lane, *, stories: bool = False, trails: bool = False) -> None:
        """See nothing yet.

        Args:
            lane: whose tasks are watched.
            stories: whether each step of each tree is kept in words.
            trails: whether checksums of all that tasks do are kept.
        """
        self._lane = lane
        self._stories = stories
        self._trails = trails
        self.now = Sightings(-1)
        self._rows_left: int | None = None
        self._trees_left: int | None = None
        self._running: tuple[str, int] = ("", 0)
        self.preparing = ""
        """The component of the task that was made last, until some task gets rows."""
        self._changes = Changes()

    def begin(self, micro_batch_id: int, *, rows_left: int | None = None, trees_left: int | None = None) -> Sightings:
        """An attempt begins.

        Args:
            micro_batch_id: of what.
            rows_left: after so many rows of bolts its worker dies; None: it does not.
            trees_left: after so many trees the connection of its spout breaks; None: it does not.
        """
        self.now = Sightings(micro_batch_id, changes=self._changes.begin())
        self._rows_left, self._trees_left = rows_left, trees_left
        self.preparing = ""
        return self.now

    def again(self) -> None:
        """See ``Observer``."""
        vars(self.now).update(vars(Sightings(self.now.micro_batch_id, changes=self._changes.begin())))

    # What stages tell.

    def emits(self, output: Output) -> None:
        """Note who is made; look at what it emits."""
        self.preparing = output.component
        if self._stories:
            self._changes.watch(output)

    def sending(self, task: BoltTask) -> None:
        """Note what the task has changed of it."""
        if self._stories:
            self._changes.sending(task.output, f"{task.context.component}[{task.context.index}]")

    def giving(self, rows: Rows) -> AbstractContextManager[None]:
        """Note what the task changes of what it is given."""
        return self._changes.giving(rows) if self._stories else nullcontext()

    def starting(self, task: BoltTask, rows: Rows) -> Rows:
        """Note who is at work; the rows, or rows that end in the middle."""
        self._running = task.context.component, task.context.index
        self.preparing = ""
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

    def started(self, keys: U64) -> None:
        """Trees begin; the connection of a spout may break behind them."""
        self.now.started.append(keys)
        if self._trees_left is not None:
            self._trees_left -= len(keys)
            if self._trees_left < 0:
                raise ConnectionError("the source has closed the connection")

    def wrote(self) -> None:
        """A dead letter was written; its worker may die behind it."""
        if self._rows_left is not None:
            self._rows_left -= 1
            if self._rows_left < 0:
                raise WorkerDied

    def sent(self, sender: int, stream: int, routed: RoutedRows) -> None:
        """Rows are on their way."""
        anchoring = routed.anchoring
        if anchoring is not None:
            self.now.sent.append((anchoring.roots, anchoring.edges))
        if self._trails or self._stories:
            self._note_routed(sender, routed)

    def settled(self, roots: U64, edges: U64) -> None:
        """Rows were acked."""
        self.now.settled.append((roots, edges))
        if self._trails:
            self.now.trail.append((self._running[0], zlib.crc32(np.sort(edges).tobytes())))
            if self._stories:
                self.now.details.append((f"{self._running[0]}[{self._running[1]}] acked {len(roots)} tuple(s)",))
        if self._stories:
            component, task = self._running
            for root in dict.fromkeys(roots.tolist()):
                count = int(np.count_nonzero(roots == np.uint64(root)))
                self._note(root, f"{component}[{task}] acked {count} tuple(s) of it")

    def failed(self, fail: Fail) -> None:
        """A tree was failed."""
        self.now.fails.append(fail)
        if self._trails:
            self.now.trail.append((fail.component, fail.key & 0xFFFFFFFF))
            if self._stories:
                self.now.details.append((f"{fail.component}[{fail.task}] failed {fail.key:x}: {fail.reason}",))
        if self._stories:
            self._note(mix64(fail.key), f"{fail.component}[{fail.task}] failed it: {fail.reason}")

    def _note(self, root: int, words: str) -> None:
        self.now.hops.append(TreeStep(self.now.micro_batch_id, root, words))

    def _note_routed(self, sender: int, routed: RoutedRows) -> None:
        component, index = self._lane.topology.task_owner(sender)
        columns = [python_values(column) for column in routed.columns]
        anchoring = routed.anchoring
        if self._trails:
            checksum = zlib.crc32(stable_bytes((routed.target, columns)))
            if anchoring is not None:
                checksum = zlib.crc32(anchoring.edges.tobytes(), checksum)
            self.now.trail.append((component, checksum))
        if not self._stories:
            return
        target, to = self._lane.topology.task_owner(routed.target)
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
