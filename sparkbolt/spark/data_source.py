"""The source: a streaming data source whose offsets are plans.

Which question it answers: how does a plan become the first rows of a micro-batch?
Rule 1: the planner asks the driver for everything and keeps nothing; ``partitions`` is the same for the same plan.
Rule 2: what is read is read on executors; only records of a ``Spout`` ride along.
Rule 3: the planner, and what Spark starts before it, load nothing of what executors need: a partition is bytes to them.

Spark makes the planner in a process of its own, which outlives micro-batches but not the query.
Read before: ``driver_rpc_client``, ``job_bundle``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from sparkbolt.spark.driver_rpc_client import DriverRpcClient, Question
from sparkbolt.spark.job_bundle import SCHEMA, JobBundle

if TYPE_CHECKING:
    import pyarrow as pa


class LanePartition(InputPartition):
    """What one spark_task of the source does in a micro-batch, as ``source_task`` has packed it."""

    def __init__(self, task: bytes) -> None:
        """Do ``task``."""
        self.task = task


class LaneReader(DataSourceStreamReader):
    """Plans in the planner process, reads on executors."""

    def __init__(self, directory: str, bundle: JobBundle) -> None:
        """Ask the bridge in ``directory``; run the tasks of ``bundle``."""
        self._directory = directory
        self._bundle = bundle

    @property
    def _client(self) -> DriverRpcClient:
        client: DriverRpcClient = self.__dict__.setdefault("client", DriverRpcClient(self._directory))
        return client

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connection out."""
        return {name: value for name, value in vars(self).items() if name != "client"}

    def initialOffset(self) -> dict[str, Any]:
        """The constant before micro-batch 0."""
        offset: dict[str, Any] = self._client.ask(Question.INITIAL)
        return offset

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next plan, or ``start`` if there is nothing to do; waits a little for something to do."""
        offset: dict[str, Any] = self._client.ask(Question.LATEST, start)
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each spark_task reads for the plan ``end``."""
        return [LanePartition(task) for task in self._client.ask(Question.PARTITIONS, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the pieces of one spark_task."""
        from sparkbolt.spark.source_task import read  # rule 3

        assert isinstance(partition, LanePartition)
        return read(self._bundle, partition.task)


def data_source(bundle: JobBundle) -> type[DataSource]:
    """The data source of one run; its name is the run's, so that runs in one session stay apart."""

    class LaneSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"sparkbolt_{bundle.run}"

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return LaneReader(self.options["directory"], bundle)

    return LaneSource
