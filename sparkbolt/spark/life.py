"""Life: a shell of the driver machine, between one start of Spark's query and its end.

``driver.machine`` decides what happens in which order; this file passes Spark's requests to it, and performs its
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import IntEnum
from itertools import zip_longest
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkbolt.api.progress import Progress, Sight
from sparkbolt.api.reports import QueryFailure
from sparkbolt.control.peeks import Peeks
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.durable_effects import perform_on_files
from sparkbolt.driver.effects import (
    AskLag,
    CallSpout,
    Commit,
    Compact,
    Counts,
    Effect,
    Execute,
    LetSpoutsEmit,
    OpenSpouts,
    Steps,
    T,
    TakeLife,
    Tell,
    Wait,
)
from sparkbolt.driver.ledger.agreement import LoggedOffset, logged_offset
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.lifecycle import Lifecycle
from sparkbolt.driver.machine import begin, perform_all
from sparkbolt.layout.lane import Lane
from sparkbolt.spark import jvm, repetition
from sparkbolt.spark.activity_pages import Pages
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.commit_calls import CommitCalls
from sparkbolt.spark.driver_rpc import Bridge
from sparkbolt.spark.driver_rpc_client import Question
from sparkbolt.spark.executor import packed
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.inlet_frames import MOMENT, open_inlets
from sparkbolt.spark.inlet_moves import runs_without_inlets
from sparkbolt.spark.job_bundle import SCHEMA, JobBundle
from sparkbolt.spark.lane_query import acker, lane_frame
from sparkbolt.spark.output_ownership import forget_uncommitted
from sparkbolt.spark.peek_calls import announce_peeks
from sparkbolt.spark.relocation import name_places_anew
from sparkbolt.spark.session import cores_of, is_local, jvm_lives, stage_that_runs
from sparkbolt.spark.source_task import divided_rows, packed_task
from sparkbolt.spark.spout_calls import SpoutCalls
from sparkbolt.spark.state_lineage import choose_form
from sparkbolt.spark.state_moves import initial_states
from sparkbolt.spark.user_calls import Calls, NotReturned
from sparkbolt.wire.acker import gather
from sparkbolt.wire.frames import Moment
from sparkbolt.wire.peek import text_of
from sparkbolt.wire.plan import BEFORE_THE_FIRST, Offset
from sparkbolt.wire.verdicts import Feedback
from sparkbolt.worker.activity import progress_of
from sparkbolt.worker.source_reader import clock_rows

KILL_AFTER_SECS = 0.5
POLL_WAIT_SECS = 0.25
"""How long a planner's request waits in the driver if there is nothing to do."""
HELD_OPEN_SECS = 1.0
"""How often a planner's request that is held open looks whether its query has ended."""
TABLES = "tables"
"""The folder of a checkpoint with the DataFrames of inlets that are not streams."""
EXECUTOR_ACKER_PAIRS_MIN = 500_000
"""If the previous micro-batch had at least so many (key, xor) pairs, the ackers run on the executors. With fewer the
driver, to which they are some megabytes, judges them sooner than Spark runs a stage more (``scripts/bench driver``)."""
log = logging.getLogger("sparkbolt")


class LifePhase(IntEnum):
    """The progress of a life."""

    RUNS = 0
    STOPS = 1
    """Its query is being stopped: Spark is answered at once."""
    ENDED = 2
    """Nothing of it is left but the threads of spouts."""


class Life:
    """One life of a topology: its ledger, its coordinator, its query."""

    def __init__(
        self,
        lane: Lane,
        spark: SparkSession,
        checkpoint: Checkpoint,
        calls: Calls,
        lifecycle: Lifecycle,
        tell: Callable[[Coordinator, Promotion], None],
        peeks: Peeks,
    ) -> None:
        """Begin a life and open the partitioned spouts; ``start`` begins to process.

        Args:
            lane: the topology, laid out.
            spark: the topology's own session.
            checkpoint: the topology's checkpoint, locked.
            calls: the user calls of the topology; its ``changed`` guards the coordinator, and is notified after each
                promotion.
            lifecycle: the state of the topology.
            tell: called with each promotion while ``changed`` is held; it may release ``changed`` while it waits.
            peeks: what operators want to see of the tuples.
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
        self._lifecycle = lifecycle
        self._tell = tell
        self._peeks, self._announced = peeks, ""
        self._partials = 0
        self._phase = LifePhase.RUNS
        self.bundle: JobBundle
        self._wait_until_s: float | None = None
        """Until when the current request waits for something to do; None before it waits."""
        self._spout_calls = SpoutCalls(calls)
        self._reads_inlets = False
        self._frame: DataFrame | None = None
        """The rows at the end of the lane, of the micro-batch that runs."""
        where = f"checkpoint {checkpoint.directory}"
        try:
            steps = begin(
                lane,
                checkpoint.files,
                WallClock(),
                checkpoint.last_commit,
                self._logged,
                generations=checkpoint.generations,
                where=where,
                lifecycle=lifecycle,
                metrics=calls.metrics,
            )
            self.machine = perform_all(steps, self._perform)
            self._commit_calls = CommitCalls(lane, self.bundle.components, self.bundle.checkpoint_id, calls, spark)
            self._bridge = Bridge(self._answer)
        except BaseException:
            self._spout_calls.close()
            raise
        self._pages: Pages | None = None
        if is_local(spark):
            self._pages = Pages(f"{self._bridge.directory}/pages")
            self.bundle = replace(self.bundle, pages=self._pages.directory)

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator of the machine."""
        return self.machine.coordinator

    def start(self) -> None:
        """Begin to process; returns at once."""
        checkpoint = self._checkpoint
        name_places_anew(checkpoint.files, checkpoint.directory, checkpoint.url, checkpoint.generation.folder)
        if 0 <= checkpoint.last_commit() < checkpoint.generation.base:
            forget_uncommitted(self.topology, checkpoint.generation)
        without = bool(self.lane.inlets) and runs_without_inlets(checkpoint)
        self.passing = choose_form(self._spark, checkpoint) or without
        name_of = checkpoint.generations.lasting_name
        tables = {inlet: f"{checkpoint.url}/{TABLES}/{name_of(inlet)}" for inlet in self.lane.inlets}
        inlets = [] if without else open_inlets(self.lane, self._spark, tables)
        self._reads_inlets = bool(inlets)
        with self._changed:
            self.coordinator.bounded_inlets = frozenset(inlet.component for inlet in inlets if inlet.bounded)
        states = initial_states(self._spark, checkpoint, self.bundle)
        checkpoint.reads_before = bool(states)
        frame = lane_frame(self._spark, self.lane, self.bundle, self._bridge.directory, inlets, states)
        jvm.begin_segments(self.run_id)
        writer = frame.writeStream.foreachBatch(self._end_of_lane)
        writer = writer.option("checkpointLocation", checkpoint.spark_directory).queryName(self.run_id)
        self.query = writer.start()

    # Requests of the planner.

    def _answer(self, verb: str, argument: Any) -> Any:
        if self._phase is LifePhase.ENDED:
            raise RuntimeError("this start of the query has ended")
        with self._failures_kept():
            if verb == Question.INITIAL:
                return {**BEFORE_THE_FIRST, "micro_batch_id": self._checkpoint.generation.first - 1}
            if verb == Question.LATEST:
                start = self._committed_end() if argument is None else argument
                return self._latest(start)
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
        """The end of the last micro-batch that is committed, from Spark's logs: Spark 4.1 does not pass it."""
        logged = self._logged(self._checkpoint.last_commit())
        return dict(BEFORE_THE_FIRST) if logged is None else logged.plan

    def _logged(self, micro_batch_id: int) -> LoggedOffset | None:
        data = self._checkpoint.log.read("offsets", micro_batch_id)
        return None if data is None else logged_offset(data)

    def _latest(self, start: Offset) -> Offset:
        """Promote the micro-batch that ends at ``start``, then plan the next; wait a little for something to do."""
        with self._changed:
            self._wait_until_s = None
            return self._perform_all(self.machine.asked(start))

    def _wait(self, at_once: bool) -> bool:
        """Wait a little for something to do; whether to look again."""
        now_s = time.monotonic()
        if self._wait_until_s is None:
            self._wait_until_s = now_s + (0.0 if at_once else POLL_WAIT_SECS)
        left = self._wait_until_s - now_s
        if left <= 0 and self.coordinator.ledger.last_promoted >= 0 and self._held_open():
            self._wait_until_s = now_s + HELD_OPEN_SECS
        elif left <= 0:
            return False
        self._changed.wait(min(left, 0.05))
        return self._phase is not LifePhase.ENDED

    def _held_open(self) -> bool:
        """Whether Spark is kept from asking the sources of inlets, since the topology is not active."""
        if self._lifecycle.emits or not self._reads_inlets or self._phase is not LifePhase.RUNS:
            return False
        return self.query is None or bool(self.query.isActive)

    def _partitions(self, end: Offset) -> list[bytes]:
        with self._changed:
            plan = self.machine.confirmed(end)
            moment = Moment(plan.micro_batch_id, plan.now_ms)
            shares = self.machine.planner.shares(plan, cores_of(self._spark))
            rows = [*clock_rows(self.lane, plan), *self.machine.planner.looped(plan)]
            divided = zip_longest(shares, divided_rows(rows, len(shares)), fillvalue=())
            return [packed_task(moment, share, passing) for share, passing in divided]

    # The end of the lane.

    def _end_of_lane(self, frame: DataFrame, batch_id: int) -> None:
        """Run a micro-batch, as ``foreachBatch`` calls it with Spark's number of it."""
        micro_batch_id = self._checkpoint.generation.first + batch_id
        with self._failures_kept():
            if self._partials >= EXECUTOR_ACKER_PAIRS_MIN and self.lane.acker_dests:
                frame = frame.repartition(self.lane.spark_partitions, "dest").mapInArrow(acker, SCHEMA)
            with self._changed:
                self._frame = frame
                self._perform_all(self.machine.ran(micro_batch_id))

    def _executed(self, effect: Execute) -> Feedback:
        """Execute a micro-batch, without the lock."""
        frame, plan = self._frame, effect.plan
        assert frame is not None
        self._changed.release()
        try:
            if self.lane.inlets:  # their tasks have no plan with these values
                self._spark.sparkContext.setLocalProperty(MOMENT, f"{plan.micro_batch_id},{plan.now_ms}")
            if effect.repeats:
                repetition.prepare(self._spark, frame, self.run_id)
            if effect.exclusion is not None:
                repetition.announce(self._spark, effect.exclusion)
            if (peeks := text_of(self._peeks.wanted(time.monotonic()))) != self._announced:
                announce_peeks(self._spark, peeks)
                self._announced = peeks
            feedback = self._collected(frame)
            if feedback.peeked:
                self._peeks.add(feedback.peeked)
            return feedback
        finally:
            self._changed.acquire()

    def _collected(self, frame: DataFrame) -> Feedback:
        """Start the Spark action of a micro-batch, and gather its results."""
        # Like ``toArrow``, which makes ten more calls to the JVM for a known schema and known settings.
        batches = frame._collect_as_arrow()  # type: ignore[operator]  # typed as a column
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
                return self._spout_calls.open(self.lane, self.bundle)
            case CallSpout():
                return self._spout_calls(effect)
            case AskLag():
                return self._spout_calls.lag(effect)
            case LetSpoutsEmit():
                pass  # they have separate threads
            case Counts():
                self._partials = effect.feedback.partials
            case Wait(at_once):
                return self._wait(at_once)
            case Execute():
                return self._executed(effect)
            case Commit():
                self._commit_calls(effect)
            case Tell(promotion):
                self._tell(self.coordinator, promotion)
                self._changed.notify_all()
            case Compact():
                self._compact(effect)
            case _:
                perform_on_files(effect, checkpoint.files, checkpoint.letters, checkpoint.tenure)
        return None

    def _compact(self, effect: Compact) -> None:
        try:
            self._checkpoint.compact(effect.micro_batch_id, effect.snapshot())
        except OSError as error:  # the entries stay and are as valid; the next compaction replaces them, too
            log.warning(
                "the ledger's log could not be compacted (%s): it is tried again %d micro-batches later",
                error,
                self.topology.config.compact_every,
            )

    def see_lag(self) -> None:
        """Ask the spouts for their lags, for the metrics; called under the lock, which is released meanwhile."""
        self._perform_all(self.coordinator.spout_steps.see_lag())

    @property
    def commit_waits(self) -> str | None:
        """Which commit waits for its target, and why; None if none does."""
        return self._commit_calls.waits

    # The current activity; these methods may be called from any thread, and never wait for the coordinator.

    def sights(self) -> dict[str, Sight]:
        """The activity of each worker process on this machine, by process id; empty while no micro-batch runs."""
        return {} if self._pages is None or self.machine.running is None else self._pages.sights()

    def progress(self) -> Progress:
        """The progress of the running micro-batch."""
        running, query = self.machine.running, self.query
        if running is None:
            return Progress(levels=len(self.lane.levels))
        micro_batch_id, began_s = running
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
            try:
                self._perform_all(self.machine.query_ended(self._checkpoint.last_commit()))
            except NotReturned as error:
                log.warning("%s: micro-batch %d is promoted at the next start", error, self.coordinator.ledger.staged)

    def stop_query(self) -> None:
        """Stop the query, if it runs; workers that still run user code after ``KILL_AFTER_SECS`` are killed."""
        self._phase = max(self._phase, LifePhase.STOPS)
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
            if self._phase is LifePhase.ENDED:
                return
            self._phase = LifePhase.ENDED
            self._changed.notify_all()
        self._spout_calls.close()
        self._commit_calls.end()
        self._bridge.close()
        jvm.end_segments(self.run_id)


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
