"""Lane query: the source, the levels and the acker as operators of Spark.

A stateless level is a shuffle followed by ``mapInArrow``; a stateful level is ``transformWithStateInPandas`` with one
key per dest. Both shuffle by Spark's hash of ``dest``; the lane has chosen the dests for that hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData, SparkSession

from sparkbolt.layout.lane import Lane
from sparkbolt.spark.crash_shield import shielded
from sparkbolt.spark.data_source import data_source
from sparkbolt.spark.executor import batches_of, rows_of, staged, worker_of
from sparkbolt.spark.inlet_frames import InletFrame, rows_of_inlets
from sparkbolt.spark.job_bundle import SCHEMA, JobBundle
from sparkbolt.spark.processor import LevelProcessor
from sparkbolt.wire.acker import judge_rows
from sparkbolt.worker.stage import run_level

_NO_STATES: Mapping[int, GroupedData] = {}


def stateless_level(bundle: JobBundle, level: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that ``mapInArrow`` runs for a stateless level."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with staged():
            came = [row for batch in batches for row in rows_of(batch)]
            out = shielded(worker_of(bundle), lambda own, stores: run_level(own, level, came, stores).to_rows(own.lane))
        yield from batches_of(out)

    return run


def acker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that ``mapInArrow`` runs for the ackers, if they run on the executors."""
    with staged():
        out = judge_rows(row for batch in batches for row in rows_of(batch))
    yield from batches_of(out)


def lane_frame(
    spark: SparkSession,
    lane: Lane,
    bundle: JobBundle,
    directory: str,
    inlets: Sequence[InletFrame] = (),
    states: Mapping[int, GroupedData] = _NO_STATES,
) -> DataFrame:
    """The streaming DataFrame of the rows that the last level returns.

    Args:
        spark: the topology's own session.
        lane: the topology, laid out.
        bundle: its job bundle.
        directory: where the source asks for its plans.
        inlets: the DataFrames of inlets.
        states: as ``state_moves.initial_states`` returns them.
    """
    source = data_source(bundle)
    spark.dataSource.register(source)
    frame = spark.readStream.format(source.name()).option("directory", directory).load()
    frame = rows_of_inlets(frame, lane, inlets)
    place = 0
    for level in lane.levels:
        if level.stateful:
            frame = frame.groupBy("dest").transformWithStateInPandas(
                statefulProcessor=LevelProcessor(bundle, level.number),
                outputStructType=SCHEMA,
                outputMode="append",
                timeMode="none",
                initialState=states.get(place),
            )
            place += 1
        else:
            shuffled = frame.repartition(lane.spark_partitions, "dest")
            frame = shuffled.mapInArrow(stateless_level(bundle, level.number), SCHEMA)
    return frame
