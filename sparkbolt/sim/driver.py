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
from sparkbolt.driver.ledger.generations import FIRST_FOLDER, TOPOLOGY_FILE, Generation, Generations, SparkLog, keep
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
    logs: dict[str, SimulatedLog] = field(default_factory=lambda: {FIRST_FOLDER: SimulatedLog()})
    """Spark's own files, by its folder."""
    states: dict[str, dict[int, DictStore]] = field(default_factory=lambda: {FIRST_FOLDER: {}})
    """The committed segments of each task, by its dest; by Spark's folder."""
    generations: Generations = field(default_factory=lambda: Generations((Generation(),)))
    """The shapes of the topology."""
    letters: dict[str, DeadLetter] = field(default_factory=dict)
    """The dead letters that sinks hold, by id."""
    queues: dict[int, Queue] = field(default_factory=dict)
    """The queue of each task of a fed ``Spout``."""

    @property
    def log(self) -> SimulatedLog:
        """Spark's files of the newest generation."""
        return self.logs[self.generations[-1].folder]

    @property
    def stores(self) -> dict[int, DictStore]:
        """The committed segments of each task of the newest generation, by its dest."""
        return self.states[self.generations[-1].folder]

    @property
    def last_commit(self) -> int:
        """The last micro-batch that is committed; -1 if there is none."""
        return SparkLog(SparkFiles(self), self.generations).last_commit

    @property
    def is_planned(self) -> bool:
        """Whether a micro-batch is planned that is not committed."""
        return SparkLog(SparkFiles(self), self.generations).is_planned

    def keep(self, generations: Generations) -> bool:
        """Store the generations, as a start on Spark does; return whether they have changed."""
        if generations == self.generations:
            return False
        files = SparkFiles(self)
        keep(files, self.generations, generations, files.remove_folder)
        return True

    def take_life(self, tenure: Tenure) -> int:
        """Return the number of a life that begins in the driver of ``tenure``."""
        self.lives += 1
        return tenure.begin(str(self.lives))

    def logged(self, micro_batch_id: int) -> LoggedOffset | None:
        """Return the offset that is logged as the end of a micro-batch; None if there is none."""
        one = self.generations.of(micro_batch_id)
        text = self.logs[one.folder].offsets.get(micro_batch_id - one.first)
        return None if text is None else LoggedOffset((), json.loads(text))


class SparkFiles:
    """The files of a checkpoint, with those of Spark's logs among them."""

    def __init__(self, durable: Durable) -> None:
        """Show the files that there are at each call."""
        self._durable = durable

    def _log(self, path: str) -> dict[int, Any] | set[int] | None:
        folder, _, name = path.rpartition("/")
        log = self._durable.logs.get(folder)
        return None if log is None or name not in ("offsets", "commits") else getattr(log, name)

    def read(self, name: str) -> bytes | None:
        """See ``Files.read``; the content of Spark's files is not shown."""
        return self._durable.files.read(name)

    def create(self, name: str, data: bytes) -> bool:
        """See ``Files.create``."""
        return self._durable.files.create(name, data)

    def write(self, name: str, data: bytes) -> None:
        """See ``Files.write``."""
        self._durable.files.write(name, data)
        if name == TOPOLOGY_FILE:
            self._durable.generations = generations = Generations.parsed(data)
            self._durable.logs.setdefault(generations[-1].folder, SimulatedLog())
            self._durable.states.setdefault(generations[-1].folder, {})

    def names(self, folder: str) -> list[str]:
        """See ``Files.names``."""
        log = self._log(folder)
        return self._durable.files.names(folder) if log is None else [str(number) for number in log]

    def remove(self, name: str) -> None:
        """See ``Files.remove``."""
        folder, _, number = name.rpartition("/")
        log = self._log(folder)
        if log is None:
            self._durable.files.remove(name)
            return
        self._durable.files.before_change()
        if isinstance(log, set):
            log.discard(int(number))
        else:
            log.pop(int(number), None)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder of Spark's."""
        self._durable.files.before_change()
        self._durable.logs.pop(folder, None)
        self._durable.states.pop(folder, None)


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
