"""Functions for ``SparkSink`` that write each micro-batch once: Parquet folders, tables of Delta and of Iceberg.

Which question it answers: how does a target of Spark's know that it has a micro-batch already?
Rule: the number of the micro-batch gets into the target in the same step as its rows: in the name of a folder that is
there or not, or in the commit of a table. The name that it belongs to changes with the checkpoint, since a new one
counts from 0 again.

Prior art: ``txnAppId`` of Delta; the numbers of checkpoints that Iceberg's sink for Flink keeps in its snapshots.
Read before: ``spark_sink``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from sparkbolt.bolts.table_committer import owner_of, refuse_older
from sparkbolt.bolts.table_schema import columns_of
from sparkbolt.core.model import arguments
from sparkbolt.core.model.components import TopologyContext

_URL = re.compile("[a-z][a-z0-9+.-]*:/")
SINK, TXID = "sparkbolt.sink", "sparkbolt.txid"
"""The properties of an Iceberg snapshot that say whose micro-batch it holds, and which."""


class ParquetFolder:
    """A function for ``SparkSink`` that writes Parquet so that a repeat adds nothing.

    Each micro-batch becomes one folder, ``PATH/sink=CHECKPOINT-COMPONENT/txid=N``. It is written under a name that
    begins with ``.`` and gets its name when it is complete; one that is there already is not written again. Readers see
    two columns more, ``sink`` and ``txid``. Topologies and checkpoints may share ``PATH``. The name is given by
    renaming a folder, in one step on HDFS and local file systems, and not on object stores such as S3: use a table
    format there.

    >>> ParquetFolder("out/counts").path.endswith("out/counts")
    True
    """

    def __init__(self, path: str | os.PathLike[str], *, partition_by: str | Sequence[str] | None = None) -> None:
        """Store where it writes.

        Args:
            path: a directory, or a URL of Hadoop's; a relative one belongs to the current directory.
            partition_by: columns whose values become folders below ``txid=N``.

        Raises:
            ConfigError: an argument is of a wrong kind.
        """
        self.path = _path_of(path, "the name of a directory")
        self.partition_by = columns_of("partition_by", partition_by)

    def begin(self, context: TopologyContext) -> None:
        """Learn whose folders these are."""
        self._folder = f"{self.path}/sink={context.checkpoint_id[:12]}-{quote(context.component, safe='')}"
        self._last: int | None = None
        """The last micro-batch that has a folder; None if they are to be listed."""

    def __call__(self, batch_df: Any, txid: int) -> None:
        """Write the rows of a micro-batch, unless they are there.

        Raises:
            CheckpointError: a later micro-batch is there.
        """
        jvm, conf = batch_df.sparkSession._jvm, batch_df.sparkSession._jsc.hadoopConfiguration()
        folder, final, unfinished = (
            jvm.org.apache.hadoop.fs.Path(f"{self._folder}{name}")
            for name in ("", f"/txid={txid}", f"/.unfinished-{txid}")
        )
        files = folder.getFileSystem(conf)
        last, self._last = self._last, None  # it is known again when this call has succeeded
        if last is None:
            names = [status.getPath().getName() for status in files.listStatus(folder)] if files.exists(folder) else []
            last = max((int(name[5:]) for name in names if name.startswith("txid=")), default=0)
        refuse_older(self._folder, last, txid)
        if last < txid:
            batch_df.write.mode("overwrite").partitionBy(*self.partition_by).parquet(unfinished.toString())
            if not files.rename(unfinished, final):
                raise OSError(f"{unfinished.toString()} could not be renamed to {final.toString()}")
        self._last = txid


class DeltaAppend:
    """A function for ``SparkSink`` that appends to a table of Delta's own connector; a repeat adds nothing.

    It writes with the options ``txnAppId`` and ``txnVersion``: Delta passes over what the table has. The session needs
    ``delta-spark`` and its settings; ``DeltaBolt`` needs neither.

    >>> DeltaAppend("main.shop.orders", partition_by="day").table
    'main.shop.orders'
    """

    def __init__(self, table: str | os.PathLike[str], *, partition_by: str | Sequence[str] | None = None) -> None:
        """Store where it writes.

        Args:
            table: a directory or a URL, with a ``/`` in it, or the name of a table in a catalog.
            partition_by: columns by which a table that is created is partitioned.

        Raises:
            ConfigError: an argument is of a wrong kind.
        """
        self._is_path = isinstance(table, os.PathLike) or "/" in str(table)
        what = "the directory, the URL or the name of a table"
        self.table = _path_of(table, what) if self._is_path else arguments.text("table", table, what)
        self.partition_by = columns_of("partition_by", partition_by)

    def begin(self, context: TopologyContext) -> None:
        """Learn under which name the table counts."""
        self._app = owner_of(context)

    def __call__(self, batch_df: Any, txid: int) -> None:
        """Append the rows of a micro-batch, unless the table has them."""
        writer = batch_df.write.format("delta").mode("append").option("txnAppId", self._app).option("txnVersion", txid)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        if self._is_path:
            writer.save(self.table)
        else:
            writer.saveAsTable(self.table)


class IcebergAppend:
    """A function for ``SparkSink`` that appends to an Iceberg table; a repeat adds nothing.

    The snapshot that holds the rows has the number of the micro-batch among its properties. After a restart the
    snapshots say which micro-batch the table has; so let ``expire_snapshots`` keep those of the last days. The session
    needs the runtime of Iceberg and a catalog. A table that is not there is created.

    >>> IcebergAppend("lake.shop.orders").table
    'lake.shop.orders'
    """

    def __init__(self, table: str, *, partition_by: str | Sequence[str] | None = None) -> None:
        """Store where it writes.

        Args:
            table: the name of the table, with its catalog.
            partition_by: columns by which a table that is created is partitioned.

        Raises:
            ConfigError: an argument is of a wrong kind.
        """
        self.table = arguments.text("table", table, "the name of a table, with its catalog")
        self.partition_by = columns_of("partition_by", partition_by)

    def begin(self, context: TopologyContext) -> None:
        """Learn under which name the table counts."""
        self._owner = owner_of(context)
        self._last: int | None = None
        """The micro-batch that the table has; None if it is to be asked."""

    def __call__(self, batch_df: Any, txid: int) -> None:
        """Append the rows of a micro-batch, unless the table has them.

        Raises:
            CheckpointError: the table has a later micro-batch.
        """
        spark = batch_df.sparkSession
        last, self._last = self._last, None  # it is known again when this call has succeeded
        if last is None:
            last = self._in_table(spark)
        refuse_older(f"table {self.table}", last, txid)
        if last < txid:
            if not spark.catalog.tableExists(self.table):
                creation = batch_df.limit(0).writeTo(self.table).using("iceberg")
                if self.partition_by:
                    creation = creation.partitionedBy(*(batch_df[name] for name in self.partition_by))
                creation.create()
            writer = batch_df.writeTo(self.table).option(f"snapshot-property.{SINK}", self._owner)
            writer.option(f"snapshot-property.{TXID}", str(txid)).append()
        self._last = txid

    def _in_table(self, spark: Any) -> int:
        """The last micro-batch that a snapshot of the table has; 0 if there is none."""
        if not spark.catalog.tableExists(self.table):
            return 0
        spark.catalog.refreshTable(self.table)
        ours = spark.table(f"{self.table}.snapshots").where(f"summary['{SINK}'] = '{self._owner}'")
        [(last,)] = ours.selectExpr(f"max(cast(summary['{TXID}'] as long))").collect()
        return int(last or 0)


def _path_of(path: object, what: str) -> str:
    """A path of this machine, which is made absolute, or a URL."""
    given: str = arguments.text("path", os.fspath(path) if isinstance(path, os.PathLike) else path, what)
    return given if _URL.match(given) else os.path.abspath(os.path.expanduser(given))
