"""IcebergBolt: appends tuples to an Iceberg table, without Spark's connector.

Rule 1: the rows and the number of their micro-batch are one commit of the table: the number is a property of the table
and of the snapshot. A micro-batch whose number the table has already is not written again.
Rule 2: a commit that meets another writer's is not tried again by the library: that writer may have been an older
driver with the same micro-batch, so the table is asked first.

Prior art: ``DeltaBolt``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pyarrow as pa
import pyarrow.types as _is

from sparkbolt.api.arguments import PROPERTIES, checked, text
from sparkbolt.api.components import TopologyContext
from sparkbolt.base.exceptions import line_of
from sparkbolt.bolts.table_committer import TableCommitter, fitting, owner_of, partition_columns, refuse_older, typed
from sparkbolt.bolts.table_schema import SchemaGiven
from sparkbolt.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from pyiceberg.table import Table

_RETRIES = "commit.retry.num-retries"


class IcebergBolt(TableCommitter):
    """Appends its tuples to an Iceberg table; each micro-batch becomes one snapshot of the table.

    The package ``pyiceberg`` writes (``pip install 'sparkbolt[iceberg]'``); Spark needs no runtime of Iceberg. The
    driver commits a micro-batch when it has succeeded. The commit sets a property of the table, which is named by
    checkpoint and component, to the number of the micro-batch: after a crash the table says whether it was written.
    Other writers may append at the same time.

    A tuple that does not fit ``schema`` fails alone. Without a schema types follow the values of each micro-batch; they
    are cast to the columns of the table, and the topology stops if they cannot be. While the catalog or the storage is
    away, the topology waits. The table, and its namespace, are created with the first rows, if there is none. The
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
        schema: SchemaGiven = None,
        partition_by: str | Sequence[str] | None = None,
        schema_mode: Literal["merge"] | None = None,
    ) -> None:
        """Check and store the arguments; nothing is opened yet.

        Args:
            table: the name of the table, with its namespace.
            catalog: the name of the catalog, as in the configuration of ``pyiceberg``.
            properties: properties of the catalog, beside those of the configuration.
            schema: the columns, as ``"number long, name string"`` or a ``pyarrow.Schema``.
            partition_by: columns by which a table that is created is partitioned.
            schema_mode: ``merge`` adds columns to the table that it does not have yet.

        Raises:
            ConfigError: an argument is wrong, or the package is not installed.
        """
        super().__init__(schema)
        if find_spec("pyiceberg") is None:
            raise ConfigError("IcebergBolt needs the package pyiceberg: pip install 'sparkbolt[iceberg]'")
        self.table = table
        if "." not in self.table.strip("."):
            raise ConfigError(f"table={self.table!r:.80} has no namespace, expected a name such as 'shop.orders'")
        self.catalog = catalog
        self.properties = {key: str(value) for key, value in (properties or {}).items()}
        self.partition_by = partition_columns(partition_by, self._schema)
        self.schema_mode = schema_mode

    def open(self, context: TopologyContext) -> None:
        """Remember under which name the micro-batches are counted."""
        self._owner = owner_of(context)
        self._catalog: Any = None

    def commit_table(self, txid: int, table: pa.Table) -> None:
        """Append the rows, unless the table has this micro-batch.

        Raises:
            Unavailable: the catalog or the storage is away, or another writer was faster.
            TypeError: the rows cannot be cast to the columns of the table.
        """
        from pyiceberg.catalog import load_catalog

        with _away(self.table):
            if self._catalog is None:
                self._catalog = load_catalog(self.catalog, **self.properties)
            opened = self._opened(typed(table.slice(0, 0)).schema)
            written = int(opened.properties.get(self._owner, 0))
            refuse_older(f"table {self.table}", written, txid)
            if written == txid:
                return
            merge = self.schema_mode is not None
            rows = fitting(table, self.table, _columns_of(opened), more=merge)
            opened.metadata.properties[_RETRIES] = "0"  # rule 2; it is not written to the table
            with opened.transaction() as transaction:
                if merge:
                    with transaction.update_schema() as columns:
                        columns.union_by_name(rows.schema)
                transaction.set_properties({self._owner: str(txid)})
                transaction.append(rows, snapshot_properties={"sparkbolt.txid": str(txid)})

    def end(self) -> None:
        """Driver: release the catalog's connections."""
        catalog, self._catalog = getattr(self, "_catalog", None), None
        if catalog is not None and hasattr(catalog, "close"):  # since pyiceberg 0.11
            catalog.close()

    def _opened(self, columns: pa.Schema) -> Table:
        """The table as it is now; it is created if there is none."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        opened: Table
        try:
            opened = self._catalog.load_table(self.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            self._catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            creation = self._catalog.create_table_transaction(self.table, schema=columns)
            with creation, creation.update_spec() as spec:
                for name in self.partition_by:
                    spec.add_identity(name)
            opened = self._catalog.load_table(self.table)
        return opened

    def __str__(self) -> str:
        return f"IcebergBolt({self.table})"


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
    if _is.is_list(kind) or _is.is_large_list(kind):
        return pa.list_(_small(kind.value_type))
    if _is.is_map(kind):
        return pa.map_(_small(kind.key_type), _small(kind.item_type))
    if _is.is_struct(kind):
        return pa.struct([pa.field(field.name, _small(field.type), nullable=field.nullable) for field in kind])
    return kind


@contextmanager
def _away(table: str) -> Iterator[None]:
    """Turn what time mends into ``Unavailable``."""
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
    try:
        yield
    except Exception as error:
        if isinstance(error, passing) or _is_of_database(error):
            raise Unavailable(f"table {table} cannot be written ({line_of(error):.300})") from error
        raise


def _is_of_database(error: Exception) -> bool:
    """Whether the database of a catalog is away; SQLAlchemy is there only with such a catalog."""
    return type(error).__module__.startswith("sqlalchemy.") and type(error).__name__ == "OperationalError"
