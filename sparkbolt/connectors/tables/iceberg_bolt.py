"""IcebergBolt: appends tuples to an Iceberg table, without Spark's connector.

The rows and the number of their micro-batch are one commit of the table: the number is a property of the table and of
the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
import pyarrow.types as _is

from sparkbolt.api.arguments import PROPERTIES, checked, text
from sparkbolt.api.components import TopologyContext
from sparkbolt.base.exceptions import line_of
from sparkbolt.connectors.tables.table_committer import TableAppender
from sparkbolt.connectors.tables.table_schema import SchemaLike, with_parts
from sparkbolt.errors import ConfigError

if TYPE_CHECKING:
    from pyiceberg.table import Table


class IcebergBolt(TableAppender):
    """Appends its tuples to an Iceberg table; each micro-batch becomes one snapshot of the table.

    The package ``pyiceberg`` writes (``pip install 'sparkbolt[iceberg]'``); Spark needs no runtime of Iceberg. The
    driver commits a micro-batch when it has succeeded. The commit sets a property of the table, which is named by
    checkpoint and component, to the number of the micro-batch: after a crash the table shows whether it was written.
    Other writers may append at the same time.

    A tuple that does not fit ``schema`` fails alone. Without a schema types follow the values of each micro-batch; they
    are cast to the columns of the table, and the topology stops if they do not fit. If the catalog or the storage is
    down, the topology waits. The table, and its namespace, are created with the first rows, if there is none. The
    simulator and ``TopologyTestDriver`` record rows instead of writing them (``TopologyTestDriver.unsent``).

    >>> catalog = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "file:///srv/lake"}
    >>> print(IcebergBolt("shop.orders", properties=catalog, schema="id long, day string", partition_by="day"))
    IcebergBolt(shop.orders)
    """

    _lacks = (pa.types.is_duration,)

    @checked
    def __init__(
        self,
        table: Annotated[str, text("the name of a table, with its namespace")],
        *,
        catalog: Annotated[str, text("the name of a catalog")] = "default",
        properties: Annotated[Mapping[str, str], PROPERTIES] | None = None,
        schema: SchemaLike = None,
        partition_by: str | Sequence[str] | None = None,
        schema_mode: Literal["merge"] | None = None,
    ) -> None:
        """Check and store the arguments; nothing is opened yet.

        Args:
            table: the name of the table, with its namespace.
            catalog: the name of the catalog, as in the configuration of ``pyiceberg``.
            properties: properties of the catalog, beside those of the configuration.
            schema: the columns, as ``"number long, name string"`` or a ``pyarrow.Schema``.
            partition_by: the columns that partition a new table.
            schema_mode: ``merge`` adds columns to the table that it does not have yet.

        Raises:
            ConfigError: an argument is wrong, or the package is not installed.
        """
        if find_spec("pyiceberg") is None:
            raise ConfigError("IcebergBolt needs the package pyiceberg: pip install 'sparkbolt[iceberg]'")
        super().__init__(table, schema, partition_by, schema_mode)
        if "." not in self.table.strip("."):
            raise ConfigError(f"table={self.table!r:.80} has no namespace, expected a name such as 'shop.orders'")
        self.catalog = catalog
        given = dict(properties or {})
        self.properties = {key: str(value) for key, value in given.items()}

    def open(self, context: TopologyContext) -> None:
        """Driver: begin without the catalog."""
        super().open(context)
        self._catalog: Any = None

    def look(self, columns: pa.Schema) -> tuple[int | None, pa.Schema | None]:
        """Driver: load the table as it is now; create it if there is none."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        if self._catalog is None:
            self._catalog = load_catalog(self.catalog, **self.properties)
        try:
            self._opened: Table = self._catalog.load_table(self.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            self._catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            creation = self._catalog.create_table_transaction(self.table, schema=columns)
            with creation, creation.update_spec() as spec:
                for name in self.partition_by:
                    spec.add_identity(name)
            self._opened = self._catalog.load_table(self.table)
        noted = self._opened.properties.get(self._owner)
        return None if noted is None else int(noted), _columns_of(self._opened)

    def append(self, txid: int, rows: pa.Table) -> None:
        """Driver: write a snapshot of the table.

        The library does not retry a commit that meets another writer's: that writer may have been an older driver with
        the same micro-batch, so it reads the table first.
        """
        self._opened.metadata.properties["commit.retry.num-retries"] = "0"  # it is not written to the table
        with self._opened.transaction() as transaction:
            if self.schema_mode is not None:
                with transaction.update_schema() as columns:
                    columns.union_by_name(rows.schema)
            transaction.set_properties({self._owner: str(txid)})
            transaction.append(rows, snapshot_properties={"sparkbolt.txid": str(txid)})

    def outage(self, error: Exception) -> str | None:
        """Return the text of an error that may pass by itself, such as that of a catalog's database."""
        from pyiceberg import exceptions

        passing = (
            OSError,
            exceptions.CommitFailedException,
            exceptions.CommitStateUnknownException,
            exceptions.ServerError,
            exceptions.ServiceUnavailableError,
            exceptions.TooManyRequestsError,
            exceptions.AuthorizationExpiredError,
            exceptions.TableAlreadyExistsError,
            exceptions.WaitingForLockException,
        )
        kind = type(error)
        is_of_database = kind.__module__.startswith("sqlalchemy.") and kind.__name__ == "OperationalError"
        return line_of(error) if isinstance(error, passing) or is_of_database else None

    def end(self) -> None:
        """Driver: release the catalog's connections."""
        catalog, self._catalog = getattr(self, "_catalog", None), None
        if catalog is not None and hasattr(catalog, "close"):  # since pyiceberg 0.11
            catalog.close()


def _columns_of(table: Table) -> pa.Schema:
    """The columns of a table, with the types that values of Python have in Arrow."""
    return pa.schema(
        [pa.field(field.name, _small(field.type), nullable=field.nullable) for field in table.schema().as_arrow()]
    )


def _small(kind: pa.DataType) -> pa.DataType:
    """A type without the large variants, which differ only in how long the values of a batch may be.

    >>> _small(pa.large_list(pa.struct([("name", pa.large_string())])))
    ListType(list<item: struct<name: string>>)
    """
    if _is.is_large_string(kind):
        return pa.string()
    if _is.is_large_binary(kind):
        return pa.binary()
    if _is.is_large_list(kind):
        kind = pa.list_(kind.value_field)
    return with_parts(kind, _small)
