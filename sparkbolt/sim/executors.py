"""Executors: worker processes that keep instances, run spark_tasks in attempts, and die.

An attempt works on a copy of the committed segments, and its rows arrive in any order. If it breaks off, it leaves
nothing behind except its worker's memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkbolt.api.outage import Health
from sparkbolt.layout.lane import Lane, spark_hash
from sparkbolt.sim.faults import (
    Fault,
    FaultKind,
    Pending,
    Step,
)
from sparkbolt.sim.observer import AttemptObserver, Sightings, WorkerDied
from sparkbolt.wire.acker import judge_rows
from sparkbolt.wire.exclusion import NOTHING_EXCLUDED, Exclusion
from sparkbolt.wire.frames import Moment
from sparkbolt.wire.plan import MicroBatchPlan, Piece
from sparkbolt.wire.verdicts import KeptRows
from sparkbolt.worker.environment import WorkerEnvironment
from sparkbolt.worker.routing import Row
from sparkbolt.worker.source_reader import clock_rows, run_piece
from sparkbolt.worker.stage import run_level
from sparkbolt.worker.state.task_state import DictStore
from sparkbolt.worker.worker import Worker

ROWS_UNTIL_DEATH_MAX = 300
READERS, BOLTS = 0, 1
"""The two pools of workers: on Spark the source runs in separate Python processes."""

Work = Callable[[Worker, Sequence[Row], dict[int, DictStore]], list[Row]]
"""Runs a spark_task; takes its worker, its input rows, and a dict that receives the segments that it touches."""


@dataclass
class TaskAttempt:
    """The result of one attempt that ended normally."""

    rows: list[Row]
    sightings: Sightings
    stores: dict[int, DictStore]


@dataclass
class MicroBatchOutcome:
    """The combined results of a micro-batch's spark_tasks."""

    rows: list[Row] = field(default_factory=list)
    """The rows that reached the end of the lane."""
    sightings: list[Sightings] = field(default_factory=list)
    stores: dict[int, DictStore] = field(default_factory=dict)
    """The segments of each task that ran, by its dest."""
    made: list[tuple[str, Row]] = field(default_factory=list)
    """(name of the spark_task, row) of every row that was created on the way."""
    healths: dict[str, Health] = field(default_factory=dict)
    """The result of each bolt for its input, once the feedback is gathered."""
    letters: list[bytes] = field(default_factory=list)
    """The dead letters for the checkpoint, once they are gathered."""
    kept: list[KeptRows] = field(default_factory=list)
    """The rows of committers, once they are gathered."""
    repeats: list[tuple[str, list[Row], list[Row]]] = field(default_factory=list)
    """For each spark_task that ran twice: its name, and its rows of each run."""
    looped: list[Row] = field(default_factory=list)
    """The rows with the looped tuples that the micro-batch delivered."""
    exclusion: Exclusion = NOTHING_EXCLUDED
    """In a transactional topology: the exclusion of the execution that counts."""


class Executors:
    """All worker processes of one run of a query."""

    def __init__(
        self, lane: Lane, environment: WorkerEnvironment, observer: AttemptObserver, stores: Mapping[int, DictStore]
    ) -> None:
        """Start without processes; ``stores`` are the committed segments, by dest."""
        self._lane = lane
        self._environment = environment
        self._observer = observer
        self._stores = stores
        self._size = max(1, lane.spark_partitions)
        self._pools: list[list[Worker | None]] = [[None] * self._size, [None] * self._size]
        self._home = {dest: spark_hash(dest) % self._size for dest in self._dests()}

    def _dests(self) -> list[int]:
        return [*self._lane.dests.values(), *self._lane.acker_dests, self._lane.feedback_dest]

    @property
    def instances(self) -> int:
        """Return the number of bolt instances in all workers."""
        return sum(len(worker._tasks) for pool in self._pools for worker in pool if worker is not None)

    def die(self) -> None:
        """End all processes at once."""
        for pool in self._pools:
            for slot in range(self._size):
                self._kill(pool, slot)

    def _kill(self, pool: list[Worker | None], slot: int) -> None:
        worker = pool[slot]
        if worker is not None:
            worker.abandon()
            pool[slot] = None

    def run(
        self,
        plan: MicroBatchPlan,
        shares: Sequence[Sequence[Piece]],
        pending: Pending,
        random_: random.Random,
        exclusion: Exclusion = NOTHING_EXCLUDED,
        looped: Sequence[Row] = (),
    ) -> MicroBatchOutcome:
        """Run the spark_tasks of a micro-batch, stage by stage.

        Args:
            plan: The plan of the micro-batch.
            shares: The share of each spark_task of the source.
            pending: The faults that have not happened yet.
            random_: Decides the orders, and the worker of each spark_task.
            exclusion: The messages that this execution leaves out.
            looped: The rows with the looped tuples that the plan delivers.
        """
        outcome = MicroBatchOutcome(looped=list(looped))
        moment = Moment(plan.micro_batch_id, plan.now_ms)
        rows: list[Row] = [*clock_rows(self._lane, plan), *looped]
        jobs: list[tuple[str, Sequence[Row], Work]] = [
            (f"source/{place}", (), self._reading(moment, share, exclusion))
            for place, share in enumerate(shares)
            if share
        ]
        fault = pending.take(plan.micro_batch_id, Step.SOURCE)
        rows += self._stage(plan.micro_batch_id, READERS, jobs, fault, outcome, random_)
        fault = pending.take(plan.micro_batch_id, Step.LEVEL)
        unlucky = fault.place % len(self._lane.levels) if fault is not None and self._lane.levels else -1
        for place, level in enumerate(self._lane.levels):
            jobs = [
                (f"level {level.number}/{home}", came, self._level(level.number, level.stateful, exclusion))
                for home, came in enumerate(self._shuffled(rows, random_))
                if came
            ]
            rows = self._stage(plan.micro_batch_id, BOLTS, jobs, fault if place == unlucky else None, outcome, random_)
        if random_.random() < 0.25:  # the ackers run on the executors
            rows = [row for share in self._shuffled(rows, random_) if share for row in judge_rows(share)]
        outcome.rows = rows
        return outcome

    def _shuffled(self, rows: Sequence[Row], random_: random.Random) -> list[list[Row]]:
        """Return rows by the spark_partition that Spark's hash assigns, each in a random order."""
        shares: list[list[Row]] = [[] for _ in range(self._size)]
        for row in rows:
            shares[self._home[row[0]]].append(row)
        for share in shares:
            random_.shuffle(share)
        return shares

    def _reading(self, moment: Moment, share: Sequence[Piece], exclusion: Exclusion) -> Work:
        def work(worker: Worker, _rows: Sequence[Row], _stores: dict[int, DictStore]) -> list[Row]:
            results = (run_piece(worker, moment, piece, exclusion) for piece in share)
            return [row for result in results for row in result.to_rows(self._lane)]

        return work

    def _level(self, number: int, stateful: bool, exclusion: Exclusion) -> Work:
        def work(worker: Worker, rows: Sequence[Row], stores: dict[int, DictStore]) -> list[Row]:
            def store_of(dest: int) -> DictStore | None:
                if not stateful:
                    return None
                stores[dest] = DictStore(self._stores.get(dest, ()))
                return stores[dest]

            if not stateful:
                return run_level(worker, number, rows, store_of, exclusion).to_rows(self._lane)
            results = [run_level(worker, number, group, store_of, exclusion) for group in by_dest(rows)]
            return [row for result in results for row in result.to_rows(self._lane)]

        return work

    def _stage(
        self,
        micro_batch_id: int,
        pool: int,
        jobs: Sequence[tuple[str, Sequence[Row], Work]],
        fault: Fault | None,
        outcome: MicroBatchOutcome,
        random_: random.Random,
    ) -> list[Row]:
        """Run the spark_tasks of one stage; return the rows that they created."""
        rows: list[Row] = []
        unlucky = fault.place // 7 % len(jobs) if fault is not None and jobs else -1
        for place, (name, came, work) in enumerate(jobs):
            hit = fault if place == unlucky else None
            if hit is not None and hit.kind != FaultKind.TASK_REPEATS:
                self._lose(micro_batch_id, pool, came, work, hit, random_)
                came = random_.sample(came, len(came))
            attempt = self._attempt(micro_batch_id, pool, came, work, random_)
            if hit is not None and hit.kind == FaultKind.TASK_REPEATS:
                attempt = self._repeat(micro_batch_id, pool, name, came, work, attempt, outcome, random_)
            rows += attempt.rows
            outcome.sightings.append(attempt.sightings)
            outcome.stores.update(attempt.stores)
            outcome.made += [(name, row) for row in attempt.rows]
        return rows

    def _worker(self, pool: int, random_: random.Random) -> tuple[int, Worker]:
        """Choose a process for an attempt: any of the pool, as Spark does."""
        slot = random_.randrange(self._size)
        worker = self._pools[pool][slot]
        if worker is None:
            worker = self._pools[pool][slot] = Worker(self._environment)
        return slot, worker

    def _attempt(
        self, micro_batch_id: int, pool: int, came: Sequence[Row], work: Work, random_: random.Random
    ) -> TaskAttempt:
        sightings = self._observer.begin(micro_batch_id)
        stores: dict[int, DictStore] = {}
        rows = work(self._worker(pool, random_)[1], came, stores)
        return TaskAttempt(rows, sightings, stores)

    def _lose(
        self, micro_batch_id: int, pool: int, came: Sequence[Row], work: Work, fault: Fault, random_: random.Random
    ) -> None:
        """Run an attempt that never ends normally, or whose output is lost with its process."""
        slot, worker = self._worker(pool, random_)
        left = fault.place // 31 % ROWS_UNTIL_DEATH_MAX
        breaks = fault.kind == FaultKind.CONNECTION_BREAKS
        self._observer.begin(
            micro_batch_id, rows_left=None if breaks else left, trees_left=left % 50 if breaks else None
        )
        try:
            work(worker, came, {})
        except (WorkerDied, BaseExceptionGroup):
            pass
        except ConnectionError:
            if not breaks:
                raise
        if fault.kind == FaultKind.EXECUTOR_DIES:
            self.die()
        elif fault.kind == FaultKind.WORKER_DIES:
            self._kill(self._pools[pool], slot)
        else:
            assert fault.kind in (FaultKind.TASK_BREAKS, FaultKind.CONNECTION_BREAKS)

    def _repeat(
        self,
        micro_batch_id: int,
        pool: int,
        name: str,
        came: Sequence[Row],
        work: Work,
        first: TaskAttempt,
        outcome: MicroBatchOutcome,
        random_: random.Random,
    ) -> TaskAttempt:
        """Run the spark_task again: some readers saw the rows of its first attempt, others those of its second."""
        second = self._attempt(micro_batch_id, pool, random_.sample(came, len(came)), work, random_)
        outcome.repeats.append((name, first.rows, second.rows))
        late = {dest for dest in {dest for dest, _ in first.rows} if random_.random() < 0.5}
        rows = [row for row in second.rows if row[0] not in late] + [row for row in first.rows if row[0] in late]
        return TaskAttempt(rows, second.sightings, second.stores)


def by_dest(rows: Iterable[Row]) -> list[list[Row]]:
    """The rows of each dest, in the order of dests: Spark runs a stateful level once for each dest."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return [group for _, group in sorted(groups.items())]
