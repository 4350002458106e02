"""LocalEngine: runs a topology in one process: plan, source, levels, acker and ledger, with really encoded frames.

Which question it answers: what would Spark do with this topology, if no fault happened and time stood still?
Rule: no rules here. ``coordinator`` decides what a micro-batch reads, ``stage`` what tasks do, ``ledger`` what becomes
of trees; this file only calls them in the order in which Spark does.

Read before: ``core.driver.coordinator``, ``core.worker.stage``, ``core.protocol.acker``, ``spouts``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sparkbolt.core.driver.commits import Commits, Rows
from sparkbolt.core.driver.coordinator import Coordinator
from sparkbolt.core.driver.ledger.ledger import Ledger, Promotion
from sparkbolt.core.driver.ledger.settings import ledger_settings
from sparkbolt.core.driver.transaction import Transaction
from sparkbolt.core.model.components import PartitionedSpout
from sparkbolt.core.model.dead_letters import DeadLetterSink
from sparkbolt.core.model.lane import lay_out
from sparkbolt.core.model.reports import ErrorReport
from sparkbolt.core.model.topology import Topology
from sparkbolt.core.protocol.acker import gather, judge_rows
from sparkbolt.core.protocol.exclusion import NOTHING_EXCLUDED, Exclusion
from sparkbolt.core.protocol.frames import Column, Moment
from sparkbolt.core.protocol.plan import MicroBatchPlan
from sparkbolt.core.protocol.verdicts import Feedback
from sparkbolt.core.state.task_state import DictStore
from sparkbolt.core.worker.environment import Capture, WorkerEnvironment, environment_of
from sparkbolt.core.worker.results import Row
from sparkbolt.core.worker.source_reader import clock_rows, run_entry
from sparkbolt.core.worker.stage import run_level
from sparkbolt.core.worker.worker import Worker
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.sim.committing import LocalCommitters
from sparkbolt.sim.executors import by_dest
from sparkbolt.sim.spouts import close_ranged, open_ranged, open_tasks


class LocalEngine:
    """Runs a topology micro-batch by micro-batch; the caller advances the time.

    What is durable on Spark is durable here: ``stores`` (the segments of each task, by its dest), ``log`` (the
    ledger's entries) and ``letters``. Everything else is lost with ``restart``.
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
        """
        self.topology = topology
        self.now_ms = now_ms
        self.lane = lay_out(topology, cores)
        self._cores = cores
        self._stamps = random.Random(seed)
        self._capture, self._letter_sink = capture, letter_sink
        self._rehearsal_directory = rehearsal_directory
        self._emitted: list[tuple[str, int, str, Sequence[Column]]] = []
        """What the running execution of a transactional micro-batch has emitted."""
        self.files = MemoryFiles()
        """The files beside the ledger: which messages a transactional micro-batch leaves out."""
        self._environment = self._make_environment()
        self.stores: dict[int, DictStore] = {}
        self.log: list[bytes] = []
        self.letters: dict[int, bytes] = {}
        """The dead letters of the checkpoint by micro-batch, as lines of JSON."""
        self.committed: dict[str, list[Any]] = {}
        """The rows that each committer has got."""
        self._dead_spouts: list[Mapping[str, PartitionedSpout]] = []
        """The spouts of drivers that died: what they hold is released when the engine is closed."""
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
        """Keep what is emitted until it is known whether this execution counts."""
        self._emitted.append((component, index, stream, columns))

    def _begin_life(self) -> None:
        """Do what a driver does first: replay the log, begin a life, open the spouts."""
        self.failure: str | None = None
        """Why the topology stopped; None if it did not."""
        self.worker = Worker(self._environment)
        self.ledger = Ledger(**ledger_settings(self.lane))
        for entry in self.log:
            self.ledger.replay(entry)
        self.ledger.begin_life(self.ledger.life + 1)
        ranged = open_ranged(self.lane, self._environment)
        self.coordinator = Coordinator(self.lane, self.ledger, ranged, now_ms=self.now_ms, mono_s=self._mono_s)
        self.spouts = open_tasks(self.lane, self._environment, self.coordinator)
        transactional = self.topology.config.transactional
        self.transaction = Transaction(self.lane, self.files) if transactional else None
        self._committers = LocalCommitters(self.lane, self._environment)
        self.commits = Commits(self.lane, self.files, self._commit)

    @property
    def _mono_s(self) -> float:
        return self.now_ms / 1000

    def step(self) -> Promotion | None:
        """Run one micro-batch from its plan to its promotion; return None if there is nothing to do."""
        for spout in self.spouts.values():
            spout.turn(self.coordinator.active)
        plan = self.coordinator.next_plan(self.now_ms, self._mono_s)
        if plan is None:
            return None
        self.coordinator.confirm(plan, self._mono_s)
        feedback = self._execute(plan)
        if feedback.letters:
            self.letters[plan.micro_batch_id] = b"".join(feedback.letters)
        self.log.append(self.coordinator.stage(plan.micro_batch_id, feedback))
        self.commits.stage(plan.micro_batch_id, feedback.kept)
        self.commits.settle(plan.micro_batch_id)
        promotion = self.coordinator.promote(plan.micro_batch_id, self._mono_s)
        if self.transaction is not None:
            self.transaction.forget(plan.micro_batch_id)
        self.failure = self.failure or self.coordinator.reason_to_stop(promotion)
        if self.failure is not None:
            self.coordinator.active = False
        for spout in self.spouts.values():
            spout.hear()
        return promotion

    def _commit(self, component: str, txid: int, rows: Rows) -> None:
        self._committers.commit(component, txid, rows)
        self.committed.setdefault(component, []).extend(rows())

    def _execute(self, plan: MicroBatchPlan) -> Feedback:
        """Return the feedback of a plan; a transactional topology runs it until an execution counts."""
        if self.transaction is None:
            return gather(data for _, data in self.run(plan))
        before = {dest: DictStore(store) for dest, store in self.stores.items()}
        exclusion = self.transaction.begin(plan)
        while True:
            self._emitted.clear()
            self.stores = {dest: DictStore(store) for dest, store in before.items()}
            feedback = gather(data for _, data in self.run(plan, exclusion))
            left_out = self.transaction.judge(plan, feedback)
            if left_out is None:
                break
            exclusion = left_out
        self.transaction.settle(feedback)
        if self._capture is not None:
            for emitted in self._emitted:
                self._capture(*emitted)
        return feedback

    def run(self, plan: MicroBatchPlan, exclusion: Exclusion = NOTHING_EXCLUDED) -> list[Row]:
        """Return the rows that leave the lane for a plan, without what is excluded."""
        moment = Moment(plan.micro_batch_id, plan.now_ms)
        rows = self.first_rows(plan)
        for piece, entry in enumerate(plan.alive_entries(self.coordinator.life)):
            records = self.coordinator.records_of(entry) if entry.source is None else ()
            traced = self.coordinator.traced_of(entry)
            rows += run_entry(self.worker, moment, piece, entry, records, traced, exclusion).to_rows(self.lane)
        for level in self.lane.levels:
            runs = by_dest(rows) if level.stateful else [rows]
            results = [run_level(self.worker, level.number, run, self._store_of, exclusion) for run in runs]
            rows = [row for result in results for row in result.to_rows(self.lane)]
        return judge_rows(rows)

    def first_rows(self, plan: MicroBatchPlan) -> list[Row]:
        """Return the rows that enter the lane before those of its spouts; tests of inlets add theirs."""
        return clock_rows(self.lane, plan)

    def _store_of(self, dest: int) -> DictStore:
        return self.stores.setdefault(dest, DictStore())

    def next_due_ms(self) -> int | None:
        """Return when, in ms of this engine's clock, the next tick or rotation of open trees is due; None if never."""
        return self.coordinator.next_due_ms(self.now_ms, self._mono_s)

    def reports(self) -> list[ErrorReport]:
        """Return what spout tasks raised or reported in this life since the last call."""
        found = []
        for spout in self.spouts.values():
            found += spout.reports
            spout.reports.clear()
        return found

    def restart(self, topology: Topology | None = None) -> None:
        """Die between two micro-batches, as by ``kill -9``, and start again from ``stores`` and ``log``.

        Args:
            topology: Replaces the previous topology; it is laid out in the same way.
        """
        self.worker.abandon()
        self._dead_spouts.append(self.coordinator.spouts)
        if topology is not None:
            self.topology = topology
            self.lane = lay_out(topology, self._cores, json.loads(json.dumps(self.lane.placement())))
            self._environment = self._make_environment()
        self._begin_life()

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
