"""The source: a streaming data source whose offsets are plans.

Which question it answers: how does a plan become the first rows of a micro-batch?
Rule 1: the planner asks the driver for everything and keeps nothing; ``partitions`` is the same for the same plan.
Rule 2: what is read is read on executors; only records of a ``Spout`` ride along.

Spark makes the planner in a process of its own, which outlives micro-batches but not the query.
Read before: ``bridge``, ``workers``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from sparkbolt.core.frames import Moment
from sparkbolt.core.planner import BEFORE_THE_FIRST, Piece
from sparkbolt.core.reading import run_entry
from sparkbolt.core.stages import Row
from sparkbolt.core.worker import Worker
from sparkbolt.spark.bridge import Asker
from sparkbolt.spark.shield import StoreOf, shielded
from sparkbolt.spark.workers import SCHEMA, Shipment, batches_of, staged


class LanePartition(InputPartition):
    """What one spark_task of the source does in a micro-batch."""

    def __init__(self, moment: Moment, pieces: Sequence[Piece], clocks: Sequence[Row]) -> None:
        """Read ``pieces``; send ``clocks`` off as they are."""
        self.moment = moment
        self.pieces = tuple(pieces)
        self.clocks = tuple(clocks)


class LaneReader(DataSourceStreamReader):
    """Plans in the planner process, reads on executors."""

    def __init__(self, directory: str, shipment: Shipment) -> None:
        """Ask the bridge in ``directory``; run the tasks of ``shipment``."""
        self._directory = directory
        self._shipment = shipment

    @property
    def _asker(self) -> Asker:
        asker: Asker = self.__dict__.setdefault("asker", Asker(self._directory))
        return asker

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection out."""
        return {name: value for name, value in vars(self).items() if name != "asker"}

    def initialOffset(self) -> dict[str, Any]:
        """The constant before micro-batch 0."""
        return dict(BEFORE_THE_FIRST)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next plan, or ``start`` if there is nothing to do; waits a little for something to do."""
        offset: dict[str, Any] = self._asker.ask("latest", start)
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each spark_task reads for the plan ``end``."""
        partitions: Sequence[InputPartition] = self._asker.ask("partitions", end)
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the pieces of one spark_task."""
        assert isinstance(partition, LanePartition)
        if partition.clocks:
            yield from batches_of(partition.clocks)
        for piece in partition.pieces:
            with staged():
                rows = shielded(self._shipment.worker(), partial(_read, partition.moment, piece))
            yield from batches_of(rows)


def _read(moment: Moment, piece: Piece, worker: Worker, _: StoreOf) -> list[Row]:
    return run_entry(worker, moment, piece.index, piece.entry, piece.records)


def data_source(shipment: Shipment) -> type[DataSource]:
    """The data source of one run; its name is the run's, so that runs in one session stay apart."""

    class LaneSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"sparkbolt_{shipment.run}"

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return LaneReader(self.options["directory"], shipment)

    return LaneSource
