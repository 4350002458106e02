"""Data source: a streaming data source of Spark whose offsets are plans.

Rule 1: the planner asks the driver for everything and keeps nothing; ``partitions`` returns the same for the same plan.
Rule 2: executors read the sources; only the records of a ``Spout`` travel with the plan.
Rule 3: the planner, and the processes that Spark starts before it, load nothing that only executors need: for them a
partition is bytes.

Spark runs the planner in a separate process, which lives for many micro-batches and ends with the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from sparkbolt.spark.driver_rpc_client import DriverRpcClient, Question
from sparkbolt.spark.job_bundle import SCHEMA, JobBundle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit


class LanePartition(InputPartition):
    """The work of one spark_task of the source in a micro-batch, as ``source_task.packed_task`` has packed it."""

    def __init__(self, task: bytes) -> None:
        """Store the packed task."""
        self.task = task


class LaneReader(DataSourceStreamReader):
    """Plans in the planner process, reads on executors."""

    def __init__(self, directory: str, bundle: JobBundle) -> None:
        """Send requests to the driver RPC in ``directory``; read with the tasks of ``bundle``."""
        self._directory = directory
        self._bundle = bundle

    @property
    def _client(self) -> DriverRpcClient:
        client: DriverRpcClient = self.__dict__.setdefault("client", DriverRpcClient(self._directory))
        return client

    def __getstate__(self) -> dict[str, Any]:
        """Pickle everything except the connection."""
        return {name: value for name, value in vars(self).items() if name != "client"}

    def initialOffset(self) -> dict[str, Any]:
        """The constant offset before micro-batch 0."""
        offset: dict[str, Any] = self._client.ask(Question.INITIAL)
        return offset

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """The next plan; ``start`` if there is nothing to do after a short wait.

        Spark 4.1 gives no arguments; the driver then finds the start in Spark's logs.
        """
        offset: dict[str, Any] = self._client.ask(Question.LATEST, start)
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The share of each spark_task in the plan ``end``.

        After a restart, Spark 4.1 requests the empty range after the committed part, which it does not run. The first
        micro-batch of a topology may be an empty range, too, and runs.
        """
        if start == end and self._client.ask(Question.IS_COMMITTED, end):
            return []
        return [LanePartition(task) for task in self._client.ask(Question.PARTITIONS, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the pieces of one spark_task."""
        from sparkbolt.spark.source_task import read  # not at the top of the module, because of rule 3

        assert isinstance(partition, LanePartition)
        return read(self._bundle, partition.task)


def data_source(bundle: JobBundle) -> type[DataSource]:
    """The data source of one run; its name contains the run's, so that runs in one session do not collide."""

    class LaneSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"sparkbolt_{bundle.run}"

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return LaneReader(self.options["directory"], bundle)

    return LaneSource
