"""State moves: gives the first micro-batch of a generation the state of the generation before.

Spark's public reader of state stores reads the segments of the tasks that had them, and ``transformWithState`` takes
them as its initial state. Both run on the executors, and nothing of it goes through the driver. If that micro-batch
fails, it runs again with the same state; once it is committed, the state is that of the new folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as f

from sparkbolt.driver.transition import Move, moves
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.executor import staged, worker_of
from sparkbolt.spark.job_bundle import JobBundle
from sparkbolt.worker.state.division import Division

SEGMENTS = "dest int, key string, value binary"
"""The schema of segments: the dest of a task, and a segment of its store."""
_PARTS = "dest int, source int, key string, value binary"
"""The schema of divided segments: the dest of the task that gets them, and the index of the task that had them."""


def read_segments(spark: SparkSession, folder: str, operator: int, batch_id: int) -> DataFrame:
    """The segments of a level that keeps state, after one of Spark's batches; the columns of ``SEGMENTS``.

    Args:
        spark: the topology's own session.
        folder: the URL of Spark's checkpoint.
        operator: the number of the operator; Spark numbers them from the last level to the first.
        batch_id: Spark's number of a committed batch.
    """
    reader = spark.read.format("statestore").option("operatorId", operator).option("batchId", batch_id)
    stored = reader.option("stateVarName", "segments").load(folder)
    return stored.selectExpr("key.dest as dest", "user_map_key.key as key", "user_map_value.value as value")


def initial_states(spark: SparkSession, checkpoint: Checkpoint, bundle: JobBundle) -> dict[int, GroupedData]:
    """By place of a level among those that keep state: the segments of its tasks, grouped by dest.

    Empty if the generation has its state already.
    """
    unmoved = checkpoint.generations.unmoved(checkpoint.last_commit())
    if unmoved is None:
        return {}
    before, generation = unmoved
    folder, batch_id = f"{checkpoint.url}/{before.folder}", generation.base - 1 - before.first
    by_target: dict[int, list[DataFrame]] = {}
    for source, some in groupby(sorted(moves(before, generation), key=lambda one: one.source), lambda one: one.source):
        stored = read_segments(spark, folder, source, batch_id)
        for move in some:
            by_target.setdefault(move.target, []).append(_moved(stored, move, bundle))
    return {target: reduce(DataFrame.unionByName, frames).groupBy("dest") for target, frames in by_target.items()}


def _moved(stored: DataFrame, move: Move, bundle: JobBundle) -> DataFrame:
    own = stored.where(f.col("dest").isin(list(move.before)))
    if not move.divides:
        places = f.create_map(*(f.lit(dest) for pair in zip(move.before, move.after, strict=True) for dest in pair))
        return own.withColumn("dest", places[f.col("dest")])
    parts = own.groupBy("dest").applyInArrow(_splitter(move, bundle), _PARTS)
    return parts.groupBy("dest").applyInArrow(_joiner(move, bundle), SEGMENTS)


def _division(move: Move, bundle: JobBundle) -> Division:
    worker = worker_of(bundle)
    spec = worker.lane.topology.components[move.component]
    return Division(spec, len(move.before), len(move.after), worker.environment.stamps, worker.environment.namespace)


def _splitter(move: Move, bundle: JobBundle) -> Callable[[pa.Table], pa.Table]:
    def split(stored: pa.Table) -> pa.Table:
        index = move.before.index(stored["dest"][0].as_py())
        segments = dict(zip(stored["key"].to_pylist(), stored["value"].to_pylist(), strict=True))
        with staged():
            parts = _division(move, bundle).split(index, segments)
        return _table(
            (move.after[part], index, key, value) for part, some in parts.items() for key, value in some.items()
        )

    return split


def _joiner(move: Move, bundle: JobBundle) -> Callable[[pa.Table], pa.Table]:
    def join(parts: pa.Table) -> pa.Table:
        dest = parts["dest"][0].as_py()
        rows = sorted(_rows(parts), key=itemgetter(0))
        pieces = [(source, {key: value for _, key, value in some}) for source, some in groupby(rows, key=itemgetter(0))]
        with staged():
            segments = _division(move, bundle).join(move.after.index(dest), pieces)
        return _table(((dest, key, value) for key, value in segments.items()), parts=False)

    return join


def _rows(parts: pa.Table) -> Iterator[tuple[int, str, bytes]]:
    columns: Sequence[list[object]] = [parts[name].to_pylist() for name in ("source", "key", "value")]
    yield from zip(*columns, strict=True)


def _table(rows: Iterable[tuple[object, ...]], *, parts: bool = True) -> pa.Table:
    fields = [("dest", pa.int32()), ("source", pa.int32()), ("key", pa.string()), ("value", pa.binary())]
    schema = pa.schema([field for field in fields if parts or field[0] != "source"])
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema)
