"""The base of the sinks that commit the rows of a micro-batch as one table.

An executor checks and converts the rows, so a tuple that does not fit the columns fails alone. A frame is kept as the
bytes of Arrow's stream format, so the driver holds the rows of a micro-batch as columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.types as _is

from sparkbolt.api.arguments import checked
from sparkbolt.api.committers import CommittingBolt
from sparkbolt.api.components import ColumnBolt, TopologyContext
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.outside import UsesOutside
from sparkbolt.api.unsent import note_unsent
from sparkbolt.base.arrow_values import array_of
from sparkbolt.connectors.tables.table_schema import (
    CommonColumns,
    Lacks,
    SchemaLike,
    TableSchema,
    columns_of,
    known,
    plain,
    schema_of,
    types_of,
)
from sparkbolt.connectors.txid_note import TxidNote
from sparkbolt.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import ColumnCollector


class FrameKeeper(ColumnBolt, CommittingBolt):
    """A bolt that keeps its frames for the driver, in columns that are given or follow the values."""

    splits_frames = True
    ignores_ticks = True
    _lacks: ClassVar[Lacks] = ()
    """The types that the target does not have."""
    _schema: TableSchema | None = None
    """The columns; None if they follow the values."""
    _otherwise = "give the sink schema= with a type that holds it, or emit a str"
    """Advice for a value without a column type."""

    def _unfit(self, fields: Sequence[str]) -> str | None:
        return None if self._schema is None else self._schema.unfit(fields)

    @property
    def _kinds(self) -> Mapping[str, Any]:
        """The types of the columns, in which the engine passes the fields to ``execute``."""
        return {} if self._schema is None else self._schema.kinds

    def prepare(self, context: TopologyContext) -> None:
        """Begin without columns that follow the values."""
        self._context = context
        self._columns_so_far = CommonColumns()

    def execute(self, batch: pa.RecordBatch, collector: ColumnCollector) -> None:
        """Keep the frame.

        Raises:
            TypeError: a value does not fit its column.
        """
        self.keep_frame(batch)

    def keep_frame(self, batch: pa.RecordBatch) -> None:
        """Keep a frame for ``commit``.

        Raises:
            TypeError: a value does not fit its column, or the values that were kept in this micro-batch.
        """
        if self._schema is not None:
            self.keep(_packed(self._schema.fit(batch)))
            return
        batch = plain(batch, self._lacks)
        before = self._columns_so_far if self.__dict__.get("_kept_rows") else CommonColumns()
        self._columns_so_far = before.widened(batch)
        self.keep(_packed(batch))

    def tables(self, rows: Sequence[bytes]) -> list[pa.Table]:
        """Driver: return the kept rows as tables, each with its own columns, in the order of frames."""
        return [pa.ipc.open_stream(row).read_all() for row in rows]


class TableCommitter(UsesOutside, FrameKeeper):
    """A bolt that commits the rows of a micro-batch as one table."""

    stateless = True

    def __init__(self, schema: SchemaLike = None) -> None:
        """Store the columns; None if they follow the values of each micro-batch.

        Raises:
            ConfigError: ``schema`` is not a schema.
        """
        self._schema = schema_of(schema)

    def begin(self, context: TopologyContext) -> None:
        """Driver: remember where it runs; in a rehearsal nothing is written."""
        self._context = context
        if context.rehearsal_directory is None:
            self.open(context)

    def commit(self, txid: int, rows: Sequence[bytes]) -> None:
        """Commit the rows as one table, if there are any."""
        table = joined(self.tables(rows), self._schema)
        if self._context.rehearsal_directory is not None:
            for row in table.to_pylist():
                note_unsent(self._context, {"txid": txid, "row": row})
        elif table.num_rows:
            self.commit_table(txid, table)

    @abstractmethod
    def open(self, context: TopologyContext) -> None:
        """Driver: called before the first ``commit_table`` of each start."""

    @abstractmethod
    def commit_table(self, txid: int, table: pa.Table) -> None:
        """Driver: write the rows of a micro-batch, as ``Committer.commit``."""


class TableAppender(TableCommitter):
    """A bolt that appends each micro-batch to a table as one commit, which holds the number of the micro-batch.

    A micro-batch whose number the table has already is not written again.
    """

    @checked
    def __init__(
        self,
        table: str,
        schema: SchemaLike,
        partition_by: str | Sequence[str] | None,
        schema_mode: Literal["merge"] | None,
    ) -> None:
        """Check and store the arguments.

        Args:
            table: the name of the table.
            schema: the columns; None if they follow the values of each micro-batch.
            partition_by: the columns that partition a new table.
            schema_mode: ``merge`` adds columns to the table that it does not have yet.

        Raises:
            ConfigError: an argument is wrong.
        """
        super().__init__(schema)
        self.table = table
        self.partition_by = columns_of("partition_by", partition_by)
        names = self.partition_by if self._schema is None else self._schema.arrow.names
        for column in self.partition_by:
            if column not in names:
                hint = did_you_mean(column, names)
                raise ConfigError(f"partition_by={column!r} is none of the columns {names}{hint}")
        self.schema_mode: Literal["merge"] | None = None
        if schema_mode is not None:
            self.schema_mode = schema_mode

    def open(self, context: TopologyContext) -> None:
        """Driver: remember under which name the micro-batches are counted."""
        self._owner = f"sparkbolt-{context.checkpoint_id}-{context.component}"

    def commit_table(self, txid: int, table: pa.Table) -> None:
        """Append the rows, unless the table has this micro-batch.

        Raises:
            CheckpointError: the table has a later micro-batch of this checkpoint.
            TypeError: the rows cannot be cast to the columns of the table.
            Unavailable: the storage is unavailable or full, or another writer was faster.
        """
        try:
            noted, columns = self.look(typed(table).schema)
            place = f"table {self.table}"
            if noted is not None and TxidNote(noted).has(txid, table.num_rows, place, "write to another table"):
                return
            if columns is None:
                self.append(txid, typed(table))
            else:
                self.append(txid, fitting(table, self.table, columns, more=self.schema_mode is not None))
        except Exception as error:
            reason = self.outage(error)
            if reason is None:
                raise
            raise Unavailable(f"table {self.table} cannot be written ({reason:.300})") from error

    @abstractmethod
    def look(self, columns: pa.Schema) -> tuple[int | None, pa.Schema | None]:
        """Driver: return the last micro-batch that the table has, and its columns; None if it has none.

        Args:
            columns: those of the rows, for a new table.
        """

    @abstractmethod
    def append(self, txid: int, rows: pa.Table) -> None:
        """Driver: append rows with the columns of the table, and the number of the micro-batch, in one commit."""

    @abstractmethod
    def outage(self, error: Exception) -> str | None:
        """Return the text of an error that may pass by itself; None for any other."""

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.table})"


def joined(tables: Sequence[pa.Table], schema: TableSchema | None) -> pa.Table:
    """Return one table of several.

    Raises:
        TypeError: no schema is given, and the columns of two tasks have nothing in common.
    """
    if schema is not None:
        return pa.concat_tables([schema.arrow.empty_table(), *(cast_to(table, schema.arrow) for table in tables)])
    found = CommonColumns()
    for table in tables:
        found = found.widened(table)
    whole = pa.concat_tables([found.schema.empty_table(), *tables], promote_options="permissive")
    return whole.select(found.schema.names)


def typed(table: pa.Table) -> pa.Table:
    """Return a table in which columns with nothing but None are text, as are items of lists that are all empty."""
    return cast_to(table, pa.schema([field.with_type(known(field.type)) for field in table.schema]))


def cast_to(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with other columns, since it was kept when the sink had another schema, or none.

    Raises:
        TypeError: a value cannot be cast.
    """
    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        there = field.name in table.column_names
        try:
            given = table[field.name].combine_chunks() if there else pa.nulls(table.num_rows)
            columns.append(given.cast(field.type) if _is_text(field.type) else array_of(given, field.type))
        except (TypeError, pa.ArrowException) as error:
            raise TypeError(
                f"rows were kept with the columns {types_of(table.schema)}, and {field.name!r} cannot become "
                f"{field.type}: {error}; a schema= with a type that holds them all, such as string, lets them pass"
            ) from None
    return pa.table(columns, schema=schema)


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def fitting(rows: pa.Table, table: str, columns: pa.Schema, *, more: bool) -> pa.Table:
    """Return rows with the columns of an existing table, and with those that it does not have yet.

    Args:
        rows: the rows to append.
        table: the name of the table.
        columns: the columns of the table.
        more: whether the table is given the columns that it does not have.

    Raises:
        TypeError: the rows cannot be cast to the columns of the table, or it has no such column.
    """
    new = [field for field in rows.schema if columns.get_field_index(field.name) < 0]
    if new and not more:
        raise TypeError(
            f"table {table} has no column {new[0].name!r}: its columns are {columns.names}; add it, or let the bolt do "
            "it with schema_mode='merge'"
        )
    for field in rows.schema:
        place = columns.get_field_index(field.name)
        if place >= 0 and not _holds(columns.field(place).type, field.type):
            raise TypeError(
                f"column {field.name!r} of table {table} is {columns.field(place).type}, and the rows have "
                f"{field.type} there: give the bolt a schema= with the types of the table"
            )
    return cast_to(rows, pa.schema([*columns, *(field.with_type(known(field.type)) for field in new)]))


def _holds(column: pa.DataType, values: pa.DataType) -> bool:
    """Whether a column can hold values of a type unchanged; whole numbers are checked one by one when they are cast.

    >>> _holds(pa.int32(), pa.int64()), _holds(pa.string(), pa.int64()), _holds(pa.int32(), pa.float64())
    (True, False, False)
    """
    kinds = (_is.is_integer, _is_text, _is_bytes)
    if column == values or _is.is_null(values) or any(kind(column) and kind(values) for kind in kinds):
        return True
    try:
        both = [pa.schema([pa.field("column", kind)]) for kind in (column, values)]
        return bool(pa.unify_schemas(both, promote_options="permissive").field(0).type == column)
    except pa.ArrowException:
        return False


def _is_text(kind: pa.DataType) -> bool:
    return bool(_is.is_string(kind) or _is.is_large_string(kind) or _is.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(_is.is_binary(kind) or _is.is_large_binary(kind) or _is.is_binary_view(kind))
