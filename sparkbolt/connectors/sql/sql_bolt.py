"""SqlBolt: writes tuples as rows of a database.

A tuple is acked when its row is committed. In a transactional topology it is acked when the database has accepted its
row on trial, and the driver commits the row with all rows of the component in its micro-batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from sparkbolt.api.arguments import (
    PART_OF_TUPLE,
    POSITIVE,
    PROPERTIES,
    checked,
    field_names,
    one_of,
    text,
    verify,
    whole,
)
from sparkbolt.api.committers import Committer
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.outside import WritesOutside
from sparkbolt.api.tuples import Tuple
from sparkbolt.api.unsent import note_unsent
from sparkbolt.connectors.sql.sql_link import check_transactions, checked_url, parsed_url, place_of
from sparkbolt.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import BoltCollector
    from sparkbolt.connectors.sql.sql_rows import SqlRow, WriterSettings
    from sparkbolt.connectors.sql.sql_writer import SqlWriter

log = logging.getLogger(__name__)

Columns: TypeAlias = Sequence[str] | Mapping[str, str | Callable[[Tuple], Any]] | None
"""Which columns are written: names of fields, or by column the name of a field or a function of the tuple."""


class SqlBolt(WritesOutside, Committer):
    """Writes each tuple as one row of a table, by SQLAlchemy.

    Each task writes the rows of a micro-batch in one transaction, together with a note in the table ``commits``, which
    the bolt creates. A micro-batch that runs again after a crash writes no row twice: the note says which ones are
    there. A tuple whose tree **failed** is retried in a later micro-batch, as a new one; if its row was written before
    another part of the tree failed, ``append`` then writes it twice. The same holds for messages of a queue (``Spout``)
    whose driver died before their micro-batch was committed. ``upsert`` with ``newest`` leaves the same row however
    often and in whatever order tuples arrive.

    In a transactional topology (``Config(transactional=True)``) each row is written exactly once, also that of a tuple
    that failed before: the driver writes the rows of all tasks when their micro-batch has succeeded, in one transaction
    with a note of the txid. Before that each task tries its rows in a transaction that is rolled back, so that a row
    which the database refuses fails its tuple alone (``trial``).

    ``append`` inserts rows. ``upsert`` inserts a row, or replaces all columns that the tuple has in the row with the
    same ``keys``. ``merge`` does the same, but None leaves a column as it is, and ``combine`` decides for a column what
    becomes of an old and a new value: ``last`` (the default), ``first``, ``add``, ``min`` or ``max``. ``add`` counts
    a tuple again that is retried; the others do not. With ``newest``, the name of a column, a tuple whose value there
    is less than the row's replaces nothing.

    A tuple fails if the database refuses its row, or would alter a value of it; the other rows are written. While the
    database is down, the bolt waits ``wait_secs``; then its tuples fail without costing an attempt (``Unavailable``),
    and also while the table does not exist, lacks the columns or needs others. The simulator and
    ``TopologyTestDriver`` record rows instead of writing them (``TopologyTestDriver.unsent``).

    >>> print(SqlBolt("sqlite:////srv/shop.db", "orders", mode="upsert", keys=["id"]))
    SqlBolt(upsert into orders at sqlite:////srv/shop.db)
    """

    # Stateless, and yet not fused, because of ``flush``: one process gets all rows of a task in a micro-batch.
    stateless = True
    ignores_ticks = True
    awaited_in_outage = "its database"
    _writer: SqlWriter | None

    @checked
    def __init__(
        self,
        url: str,
        table: Annotated[str, text("the name of a table")],
        mode: Literal["append", "upsert", "merge"] = "append",
        *,
        keys: Sequence[str] | None = None,
        columns: Columns = None,
        combine: Mapping[str, str] | None = None,
        newest: Annotated[str, text("the name of a column")] | None = None,
        create: bool = False,
        chunk_rows: Annotated[int, whole()] = 1000,
        wait_secs: Annotated[float, POSITIVE] = 30.0,
        commits: Annotated[str, text("the name of a table")] = "sparkbolt_commits",
        trial: bool = True,
        engine: Annotated[Mapping[str, Any], PROPERTIES] | None = None,
    ) -> None:
        """Check and store the arguments; nothing is connected yet.

        Args:
            url: the database, as of SQLAlchemy: ``sqlite:///words.db``, ``postgresql+psycopg://user@host/shop``. It is
                never printed with its password.
            table: the name of the table, perhaps with its schema: ``sales.orders``.
            mode: ``append``, ``upsert`` or ``merge``; the last two with PostgreSQL and SQLite.
            keys: for ``upsert`` and ``merge``: the columns by which a row is found, with a unique index on them; by
                default the primary key of the table.
            columns: values to write: names of fields, or by column the name of a field or a function of the tuple. By
                default all fields, into columns of their names.
            combine: for ``merge``: by column, how an old and a new value become one.
            newest: for ``upsert`` and ``merge``: the column that shows which tuple is newer.
            create: create the table if it does not exist, with types after the first rows; ``keys`` become its primary
                key. A table that was created before with this checkpoint and is gone is not created again.
            chunk_rows: how many rows are sent at once.
            wait_secs: how long ``flush`` waits for a database that is unavailable.
            commits: the name of the table of notes.
            trial: in a transactional topology: try each row on executors before it counts. It costs about as much as to
                write the rows, in parallel, once in each execution of a micro-batch. Without it a row that the
                database refuses stops the topology.
            engine: further arguments of SQLAlchemy's ``create_engine``. Autocommit is refused.

        Raises:
            ConfigError: An argument is wrong, or the package or the driver is not installed.
        """
        self.url = checked_url("SqlBolt", url)
        self.table = table
        self.mode = mode
        if isinstance(keys, str):
            raise ConfigError(f"SqlBolt: keys={keys!r}: expected a list of columns, such as [{keys!r}]")
        self.keys = () if keys is None else tuple(field_names("keys", keys, "['id']"))
        self.columns = _columns(columns)
        self.combine = _combine(combine)
        self.newest = newest
        self.create = create
        self.chunk_rows = chunk_rows
        self.wait_secs = wait_secs
        self.commits = commits
        self.trial = trial
        self.engine = dict(engine or {})
        check_transactions("SqlBolt", self.url, self.engine)
        self._check_mode()

    def _unknown(self, columns: Sequence[str]) -> tuple[str, str] | None:
        """Return an argument that names a column which is none of these, and that column."""
        named = (("keys", self.keys), ("combine", self.combine), ("newest", [self.newest or ""]))
        return next(((what, name) for what, names in named for name in names if name and name not in columns), None)

    def _check_mode(self) -> None:
        unknown = None if self.columns is None else self._unknown(list(self.columns))
        if unknown is not None:
            columns, (what, name) = list(self.columns or ()), unknown
            hint = did_you_mean(name, columns)
            raise ConfigError(f"SqlBolt: {what} names {name!r}, which is none of the columns {columns}{hint}")
        if self.mode != "merge" and self.combine:
            raise ConfigError(f"SqlBolt: combine={self.combine!r} is for mode='merge', and mode={self.mode!r}")
        if self.mode == "append" and (self.keys or self.newest):
            raise ConfigError("SqlBolt: keys and newest are for mode='upsert' and mode='merge'; append has no keys")
        if self.mode != "append" and self.create and not self.keys:
            raise ConfigError(f"SqlBolt: create=True and mode={self.mode!r} need keys=[...], the primary key to be")
        wrong = sorted({*self.combine, *([self.newest] if self.newest else [])} & set(self.keys))
        if wrong:
            raise ConfigError(f"SqlBolt: {wrong[0]!r} is one of keys={list(self.keys)}, which never change")
        name = parsed_url(self.url).get_backend_name()
        if self.mode != "append" and name not in ("postgresql", "sqlite"):
            raise ConfigError(
                f"SqlBolt: mode={self.mode!r} works with PostgreSQL and SQLite, not with {name}; append does"
            )

    def _unfit(self, fields: Sequence[str]) -> str | None:
        if type(self).row is not SqlBolt.row:
            return None
        if self.columns is not None:
            for column, part in self.columns.items():
                if isinstance(part, str) and part not in fields:
                    hint = did_you_mean(part, fields)
                    return f"column {column!r} is to be filled by {part!r}, which is none of them{hint}"
            return None
        unknown = self._unknown(fields)
        if unknown is None:
            return None
        what, name = unknown
        return f"its {what} names the column {name!r}, which none of them fills{did_you_mean(name, fields)}"

    @property
    def _settings(self) -> WriterSettings:
        from sparkbolt.connectors.sql.sql_rows import WriterSettings
        from sparkbolt.connectors.sql.sql_table import TableSettings

        combine = tuple(self.combine.items())
        table = TableSettings(self.table, self.mode, self.keys, combine, self.newest, self.create)
        return WriterSettings(self.url, table, self.commits, self.chunk_rows, self.wait_secs, self.engine)

    def prepare(self, context: TopologyContext) -> None:
        """Make the writer, which connects in the first ``flush``."""
        self._context = context
        self._held: list[tuple[Tuple, dict[str, Any]]] = []
        self._collector: BoltCollector | None = None
        self._writer = self._writer_of(context, context.task) if context.rehearsal_directory is None else None

    def _writer_of(self, context: TopologyContext, task: int) -> SqlWriter:
        from sparkbolt.connectors.sql.sql_writer import Author, SqlWriter

        # Without a checkpoint there is nothing that a micro-batch could be repeated from; "-" is a name for that.
        author = Author(context.checkpoint_id or "-", context.component, task, context.topology)
        return SqlWriter(self._settings, author)

    def execute(self, tup: Tuple, collector: BoltCollector) -> None:
        """Hold the tuple's row until ``flush``."""
        self._collector = collector
        self._held.append((tup, self.row(tup)))

    def row(self, tup: Tuple) -> dict[str, Any]:
        """Return the tuple's values by column."""
        if self.columns is None:
            return dict(tup)
        return {name: tup[part] if isinstance(part, str) else part(tup) for name, part in self.columns.items()}

    def flush(self) -> None:
        """Write the rows of the micro-batch, or try and keep them for ``commit``; then ack and fail their tuples."""
        held, self._held = self._held, []
        collector = self._collector
        if not held or collector is None:
            return
        if self._writer is None:
            for tup, values in held:
                note_unsent(self._context, {"table": self.table, "mode": self.mode, "row": values})
                collector.ack(tup)
            return
        kept = self._context.config.transactional
        try:
            refused = self._refused(self._writer, held, kept)
        except Unavailable as error:
            for tup, _ in held:
                collector.fail(tup, error)
            return
        for index, (tup, values) in enumerate(held):
            if index in refused:
                collector.fail(tup, str(refused[index]))
                continue
            if kept:
                try:
                    self.keep(values)
                except Exception as error:  # noqa: BLE001  a value's own __reduce__ may raise anything
                    collector.fail(tup, f"its row cannot be sent to the driver: {type(error).__name__}: {error}")
                    continue
            collector.ack(tup)

    def _refused(
        self, writer: SqlWriter, held: Sequence[tuple[Tuple, dict[str, Any]]], kept: bool
    ) -> Mapping[int, Exception]:
        if kept and not self.trial:
            return {}
        rows = [_sql_row(tup, values) for tup, values in held]
        return (writer.try_rows if kept else writer.write)(self._context.micro_batch_id, rows)

    def begin(self, context: TopologyContext) -> None:
        """Make the writer of the driver, which connects in the first ``commit``."""
        from sparkbolt.connectors.sql.sql_writer import WHOLE

        self._writer = self._writer_of(context, WHOLE)

    def commit(self, txid: int, rows: Sequence[Any]) -> None:
        """Write the rows of a micro-batch and the note of its txid in one transaction; do nothing if it is noted.

        Raises:
            Unavailable: The database is unavailable, or someone has to change the table.
            RowRefusedError: The database refuses a row, which is named; nothing is written.
            CommitRefusedError: The database refuses the commit as a whole.
            CheckpointError: Another driver that uses the checkpoint, or a copy of it, has written the note.
        """
        assert self._writer is not None, "begin comes first"
        if not self._writer.commit(txid, rows):
            log.info("%s: the rows of txid %d were committed before", self, txid)

    def end(self) -> None:
        """Close the driver's connections."""
        if self._writer is not None:
            self._writer.close()

    def __str__(self) -> str:
        return f"SqlBolt({self.mode} into {self.table} at {place_of(self.url)})"

    @property
    def place(self) -> str:
        """The table and its database."""
        return f"table {self.table} at {place_of(self.url)}"


def _sql_row(tup: Tuple, values: dict[str, Any]) -> SqlRow:
    from sparkbolt.connectors.sql.sql_rows import SqlRow

    return SqlRow(tup.anchors[0][1] if tup.anchors else 0, values)


def _columns(columns: Any) -> dict[str, str | Callable[[Tuple], Any]] | None:
    if columns is None:
        return None
    if not isinstance(columns, Mapping):
        return {name: name for name in field_names("columns", columns)}
    verify("columns", columns or None, PROPERTIES)
    return {name: verify(f"columns[{name!r}]", part, PART_OF_TUPLE) for name, part in columns.items()}


_COMBINED = one_of("last", "first", "add", "min", "max")


@checked
def _combine(combine: Annotated[Any, PROPERTIES] | None) -> dict[str, str]:
    return {name: verify(f"combine[{name!r}]", way, _COMBINED) for name, way in (combine or {}).items()}
