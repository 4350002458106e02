"""The table that a bolt writes: its statement for each mode, the types of its columns, and values for them.

Two attempts or two tasks may write in either order with the same result for ``upsert`` with ``newest``, and for
``merge`` with ``min`` and ``max``. A table that somebody has to change raises ``Unavailable``, with the statement for
it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from sparkbolt.connectors.sql.sql_link import WITHOUT_ZONES, without_zone
from sparkbolt.connectors.sql.sql_values import PLAIN, check_of, coarse, plain
from sparkbolt.errors import Unavailable

_INSERTS: dict[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
"""By database: the statement that inserts or updates a row. Others have none."""
_MYSQL = ("mysql", "mariadb")
_WITHOUT_TRANSACTIONS = frozenset({"myisam", "aria", "memory", "csv", "archive", "mrg_myisam", "blackhole"})
"""Engines of MySQL and MariaDB whose rows stay when a transaction is rolled back."""
_INNODB: dict[str, Any] = {f"{name}_engine": "InnoDB" for name in _MYSQL}
_MOMENT, _ZONED_MOMENT = (
    sa.DateTime(timezone=zoned).with_variant(mysql.DATETIME(fsp=6), *_MYSQL) for zoned in (False, True)
)
_TIME = sa.Time().with_variant(mysql.TIME(fsp=6), *_MYSQL)
_TYPES: tuple[tuple[Any, Any], ...] = (
    (bool, sa.Boolean()),
    (int, sa.BigInteger()),
    (float, sa.Double()),
    (str, sa.Text()),
    (bytes, sa.LargeBinary()),
    (decimal.Decimal, sa.Numeric().with_variant(sa.Text(), "sqlite").with_variant(sa.Numeric(65, 30), *_MYSQL)),
    (dt.datetime, _ZONED_MOMENT),
    (dt.date, sa.Date()),
    (dt.time, _TIME),
    (dt.timedelta, sa.Interval().with_variant(sa.Text(), "sqlite").with_variant(mysql.TIME(fsp=6), *_MYSQL)),
    (uuid.UUID, sa.Uuid().with_variant(sa.Text(), "sqlite")),
    ((dict, list), sa.JSON(none_as_null=True).with_variant(postgresql.JSONB(none_as_null=True), "postgresql")),
)


@dataclass(frozen=True)
class TableSettings:
    """The user's settings of the table; checked already."""

    name: str
    mode: str = "append"
    keys: tuple[str, ...] = ()
    """Empty: the primary key of the table."""
    combine: tuple[tuple[str, str], ...] = ()
    newest: str | None = None
    create: bool = False

    @property
    def parts(self) -> tuple[str | None, str]:
        """(schema or None, name of the table)."""
        schema, _, name = self.name.rpartition(".")
        return schema or None, name


class Target:
    """A table as the database knows it."""

    def __init__(self, table: sa.Table, settings: TableSettings, dialect: str) -> None:
        """Find the keys.

        Raises:
            Unavailable: No unique index is on the keys, or the table has no transactions.
        """
        self.table, self._settings, self._dialect = table, settings, dialect
        self.columns = frozenset(column.name for column in table.columns)
        self.generated = frozenset(
            column.name
            for column in table.columns
            if column.computed is not None or (column.identity is not None and column.identity.always)
        )
        """Columns that only the database fills."""
        self.keys = settings.keys or tuple(column.name for column in table.primary_key)
        self._texts = frozenset(column.name for column in table.columns if isinstance(column.type, sa.String))
        self._jsons = frozenset(column.name for column in table.columns if isinstance(column.type, sa.JSON))
        self._checks = {column.name: check_of(column.type, dialect) for column in table.columns}
        # SQLite stores NaN as NULL. Other databases keep it: a sum with it stays NaN, and it is newer than all.
        ways = [name for name, way in settings.combine if way in ("add", "min", "max")]
        self._numbers = self.columns if dialect == "sqlite" else frozenset([*ways, settings.newest])
        self._as_is = {
            name: check.as_is - {float} if name in self._numbers | self._jsons else check.as_is
            for name, check in self._checks.items()
        }
        for column in table.columns:
            if isinstance(column.type, sa.JSON):
                column.type.none_as_null = True  # None is NULL, as in any other column, and not the null of JSON
        self._statements: dict[tuple[str, ...], sa.Insert] = {}
        engines = [table.kwargs.get(name) for name in _INNODB]
        if not _WITHOUT_TRANSACTIONS.isdisjoint(str(engine).lower() for engine in engines):
            raise Unavailable(
                f"table {settings.name} has no transactions, so rows would be written more than once: ALTER TABLE "
                f"{settings.name} ENGINE=InnoDB"
            )
        if settings.mode != "append":
            self._check_keys()

    def _check_keys(self) -> None:
        name, keys = self._settings.name, ", ".join(self.keys)
        if not self.keys:
            raise Unavailable(f"table {name} has no primary key: give keys=[...], with a unique index on them")
        missing = self.missing(self.keys)
        if missing:
            raise Unavailable(f"table {name} has no column {missing[0]!r}, which keys names: add it, or correct keys")
        uniques = [[column.name for column in self.table.primary_key]]
        uniques += [
            [column.name for column in constraint.columns]
            for constraint in self.table.constraints
            if isinstance(constraint, sa.UniqueConstraint)
        ]
        uniques += [[column.name for column in index.columns] for index in self.table.indexes if index.unique]
        if not any(set(self.keys) == set(unique) for unique in uniques):
            raise Unavailable(
                f"table {name} has no unique index on {keys}, which {self._settings.mode} needs: "
                f"CREATE UNIQUE INDEX ON {name} ({keys})"
            )

    def missing(self, columns: Iterable[str]) -> list[str]:
        """Return the columns that the table does not have, or fills by itself."""
        return [column for column in columns if column not in self.columns or column in self.generated]

    def order_of(self, values: Mapping[str, Any]) -> str:
        """Return the sort key of rows, so that tasks that update the same rows lock them in one order.

        Keys that the database may find equal are equal here, so that their rows keep their order: the last one wins.
        """
        return repr([coarse(values.get(key)) for key in self.keys])

    def for_database(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values as the driver takes them."""
        return {
            name: value if value is None or type(value) in self._as_is[name] else self._converted(name, value)
            for name, value in values.items()
        }

    def _converted(self, name: str, value: Any) -> Any:
        try:
            if type(value) not in PLAIN:
                value = plain(value)
            if isinstance(value, float | decimal.Decimal) and value != value and name in self._numbers:
                raise TypeError(f"{value!r} is no number: emit None for NULL")
            if name in self._jsons:  # the engine may have a serializer that knows more types, but JSON has no NaN
                json.dumps(value, allow_nan=False, skipkeys=True, default=str)
            if name in self._texts and self._dialect in WITHOUT_ZONES:
                if isinstance(value, dict | list):  # MariaDB's JSON is a text
                    return json.dumps(value, allow_nan=False)
                if isinstance(value, decimal.Decimal | uuid.UUID | dt.timedelta):
                    return str(value)
                value = without_zone(value)
            return self._checks[name].check(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"column {name!r}: {error}") from error

    def statement(self, columns: tuple[str, ...]) -> sa.Insert:
        """Return the statement that writes rows with these columns."""
        if columns not in self._statements:
            self._statements[columns] = self._made(columns)
        return self._statements[columns]

    def _made(self, columns: tuple[str, ...]) -> sa.Insert:
        settings, table = self._settings, self.table
        if settings.mode == "append":
            return sa.insert(table)
        made = _INSERTS[self._dialect](table)
        changed = self._changes(made.excluded, [column for column in columns if column not in self.keys])
        if not changed:
            nothing: sa.Insert = made.on_conflict_do_nothing(index_elements=list(self.keys))
            return nothing
        update: sa.Insert = made.on_conflict_do_update(index_elements=list(self.keys), set_=changed)
        return update

    def _changes(self, new: Any, columns: Sequence[str]) -> dict[str, Any]:
        """Return the new value of each column of a row that exists, as an expression of the old and the new one."""
        settings, old = self._settings, self.table.c
        ways = dict(settings.combine)
        newer: Any = None
        if settings.newest in columns:
            newest = str(settings.newest)
            newer = sa.or_(old[newest].is_(None), new[newest] >= old[newest])
        found: dict[str, Any] = {}
        for name in columns:
            mine, its = old[name], new[name]
            way = ways.get(name, "last")
            if settings.mode == "upsert":
                value = its
            elif way == "last":
                value = sa.func.coalesce(its, mine)
            elif way == "first":
                value = sa.func.coalesce(mine, its)
            elif way == "add":
                value = sa.func.coalesce(mine + its, mine, its)
            else:
                better = its < mine if way == "min" else its > mine
                value = sa.case((sa.or_(mine.is_(None), better), its), else_=mine)
            if newer is not None and way == "last":
                value = sa.case((newer, value), else_=mine)
            found[name] = value
        return found


def type_of(values: Iterable[Any]) -> Any:
    """Return the type of a column for these values; text if all are None.

    Raises:
        Unavailable: They have no common type, or one that no column has.

    >>> type_of([None, 3, 4]), type_of([1, 2.5])
    (BigInteger(), Double())
    """
    found: dict[str, Any] = {}
    for given in values:
        try:
            value = plain(given)
        except TypeError:  # it fails its row
            continue
        if value is None:
            continue
        kind = next((made for known, made in _TYPES if isinstance(value, known)), None)
        if kind is None:
            raise Unavailable(f"no column holds a {type(value).__name__}: emit another value, or create the table")
        if isinstance(value, dt.datetime) and value.tzinfo is None:
            kind = _MOMENT
        found.setdefault(repr(kind), kind)
    if set(found) == {repr(sa.BigInteger()), repr(sa.Double())}:
        return sa.Double()
    if len(found) > 1:
        raise Unavailable(f"the values have several types ({', '.join(found)}): create the table yourself")
    return next(iter(found.values()), sa.Text())


def described(settings: TableSettings, rows: Sequence[Mapping[str, Any]]) -> sa.Table:
    """Return a table for rows; its keys are its primary key."""
    schema, name = settings.parts
    names = list(dict.fromkeys(column for row in rows for column in row))
    columns = [
        sa.Column(
            column,
            type_of(row[column] for row in rows if column in row),
            primary_key=column in settings.keys,
            autoincrement=False,
        )
        for column in names
    ]
    return sa.Table(name, sa.MetaData(schema=schema), *columns, **_INNODB)


def commits_table(name: str) -> sa.Table:
    """Return the table of commits: one row for each task of a bolt with one checkpoint."""
    schema, _, plain_name = name.rpartition(".")
    return sa.Table(
        plain_name,
        sa.MetaData(schema=schema or None),
        sa.Column("checkpoint", sa.String(32), primary_key=True),
        sa.Column("component", sa.String(255), primary_key=True),
        sa.Column("task", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("topology", sa.String(255), nullable=False),
        sa.Column("micro_batch", sa.BigInteger, nullable=False),
        sa.Column("rows_written", sa.BigInteger, nullable=False),
        sa.Column("edges", sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        **_INNODB,
    )


def ddl(table: sa.Table, dialect: sa.Dialect) -> str:
    """Return the statement that creates a table, on one line."""
    return " ".join(str(sa.schema.CreateTable(table).compile(dialect=dialect)).split())
