"""The query: source, levels, acker as Spark's operators.

Which question it answers: which DataFrame is a lane?
Rule 1: a stateless level is ``mapInArrow`` behind a shuffle, a stateful one ``transformWithStateInPandas`` with one
key a task; both shuffle by Spark's hash of ``dest``, for which dests were chosen.
Rule 2: a task's segments are one ``MapState``, committed by Spark with the micro-batch.

Read before: ``source``, ``workers``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from sparkbolt.core.feedback import judge_rows
from sparkbolt.core.lane import Lane
from sparkbolt.core.levels import run_level
from sparkbolt.spark.shield import shielded
from sparkbolt.spark.source import data_source
from sparkbolt.spark.workers import SCHEMA, Shipment, batches_of, parts_of, rows_of, staged


class MapStateStore:
    """A task's segments in Spark's state store; a call costs 50 to 100 us."""

    def __init__(self, state: Any) -> None:
        """Wrap the ``MapState`` of the key that is being processed."""
        self._state = state

    def get(self, key: str) -> bytes | None:
        """The value of a key, or None."""
        row = self._state.getValue((key,))
        return None if row is None else bytes(row[0])

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self._state.updateValue((key,), (value,))

    def delete(self, key: str) -> None:
        """Remove a key that may or may not be there."""
        self._state.removeKey((key,))

    def keys(self) -> Iterable[str]:
        """All keys."""
        return [row[0] for row in self._state.keys()]  # noqa: SIM118  no dict


class LevelProcessor(StatefulProcessor):
    """A stateful level: one grouping key a task."""

    def __init__(self, shipment: Shipment, level: int) -> None:
        """Run level ``level`` of the shipment's lane."""
        self._shipment = shipment
        self._level = level

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once a spark_task, and once in the driver."""
        self._segments = handle.getMapState("segments", "key string", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Called by Spark for each task that has rows, and for each dest that passes through."""
        dest = int(key[0])
        store = MapStateStore(self._segments)
        with staged():
            came = [(dest, frame) for part in rows for frame in part["frame"]]
            out = shielded(
                self._shipment.worker(), lambda own, stores: run_level(own, self._level, came, stores), lambda _: store
            )
        for part in parts_of(out):
            yield pd.DataFrame({"dest": [to for to, _ in part], "frame": [frame for _, frame in part]})

    def close(self) -> None:
        """Called by Spark at the end of a spark_task: nothing is open."""


def stateless_level(shipment: Shipment, level: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What ``mapInArrow`` runs for a level that keeps nothing."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with staged():
            came = [row for batch in batches for row in rows_of(batch)]
            out = shielded(shipment.worker(), lambda own, stores: run_level(own, level, came, stores))
        yield from batches_of(out)

    return run


def acker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What ``mapInArrow`` runs for the ackers, where they are on the executors."""
    with staged():
        out = judge_rows(row for batch in batches for row in rows_of(batch))
    yield from batches_of(out)


def lane_frame(spark: SparkSession, lane: Lane, shipment: Shipment, directory: str) -> DataFrame:
    """The streaming DataFrame whose rows are what comes out of the last level."""
    source = data_source(shipment)
    spark.dataSource.register(source)
    frame = spark.readStream.format(source.name()).option("directory", directory).load()
    for level in lane.levels:
        if level.stateful:
            frame = frame.groupBy("dest").transformWithStateInPandas(
                statefulProcessor=LevelProcessor(shipment, level.number),
                outputStructType=SCHEMA,
                outputMode="append",
                timeMode="none",
            )
        else:
            shuffled = frame.repartition(lane.spark_partitions, "dest")
            frame = shuffled.mapInArrow(stateless_level(shipment, level.number), SCHEMA)
    return frame
