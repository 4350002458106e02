"""Driver: one life of the driver, and what outlives it.

Which question it answers: which calls does the driver's side make, in which order, and what of it is durable?
Rule 1: no rules here: ``coordinator`` decides what is planned, ``files`` decides which files count.
Rule 2: everything in a ``Driver`` is lost when it dies; everything in ``Durable`` survives.

Read before: ``core.driver.coordinator``, ``core.driver.ledger.files``, ``spouts``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.core.base.exceptions import Interruption
from sparkbolt.core.driver.commits import CommitCall, Commits
from sparkbolt.core.driver.coordinator import Coordinator
from sparkbolt.core.driver.ledger import files as ledger_files
from sparkbolt.core.driver.ledger.files import Tenure
from sparkbolt.core.driver.ledger.ledger import Ledger, Promotion
from sparkbolt.core.driver.ledger.settings import ledger_settings
from sparkbolt.core.driver.planner import Planner
from sparkbolt.core.driver.transaction import Transaction
from sparkbolt.core.model.dead_letters import DeadLetter
from sparkbolt.core.protocol.plan import Entry, MicroBatchPlan, plan_of
from sparkbolt.core.protocol.verdicts import Feedback
from sparkbolt.core.state.task_state import DictStore
from sparkbolt.core.worker.environment import WorkerEnvironment
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.sim.sources import Queue, SimulatedQueue
from sparkbolt.sim.spark_loop import SparkLog
from sparkbolt.sim.spouts import LocalSpout, close_ranged, open_ranged, open_tasks
from sparkbolt.sim.subject import Subject

WHERE = "the checkpoint"


class DriverDied(Interruption):
    """The driver process has died; no user code catches this."""


class QueryDied(Interruption):
    """Spark's query has ended; it starts again in the same driver."""


class CrashingFiles(MemoryFiles):
    """The files of a checkpoint; the driver may die after a given number of changes."""

    changes_left: int | None = None
    """How many files are still written or removed before the driver dies; None: it does not die."""

    def before_change(self) -> None:
        """Let the driver die if no changes are left."""
        if self.changes_left is not None:
            self.changes_left -= 1
            if self.changes_left < 0:
                self.changes_left = None
                raise DriverDied


@dataclass
class Durable:
    """State on disks or in other processes, which survives the driver."""

    files: CrashingFiles = field(default_factory=CrashingFiles)
    lives: int = 0
    """Number of lives that ever began; it names each of them."""
    log: SparkLog = field(default_factory=SparkLog)
    """Spark's own files."""
    stores: dict[int, DictStore] = field(default_factory=dict)
    """The committed segments of each task, by its dest."""
    letters: dict[str, DeadLetter] = field(default_factory=dict)
    """The dead letters that sinks hold, by id."""
    queues: dict[int, Queue] = field(default_factory=dict)
    """The queue of each task of a fed ``Spout``."""

    def take_life(self, tenure: Tenure) -> int:
        """Return the number of a life that begins in the driver of ``tenure``."""
        self.lives += 1
        return tenure.begin(str(self.lives))

    def logged(self) -> MicroBatchPlan | None:
        """Return the plan that is in the offset log and not committed."""
        running = self.log.running
        return None if running is None else plan_of(json.loads(self.log.offsets[running]), self.files, WHERE)


class Driver:
    """One life in a driver process, from the start of its query to its end."""

    def __init__(
        self,
        subject: Subject,
        environment: WorkerEnvironment,
        durable: Durable,
        now_ms: int,
        mono_s: float,
        tenure: Tenure,
        before: Driver | None = None,
        *,
        commit: CommitCall,
    ) -> None:
        """Load the ledger, begin a life, and open the spouts.

        Args:
            subject: The topology.
            environment: The worker environment of its spouts.
            durable: The state that outlives the driver.
            now_ms: The wall clock, in milliseconds since the epoch.
            mono_s: The monotonic clock, in seconds.
            tenure: The lives of the process.
            commit: Passes rows to a committer.
            before: The previous life in the same process, whose query has ended; its ``Spout`` tasks go on.
        """
        self.files = durable.files
        self._every = subject.topology.config.compact_every
        lane = subject.lane
        settings = ledger_settings(lane)

        def make() -> Ledger:
            return Ledger(**settings)

        def restore(snapshot: bytes, name: str) -> Ledger:
            return Ledger.restore(snapshot, **settings, name=name)

        self.took_over = before is not None
        ledger_files.cut_back(durable.files, durable.log.last_commit)
        self.ledger = ledger_files.load_ledger(durable.files, durable.log.last_commit, make, restore)
        self.tenure = tenure
        self.ledger.begin_life(durable.take_life(tenure))
        ledger_files.drop_uncommitted_letters(durable.files, durable.log.last_commit)
        self.coordinator = Coordinator(lane, self.ledger, open_ranged(lane, environment), now_ms=now_ms, mono_s=mono_s)
        self.coordinator.is_read_logged = Coordinator.reads(durable.logged())
        self.planner = Planner(self.coordinator, durable.files, where=WHERE)
        transactional = subject.topology.config.transactional
        self.transaction = Transaction(lane, durable.files) if transactional else None
        self.commits = Commits(lane, durable.files, commit)
        self.spouts: dict[int, LocalSpout]
        if before is not None:
            close_ranged(before.coordinator.spouts)
            self.coordinator.take_over(before.coordinator)
            self.spouts = before.spouts
            for number, task in self.spouts.items():
                task.go_on_with(self.coordinator.buffers[number])
            return
        self.spouts = open_tasks(lane, environment, self.coordinator)
        for number, task in self.spouts.items():
            if isinstance(task.spout, SimulatedQueue):
                task.spout.queue = durable.queues[number]

    def records_of(self, plan: MicroBatchPlan) -> dict[Entry, list[tuple[Any, Any]]]:
        """Return (record, message id) of the ``Spout`` entries of a plan that the coordinator has confirmed, by entry.

        An entry that is read at most once, and may be read in this life, is included without records.
        """
        found: dict[Entry, list[tuple[Any, Any]]] = {}
        for entry in plan.alive_entries(self.coordinator.life):
            if entry.source is None:
                self.coordinator.records_of(entry)  # checks that they exist
                found[entry] = self.coordinator.buffers[entry.task].planned_of(entry)
            elif entry.once:
                found[entry] = []
        return found

    def stage(self, micro_batch_id: int, feedback: Feedback) -> bytes:
        """Stage a micro-batch; the entry is not written yet."""
        if self.transaction is not None:
            self.transaction.settle(feedback)
        return self.coordinator.stage(micro_batch_id, feedback)

    def write_letters(self, micro_batch_id: int, letters: Sequence[bytes]) -> None:
        """Write the dead letters of the checkpoint durably."""
        ledger_files.write_letters(self.files, micro_batch_id, letters)

    def write_entry(self, micro_batch_id: int, entry: bytes) -> None:
        """Write the entry durably."""
        self.tenure.check(self.coordinator.life)
        ledger_files.write_entry(self.files, micro_batch_id, entry)

    def promote(self, micro_batch_id: int, mono_s: float) -> Promotion:
        """Promote a committed micro-batch."""
        self.commits.settle(micro_batch_id)
        promotion = self.coordinator.promote(micro_batch_id, mono_s)
        if self.transaction is not None:
            self.transaction.forget(micro_batch_id)
        return promotion

    def compacts(self, micro_batch_id: int) -> bool:
        """Whether the ledger is compacted after the promotion of this micro-batch."""
        return (micro_batch_id + 1) % self._every == 0

    def compact(self, micro_batch_id: int) -> None:
        """Replace the entries by a snapshot."""
        ledger_files.compact(self.files, micro_batch_id, self.ledger.snapshot())
