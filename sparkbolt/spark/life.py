"""A life: what runs between one start of Spark's query and its end.

Which question it answers: what does the planner get, what becomes of what comes out of the lane?
Rule 1: stage, commit, promote. ``foreachBatch(n)`` stages n and makes its log entry durable; Spark commits n; the
next ``latest`` with the end of n promotes it.
Rule 2: everything that touches the host does so under one lock, which lives share.
Rule 3: one Spark action a micro-batch.
Rule 4: a life that has ended answers nobody: what may still ask is a planner of a query that failed.

Read before: ``core.host``, ``checkpoint``, ``lane_query``.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import cloudpickle
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparkbolt.core.components import PartitionedSpout
from sparkbolt.core.feedback import gather
from sparkbolt.core.frames import Moment
from sparkbolt.core.host import Host
from sparkbolt.core.lane import Lane
from sparkbolt.core.ledger import Ledger, Promotion
from sparkbolt.core.ledger_settings import ledger_settings
from sparkbolt.core.plan import MicroBatchPlan
from sparkbolt.core.reading import clock_rows
from sparkbolt.core.worker import context_of
from sparkbolt.errors import CheckpointError
from sparkbolt.spark.bridge import Bridge
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.lane_query import acker, lane_frame
from sparkbolt.spark.lineage import choose_form
from sparkbolt.spark.session import cores_of, is_local
from sparkbolt.spark.source import BEFORE_THE_FIRST, LanePartition, Piece
from sparkbolt.spark.workers import SCHEMA, Shipment

POLL_WAIT_SECS = 0.25
"""How long a planner's question waits inside the driver for something to do."""
EXECUTOR_ACKER_PAIRS_MIN = 50_000
"""From how many (key, xor) pairs in the previous micro-batch on the ackers run on the executors."""
log = logging.getLogger("sparkbolt")


class Life:
    """One life of a topology: its ledger, its host, its query."""

    def __init__(
        self,
        lane: Lane,
        spark: SparkSession,
        checkpoint: Checkpoint,
        changed: threading.Condition,
        tell: Callable[[Host, Promotion], None],
    ) -> None:
        """Load the ledger, begin a life, open the partitioned spouts; ``start`` begins to process.

        Args:
            lane: the topology, laid out.
            spark: a session of the topology's own.
            checkpoint: locked.
            changed: guards the host, and is notified whenever something was promoted.
            tell: called with each promotion, under ``changed``.
        """
        self.lane = lane
        self.topology = lane.topology
        self.run_id = uuid.uuid4().hex[:12]
        self.query: StreamingQuery | None = None
        self.passing = False
        """Whether it has done its work with its first promotion (``lineage``), and another life is to follow."""
        self.promoted = False
        """Whether it has promoted a micro-batch."""
        self.collected_bytes = 0
        """Bytes of the frames that came to the driver at the end of the lane."""
        self._spark = spark
        self._checkpoint = checkpoint
        self._changed = changed
        self._tell = tell
        self._partials = 0
        self._ended = False
        number = checkpoint.begin_life()  # before anything is read: from here on an older driver writes nothing
        settings = ledger_settings(lane)
        ledger = checkpoint.load_ledger(
            lambda: Ledger(**settings), lambda snapshot, name: Ledger.restore(snapshot, name=name, **settings)
        )
        ledger.begin_life(number)
        checkpoint.drop_uncommitted_letters()
        self.shipment = Shipment.of(lane, self.run_id, sys.path if is_local(spark) else ())
        self.host = Host(lane, ledger, self._open_spouts(), now_ms=now_ms(), mono_s=time.monotonic())
        self._bridge = Bridge(self._answer)

    def _open_spouts(self) -> dict[str, PartitionedSpout]:
        spouts = {}
        for spec in self.topology.spouts:
            if isinstance(spec.component, PartitionedSpout):
                spout = cloudpickle.loads(self.shipment.components[spec.id])
                spout.open(context_of(self.lane, self.topology.tasks(spec.id)[0]))
                spouts[spec.id] = spout
        return spouts

    def start(self) -> None:
        """Begin to process; returns at once."""
        self.passing = choose_form(self._spark, self._checkpoint)
        frame = lane_frame(self._spark, self.lane, self.shipment, self._bridge.directory)
        writer = frame.writeStream.foreachBatch(self._end_of_lane)
        writer = writer.option("checkpointLocation", self._checkpoint.spark_directory).queryName(self.run_id)
        self.query = writer.start()

    # What the planner asks.

    def _answer(self, verb: str, argument: Any) -> Any:
        if self._ended:
            raise RuntimeError("this start of the query has ended")
        if verb == "latest":
            return self._latest(argument)
        if verb == "partitions":
            return self._partitions(argument)
        raise ValueError(f"unknown verb {verb!r}")

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        """Promote the micro-batch that ends at ``start``, then plan the next; ``start`` itself if there is none."""
        with self._changed:
            if start != BEFORE_THE_FIRST and self.host.ledger.staged == start["n"]:
                self._promote(start["n"])
            until = time.monotonic() + POLL_WAIT_SECS
            while not self._ended:
                plan = self.host.next_plan(now_ms(), time.monotonic())
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
        name = f"{plan.micro_batch_id}-{self.host.life}"
        self._checkpoint.files.write(f"plans/{name}", text.encode())
        return {"v": body["v"], "n": plan.micro_batch_id, "file": name}

    def _plan_of(self, offset: dict[str, Any]) -> MicroBatchPlan:
        if "file" in offset:
            data = self._checkpoint.files.read(f"plans/{offset['file']}")
            if data is None:
                raise CheckpointError(f"checkpoint {self._checkpoint.directory}: plans/{offset['file']} is missing")
            offset = json.loads(data)
        return MicroBatchPlan.from_json(offset)

    def _partitions(self, end: dict[str, Any]) -> list[LanePartition]:
        with self._changed:
            plan = self._plan_of(end)
            self.host.confirm(plan, time.monotonic())
            moment = Moment(plan.micro_batch_id, plan.now_ms)
            alive = plan.alive_entries(self.host.life)
            pieces: dict[int, list[Piece]] = {}
            for index, entry in enumerate(plan.entries):
                if entry in alive:
                    records = tuple(self.host.records_of(entry)) if entry.source is None else ()
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
            self._checkpoint.check_life(self.host.life)
            entry = self.host.stage(micro_batch_id, feedback)
            self._checkpoint.write_letters(micro_batch_id, feedback.letters)
            self._checkpoint.write_entry(micro_batch_id, entry)

    def _promote(self, micro_batch_id: int) -> None:
        promotion = self.host.promote(micro_batch_id, time.monotonic())
        self.promoted = True
        self._tell(self.host, promotion)
        if (micro_batch_id + 1) % self.topology.config.compact_every == 0:
            self._compact(micro_batch_id)
        self._changed.notify_all()

    def _compact(self, micro_batch_id: int) -> None:
        try:
            self._checkpoint.compact(micro_batch_id, self.host.ledger.snapshot())
        except OSError as error:  # entries that stay are as good, and the next compaction takes them along
            log.warning(
                "the ledger's log could not be compacted (%s): it is tried again %d micro-batches later",
                error,
                self.topology.config.compact_every,
            )

    # The end.

    def promote_what_is_committed(self) -> None:
        """After the query has ended: hear of the last micro-batch, if Spark has committed it and nobody asked since."""
        with self._changed:
            staged = self.host.ledger.staged
            if staged is not None and staged == self._checkpoint.last_commit():
                self._promote(staged)

    def stop_query(self) -> None:
        """Stop the query, if it runs."""
        try:
            if self.query is not None and self.query.isActive:
                self.query.stop()
        except (Py4JError, OSError) as error:
            log.warning("the query could not be asked to stop (%s): it ends with its JVM", error)

    def end(self) -> None:
        """End everything but the threads of spouts; the query has ended."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            self._changed.notify_all()
        for spout in self.host.spouts.values():
            spout.close()
        self._bridge.close()


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
