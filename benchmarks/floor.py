"""The time of a micro-batch with little data.

How long is it, and what does the lane cost above a Structured Streaming query of the same shape, written by hand? The
stateful shape: a Python source, one shuffle, one stateful level with a key a task, ``foreachBatch`` that collects. The
stateless shape has ``mapInArrow`` in place of the stateful level.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import MASTER, PARALLELISM, TIMEOUT_SECS, Options, in_turn, one_level, run
from benchmarks.spouts import Numbers
from benchmarks.words import WordCount
from sparkbolt import BasicBolt, Topology
from sparkbolt.api.components import BoltBase
from sparkbolt.spark.session import for_lane, make_session

TUPLES = 10
"""A micro-batch has so many tuples."""
MICRO_BATCHES = 40
WARM = 10
STATEFUL_S, STATELESS_S = 0.2, 0.12
"""How long a micro-batch should be at most, in seconds."""
SCHEMA = "dest int, frame binary"


class PassOn(BasicBolt):
    """Keeps nothing."""

    outputs = ["word"]
    stateless = True

    def execute(self, tup, collector):
        collector.emit([tup["word"]])


class TenRows(DataSourceStreamReader):
    """A source that always has ten rows more, half of them for each key."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"at": start["at"] + TUPLES}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        numbers = range(*partition.value)
        dests = pa.array([number % PARALLELISM for number in numbers], pa.int32())
        frames = pa.array([b"%d" % number for number in numbers], pa.binary())
        yield pa.RecordBatch.from_arrays([dests, frames], names=["dest", "frame"])


class TenRowsSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ten_rows"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return TenRows()


class CountRows(StatefulProcessor):
    """Counts the rows of a key in one value of the state store."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.counts = handle.getMapState("counts", "key string", "value binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        known = int(bytes(self.counts.getValue(("rows",))[0])) if self.counts.containsKey(("rows",)) else 0
        count = b"%d" % (known + sum(len(part) for part in rows))
        self.counts.updateValue(("rows",), (count,))
        yield pd.DataFrame({"dest": [int(key[0])], "frame": [count]})

    def close(self) -> None:
        pass


def stateful(rows: DataFrame) -> DataFrame:
    """One shuffle, and a stateful level."""
    return rows.groupBy("dest").transformWithStateInPandas(
        statefulProcessor=CountRows(), outputStructType=SCHEMA, outputMode="append", timeMode="none"
    )


def stateless(rows: DataFrame) -> DataFrame:
    """One shuffle, and a level without state."""
    return rows.repartition(PARALLELISM, "dest").mapInArrow(_same, SCHEMA)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def by_hand_s(shape: Callable[[DataFrame], DataFrame]) -> float:
    """Seconds of a micro-batch of a hand-written query."""
    ends: list[float] = []
    spark = for_lane(make_session("floor", MASTER), PARALLELISM)
    spark.dataSource.register(TenRowsSource)

    def end_of_query(frame: DataFrame, micro_batch_id: int) -> None:
        frame.toArrow()
        ends.append(time.perf_counter())

    rows = shape(spark.readStream.format("ten_rows").load())
    with tempfile.TemporaryDirectory(prefix="sparkbolt-floor-", ignore_cleanup_errors=True) as directory:
        query = rows.writeStream.foreachBatch(end_of_query).option("checkpointLocation", directory).start()
        until = time.monotonic() + TIMEOUT_SECS
        while len(ends) < MICRO_BATCHES and query.isActive and time.monotonic() < until:
            time.sleep(0.1)
        failure = query.exception()
        query.stop()
    if failure is not None:
        raise RuntimeError(f"the hand-written query failed: {failure}")
    return _between(ends)


def small(bolt: BoltBase) -> Topology:
    """A topology of the same shape, which ends after ``MICRO_BATCHES``."""
    return one_level("floor", Numbers(TUPLES, fill=0, steps=(TUPLES,), cycles=MICRO_BATCHES), bolt)


def lane_s(bolt: BoltBase) -> float:
    """Seconds of a micro-batch of a topology of the same shape."""
    return _between([mark.at_s for mark in run(small(bolt))])


def _between(ends: Sequence[float]) -> float:
    steady = ends[WARM:MICRO_BATCHES]
    return statistics.median(after - before for before, after in itertools.pairwise(steady))


def figures(options: Options) -> Iterator[Figure]:
    """Measure: the lane and the hand-written query of both shapes, in turn."""
    by_hand_s(stateful)
    lane, by_hand, lane_bare, by_hand_bare = in_turn(
        options.rounds,
        lambda: lane_s(WordCount()),
        lambda: by_hand_s(stateful),
        lambda: lane_s(PassOn()),
        lambda: by_hand_s(stateless),
    )
    facts = {"tuples_a_micro_batch": TUPLES, "micro_batches": MICRO_BATCHES - WARM}
    yield Figure("floor", "a micro-batch of the lane, stateful", lane, "s", Aim("at most", STATEFUL_S), facts)
    yield Figure("floor", "a hand-written query, stateful", by_hand, "s")
    yield Figure("floor", "the lane against that query", ratios(lane, by_hand), "times", Aim("at most", 1.3))
    yield Figure("floor", "a micro-batch of the lane, stateless", lane_bare, "s", Aim("at most", STATELESS_S))
    yield Figure("floor", "a hand-written query, stateless", by_hand_bare, "s")
    yield Figure("floor", "the stateless lane against that", ratios(lane_bare, by_hand_bare), "times")
