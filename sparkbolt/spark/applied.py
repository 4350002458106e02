"""Applied: a topology as a part of somebody else's query.

Which question it answers: how do the rows of a DataFrame pass the bolts of a topology, and become a DataFrame again?
Rule 1: nothing is tracked: no driver of ours sees the query. So nothing is acked, retried or set aside, and what would
need the driver is refused: windows, ticks, committers, bolts that start trees.
Rule 2: the layout depends on the topology alone, so that the tasks find their state in the checkpoint of the query.
Rule 3: a failure is never silent: it fails the query, or it is logged.

Read before: ``lane_query``, ``inlets``.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pickle import loads
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparkbolt.core.base.arrow_values import array_of
from sparkbolt.core.base.exceptions import line_of
from sparkbolt.core.model.committers import Committer, CommittingBolt
from sparkbolt.core.model.components import PartitionedSpout
from sparkbolt.core.model.groupings import ShuffleGrouping
from sparkbolt.core.model.lane import lay_out
from sparkbolt.core.model.metrics import unpack
from sparkbolt.core.model.ranges import BadRecord, Range
from sparkbolt.core.model.runtime_bolts import RuntimeBolt
from sparkbolt.core.model.story import short_values
from sparkbolt.core.model.topology import ComponentSpec, Topology
from sparkbolt.core.model.tuples import DEFAULT_STREAM
from sparkbolt.core.model.validation import Subscription
from sparkbolt.core.protocol.frames import FrameKind, Moment, decode_control, kind_of
from sparkbolt.core.protocol.verdicts import KeptRows
from sparkbolt.core.worker.routing import EmittedRows
from sparkbolt.core.worker.stage import Stage
from sparkbolt.errors import EngineError
from sparkbolt.spark.executor import batches_of, packed, rows_of, staged, worker_of
from sparkbolt.spark.failure_text import python_mistake
from sparkbolt.spark.inlets import column_of_arrow, with_fields
from sparkbolt.spark.job_bundle import SCHEMA, JobBundle
from sparkbolt.spark.lane_query import level_frame
from sparkbolt.spark.session import SQL_SETTINGS, is_local

END = "__applied"
"""The component that takes the tuples of the stream out of the topology."""
CORES = 1 << 20
"""The layout is that of a machine with more cores than tasks."""
BATCH_ID = "streaming.sql.batchId"
"""Spark's property of a job with the number of the micro-batch."""
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
RAISE, DROP = "raise", "drop"
log = logging.getLogger("sparkbolt")


class AppliedRows(PartitionedSpout):
    """Stands for the DataFrame in the topology's layout."""

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Never called: Spark reads."""
        return ()

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Never called: Spark reads."""
        return iter(())


class TupleValues(Committer):
    """Takes the values of tuples out of the topology."""

    def row(self, tup: Any) -> list[Any]:
        """The values."""
        return list(tup.values)

    def commit(self, txid: int, rows: Sequence[Any]) -> None:
        """Never called: Spark's query takes the rows."""


def apply(
    topology: Topology, df: DataFrame, *, schema: str | StructType, component: str | None, stream: str, failures: str
) -> DataFrame:
    """The tuples of a stream as a DataFrame; see ``Topology.apply``."""
    if failures not in (RAISE, DROP):
        raise EngineError(f"failures is {failures!r}, expected {RAISE!r} or {DROP!r}")
    spout, source = _only_spout(topology), _source_of(topology, component)
    mistakes = [why for spec in topology.components.values() for why in _beyond(spec)]
    if topology.config.transactional:
        mistakes.append("it is transactional, and a query that Sparkbolt does not drive cannot be")
    if mistakes:
        raise EngineError(f"topology {topology.name!r} cannot be applied to a DataFrame: {'; '.join(mistakes)}")
    mistake = python_mistake(df.sparkSession.sparkContext)
    if mistake is not None:
        raise EngineError(mistake)
    fields = spout.stream(DEFAULT_STREAM).fields
    chosen = with_fields(df, spout.id, fields)
    wanted = _schema(schema, source.id, source.stream(stream).fields)
    lane = lay_out(_untracked(topology, source.id, stream), CORES)
    spark = df.sparkSession
    if any(level.stateful for level in lane.levels) and df.isStreaming:
        _check_state_store(spark.conf.get(PROVIDER, "") or "")
    bundle = packed(lane, uuid.uuid4().hex[:12], sys.path if is_local(spark) else ())
    frame = chosen.mapInArrow(_entered(bundle, spout.id), SCHEMA)
    for level in lane.levels:
        frame = level_frame(frame, lane, bundle, level)
    return frame.mapInArrow(partial(_left, to_arrow_schema(wanted), failures), wanted)


def _only_spout(topology: Topology) -> ComponentSpec:
    if len(topology.spouts) != 1:
        names = [spec.id for spec in topology.spouts]
        raise EngineError(
            f"topology {topology.name!r} has {len(names)} spouts ({', '.join(names)}): one DataFrame is for one spout; "
            "unite the sources in the DataFrame"
        )
    return topology.spouts[0]


def _source_of(topology: Topology, component: str | None) -> ComponentSpec:
    """The bolt whose tuples are wanted."""
    if component is not None:
        return topology.component(component)
    heard = {subscription.source for spec in topology.bolts for subscription in spec.subscriptions}
    last = [spec for spec in topology.bolts if spec.id not in heard and spec.streams]
    if len(last) != 1:
        raise EngineError(
            f"topology {topology.name!r} has {len(last)} bolts with outputs to which no other subscribes "
            f"({', '.join(spec.id for spec in last) or 'none'}): say component=... of the stream that is wanted"
        )
    return last[0]


def _beyond(spec: ComponentSpec) -> Iterator[str]:
    """Yield why a component needs Sparkbolt's own driver."""
    bolt = spec.component
    if isinstance(bolt, RuntimeBolt):
        yield f"{spec.id!r} has windows, whose time nobody tells it"
    elif getattr(bolt, "starts_trees", False):
        yield f"{spec.id!r} starts trees, which nobody settles"
    elif isinstance(bolt, CommittingBolt):
        yield f"{spec.id!r} is a committer, and nobody calls its commit: write the DataFrame instead"
    if not spec.is_spout and spec.config.tick_tuple_freq_secs:
        yield f"{spec.id!r} wants ticks, which nobody sends"


def _schema(given: str | StructType, source: str, fields: Sequence[str]) -> StructType:
    wanted = StructType.fromDDL(given) if isinstance(given, str) else given
    if not isinstance(wanted, StructType):
        raise EngineError(
            f"schema is {given!r}, expected the types of {list(fields)}, such as 'word string, count long'"
        )
    if wanted.fieldNames() != list(fields):
        raise EngineError(f"schema has the columns {wanted.fieldNames()}, and {source!r} emits {list(fields)}")
    return wanted


def _check_state_store(provider: str) -> None:
    if not provider.endswith("RocksDBStateStoreProvider"):
        raise EngineError(
            "a bolt keeps state, and Spark has it only in RocksDB: spark.conf.set("
            f'"{PROVIDER}", "{SQL_SETTINGS[PROVIDER]}") before the query starts'
        )


def _untracked(topology: Topology, source: str, stream: str) -> Topology:
    """The topology without tracking, and with the component that takes the tuples out."""

    def changed(config: Any) -> Any:
        return replace(config, acker_tasks=0)

    components: dict[str, ComponentSpec] = {
        name: replace(spec, config=changed(spec.config), component=AppliedRows() if spec.is_spout else spec.component)
        for name, spec in topology.components.items()
    }
    subscription = Subscription(source, stream, ShuffleGrouping())
    components[END] = ComponentSpec(END, TupleValues(), 1, (), (subscription,), changed(topology.config))
    return Topology(topology.name, changed(topology.config), components)


# On executors.


def _entered(bundle: JobBundle, spout: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that ``mapInArrow`` runs on the user's rows: the source, with the bolts that are fused with it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        piece, sent = context.partitionId(), 0
        moment = Moment(int(context.getLocalProperty(BATCH_ID) or 0), int(time.time() * 1000))
        with staged():
            worker = worker_of(bundle)
            tasks = worker.lane.topology.tasks(spout)
            number = tasks[piece % len(tasks)]
            stage = Stage(worker, moment, piece)
            [stream] = [one for one in worker.routes(number) if one.name == DEFAULT_STREAM]
        for batch in batches:
            with staged():
                columns = [column_of_arrow(column) for column in batch.columns]
                stage.send(EmittedRows(stream, columns, batch.num_rows, sent, None), number)
                sent += batch.num_rows
                rows = stage.writer.take()
            yield from batches_of(rows)
        with staged():
            rows = stage.finish().to_rows(stage.lane)
        yield from batches_of(rows)

    return run


def _left(schema: pa.Schema, failures: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What ``mapInArrow`` runs on the rows at the end of the lane: the tuples leave, and failures are told."""
    for batch in batches:
        for _, data in rows_of(batch):
            kind = kind_of(data)
            if kind == FrameKind.ROWS:
                kept = KeptRows(*decode_control(data, FrameKind.ROWS))
                yield _typed([loads(row) for row in kept.rows], schema, failures)
            elif kind == FrameKind.FEEDBACK:
                _tell(decode_control(data, FrameKind.FEEDBACK), failures)


def _typed(rows: list[list[Any]], schema: pa.Schema, failures: str) -> pa.RecordBatch:
    """The tuples as a frame of the result.

    Raises:
        EngineError: a value does not fit its column, and ``failures`` says that such a tuple is not left out.
    """
    try:
        return _batch(rows, schema)
    except EngineError:
        fitting = []
        for row in rows:
            try:
                _batch([row], schema)
            except EngineError as error:
                text = f"{error}: the tuple is {short_values(schema.names, row)}"
                if failures == RAISE:
                    raise EngineError(text) from error.__cause__
                log.warning("%s; it is left out", text)
            else:
                fitting.append(row)
        return _batch(fitting, schema)


def _batch(rows: list[list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for place, field in enumerate(schema):
        try:
            columns.append(array_of([row[place] for row in rows], field.type))
        except TypeError as error:
            raise EngineError(f"a value of field {field.name!r} is no {field.type}: {line_of(error)}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _tell(feedback: tuple[Any, ...], failures: str) -> None:
    """Raise or log what failed in a stage."""
    metrics, reports, *_ = feedback
    counts: Mapping[str, Any] = unpack(metrics)
    failed = {name: one.failed for name, one in counts.items() if one.failed}
    if not failed and not any(one.errors for one in counts.values()):
        return
    said = [f"{report.component}[{report.task}] {report.text}" for report in reports]
    text = f"{sum(failed.values())} tuples failed ({', '.join(failed)}): {'; '.join(said[:3]) or 'without a report'}"
    if failures == RAISE:
        raise EngineError(text)
    log.warning("%s; they are left out", text)
