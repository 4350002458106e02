"""LocalEngine: a shell of the driver machine that runs a topology in one process, without faults.

Rule: no rules here. ``driver.machine`` decides what happens in which order; this file performs its effects, with really
encoded frames, and commits each micro-batch as soon as it is staged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.dead_letters import DeadLetterSink
from sparkbolt.api.keyed_state import refusal
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.reports import ErrorReport
from sparkbolt.api.topology import Topology
from sparkbolt.driver.begun import Begun
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.driver_metrics import DriverMetrics
from sparkbolt.driver.durable_effects import perform_on_files
from sparkbolt.driver.effects import (
    AskLag,
    CallSpout,
    Commit,
    Compact,
    Counts,
    Effect,
    Execute,
    OpenSpouts,
    Steps,
    T,
    TakeLife,
    Tell,
)
from sparkbolt.driver.ledger.generations import Generations
from sparkbolt.driver.ledger.ledger import Ledger, Promotion
from sparkbolt.driver.ledger.ledger_files import LETTERS_FOLDER, Tenure
from sparkbolt.driver.ledger.ledger_log import dump_snapshot
from sparkbolt.driver.machine import begin, perform_all
from sparkbolt.driver.transition import Continuation, moves, transition
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.sim.committing import LocalCommitters
from sparkbolt.sim.executors import by_dest
from sparkbolt.sim.spouts import close_ranged, open_ranged, open_tasks
from sparkbolt.wire.acker import gather, judge_rows
from sparkbolt.wire.exclusion import NOTHING_EXCLUDED, Exclusion
from sparkbolt.wire.frames import Column, Moment
from sparkbolt.wire.plan import MicroBatchPlan, Offset
from sparkbolt.wire.verdicts import Feedback
from sparkbolt.worker.environment import Capture, WorkerEnvironment, environment_of
from sparkbolt.worker.routing import Row
from sparkbolt.worker.source_reader import clock_rows, run_piece
from sparkbolt.worker.stage import run_level
from sparkbolt.worker.state.division import moved_stores
from sparkbolt.worker.state.task_state import DictStore
from sparkbolt.worker.worker import Worker


class LocalEngine:
    """Runs a topology micro-batch by micro-batch; the caller advances the time.

    The same things are durable as on Spark: ``stores`` (the segments of each task, by its dest), ``files`` (the
    checkpoint's) and ``last_commit``. Everything else is lost with ``restart``.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        cores: int = 2,
        seed: int = 0,
        now_ms: int = 0,
        capture: Capture | None = None,
        letter_sink: Callable[[int], DeadLetterSink] | None = None,
        rehearsal_directory: str | None = None,
        begun: Begun | None = None,
    ) -> None:
        """Lay out the topology and begin its first life.

        Args:
            topology: The topology to run.
            cores: The assumed number of cores.
            seed: Seed of the stamps of state.
            now_ms: The initial wall clock, in milliseconds since the epoch.
            capture: Is called with everything that is emitted.
            letter_sink: The sink for the dead letters of a spout's task; by default the spout's own.
            rehearsal_directory: Where components write their files; by default where they really belong.
            begun: What the topology has kept so far; by default nothing.

        Raises:
            CheckpointError: the topology cannot go on from that.
        """
        self.now_ms = now_ms
        self._cores = cores
        known, last = ((), -1) if begun is None else (begun.generations, begun.last_commit)
        started = transition(topology, cores, known, last, refusal)
        started.check("of this run", apply=True)
        self.steps = started.steps
        """What the topology changes in the shape that is known."""
        self.lane, self.generations = started.lane, started.generations
        self.topology = self.lane.topology
        self._stamps = random.Random(seed)
        self._capture, self._letter_sink = capture, letter_sink
        self._rehearsal_directory = rehearsal_directory
        self._emitted: list[tuple[str, int, str, Sequence[Column]]] = []
        """The emissions of the running execution of a transactional micro-batch."""
        self.files = MemoryFiles()
        self.last_commit = last
        """The last micro-batch that is committed."""
        self._environment = self._make_environment()
        self.stores: dict[int, DictStore] = {}
        self._folders: dict[str, dict[int, DictStore]] = {}
        """The segments of earlier generations, by folder: they are whole until a later one has committed."""
        self._before: dict[int, DictStore] = {}
        """The segments before the micro-batch that is executed, of a transactional topology."""
        self.committed: dict[str, list[Any]] = {}
        """The rows that each committer has got."""
        self._dead_spouts: list[Mapping[str, PartitionedSpout]] = []
        """The spouts of drivers that died: their messages are released when the engine is closed."""
        if begun is not None:
            self.files.write(f"ledger/{last}.snapshot", dump_snapshot(begun.state))
            self.files.write(f"lives/{begun.state.life}", b"before")
            self.stores = {dest: DictStore(store) for dest, store in begun.stores.items()}
            self.generations = begun.generations
            self._take_over(started)
            self.generations = started.generations
        self._begin_life()

    def _make_environment(self) -> WorkerEnvironment:
        stamps = partial(self._stamps.randrange, 1, 1 << 64)
        capture = self._capture
        if capture is not None and self.topology.config.transactional:
            capture = self._note
        environment = environment_of(self.lane, stamps=stamps, clock=lambda: 0.0, capture=capture)
        environment.letter_sink = self._letter_sink
        environment.rehearsal_directory = self._rehearsal_directory
        return environment

    def _note(self, component: str, index: int, stream: str, columns: Sequence[Column]) -> None:
        """Keep the emissions until it is known whether this execution counts."""
        self._emitted.append((component, index, stream, columns))

    def _begin_life(self) -> None:
        """Begin a life in a new driver."""
        self.worker = Worker(self._environment)
        self._tenure = Tenure(self.files)
        self._metrics = DriverMetrics()
        recorder = self._metrics.recorder
        self._committers = LocalCommitters(self.lane, self._environment, recorder)
        self.machine = self.perform_all(
            begin(
                self.lane,
                self.files,
                self,
                lambda: self.last_commit,
                generations=self.generations,
                metrics=self._metrics,
            )
        )
        self.spouts = open_tasks(self.lane, self._environment, self.coordinator, recorder)

    @property
    def coordinator(self) -> Coordinator:
        """Return the coordinator of the life."""
        return self.machine.coordinator

    @property
    def ledger(self) -> Ledger:
        """Return the ledger of the life."""
        return self.machine.ledger

    @property
    def failure(self) -> str | None:
        """Return why the topology stopped, as ``on_error="stop"`` demands; None if it did not."""
        return self.machine.lifecycle.failure

    @property
    def log(self) -> list[bytes]:
        """Return the ledger's entries of all committed micro-batches."""
        return [self.files.files[f"ledger/{number}.entry"] for number in range(self.last_commit + 1)]

    @property
    def letters(self) -> list[bytes]:
        """Return the dead letters of the checkpoint, by micro-batch, as lines of JSON."""
        return [self.files.files[f"{LETTERS_FOLDER}/{name}"] for name in sorted(self.files.names(LETTERS_FOLDER))]

    @property
    def mono_s(self) -> float:
        """Return the monotonic clock, in seconds."""
        return self.now_ms / 1000

    def step(self) -> Promotion | None:
        """Run one micro-batch from its plan to its promotion; return None if there is nothing to do."""
        for spout in self.spouts.values():
            spout.turn(self.machine.lifecycle.emits)
        end = self.perform_all(self.machine.next_offset())
        if end is None:
            return None
        self.last_commit = number = self.run_until_staged(end)
        return self.perform_all(self.machine.committed(number))

    def run_until_staged(self, end: Offset) -> int:
        """Run the micro-batch that ends at ``end``, without its commit; return its number."""
        number = self.machine.confirmed(end).micro_batch_id
        self.perform_all(self.machine.ran(number))
        return number

    def perform_all(self, steps: Steps[T]) -> T:
        """Perform the machine's effects of an event; return its value."""
        return perform_all(steps, self.perform)

    def perform(self, effect: Effect) -> Any:
        """Perform an effect of the machine; return its result."""
        match effect:
            case TakeLife():
                return self._tenure.begin("LocalEngine")
            case OpenSpouts():
                return open_ranged(self.lane, self._environment, self._metrics.recorder)
            case CallSpout() | AskLag():
                return effect()
            case Execute():
                return self._executed(effect)
            case Counts():
                for emitted in self._emitted:
                    self._capture(*emitted)  # type: ignore[misc]  # nothing is noted without it
                self._emitted.clear()
            case Commit():
                self._committers.commit(effect)
                self.committed.setdefault(effect.component, []).extend(effect.rows())
            case Tell():
                for spout in self.spouts.values():
                    spout.hear()
            case Compact():
                pass  # ``log`` has all entries
            case _:
                perform_on_files(effect, self.files, self.files, self._tenure)
        return None

    def _executed(self, effect: Execute) -> Feedback:
        if effect.exclusion is None:
            return gather(data for _, data in self.run(effect.plan))
        self._emitted.clear()
        if not effect.repeats:
            self._before = self.stores
        self.stores = {dest: DictStore(store) for dest, store in self._before.items()}
        return gather(data for _, data in self.run(effect.plan, effect.exclusion))

    def run(self, plan: MicroBatchPlan, exclusion: Exclusion = NOTHING_EXCLUDED) -> list[Row]:
        """Return the rows that leave the lane for a plan, without excluded messages."""
        moment = Moment(plan.micro_batch_id, plan.now_ms)
        rows = self.first_rows(plan)
        for piece in chain.from_iterable(self.machine.planner.shares(plan, self._cores)):
            rows += run_piece(self.worker, moment, piece, exclusion).to_rows(self.lane)
        for level in self.lane.levels:
            runs = by_dest(rows) if level.stateful else [rows]
            results = [run_level(self.worker, level.number, run, self._store_of, exclusion) for run in runs]
            rows = [row for result in results for row in result.to_rows(self.lane)]
        return judge_rows(rows)

    def first_rows(self, plan: MicroBatchPlan) -> list[Row]:
        """Return the rows that enter the lane before those of its spouts; tests of inlets add theirs."""
        return [*clock_rows(self.lane, plan), *self.machine.planner.looped(plan)]

    def _store_of(self, dest: int) -> DictStore:
        return self.stores.setdefault(dest, DictStore())

    def next_due_ms(self) -> int | None:
        """Return when, in ms of this engine's clock, the next tick or rotation of open trees is due; None if never."""
        return self.coordinator.next_due_ms(self.now_ms, self.mono_s)

    def metrics(self) -> TopologyMetrics:
        """Return a copy of the counts, as ``running.metrics()`` returns them on Spark."""
        counts = self.ledger.metrics.copy_for(self.topology.components)
        return self.machine.metrics.show(counts, self.ledger.last_promoted)

    def reports(self) -> list[ErrorReport]:
        """Return the errors that spout tasks raised or reported in this life since the last call."""
        found = []
        for spout in self.spouts.values():
            found += spout.reports
            spout.reports.clear()
        return found

    def restart(self, topology: Topology | None = None, *, apply: bool = True) -> None:
        """Die between two micro-batches, as by ``kill -9``, and start again from ``files`` and ``stores``.

        Args:
            topology: Replaces the previous topology.
            apply: Whether what moves or goes with it was decided.

        Raises:
            CheckpointError: the topology cannot go on from what is stored.
        """
        self.worker.abandon()
        self._dead_spouts.append(self.coordinator.spouts)
        if topology is not None:
            known = Generations.parsed(self.generations.dumps())
            started = transition(topology, self._cores, known, self.last_commit, refusal)
            started.check("of this run", apply=apply)
            self._take_over(started)
            self.topology, self.lane, self.generations = started.lane.topology, started.lane, started.generations
            self._environment = self._make_environment()
        self._begin_life()

    def _take_over(self, started: Continuation) -> None:
        """Move the state, if the generation that starts needs it, as Spark's engine does."""
        self._folders[self.generations[-1].folder] = self.stores
        newest, unmoved = started.generations[-1], started.generations.unmoved(self.last_commit)
        if unmoved is not None:
            before, _ = unmoved
            components = started.lane.topology.components
            had, environment = self._folders[before.folder], self._environment
            self._folders[newest.folder] = moved_stores(
                had, moves(before, newest), components, environment.stamps, environment.namespace
            )
        self.stores = self._folders.setdefault(newest.folder, {})

    def close(self) -> None:
        """Close tasks and spouts."""
        try:
            self.worker.close()
            self._committers.end()
        finally:
            for spout in self.spouts.values():
                spout.close()
            for spouts in (*self._dead_spouts, self.coordinator.spouts):
                close_ranged(spouts)
