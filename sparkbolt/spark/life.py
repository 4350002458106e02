"""Life: a shell of the driver machine, between one start of Spark's query and its end.

``core.driver.machine`` decides what happens in which order; this file tells it what Spark asks, and performs its
effects.

Rule 1: all access to the machine is guarded by one lock, which all lives of a driver share. The lock is released while
a micro-batch executes, and while code of spouts, committers and listeners runs (``user_calls``).
Rule 2: each micro-batch is one Spark action; one of a transactional topology is one action for each execution.
Rule 3: a life that has ended answers no request: only the planner of a query that failed could still send one.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import cloudpickle
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.progress import Progress, Sight
from sparkbolt.api.reports import QueryFailure
from sparkbolt.base.exceptions import line_of, user_code
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.durable_effects import perform_on_files
from sparkbolt.driver.effects import (
    Commit,
    Compact,
    Counts,
    Effect,
    Execute,
    LetSpoutsEmit,
    OpenSpouts,
    TakeLife,
    Tell,
    Wait,
    WriteEntry,
)
from sparkbolt.driver.ledger.agreement import LoggedOffset, logged_offset
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.machine import DriverMachine, Steps, T, begin, perform_all
from sparkbolt.errors import SourceUnavailable, SparkboltError, SpoutAwayError, SpoutOpenError
from sparkbolt.layout.lane import Lane
from sparkbolt.spark import jvm, repetition
from sparkbolt.spark.activity_pages import Pages
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.commit_calls import CommitCalls
from sparkbolt.spark.driver_rpc import Bridge
from sparkbolt.spark.driver_rpc_client import Question
from sparkbolt.spark.executor import packed
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.inlets import MOMENT, open_inlets
from sparkbolt.spark.job_bundle import SCHEMA, JobBundle
from sparkbolt.spark.lane_query import acker, lane_frame
from sparkbolt.spark.relocation import name_places_anew
from sparkbolt.spark.session import cores_of, is_local, jvm_lives, stage_that_runs
from sparkbolt.spark.source_task import packed_task
from sparkbolt.spark.state_lineage import choose_form
from sparkbolt.spark.user_calls import Calls, NotReturned, in_driver
from sparkbolt.wire.acker import gather
from sparkbolt.wire.frames import Moment
from sparkbolt.wire.plan import BEFORE_THE_FIRST, Offset
from sparkbolt.wire.verdicts import Feedback
from sparkbolt.worker.activity import progress_of
from sparkbolt.worker.source_reader import clock_rows
from sparkbolt.worker.worker import context_of

KILL_AFTER_SECS = 0.5
POLL_WAIT_SECS = 0.25
"""How long a planner's request waits in the driver if there is nothing to do."""
HELD_OPEN_SECS = 1.0
"""How often a planner's request that is held open looks whether its query has ended."""
TABLES = "tables"
"""The folder of a checkpoint with the DataFrames of inlets that are no streams."""
EXECUTOR_ACKER_PAIRS_MIN = 500_000
"""If the previous micro-batch had at least so many (key, xor) pairs, the ackers run on the executors. With fewer the
driver, to which they are some megabytes, judges them sooner than Spark runs a stage more (``scripts/bench driver``)."""
log = logging.getLogger("sparkbolt")


class Life:
    """One life of a topology: its ledger, its coordinator, its query."""

    def __init__(
        self,
        lane: Lane,
        spark: SparkSession,
        checkpoint: Checkpoint,
        calls: Calls,
        tell: Callable[[DriverMachine, Promotion], None],
    ) -> None:
        """Begin a life and open the partitioned spouts; ``start`` begins to process.

        Args:
            lane: the topology, laid out.
            spark: the topology's own session.
            checkpoint: the topology's checkpoint, locked.
            calls: the user calls of the topology; its ``changed`` guards the coordinator, and is notified after each
                promotion.
            tell: called with each promotion while ``changed`` is held; it may release ``changed`` while it waits.
        """
        self.lane = lane
        self.topology = lane.topology
        self.run_id = uuid.uuid4().hex[:12]
        self.query: StreamingQuery | None = None
        self.passing = False
        """Whether it ends after its first promotion, and another life follows (``state_lineage``)."""
        self.failure: QueryFailure | None = None
        """Why its query failed, if the error was raised in the driver."""
        self.collected_bytes = 0
        """How many bytes of frames the driver has collected at the end of the lane."""
        self._spark = spark
        self._checkpoint = checkpoint
        self._calls = calls
        self._changed = calls.changed
        self._tell = tell
        self._partials = 0
        self._answered_s: deque[float] = deque(maxlen=2)
        """When Spark was answered last, and before that, on the monotonic clock."""
        self._released = False
        """Whether Spark is answered at once, since the query is being stopped."""
        self._runs: tuple[int, float] | None = None
        """The number of the running micro-batch, and its start on the monotonic clock; None if none runs."""
        self._ended = False
        self.bundle: JobBundle
        self._wait_until_s: float | None = None
        """Until when the current request waits for something to do; None before it waits."""
        self._spouts: dict[str, PartitionedSpout] = {}
        self._frame: DataFrame | None = None
        """The rows at the end of the lane, of the micro-batch that runs."""
        where = f"checkpoint {checkpoint.directory}"
        try:
            steps = begin(lane, checkpoint.files, WallClock(), checkpoint.last_commit, where=where)
            self.machine = perform_all(steps, self._perform)
            self._commit_calls = CommitCalls(lane, self.bundle.components, self.bundle.checkpoint_id, calls, spark)
            self._bridge = Bridge(self._answer)
            self.coordinator.is_read_logged = self._is_read_logged(self.coordinator.ledger.last_promoted + 1)
        except BaseException:
            close_spouts(self._spouts)
            raise
        self._pages: Pages | None = None
        if is_local(spark):
            self._pages = Pages(f"{self._bridge.directory}/pages")
            self.bundle = replace(self.bundle, pages=self._pages.directory)

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the machine."""
        return self.machine.coordinator

    def _open_spouts(self, spouts: dict[str, PartitionedSpout]) -> None:
        """Open the partitioned spouts and add them to ``spouts``; the caller closes these, also after an error."""
        for spec in self.topology.spouts:
            if isinstance(spec.component, PartitionedSpout):
                spout = in_driver(cloudpickle.loads(self.bundle.components[spec.id]), spec.id, self._calls)
                spouts[spec.id] = spout
                try:
                    with user_code(f"open of {spec.id!r}"):
                        number = self.topology.tasks(spec.id)[0]
                        spout.open(context_of(self.lane, number, checkpoint_id=self.bundle.checkpoint_id))
                except Exception as error:
                    if isinstance(error, SparkboltError) and not isinstance(error, SourceUnavailable):
                        raise  # its message is clear, and a retry would raise it again
                    kind = SpoutAwayError if isinstance(error, SourceUnavailable) else SpoutOpenError
                    raise kind(f"spout {spec.id!r} could not be opened: {line_of(error)}") from error

    def start(self) -> None:
        """Begin to process; returns at once."""
        checkpoint = self._checkpoint
        name_places_anew(checkpoint.files, checkpoint.directory, checkpoint.url)
        self.passing = choose_form(self._spark, checkpoint)
        inlets = open_inlets(self.lane, self._spark, f"{checkpoint.url}/{TABLES}")
        with self._changed:
            self.coordinator.bounded_inlets = frozenset(inlet.component for inlet in inlets if inlet.bounded)
        frame = lane_frame(self._spark, self.lane, self.bundle, self._bridge.directory, inlets)
        jvm.begin_segments(self.run_id)
        writer = frame.writeStream.foreachBatch(self._end_of_lane)
        writer = writer.option("checkpointLocation", checkpoint.spark_directory).queryName(self.run_id)
        self.query = writer.start()

    # Requests of the planner.

    def _answer(self, verb: str, argument: Any) -> Any:
        if self._ended:
            raise RuntimeError("this start of the query has ended")
        with self._failures_kept():
            if verb == Question.INITIAL:
                return dict(BEFORE_THE_FIRST)
            if verb == Question.LATEST:
                start = self._committed_end() if argument is None else argument
                answer = self._latest(start)
                self._answered_s.append(time.monotonic())
                return answer
            if verb == Question.PARTITIONS:
                return self._partitions(argument)
            if verb == Question.IS_COMMITTED:
                return self._checkpoint.last_commit() >= 0 and bool(argument == self._committed_end())
            raise ValueError(f"unknown verb {verb!r}")

    @contextmanager
    def _failures_kept(self) -> Iterator[None]:
        """Store the first error that is raised to Spark, since Spark returns only its text."""
        try:
            yield
        except BaseException as error:
            self.failure = self.failure or query_failure(error)
            raise

    def _committed_end(self) -> Offset:
        """The end of the last micro-batch that is committed, from Spark's logs: Spark 4.1 does not tell it."""
        logged = self._logged(self._checkpoint.last_commit())
        return dict(BEFORE_THE_FIRST) if logged is None else logged.plan

    def _logged(self, micro_batch_id: int) -> LoggedOffset | None:
        data = self._checkpoint.files.read(f"spark/offsets/{micro_batch_id}")
        return None if data is None else logged_offset(data)

    def _has_rows(self, micro_batch_id: int) -> bool:
        """Whether Spark's log has this micro-batch with something new of the sources of inlets."""
        logged = self._logged(micro_batch_id)
        return logged is not None and logged.has_rows(self._logged(micro_batch_id - 1))

    def _is_read_logged(self, micro_batch_id: int) -> bool:
        """Whether Spark's log has this micro-batch, and it reads something: then Spark runs it before any other."""
        logged = self._logged(micro_batch_id)
        plan = self.machine.planner.plan_of(logged.plan) if logged is not None else None
        planned = plan is not None and plan.micro_batch_id == micro_batch_id and Coordinator.reads(plan)
        return planned or self._has_rows(micro_batch_id)

    def _latest(self, start: Offset) -> Offset:
        """Promote the micro-batch that ends at ``start``, then plan the next; wait a little for something to do."""
        with self._changed:
            committed = self.machine.planner.committed(start)
            if committed is not None:
                self._runs = None
            if self.lane.inlets:
                self._look_at_inlets(committed)
            at_once = self.lane.inlets and committed is not None  # Spark is to ask its other sources again
            self._wait_until_s = time.monotonic() if at_once else None
            return self._perform_all(self.machine.asked(start))

    def _wait(self) -> bool:
        """Wait a little for something to do; whether to look again."""
        now_s = time.monotonic()
        if self._wait_until_s is None:
            self._wait_until_s = now_s + POLL_WAIT_SECS
        left = self._wait_until_s - now_s
        if left <= 0 and self.coordinator.ledger.last_promoted >= 0 and self._held_open():
            self._wait_until_s = now_s + HELD_OPEN_SECS
        elif left <= 0:
            return False
        self._changed.wait(min(left, 0.05))
        return not self._ended

    def _look_at_inlets(self, committed: int | None) -> None:
        """Note since when the sources of inlets have had nothing new, if they have.

        Spark asks them before it asks here, and runs a micro-batch if any source has something new. So they had nothing
        if Spark has run none, or one in whose offsets only the plan is new.

        Args:
            committed: the micro-batch that Spark has run since its last request; None if there is none.
        """
        since_s = self._answered_s[0] if len(self._answered_s) == 2 else None
        rows = committed is not None and self._has_rows(committed)
        self.coordinator.inlets_quiet_s = None if rows else since_s

    def _held_open(self) -> bool:
        """Whether Spark is kept from asking the sources of inlets, since the topology is not active."""
        if self.coordinator.active or not self.lane.inlets or self._ended or self._released:
            return False
        return self.query is None or bool(self.query.isActive)

    def _partitions(self, end: Offset) -> list[bytes]:
        with self._changed:
            plan = self.machine.confirmed(end)
            self._runs = plan.micro_batch_id, time.monotonic()
            moment = Moment(plan.micro_batch_id, plan.now_ms)
            shares = self.machine.planner.shares(plan, cores_of(self._spark))
            clocks = clock_rows(self.lane, plan)
            return [packed_task(moment, share, clocks if i == 0 else ()) for i, share in enumerate(shares)]

    # The end of the lane.

    def _end_of_lane(self, frame: DataFrame, micro_batch_id: int) -> None:
        """Run a micro-batch, as ``foreachBatch`` calls it."""
        with self._failures_kept():
            if self._partials >= EXECUTOR_ACKER_PAIRS_MIN and self.lane.acker_dests:
                frame = frame.repartition(self.lane.spark_partitions, "dest").mapInArrow(acker, SCHEMA)
            with self._changed:
                if self.lane.inlets:
                    self.coordinator.inlets_quiet_s = None
                    self.coordinator.is_read_logged = self._has_rows(micro_batch_id)
                self._frame = frame
                self._perform_all(self.machine.ran(micro_batch_id))

    def _executed(self, effect: Execute) -> Feedback:
        """Execute a micro-batch, without the lock."""
        frame, plan = self._frame, effect.plan
        assert frame is not None
        self._runs = self._runs or (plan.micro_batch_id, time.monotonic())
        self._changed.release()
        try:
            if self.lane.inlets:  # their tasks have no plan that tells them
                self._spark.sparkContext.setLocalProperty(MOMENT, f"{plan.micro_batch_id},{plan.now_ms}")
            if effect.repeats:
                repetition.prepare(self._spark, frame, self.run_id)
            if effect.exclusion is not None:
                repetition.announce(self._spark, effect.exclusion)
            return self._collected(frame)
        finally:
            self._changed.acquire()

    def _collected(self, frame: DataFrame) -> Feedback:
        """Start the Spark action of a micro-batch, and gather what it returns."""
        # As ``toArrow`` does, which asks the JVM ten times more for a schema and settings that are known.
        batches = frame._collect_as_arrow()  # type: ignore[operator]  # a column, as far as types tell
        frames = [value.as_buffer() for batch in batches for value in batch.column("frame")]
        self.collected_bytes += sum(len(frame) for frame in frames)
        return gather(frames)

    # The effects of the machine.

    def _perform_all(self, steps: Steps[T]) -> T:
        return perform_all(steps, self._perform)

    def _perform(self, effect: Effect) -> Any:
        checkpoint = self._checkpoint
        match effect:
            case TakeLife():
                return checkpoint.begin_life()
            case OpenSpouts():
                path = sys.path if is_local(self._spark) else ()
                self.bundle = packed(self.lane, self.run_id, path, checkpoint.identity())
                self._open_spouts(self._spouts)
                return self._spouts
            case LetSpoutsEmit():
                pass  # they have threads of their own
            case Counts():
                self._partials = effect.feedback.partials
            case Wait():
                return self._wait()
            case Execute():
                return self._executed(effect)
            case WriteEntry(micro_batch_id, entry):
                checkpoint.write_entry(micro_batch_id, entry)
            case Commit(component, txid, rows):
                self._commit_calls(component, txid, rows)
            case Tell(promotion):
                self._told(promotion)
            case Compact():
                self._compact(effect)
            case _:
                perform_on_files(effect, checkpoint.files, checkpoint.letters, checkpoint.tenure)
        return None

    def _told(self, promotion: Promotion) -> None:
        self._tell(self.machine, promotion)
        self._changed.notify_all()

    def _compact(self, effect: Compact) -> None:
        try:
            self._checkpoint.compact(effect.micro_batch_id, effect.snapshot())
        except OSError as error:  # the entries stay and are as valid; the next compaction replaces them, too
            log.warning(
                "the ledger's log could not be compacted (%s): it is tried again %d micro-batches later",
                error,
                self.topology.config.compact_every,
            )

    @property
    def commit_waits(self) -> str | None:
        """Which commit waits for its target, and why; None if none does."""
        return self._commit_calls.waits

    # The current activity; these methods may be called from any thread, and never wait for the coordinator.

    def sights(self) -> dict[str, Sight]:
        """The activity of each worker process on this machine, by process id; empty while no micro-batch runs."""
        return {} if self._pages is None or self._runs is None else self._pages.sights()

    def progress(self) -> Progress:
        """How far the running micro-batch has come."""
        runs, query = self._runs, self.query
        if runs is None:
            return Progress(levels=len(self.lane.levels))
        micro_batch_id, began_s = runs
        committing = self.coordinator.ledger.staged == micro_batch_id
        found = progress_of(self.lane, micro_batch_id, time.monotonic() - began_s, self.sights().values(), committing)
        if self._pages is None and query is not None and not committing:
            with suppress(Py4JError, OSError):  # the JVM is ending
                level, spark_tasks = stage_that_runs(self._spark, str(query.runId))
                found = replace(found, level=level, spark_tasks=spark_tasks)
        return found

    # The end.

    def promote_what_is_committed(self) -> None:
        """After the query has ended: promote the staged micro-batch, if Spark has committed it."""
        with self._changed:
            self._runs = None
            try:
                self._perform_all(self.machine.query_ended(self._checkpoint.last_commit()))
            except NotReturned as error:
                log.warning("%s: micro-batch %d is promoted at the next start", error, self.coordinator.ledger.staged)

    def stop_query(self) -> None:
        """Stop the query, if it runs; workers that still run user code after ``KILL_AFTER_SECS`` are killed."""
        self._released = True
        killer = threading.Timer(KILL_AFTER_SECS, self._kill_busy)
        killer.daemon = True
        try:
            if self.query is not None and self.query.isActive:
                killer.start()
                self.query.stop()
        except (Py4JError, OSError) as error:
            level = logging.WARNING if jvm_lives(self._spark) else logging.DEBUG
            log.log(level, "the query could not be asked to stop (%s): it ends with its JVM", error)
        finally:
            killer.cancel()

    def _kill_busy(self) -> None:
        """Kill workers in user code: Spark cancels a stopped query's tasks, but kills their processes seconds later."""
        if self._pages is not None:
            self._pages.kill_busy()

    def end(self) -> None:
        """End everything except the threads of spouts; called after the query has ended."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            self._changed.notify_all()
        close_spouts(self.coordinator.spouts)
        self._commit_calls.end()
        self._bridge.close()
        jvm.end_segments(self.run_id)


def close_spouts(spouts: Mapping[str, PartitionedSpout]) -> None:
    """Close each spout, even if others raise or do not return."""
    for component, spout in spouts.items():
        try:
            spout.close()
        except NotReturned as error:
            log.warning("%s: it is left behind, and spout %s is not closed", error, component)
        except BaseException as error:  # noqa: BLE001  user code; the other spouts are closed all the same
            log.error("close of spout %s raised %s; it is taken for closed", component, line_of(error))


class WallClock:
    """The clocks of this process."""

    @property
    def now_ms(self) -> float:
        """The wall clock, in milliseconds since the epoch."""
        return time.time() * 1000

    @property
    def mono_s(self) -> float:
        """The monotonic clock, in seconds."""
        return time.monotonic()
