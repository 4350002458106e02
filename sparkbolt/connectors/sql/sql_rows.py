"""RowInserter: inserts rows between savepoints, so that those which the database refuses fail alone.

``sql_search`` decides which rows are at fault. Its sample is a row that the table has accepted, and its probe a large
row in the bolt's own table of commits; both are rolled back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa

from sparkbolt.base.exceptions import printed
from sparkbolt.connectors.sql.sql_link import Trouble, engine_of, error_text, trouble_of
from sparkbolt.connectors.sql.sql_search import SUSPECTS_MAX, find_refused
from sparkbolt.connectors.sql.sql_table import TableSettings, Target, described
from sparkbolt.errors import Unavailable

VALUES_SHOWN_MAX = 200
"""How many characters of a refused row's values its failure shows."""
PROBE_BYTES = 1 << 16
"""How large the row is that asks whether the database takes rows; a full disk has no room for it."""
_taken: dict[tuple[int, str, str], Mapping[str, Any]] = {}
"""By process, URL and table: the values of a row that the database has taken."""


class SqlRow(NamedTuple):
    """A row to be written."""

    edge: int
    """Identifies it when its micro-batch runs again; 0 if the tuple is untracked."""
    values: Mapping[str, Any]
    """By column."""


class RowRefusedError(Exception):
    """The database, or the table, does not take a row."""

    certain = True
    """False if the error code also stands for an outage, such as that of a deadlock."""


@dataclass(frozen=True)
class WriterSettings:
    """Where and how a writer writes; checked already."""

    url: str
    table: TableSettings
    commits: str
    chunk_rows: int
    wait_secs: float
    options: Mapping[str, Any] = field(default_factory=dict)


class RowInserter:
    """Inserts rows of one transaction."""

    def __init__(
        self,
        settings: WriterSettings,
        place: str,
        connection: sa.Connection,
        target: Target,
        probe: Callable[[bytes], None],
        *,
        searching: bool,
    ) -> None:
        """Begin without a row.

        Args:
            settings: where and how to write.
            place: the table, as errors name it.
            connection: in a transaction.
            target: the table.
            probe: inserts a row with these bytes into another table.
            searching: whether a code that may stand for an outage starts the search for a row; if not, it is raised.
        """
        self._settings, self._place = settings, place
        self._connection, self._target, self._probe = connection, target, probe
        self._searching = searching
        self.refused: dict[int, RowRefusedError] = {}
        """By index of each row that the database refuses: why."""
        self.postponed = False
        """Whether an error was raised that a search may explain."""
        self._takes_rows = False
        """Whether the table has taken a row in this transaction."""

    def insert(self, rows: Sequence[SqlRow], left: Sequence[int], *, whole: bool = False) -> None:
        """Insert some rows, by chunks of the same columns.

        Args:
            rows: all rows.
            left: the indexes of those to be written.
            whole: wait for a column that any row needs; by default such rows are refused if others can be written.

        Raises:
            Unavailable: the table lacks a column, or cannot accept any row in this form.
            DBAPIError: the database is unavailable, judged by its answers to these rows and others.
        """
        groups: dict[tuple[str, ...], list[int]] = {}
        for index in left:
            groups.setdefault(tuple(rows[index].values), []).append(index)
        lacking = {columns: missing for columns in groups if (missing := self._target.missing(columns))}
        if lacking and (whole or len(lacking) == len(groups)):
            first = next(iter(lacking))
            raise Unavailable(self._no_column(rows, {first: groups[first]}, lacking))
        chunks: list[Sequence[int]] = []
        for columns, indexes in groups.items():
            if columns in lacking:
                reason = RowRefusedError(self._no_column(rows, {columns: indexes}, lacking))
                self.refused.update(dict.fromkeys(indexes, reason))
                continue
            if self._settings.table.mode != "append":
                indexes.sort(key=lambda index: self._target.order_of(rows[index].values))
            size = self._settings.chunk_rows
            chunks += [indexes[start : start + size] for start in range(0, len(indexes), size)]

        def attempt(chunk: Sequence[int]) -> Exception | None:
            return self._attempt([rows[index].values for index in chunk])

        def refuse(index: int, error: Exception) -> None:
            self.refused[index] = self._refusal(rows[index].values, error)
            refusals[index] = error_text(error)
            if len(refusals) == SUSPECTS_MAX:
                self._check_unfilled(rows, refusals)

        refusals: dict[int, str] = {}
        find_refused(chunks, attempt, refuse, sample=self._takes_sample, probe=self._takes_probe)
        self._check_unfilled(rows, refusals)

    def _check_unfilled(self, rows: Sequence[SqlRow], refusals: Mapping[int, str]) -> None:
        """Wait for a table that accepts no row, since a column has to be filled that no row fills."""
        if self._takes_rows or not refusals:
            return
        table = self._target.table
        for column in sa.inspect(self._connection).get_columns(table.name, schema=table.schema):
            name, fills = column["name"], ("default", "identity", "computed")
            if column["nullable"] or column.get("autoincrement") is True or any(column.get(one) for one in fills):
                continue
            needs = re.compile(rf"\b{re.escape(name)}\b")
            if any(needs.search(said) and name not in rows[index].values for index, said in refusals.items()):
                raise Unavailable(self._no_default(name))

    def _no_default(self, column: str) -> str:
        return (
            f"{self._place} has a column {column!r} that has to be filled, has no default, and is not written: ALTER "
            f"TABLE {self._settings.table.name} so that it has a default or takes NULL, or write it, too"
        )

    def _no_column(
        self,
        rows: Sequence[SqlRow],
        groups: Mapping[tuple[str, ...], Sequence[int]],
        lacking: Mapping[tuple[str, ...], Sequence[str]],
    ) -> str:
        columns = next(iter(groups))
        wanted = described(TableSettings(self._settings.table.name), [rows[index].values for index in groups[columns]])
        dialect = engine_of(self._settings.url, self._settings.options, writes=True).dialect
        missing = lacking[columns][0]
        if missing in self._target.generated:
            return (
                f"{self._place} fills its column {missing!r} by itself (GENERATED ALWAYS): choose with columns=[...] "
                "what is written, or change the column"
            )
        kind = wanted.c[missing].type.compile(dialect=dialect)
        return (
            f"{self._place} has no column {missing!r} (it has {', '.join(sorted(self._target.columns))}): ALTER TABLE "
            f"{self._settings.table.name} ADD COLUMN {missing} {kind}, or choose with columns=[...] what is written"
        )

    def _attempt(self, values: Sequence[Mapping[str, Any]]) -> Exception | None:
        self._columns = tuple(values[0])
        error = self._error_of(values)
        if error is None:
            _taken[self._place_key] = values[-1]
            self._takes_rows = True
        elif not self._searching and trouble_of(error) is Trouble.AWAY:
            self.postponed = True
            raise error
        return error

    def _takes_sample(self) -> bool | None:
        values = _taken.get(self._place_key)
        if values is None or self._target.missing(values):
            values = self._row_of_table()
        if values is None:
            return None
        error = self._error_of([values], keep=False)
        return error is None or trouble_of(error) is Trouble.ROW

    def _row_of_table(self) -> Mapping[str, Any] | None:
        """Any row of the table, by the columns of the rows at hand; None if there is none, or none can be read."""
        savepoint = self._connection.begin_nested()
        try:
            ask = sa.select(*(self._target.table.c[name] for name in self._columns)).limit(1)
            row = self._connection.execute(ask).mappings().first()
            savepoint.rollback()
        except Exception as error:  # noqa: BLE001  drivers raise anything for a value that Python does not have
            self._back_to(savepoint, error)
            return None
        return None if row is None else dict(row)

    def _error_of(self, values: Sequence[Mapping[str, Any]], *, keep: bool = True) -> Exception | None:
        """Insert rows with the same columns between savepoints; return the errors of the database or its driver.

        Raises:
            DBAPIError: the connection is lost, or the transaction has ended.
        """
        savepoint = self._connection.begin_nested()
        try:
            statement = self._target.statement(tuple(values[0]))
            self._connection.execute(statement, [self._target.for_database(one) for one in values])
            (savepoint.commit if keep else savepoint.rollback)()
        except Exception as error:  # noqa: BLE001  drivers raise anything for a value that they cannot send
            self._back_to(savepoint, error)
            return error
        return None

    def _back_to(self, savepoint: sa.NestedTransaction, error: Exception) -> None:
        if self._connection.invalidated:
            raise error
        try:
            savepoint.rollback()
        except sa.exc.DBAPIError:
            raise error from None  # the transaction has ended, such as by a deadlock in MySQL

    def _takes_probe(self, error: Exception) -> bool:
        if trouble_of(error) is Trouble.TABLE:
            return False  # another table proves nothing about this one
        savepoint = self._connection.begin_nested()
        try:
            self._probe(os.urandom(PROBE_BYTES))
            savepoint.rollback()
        except sa.exc.DBAPIError as refusal:
            self._back_to(savepoint, refusal)
            return False
        return True

    def _refusal(self, values: Mapping[str, Any], error: Exception) -> RowRefusedError:
        text = printed(dict(values))
        shown = text if len(text) <= VALUES_SHOWN_MAX else f"{text[:VALUES_SHOWN_MAX]}..."
        refusal = RowRefusedError(f"{self._place} refused {shown}: {error_text(error)}")
        refusal.certain = trouble_of(error) is Trouble.ROW
        return refusal

    @property
    def _place_key(self) -> tuple[int, str, str]:
        return os.getpid(), self._settings.url, self._settings.table.name
