"""Driver: a driver process of the simulator, and the state that survives its death.

Everything in a ``Driver`` is lost when it dies; everything in ``Durable`` survives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.base.exceptions import Interruption
from sparkbolt.driver.ledger.agreement import LoggedOffset
from sparkbolt.driver.ledger.ledger_files import Tenure
from sparkbolt.driver.machine import DriverMachine
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.sim.sources import Queue, SimulatedQueue
from sparkbolt.sim.spark_loop import SimulatedLog
from sparkbolt.sim.spouts import LocalSpout, close_ranged, open_tasks
from sparkbolt.sim.subject import Subject
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.worker.environment import WorkerEnvironment
from sparkbolt.worker.state.task_state import DictStore

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
    log: SimulatedLog = field(default_factory=SimulatedLog)
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

    def logged(self, micro_batch_id: int) -> LoggedOffset | None:
        """Return the offset that is logged as the end of a micro-batch; None if there is none."""
        text = self.log.offsets.get(micro_batch_id)
        return None if text is None else LoggedOffset((), json.loads(text))


class Driver:
    """One life in a driver process: its machine, and its ``Spout`` tasks."""

    def __init__(
        self,
        subject: Subject,
        environment: WorkerEnvironment,
        durable: Durable,
        machine: DriverMachine,
        tenure: Tenure,
        before: Driver | None = None,
    ) -> None:
        """Open the ``Spout`` tasks of a life that has begun.

        Args:
            subject: The topology.
            environment: The worker environment of its spouts.
            durable: The state that outlives the driver.
            machine: The life.
            tenure: The lives of the process.
            before: The previous life in the same process, whose query has ended; its ``Spout`` tasks go on.
        """
        self.machine, self.coordinator, self.ledger = machine, machine.coordinator, machine.ledger
        self.lifecycle = machine.lifecycle
        self.tenure = tenure
        self.files = durable.files
        self.took_over = before is not None
        self.spouts: dict[int, LocalSpout]
        if before is not None:
            close_ranged(before.coordinator.spouts)
            self.coordinator.take_over(before.coordinator)
            self.spouts = before.spouts
            for number, task in self.spouts.items():
                task.go_on_with(self.coordinator.buffers[number])
            return
        self.spouts = open_tasks(subject.lane, environment, self.coordinator)
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
                found[entry] = list[tuple[Any, Any]](self.coordinator.buffers[entry.task].planned_of(entry))
            elif entry.once:
                found[entry] = []
        return found
