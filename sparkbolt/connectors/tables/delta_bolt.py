"""DeltaBolt: appends tuples to a Delta table, without Spark's connector.

The rows and the number of their micro-batch are one commit of Delta's log (an application transaction), as by
``txnAppId`` and ``txnVersion`` of Delta on Spark. Only the driver opens the table, so no thread of delta-rs is forked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Literal

import pyarrow as pa

from sparkbolt.api.arguments import PROPERTIES, checked, text, verify
from sparkbolt.api.components import TopologyContext
from sparkbolt.connectors.tables.table_committer import TableAppender
from sparkbolt.connectors.tables.table_schema import SchemaLike
from sparkbolt.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class DeltaBolt(TableAppender):
    """Appends its tuples to a Delta table; each micro-batch becomes one version of the table.

    The package ``deltalake`` writes (``pip install 'sparkbolt[delta]'``); Spark needs no connector. The driver commits
    a micro-batch when it has succeeded. The commit holds the number of the micro-batch as the version of an application
    transaction, under a name of this checkpoint and component: after a crash the table shows whether it was written.
    Other writers may append at the same time.

    A tuple that does not fit ``schema`` fails alone. Without a schema types follow the values of each micro-batch; they
    are cast to the columns of the table, and the topology stops if they do not fit. If the storage is unavailable, the
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
        schema: SchemaLike = None,
        partition_by: str | Sequence[str] | None = None,
        schema_mode: Literal["merge"] | None = None,
        storage_options: Annotated[Mapping[str, str], PROPERTIES] | None = None,
    ) -> None:
        """Check and store the arguments; nothing is opened yet.

        Args:
            table: the directory of the table, or its URL, as of ``deltalake``.
            schema: the columns, as ``"number long, name string"`` or a ``pyarrow.Schema``.
            partition_by: the columns that partition a new table.
            schema_mode: ``merge`` adds columns to the table that it does not have yet.
            storage_options: options of the storage, such as credentials, as of ``deltalake``.

        Raises:
            ConfigError: an argument is wrong, or the package is not installed.
        """
        if find_spec("deltalake") is None:
            raise ConfigError("DeltaBolt needs the package deltalake: pip install 'sparkbolt[delta]'")
        path = os.fspath(table) if isinstance(table, os.PathLike) else table
        given = verify("table", path, text("the directory or the URL of a table"))
        place = given if re.match("[a-zA-Z][a-zA-Z0-9+.-]*://", given) else os.path.abspath(given)
        super().__init__(place, schema, partition_by, schema_mode)
        options = dict(storage_options or {})
        self.storage_options = {key: str(value) for key, value in options.items()}

    def open(self, context: TopologyContext) -> None:
        """Driver: begin with no open table."""
        super().open(context)
        self._opened: DeltaTable | None = None

    def look(self, columns: pa.Schema) -> tuple[int | None, pa.Schema | None]:
        """Driver: open the newest version of the table."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        opened, self._opened = self._opened, None  # an error leaves no table open
        try:
            if opened is None:
                opened = DeltaTable(self.table, storage_options=self.storage_options)
            else:
                opened.update_incremental()
        except TableNotFoundError:
            if opened is not None:
                raise
            return None, None
        self._opened = opened
        return opened.transaction_version(self._owner), pa.schema(opened.schema().to_arrow())

    def append(self, txid: int, rows: pa.Table) -> None:
        """Driver: write a version of the table, which is created if there is none."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        opened, self._opened = self._opened, None
        write_deltalake(
            self.table if opened is None else opened,
            rows,
            mode="append",
            partition_by=(self.partition_by or None) if opened is None else None,
            schema_mode=self.schema_mode if opened is not None else None,
            storage_options=self.storage_options if opened is None else None,
            commit_properties=CommitProperties(
                custom_metadata={"sparkbolt.txid": str(txid)}, app_transactions=[Transaction(self._owner, txid)]
            ),
        )
        self._opened = opened

    def outage(self, error: Exception) -> str | None:
        """Return the text of an error that may pass by itself; None for any other."""
        from deltalake.exceptions import CommitFailedError, TableNotFoundError

        if not isinstance(error, OSError | CommitFailedError | TableNotFoundError):
            return None
        return " ".join(_COLOURS.sub("", str(error)).replace("↳", "").split())
