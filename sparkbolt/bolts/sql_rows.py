"""The rows of a transaction: inserts them between savepoints, and finds those that the database refuses.

Rule 1: a row that the database refuses is found by halving; the others are written.
Rule 2: an error code never decides that the database is away. Any row can raise any code, for example in a trigger. The
connection and the other rows decide: a row is at fault if the database takes another row after it has refused this one.
Such a row is one of the same transaction, or the last one that the database took from this process.
Rule 3: if no row was ever taken, several refused rows mean that the database is away. A single one is at fault if the
database takes a row of the bolt's own table of commits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa

from sparkbolt.bolts.sql_link import Trouble, engine_of, error_text, trouble_of
from sparkbolt.bolts.sql_table import TableSettings, Target, described
from sparkbolt.core.base.exceptions import printed
from sparkbolt.errors import Unavailable

VALUES_SHOWN_MAX = 200
"""How many characters of a refused row's values its failure shows."""
SUSPECTS_MAX = 10
"""After how many rows that may be at fault, with none that the database takes, the search ends."""
PROBE_BYTES = 1 << 16
"""How large the row is that asks whether the database takes rows; a full disk has no room for it."""
_taken: dict[tuple[int, str, str], Mapping[str, Any]] = {}
"""By process, URL and table: the values of a row that the database has taken."""


class SqlRow(NamedTuple):
    """A row to be written."""

    edge: int
    """What it is known by when it comes again; 0 if nobody waits for it."""
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
        self._suspects: dict[int, Exception] = {}
        """By index of rows that may be at fault, or the database may be away: the error."""
        self.refused: dict[int, RowRefusedError] = {}
        """By index of each row that the database refuses: why."""
        self.postponed = False
        """Whether an error was raised that a search may explain."""

    def insert(self, rows: Sequence[SqlRow], left: Sequence[int], *, whole: bool = False) -> None:
        """Insert some rows, by chunks of the same columns.

        Args:
            rows: all rows.
            left: the indexes of those to be written.
            whole: wait for a column that any row needs; by default such rows are refused if others can be written.

        Raises:
            Unavailable: the table lacks a column.
            DBAPIError: the database is away, as far as its answers to these rows and others tell.
        """
        groups: dict[tuple[str, ...], list[int]] = {}
        for index in left:
            groups.setdefault(tuple(rows[index].values), []).append(index)
        lacking = {columns: missing for columns in groups if (missing := self._target.missing(columns))}
        if lacking and (whole or len(lacking) == len(groups)):
            first = next(iter(lacking))
            raise Unavailable(self._no_column(rows, {first: groups[first]}, lacking))
        for columns, indexes in groups.items():
            if columns in lacking:
                reason = RowRefusedError(self._no_column(rows, {columns: indexes}, lacking))
                self.refused.update(dict.fromkeys(indexes, reason))
                continue
            if self._settings.table.mode != "append":
                indexes.sort(key=lambda index: self._target.order_of(rows[index].values))
            for start in range(0, len(indexes), self._settings.chunk_rows):
                self._insert(rows, indexes[start : start + self._settings.chunk_rows])
        self._judge(rows)

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
        kind = wanted.c[missing].type.compile(dialect=dialect)
        return (
            f"{self._place} has no column {missing!r} (it has {', '.join(sorted(self._target.columns))}): ALTER TABLE "
            f"{self._settings.table.name} ADD COLUMN {missing} {kind}, or choose with columns=[...] what is written"
        )

    def _insert(self, rows: Sequence[SqlRow], chunk: Sequence[int]) -> None:
        """Insert some rows; halve them until those that are refused are alone."""
        error = self._error_of([rows[index].values for index in chunk])
        if error is None:
            self._witness = rows[chunk[-1]].values
            for index, suspected in self._suspects.items():
                self._refuse(rows, index, suspected)
            self._suspects.clear()
            return
        trouble = trouble_of(error)
        if trouble is not Trouble.ROW and not self._goes_on(error, trouble):
            raise error
        if len(chunk) > 1:
            middle = len(chunk) // 2
            self._insert(rows, chunk[:middle])
            self._insert(rows, chunk[middle:])
        elif trouble is Trouble.ROW or self._witness is not None:
            self._refuse(rows, chunk[0], error)
        else:
            self._suspects[chunk[0]] = error
            if len(self._suspects) >= SUSPECTS_MAX:
                raise error

    def _goes_on(self, error: Exception, trouble: Trouble) -> bool:
        """Whether to look for a row at fault, after an error whose code may stand for an outage."""
        if trouble is Trouble.AWAY and not self._searching:
            self.postponed = True
            return False
        witness = self._witness
        if witness is None:
            return True
        refusal = self._error_of([witness], keep=False)
        return refusal is None or trouble_of(refusal) is Trouble.ROW

    def _error_of(self, values: Sequence[Mapping[str, Any]], *, keep: bool = True) -> Exception | None:
        """Insert rows with the same columns between savepoints; return what the database or its driver says to them.

        Raises:
            DBAPIError: the connection is lost, or the transaction has ended.
        """
        savepoint = self._connection.begin_nested()
        try:
            statement = self._target.statement(tuple(values[0]))
            self._connection.execute(statement, [self._target.for_database(one) for one in values])
            (savepoint.commit if keep else savepoint.rollback)()
        except Exception as error:  # noqa: BLE001  drivers raise what they like for a value that they cannot send
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

    def _judge(self, rows: Sequence[SqlRow]) -> None:
        """Decide about rows after which the database took no other."""
        if not self._suspects:
            return
        (index, error), *others = self._suspects.items()
        if others or trouble_of(error) is not Trouble.AWAY or not self._takes_probe():
            raise error
        self._refuse(rows, index, error)

    def _takes_probe(self) -> bool:
        savepoint = self._connection.begin_nested()
        try:
            self._probe(os.urandom(PROBE_BYTES))
            savepoint.rollback()
        except sa.exc.DBAPIError as error:
            self._back_to(savepoint, error)
            return False
        return True

    def _refuse(self, rows: Sequence[SqlRow], index: int, error: Exception) -> None:
        values = printed(dict(rows[index].values))
        shown = values if len(values) <= VALUES_SHOWN_MAX else f"{values[:VALUES_SHOWN_MAX]}..."
        self.refused[index] = RowRefusedError(f"{self._place} refused {shown}: {error_text(error)}")
        self.refused[index].certain = trouble_of(error) is Trouble.ROW

    @property
    def _witness(self) -> Mapping[str, Any] | None:
        """The values of a row that the database has taken; None if none is known that fits the table."""
        values = _taken.get(self._place_key)
        return None if values is None or self._target.missing(values) else values

    @_witness.setter
    def _witness(self, values: Mapping[str, Any]) -> None:
        _taken[self._place_key] = values

    @property
    def _place_key(self) -> tuple[int, str, str]:
        return os.getpid(), self._settings.url, self._settings.table.name
