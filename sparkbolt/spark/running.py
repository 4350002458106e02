"""A running topology: the driver's side of the lane.

Which question it answers: what happens between ``start`` and ``stop``?
Rule 1: stage, commit, promote. ``foreachBatch(n)`` stages n and makes its log entry durable; Spark commits n; the
next ``latest`` with the end of n promotes it.
Rule 2: everything that touches the host does so under one lock.
Rule 3: one Spark action a micro-batch.

Read before: ``core.host``, ``checkpoint``, ``lane_query``.
"""

from __future__ import annotations

import copy
import logging
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkbolt.core.collectors import Output
from sparkbolt.core.components import PartitionedSpout, Spout
from sparkbolt.core.feedback import gather
from sparkbolt.core.frames import Moment
from sparkbolt.core.host import Host, ledger_settings
from sparkbolt.core.lane import Lane, lay_out
from sparkbolt.core.ledger import FailedTree, Ledger, Promotion, Story
from sparkbolt.core.ledger_reader import TASKS_FILE, dump_tasks
from sparkbolt.core.metrics import TopologyMetrics
from sparkbolt.core.plan import MicroBatchPlan
from sparkbolt.core.promotion import MicroBatchReport
from sparkbolt.core.reading import clock_rows
from sparkbolt.core.routing import routes_of
from sparkbolt.core.throttle import Throttle
from sparkbolt.core.topology import Topology
from sparkbolt.core.worker import context_of
from sparkbolt.errors import CheckpointError, EngineError
from sparkbolt.spark.bridge import Bridge
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.explain import explain
from sparkbolt.spark.lane_query import acker, lane_frame
from sparkbolt.spark.session import cores_of, for_lane, is_local, make_session
from sparkbolt.spark.source import BEFORE_THE_FIRST, LanePartition, Piece
from sparkbolt.spark.spout_threads import SpoutThread
from sparkbolt.spark.workers import SCHEMA, Shipment

POLL_WAIT_SECS = 0.25
"""How long a planner's question waits inside the driver for something to do."""
EXECUTOR_ACKER_PAIRS_MIN = 50_000
"""From how many (key, xor) pairs in the previous micro-batch on the ackers run on the executors."""
log = logging.getLogger("sparkbolt")


class RunningTopology:
    """A topology on Spark; what ``topology.start()`` gives."""

    def __init__(
        self, topology: Topology, lane: Lane, spark: SparkSession, checkpoint: Checkpoint, temporary: str | None
    ) -> None:
        """Load the ledger, begin a life, open the spouts; ``start`` begins to process."""
        self.topology = topology
        self.lane = lane
        self.run_id = uuid.uuid4().hex[:12]
        self._spark = spark
        self._checkpoint = checkpoint
        self._temporary = temporary
        self._changed = threading.Condition(threading.RLock())
        self._listeners: list[Callable[[MicroBatchReport], None]] = []
        self.collected_bytes = 0
        """Bytes of the frames that came to the driver at the end of the lane, since ``start``."""
        self._partials = 0
        config = topology.config
        self._throttle = Throttle(config.max_error_report_per_interval, config.error_throttle_interval_secs)
        self._stopping = False
        self._failure: str | None = None
        self._query: StreamingQuery | None = None
        self._started = time.monotonic()
        settings = ledger_settings(lane)
        ledger = checkpoint.load_ledger(
            lambda: Ledger(**settings), lambda snapshot, name: Ledger.restore(snapshot, name=name, **settings)
        )
        ledger.begin_life(checkpoint.begin_life())
        self._shipment = Shipment.of(lane, self.run_id)
        self._host = Host(lane, ledger, self._open_spouts(), now_ms=now_ms(), mono_s=time.monotonic())
        self._threads = self._make_threads()
        self._bridge = Bridge(self._answer)

    def _open_spouts(self) -> dict[str, PartitionedSpout]:
        spouts = {}
        for spec in self.topology.spouts:
            if isinstance(spec.component, PartitionedSpout):
                spout = cloudpickle.loads(self._shipment.components[spec.id])
                spout.open(context_of(self.lane, self.topology.tasks(spec.id)[0]))
                spouts[spec.id] = spout
        return spouts

    def _make_threads(self) -> list[SpoutThread]:
        threads = []
        for spec in self.topology.spouts:
            if isinstance(spec.component, Spout):
                for number in self.topology.tasks(spec.id):
                    spout = cloudpickle.loads(self._shipment.components[spec.id])
                    output = Output(spec.id, routes_of(self.topology, spec.id, frozenset(), number))
                    thread = SpoutThread(
                        spout,
                        context_of(self.lane, number),
                        output,
                        self._host.desks[number],
                        self._changed,
                        tracked=self.lane.tracked,
                        report=self._spout_raised,
                    )
                    threads.append(thread)
        return threads

    def start(self) -> None:
        """Begin to process; returns at once."""
        for thread in self._threads:
            thread.start()
        frame = lane_frame(self._spark, self.lane, self._shipment, self._bridge.directory)
        writer = frame.writeStream.foreachBatch(self._end_of_lane)
        writer = writer.option("checkpointLocation", self._checkpoint.spark_directory).queryName(self.run_id)
        self._query = writer.start()

    # What the planner asks.

    def _answer(self, verb: str, argument: Any) -> Any:
        if verb == "latest":
            return self._latest(argument)
        if verb == "partitions":
            return self._partitions(argument)
        raise ValueError(f"unknown verb {verb!r}")

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """Promote the micro-batch that ends at ``start``, then plan the next; ``start`` itself if there is none."""
        with self._changed:
            if start != BEFORE_THE_FIRST and self._host.ledger.staged == start["n"]:
                self._promote(start["n"])
            until = time.monotonic() + POLL_WAIT_SECS
            while not self._stopping:
                plan = self._host.next_plan(now_ms(), time.monotonic())
                if plan is not None:
                    return self._offset(plan)
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 0.05))
            return start

    def _offset(self, plan: MicroBatchPlan) -> dict[str, Any]:
        body = plan.to_json()
        text = plan.dumps()
        if len(text) <= self.topology.config.plan_bytes_max:
            return body
        name = f"{plan.micro_batch_id}-{self._host.life}"
        self._checkpoint.files.write(f"plans/{name}", text.encode())
        return {"v": body["v"], "n": plan.micro_batch_id, "file": name}

    def _plan_of(self, offset: dict[str, Any]) -> MicroBatchPlan:
        if "file" in offset:
            import json

            data = self._checkpoint.files.read(f"plans/{offset['file']}")
            if data is None:
                raise CheckpointError(f"checkpoint {self._checkpoint.directory}: plans/{offset['file']} is missing")
            offset = json.loads(data)
        return MicroBatchPlan.from_json(offset)

    def _partitions(self, end: dict[str, Any]) -> list[LanePartition]:
        with self._changed:
            plan = self._plan_of(end)
            self._host.confirm(plan, time.monotonic())
            moment = Moment(plan.micro_batch_id, plan.now_ms)
            alive = plan.alive_entries(self._host.life)
            pieces: dict[int, list[Piece]] = {}
            for index, entry in enumerate(plan.entries):
                if entry in alive:
                    records = tuple(self._host.records_of(entry)) if entry.source is None else ()
                    pieces.setdefault(entry.task, []).append(Piece(index, entry, records))
            groups: list[list[Piece]] = [[] for _ in range(max(1, min(len(pieces), cores_of(self._spark))))]
            for own in sorted(pieces.values(), key=lambda own: -sum(piece.entry.reserved for piece in own)):
                min(groups, key=lambda group: sum(piece.entry.reserved for piece in group)).extend(own)
            clocks = clock_rows(self.lane, plan)
            return [LanePartition(moment, group, clocks if i == 0 else ()) for i, group in enumerate(groups)]

    # The end of the lane.

    def _end_of_lane(self, frame: DataFrame, micro_batch_id: int) -> None:
        """What ``foreachBatch`` calls: one action, then the ledger's entry."""
        shards = len(self.lane.acker_dests)
        if self._partials >= EXECUTOR_ACKER_PAIRS_MIN and shards:
            frame = frame.repartition(self.lane.spark_partitions, "dest").mapInArrow(acker, SCHEMA)
        frames = [value.as_buffer() for value in frame.select("frame").toArrow().column(0).combine_chunks()]
        self.collected_bytes += sum(len(frame) for frame in frames)
        feedback = gather(frames)
        self._partials = feedback.partials
        with self._changed:
            entry = self._host.stage(micro_batch_id, feedback)
            self._checkpoint.write_entry(micro_batch_id, entry)

    def _promote(self, micro_batch_id: int) -> None:
        promotion = self._host.promote(micro_batch_id, time.monotonic())
        every = self.topology.config.compact_every
        if (micro_batch_id + 1) % every == 0:
            self._checkpoint.compact(micro_batch_id, self._host.ledger.snapshot())
        self._tell(promotion)
        self._changed.notify_all()

    # What users are told.

    def _tell(self, promotion: Promotion) -> None:
        for report in promotion.reports:
            withheld = self._throttle.passes(report.component, time.monotonic())
            if withheld is not None:
                more = f" ({withheld} more were not shown)" if withheld else ""
                log.warning("%s[%d] reported: %s%s", report.component, report.task, report.text, more)
        for tree in promotion.failed:
            if tree.fate == "set_aside":
                log.error("set aside after %d attempt(s): %s", tree.attempt, tree.story)
        reason = self._host.reason_to_stop(promotion)
        if reason is not None and self._failure is None:
            self._failure = reason
            self._host.active = False
        report_ = MicroBatchReport(
            promotion, self._host.ledger.metrics, self._host.ledger.metrics.micro_batch_ms or 0.0
        )
        for listener in self._listeners:
            listener(report_)

    def _spout_raised(self, what: str, error: BaseException) -> None:
        log.error("%s raised %s: %s; it is called again after a pause", what, type(error).__name__, error)
        with self._changed:
            self._host.ledger.metrics.of(what.rsplit(" ", 1)[1].split("[")[0]).errors += 1

    def on_micro_batch(self, listener: Callable[[MicroBatchReport], None]) -> None:
        """Have ``listener`` called after each promotion, from the engine's thread."""
        self._listeners.append(listener)

    def metrics(self) -> TopologyMetrics:
        """A copy of the counters, totals since the topology's first start with its checkpoint."""
        with self._changed:
            return copy.deepcopy(self._host.ledger.metrics)

    @property
    def set_aside(self) -> list[FailedTree]:
        """The newest trees that were given up, with their stories."""
        with self._changed:
            return self._host.ledger.set_aside

    @property
    def failed(self) -> list[FailedTree]:
        """The newest trees that failed, with their stories, also those that were given again."""
        with self._changed:
            return self._host.ledger.failed

    @property
    def traced(self) -> list[Story]:
        """The stories of the newest trees that were traced and acked."""
        with self._changed:
            return self._host.ledger.traced

    # Control.

    @property
    def is_running(self) -> bool:
        """Whether Spark's query is alive."""
        return self._query is not None and self._query.isActive

    @property
    def failure(self) -> str | None:
        """Why the topology failed, in a sentence; None if it did not."""
        if self._failure is None and self._query is not None:
            exception = self._query.exception()
            if exception is not None and not self._stopping:
                self._failure = explain(str(exception))
        return self._failure

    def activate(self) -> None:
        """Let spouts emit again."""
        self._set_active(True)

    def deactivate(self) -> None:
        """Let spouts rest; what is in flight goes on."""
        self._set_active(False)

    def _set_active(self, active: bool) -> None:
        with self._changed:
            self._host.active = active
            self._changed.notify_all()
        for thread in self._threads:
            thread.set_active(active)

    def await_idle(self, timeout_secs: float | None = None) -> bool:
        """Wait until every tree is finished and nothing new has come; False if the time is over first.

        Raises:
            EngineError: the topology failed.
        """
        return self._await(lambda: self._idle, timeout_secs)

    def await_finished(self, timeout_secs: float | None = None) -> bool:
        """Wait until all spouts are exhausted and every tree is finished; False if the time is over first.

        Raises:
            EngineError: the topology failed.
        """
        return self._await(lambda: self._host.finished, timeout_secs)

    def await_drained(self, timeout_secs: float | None = None) -> bool:
        """Wait until no tree is open and every verdict is told; False if the time is over first.

        Call ``deactivate`` before it, else new trees may come for ever.

        Raises:
            EngineError: the topology failed.
        """
        return self._await(lambda: self._host.drained, timeout_secs)

    @property
    def retries(self) -> int:
        """How many records wait to be read again."""
        with self._changed:
            return self._host.ledger.retries

    @property
    def _idle(self) -> bool:
        host = self._host
        return host.drained and not host.ledger.retries and host.next_plan(now_ms(), time.monotonic()) is None

    def _await(self, condition: Callable[[], bool], timeout_secs: float | None) -> bool:
        until = None if timeout_secs is None else time.monotonic() + timeout_secs
        with self._changed:
            while not condition():
                if self.failure is not None:
                    raise EngineError(self.failure)
                if not self.is_running:
                    raise EngineError(f"topology {self.topology.name!r} is not running")
                left = 0.1 if until is None else min(0.1, until - time.monotonic())
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def stop(self, drain: bool = True, timeout_secs: float | None = None) -> bool:
        """Stop: no new tuples; with ``drain`` trees in flight finish first, else they are left for replay.

        Args:
            drain: wait for open trees.
            timeout_secs: how long at most; None for ``message_timeout_secs``.

        Returns:
            Whether no tree was left open.
        """
        if self._query is None:
            return True
        self.deactivate()
        if drain and self.is_running and self.failure is None:
            limit = self.topology.config.message_timeout_secs if timeout_secs is None else timeout_secs
            try:
                self.await_drained(limit)
            except EngineError:
                log.error("topology %r failed while it was draining: %s", self.topology.name, self._failure)
        drained = self._host.drained
        self.close()
        return drained

    def close(self) -> None:
        """End everything that runs for the topology."""
        if self._stopping:
            return
        self.failure  # noqa: B018  remembered before the query is gone
        self._stopping = True
        with self._changed:
            self._changed.notify_all()
        if self._query is not None and self._query.isActive:
            self._query.stop()
        for thread in self._threads:
            thread.close()
        for spout in self._host.spouts.values():
            spout.close()
        self._bridge.close()
        self._checkpoint.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def start(
    topology: Topology,
    *,
    checkpoint: str | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
    settings: dict[str, str] | None = None,
) -> RunningTopology:
    """Start a topology; does not block.

    Args:
        topology: what to run.
        checkpoint: a directory for durable state; without one a temporary directory that is removed at the end.
        master: as of ``spark-submit``, if no session is active; default ``local[*]``.
        spark: the session to use; default the active one, or a new one.
        settings: further settings of a new session.

    Raises:
        EngineError: Java or Spark cannot do the work.
        CheckpointError: the checkpoint is corrupt, another topology's, or in use.
    """
    session = spark if spark is not None else make_session(topology.name, master, settings)
    temporary = None
    if checkpoint is None:
        temporary = checkpoint = tempfile.mkdtemp(prefix="sparkbolt-checkpoint-")
    if not is_local(session) and "://" not in checkpoint:
        raise EngineError(
            f"checkpoint {checkpoint!r} is a local directory, and the topology runs on the cluster "
            f"{session.sparkContext.master}: give a directory that every executor reaches, such as hdfs://... or "
            "file:///a/shared/mount"
        )
    held = Checkpoint(session, checkpoint)
    try:
        placement = held.placement(topology)
        lane = lay_out(topology, cores_of(session), placement)
        if placement is None:
            held.keep_placement(topology, lane.placement())
        held.files.write(TASKS_FILE, dump_tasks(lane))
        running = RunningTopology(topology, lane, for_lane(session, lane.spark_partitions), held, temporary)
    except BaseException:
        held.close()
        raise
    running.start()
    return running
