"""SparkSink: the tuples of a stream as a DataFrame, for any writer of Spark's, as by ``foreachBatch``.

The function runs in the driver, after Spark has committed the micro-batch and before its messages are acked. It gets
rows, not a plan: no code of a bolt runs again. ``batch_id`` is the txid, which is the same when a call is repeated.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from sparkbolt.api.arguments import checked, function
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.exceptions import printed
from sparkbolt.connectors.files.part_files import full_disk_is_away
from sparkbolt.connectors.tables.table_committer import TableCommitter, typed
from sparkbolt.connectors.tables.table_schema import SchemaLike
from sparkbolt.errors import ConfigError

FILE_BYTES_MIN = 4 << 20
"""On one machine, rows of so many bytes go to Spark by a file, three times as fast as by ``createDataFrame``, which
holds them on the JVM's heap besides. On a cluster, executors do not see the driver's files."""
TIMESTAMP_TYPE = "spark.sql.timestampType"
FILE_GROUP_ROWS = 1 << 17
"""How many rows of that file one spark_task reads at least."""

BatchFunction: TypeAlias = Callable[[Any, int], Any]
"""Writes a DataFrame: called with it and the number of its micro-batch."""


class SparkSink(TableCommitter):
    """Passes the tuples of a stream as a DataFrame to ``function(batch_df, batch_id)``, once for each micro-batch.

    ``set_bolt`` subscribes it to ``stream`` by shuffle grouping; further streams may be added. Fields become columns; a
    tuple without a field has null there. A micro-batch without rows is not written.

    ``function`` is pickled with the topology and runs in the driver, on a copy, with the topology's own session
    (``batch_df.sparkSession``); the DataFrame is valid until it returns. If it has a method ``begin(context)``, that is
    called once before its first call in each start.

    While ``function`` raises ``Unavailable``, it is called again, and the topology waits. After any other exception the
    topology stops, the rows stay in the checkpoint, and the next start begins with them. So it may be called again
    with a ``batch_id`` that it has written already: write so that a repeat replaces or skips the rows there
    (``docs/sinks.md`` has recipes). The simulator and ``TopologyTestDriver`` call no function and record rows
    (``TopologyTestDriver.unsent``).

    >>> SparkSink("count", lambda batch_df, batch_id: batch_df.write.mode("append").parquet("out"))
    SparkSink('count')
    """

    _lacks = (lambda kind: isinstance(kind, pa.BaseExtensionType),)

    @checked
    def __init__(
        self,
        stream: str | tuple[str, str],
        function: Annotated[BatchFunction, function("function(batch_df, batch_id)")],
        *,
        schema: SchemaLike = None,
    ) -> None:
        """Store the arguments.

        Args:
            stream: the component whose default stream is written, or (component, stream).
            function: called with a DataFrame and its ``batch_id``.
            schema: the columns, as ``"number long, name string"`` or a ``pyarrow.Schema``. A tuple that does not fit
                fails alone. Without it types follow the values of each micro-batch, and the topology stops if tasks
                have sent values of types that have nothing in common.

        Raises:
            ConfigError: an argument is of a wrong kind.
        """
        super().__init__(schema)
        name = (stream, DEFAULT_STREAM) if isinstance(stream, str) else stream
        given: object = name
        if not isinstance(given, tuple) or len(given) != 2 or not all(isinstance(part, str) for part in given):
            raise ConfigError(
                f"stream={printed(stream):.80}, expected the id of a component, or (component, stream): "
                'SparkSink("count", lambda batch_df, batch_id: ...)'
            )
        self.stream = name
        self._subscribes = (name,)
        self.function = function
        try:
            inspect.signature(function).bind(None, 0)
        except TypeError as error:
            raise ConfigError(
                f"function={printed(function):.80} is called as function(batch_df, batch_id): {error}"
            ) from None
        except ValueError:  # a function that is not written in Python has no signature
            pass

    def open(self, context: TopologyContext) -> None:
        """Keep the session, and begin with the function."""
        self._spark = context.spark
        begin = getattr(self.function, "begin", None)
        if begin is not None:
            begin(context)

    def commit_table(self, txid: int, table: pa.Table) -> None:
        """Call the function with the rows as a DataFrame."""
        table = typed(table)
        if table.nbytes < FILE_BYTES_MIN or not self._spark.sparkContext.master.startswith("local"):
            self.function(self._frame(table), txid)
            return
        with tempfile.TemporaryDirectory(prefix="sparkbolt-rows-") as directory:
            with full_disk_is_away(directory):
                pq.write_table(table, f"{directory}/rows.parquet", row_group_size=FILE_GROUP_ROWS)
            schema = self._frame(table.slice(0, 0)).schema
            self.function(self._spark.read.schema(schema).parquet(f"file://{directory}"), txid)

    def _frame(self, table: pa.Table) -> Any:
        """The rows as a DataFrame; timestamps without a zone stay so.

        By default Spark takes them for times in the session's zone, where an hour may be missing or ambiguous.
        """
        conf = self._spark.conf
        before = conf.get(TIMESTAMP_TYPE)
        conf.set(TIMESTAMP_TYPE, "TIMESTAMP_NTZ")
        try:
            return self._spark.createDataFrame(table)
        finally:
            conf.set(TIMESTAMP_TYPE, before)

    def __repr__(self) -> str:
        component, stream = self.stream
        return f"SparkSink({component!r})" if stream == DEFAULT_STREAM else f"SparkSink({self.stream!r})"
