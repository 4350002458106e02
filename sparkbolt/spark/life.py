"""Life: what runs between one start of Spark's query and its end.

Which question it answers: what does the planner receive, and what happens to the rows that leave the lane?
Rule 1: stage, commit, promote. ``foreachBatch(n)`` stages micro-batch n and makes its log entry durable; Spark commits
n; the next request ``latest`` whose start is the end of n promotes it.
Rule 2: all access to the coordinator is guarded by one lock, which all lives of a driver share. The lock is released
while code of spouts and listeners runs (``user_calls``).
Rule 3: each micro-batch is one Spark action; one of a transactional topology is one action for each execution.
Rule 4: a life that has ended answers no request: only the planner of a query that failed could still send one.

Read before: ``core.driver.coordinator``, ``user_calls``, ``checkpoint``, ``lane_query``.
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

from sparkbolt.core.base.exceptions import is_of, line_of, user_code
from sparkbolt.core.driver.commits import Commits
from sparkbolt.core.driver.coordinator import Coordinator
from sparkbolt.core.driver.ledger.agreement import LoggedOffset, logged_offset
from sparkbolt.core.driver.ledger.files import check_number
from sparkbolt.core.driver.ledger.ledger import Ledger, Promotion
from sparkbolt.core.driver.ledger.settings import ledger_settings
from sparkbolt.core.driver.planner import Planner
from sparkbolt.core.driver.recorder import Observed
from sparkbolt.core.driver.transaction import Transaction
from sparkbolt.core.model.components import PartitionedSpout
from sparkbolt.core.model.lane import Lane
from sparkbolt.core.model.progress import Progress, Sight
from sparkbolt.core.model.reports import QueryFailure
from sparkbolt.core.protocol.acker import gather
from sparkbolt.core.protocol.frames import Moment
from sparkbolt.core.protocol.plan import BEFORE_THE_FIRST, Offset
from sparkbolt.core.protocol.verdicts import Feedback
from sparkbolt.core.worker.activity import progress_of
from sparkbolt.core.worker.source_reader import clock_rows
from sparkbolt.core.worker.worker import context_of
from sparkbolt.errors import SourceUnavailable, SparkboltError, SpoutAwayError, SpoutOpenError
from sparkbolt.spark import jvm, repetition
from sparkbolt.spark.activity_pages import Pages
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.commit_calls import CommitCalls
from sparkbolt.spark.driver_rpc import Bridge
from sparkbolt.spark.driver_rpc_client import Question
from sparkbolt.spark.executor import packed
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.inlets import MOMENT, open_inlets
from sparkbolt.spark.job_bundle import SCHEMA
from sparkbolt.spark.lane_query import acker, lane_frame
from sparkbolt.spark.recording import now_ms
from sparkbolt.spark.relocation import name_places_anew
from sparkbolt.spark.session import cores_of, is_local, jvm_lives, stage_that_runs
from sparkbolt.spark.source_task import packed_task
from sparkbolt.spark.state_lineage import choose_form
from sparkbolt.spark.user_calls import Calls, NotReturned, in_driver

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
        tell: Callable[[Coordinator, Promotion], None],
    ) -> None:
        """Load the ledger, begin a life, open the partitioned spouts; ``start`` begins to process.

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
        self.promoted = False
        """Whether it has promoted a micro-batch."""
        self.telling = False
        """Whether spouts and listeners are being notified of the last promotion."""
        self.quiet = False
        """Whether it has told the planner at least once that there is nothing to do."""
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
        number = checkpoint.begin_life()  # before anything is read: from now on an older driver writes nothing
        settings = ledger_settings(lane)
        ledger = checkpoint.load_ledger(
            lambda: Ledger(**settings), lambda snapshot, name: Ledger.restore(snapshot, name=name, **settings)
        )
        where = f"checkpoint {checkpoint.directory}"
        check_number(number, ledger.life, where=where)
        ledger.begin_life(number)
        checkpoint.drop_uncommitted_letters()
        self.bundle = packed(lane, self.run_id, sys.path if is_local(spark) else (), checkpoint.identity())
        spouts: dict[str, PartitionedSpout] = {}
        try:
            self._open_spouts(spouts)
            self.coordinator = Coordinator(lane, ledger, spouts, now_ms=now_ms(), mono_s=time.monotonic())
            files, transactional = checkpoint.files, self.topology.config.transactional
            self._transaction = Transaction(lane, files) if transactional else None
            self._commit_calls = CommitCalls(lane, self.bundle.components, self.bundle.checkpoint_id, calls, spark)
            self._commits = Commits(lane, files, self._commit_calls)
            last_commit = checkpoint.last_commit if lane.inlets else None
            self._planner = Planner(self.coordinator, files, where=where, last_commit=last_commit)
            self._bridge = Bridge(self._answer)
            self.coordinator.is_read_logged = self._is_read_logged(ledger.last_promoted + 1)
        except BaseException:
            close_spouts(spouts)
            raise
        self._pages: Pages | None = None
        if is_local(spark):
            self._pages = Pages(f"{self._bridge.directory}/pages")
            self.bundle = replace(self.bundle, pages=self._pages.directory)

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
                    if is_of(error, SparkboltError) and not is_of(error, SourceUnavailable):
                        raise  # its message is clear, and a retry would raise it again
                    kind = SpoutAwayError if is_of(error, SourceUnavailable) else SpoutOpenError
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
                self.quiet = self.quiet or answer == start
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
        plan = self._planner.plan_of(logged.plan) if logged is not None else None
        planned = plan is not None and plan.micro_batch_id == micro_batch_id and Coordinator.reads(plan)
        return planned or self._has_rows(micro_batch_id)

    def _latest(self, start: Offset) -> Offset:
        """Promote the micro-batch that ends at ``start``, then plan the next; wait a little for something to do."""
        with self._changed:
            committed = self._planner.committed(start)
            if self.lane.inlets:
                self._look_at_inlets(committed)
            if committed is not None:
                self._promote(committed)
            else:
                self._commit_up_to(self.coordinator.ledger.last_promoted)  # what earlier lives have left
            at_once = self.lane.inlets and committed is not None  # Spark is to ask its other sources again
            until = time.monotonic() + (0.0 if at_once else POLL_WAIT_SECS)
            while not self._ended:
                self.coordinator.observed.times.planned_ms = _wall_ms()
                offset = self._planner.next_offset(now_ms(), time.monotonic())
                if offset is not None:
                    return offset
                left = until - time.monotonic()
                if left <= 0 and self.coordinator.ledger.last_promoted >= 0 and self._held_open():
                    until = time.monotonic() + HELD_OPEN_SECS
                elif left <= 0:
                    return self._planner.no_news(start, now_ms(), time.monotonic())
                self._changed.wait(min(left, 0.05))
            return start

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
            plan = self._planner.confirm(end, time.monotonic())
            self._runs = plan.micro_batch_id, time.monotonic()
            self.coordinator.observed.times.confirmed_ms = _wall_ms()
            moment = Moment(plan.micro_batch_id, plan.now_ms)
            shares = self._planner.shares(plan, cores_of(self._spark))
            clocks = clock_rows(self.lane, plan)
            return [packed_task(moment, share, clocks if i == 0 else ()) for i, share in enumerate(shares)]

    # The end of the lane.

    def _end_of_lane(self, frame: DataFrame, micro_batch_id: int) -> None:
        """Stage a micro-batch, as ``foreachBatch`` calls it: one Spark action, then the ledger's entry."""
        with self._failures_kept():
            self._stage(frame, micro_batch_id)

    def _collected(self, frame: DataFrame) -> Feedback:
        """Execute a micro-batch, and gather what it returns."""
        # As ``toArrow`` does, which asks the JVM ten times more for a schema and settings that are known.
        batches = frame._collect_as_arrow()  # type: ignore[operator]  # a column, as far as types tell
        frames = [value.as_buffer() for batch in batches for value in batch.column("frame")]
        self.collected_bytes += sum(len(frame) for frame in frames)
        return gather(frames)

    def _until_it_counts(self, transaction: Transaction, frame: DataFrame, feedback: Feedback) -> Feedback:
        """Execute a transactional micro-batch again, as long as something fails in it that it has not left out."""
        while True:
            with self._changed:
                plan = self.coordinator.in_force
                assert plan is not None
                self._checkpoint.check_life(self.coordinator.life)
                exclusion = transaction.judge(plan, feedback)
                if exclusion is None:
                    transaction.settle(feedback)
                    return feedback
                times = self.coordinator.observed.times
                times.aborted_ms, times.repeats = _wall_ms(), times.repeats + 1
            log.debug("micro-batch %d is repeated without %d messages", plan.micro_batch_id, len(exclusion.keys))
            repetition.prepare(self._spark, frame, self.run_id)
            repetition.announce(self._spark, exclusion)
            feedback = self._collected(frame)

    def _stage(self, frame: DataFrame, micro_batch_id: int) -> None:
        if self.lane.inlets:
            self._tell_inlets(micro_batch_id)
        if self._transaction is not None:
            with self._changed:
                assert self.coordinator.in_force is not None
                exclusion = self._transaction.begin(self.coordinator.in_force)
            repetition.announce(self._spark, exclusion)
        shards = len(self.lane.acker_dests)
        if self._partials >= EXECUTOR_ACKER_PAIRS_MIN and shards:
            frame = frame.repartition(self.lane.spark_partitions, "dest").mapInArrow(acker, SCHEMA)
        feedback = self._collected(frame)
        if self._transaction is not None:
            feedback = self._until_it_counts(self._transaction, frame, feedback)
        self._partials = feedback.partials
        collected_ms = _wall_ms()
        with self._changed:
            self.coordinator.observed.times.collected_ms = collected_ms
            self._checkpoint.check_life(self.coordinator.life)
            entry = self.coordinator.stage(micro_batch_id, feedback)
            self._checkpoint.write_letters(micro_batch_id, feedback.letters)
            self._commits.stage(micro_batch_id, feedback.kept)
            self._checkpoint.write_entry(micro_batch_id, entry)
            self.coordinator.observed.times.staged_ms = _wall_ms()

    def _tell_inlets(self, micro_batch_id: int) -> None:
        """Tell the tasks that take in the rows of inlets which micro-batch it is; there may be no plan for it."""
        with self._changed:
            self.coordinator.inlets_quiet_s = None
            self.coordinator.is_read_logged = self._has_rows(micro_batch_id)
            self._planner.run_without_plan(micro_batch_id, now_ms(), time.monotonic())
            plan = self.coordinator.in_force
            assert plan is not None
            self._runs = self._runs or (micro_batch_id, time.monotonic())
        self._spark.sparkContext.setLocalProperty(MOMENT, f"{micro_batch_id},{plan.now_ms}")

    def _promote(self, micro_batch_id: int) -> None:
        self._runs = None
        self.telling = True
        self.coordinator.observed.times.committed_ms = _wall_ms()
        try:
            self._commit_up_to(micro_batch_id)
            promotion = self.coordinator.promote(micro_batch_id, time.monotonic())
            if self._transaction is not None:
                self._transaction.forget(micro_batch_id)
            self.promoted = True
            self._tell(self.coordinator, promotion)
            self.coordinator.observed = Observed()
        finally:
            self.telling = False
        if (micro_batch_id + 1) % self.topology.config.compact_every == 0:
            self._compact(micro_batch_id)
        self._changed.notify_all()

    def _commit_up_to(self, micro_batch_id: int) -> None:
        if self._commits.waits:
            self._checkpoint.check_life(self.coordinator.life)
            self._commits.settle(micro_batch_id)

    def _compact(self, micro_batch_id: int) -> None:
        try:
            self._checkpoint.compact(micro_batch_id, self.coordinator.ledger.snapshot())
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
            staged = self._planner.left_over(self._checkpoint.last_commit())
            if staged is None:
                return
            try:
                self._promote(staged)
            except NotReturned as error:
                log.warning("%s: micro-batch %d is promoted at the next start", error, staged)

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


def _wall_ms() -> float:
    return time.time() * 1000
