"""DeltaBolt: appends tuples to a Delta table, without Spark's connector.

Rule 1: the rows and the number of their micro-batch are one commit of Delta's log (an application transaction). A
micro-batch whose number the table has already is not written again.
Rule 2: only the driver opens the table, so what delta-rs starts (threads) is never forked.

Prior art: ``txnAppId`` and ``txnVersion`` of Delta on Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal

import pyarrow as pa

from sparkbolt.api.arguments import PROPERTIES, checked, text, verify
from sparkbolt.api.components import TopologyContext
from sparkbolt.bolts.table_committer import TableCommitter, fitting, owner_of, partition_columns, refuse_older, typed
from sparkbolt.bolts.table_schema import SchemaGiven
from sparkbolt.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class DeltaBolt(TableCommitter):
    """Appends its tuples to a Delta table; each micro-batch becomes one version of the table.

    The package ``deltalake`` writes (``pip install 'sparkbolt[delta]'``); Spark needs no connector. The driver commits
    a micro-batch when it has succeeded. The commit holds the number of the micro-batch as the version of an application
    transaction, under a name of this checkpoint and component: after a crash the table says whether it was written.
    Other writers may append at the same time.

    A tuple that does not fit ``schema`` fails alone. Without a schema types follow the values of each micro-batch; they
    are cast to the columns of the table, and the topology stops if they cannot be. While the storage is away, the
    topology waits. The table is created with the first rows, if there is none. The simulator and ``TopologyTestDriver``
    record rows instead of writing them (``TopologyTestDriver.unsent``).

    >>> print(DeltaBolt("s3://shop/orders", schema="id long, amount decimal(10, 2)", partition_by="id"))
    DeltaBolt(s3://shop/orders)
    """

    _lacks = (pa.types.is_duration, pa.types.is_time)

    @checked
    def __init__(
        self,
        table: str | os.PathLike[str],
        *,
        schema: SchemaGiven = None,
        partition_by: str | Sequence[str] | None = None,
        schema_mode: Literal["merge"] | None = None,
        storage_options: Annotated[Mapping[str, str], PROPERTIES] | None = None,
    ) -> None:
        """Check and store the arguments; nothing is opened yet.

        Args:
            table: the directory of the table, or its URL, as of ``deltalake``.
            schema: the columns, as ``"number long, name string"`` or a ``pyarrow.Schema``.
            partition_by: columns by which a table that is created is partitioned.
            schema_mode: ``merge`` adds columns to the table that it does not have yet.
            storage_options: options of the storage, such as credentials, as of ``deltalake``.

        Raises:
            ConfigError: an argument is wrong, or the package is not installed.
        """
        super().__init__(schema)
        if find_spec("deltalake") is None:
            raise ConfigError("DeltaBolt needs the package deltalake: pip install 'sparkbolt[delta]'")
        path = os.fspath(table) if isinstance(table, os.PathLike) else table
        given: str = verify("table", path, text("the directory or the URL of a table"))
        self.table = given if re.match("[a-zA-Z][a-zA-Z0-9+.-]*://", given) else os.path.abspath(given)
        self.partition_by = partition_columns(partition_by, self._schema) or None
        self.schema_mode = schema_mode
        self.storage_options = {key: str(value) for key, value in (storage_options or {}).items()}

    def open(self, context: TopologyContext) -> None:
        """Remember under which name the micro-batches are counted."""
        self._app = owner_of(context)
        self._opened: DeltaTable | None = None

    def commit_table(self, txid: int, table: pa.Table) -> None:
        """Append the rows, unless the table has this micro-batch.

        Raises:
            Unavailable: the storage is away or full, or another writer was faster too often.
            TypeError: the rows cannot be cast to the columns of the table.
        """
        from deltalake import CommitProperties, Transaction, write_deltalake

        with _away(self.table):
            opened = self._open()  # and it is kept for the next commit only if this one succeeds
            if opened is not None:
                written = opened.transaction_version(self._app)
                refuse_older(f"table {self.table}", written or 0, txid)
                if written == txid:
                    self._opened = opened
                    return
                columns = pa.schema(opened.schema().to_arrow())
                table = fitting(table, self.table, columns, more=self.schema_mode is not None)
            else:
                table = typed(table)
            write_deltalake(
                self.table if opened is None else opened,
                table,
                mode="append",
                partition_by=self.partition_by if opened is None else None,
                schema_mode=self.schema_mode if opened is not None else None,
                storage_options=self.storage_options if opened is None else None,
                commit_properties=CommitProperties(
                    custom_metadata={"sparkbolt.txid": str(txid)}, app_transactions=[Transaction(self._app, txid)]
                ),
            )
            self._opened = opened

    def _open(self) -> DeltaTable | None:
        """The newest version of the table; None if there is no table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        opened, self._opened = self._opened, None
        if opened is not None:
            opened.update_incremental()
            return opened
        try:
            return DeltaTable(self.table, storage_options=self.storage_options)
        except TableNotFoundError:
            return None

    def __str__(self) -> str:
        return f"DeltaBolt({self.table})"


@contextmanager
def _away(table: str) -> Iterator[None]:
    """Turn what time mends into ``Unavailable``."""
    from deltalake.exceptions import CommitFailedError, TableNotFoundError

    try:
        yield
    except (OSError, CommitFailedError, TableNotFoundError) as error:
        said = " ".join(_COLOURS.sub("", str(error)).replace("↳", "").split())
        raise Unavailable(f"table {table} cannot be written ({said:.300})") from error
