"""The link to an SQL database: the library, engines, and the meaning of errors.

A URL is shown without its password, and an error without the statement and its parameters. A process has one engine for
each URL; a forked child makes its own. The time zone of a session is UTC, and everything that writes uses transactions.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import sqlite3
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from sparkbolt.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

SQLITE_WAIT_SECS = 30.0
"""How long SQLite waits for another writer of the same file."""
CONNECT_SECS = 10
"""How long psycopg waits for a connection, unless the URL or ``engine`` says otherwise."""
_DRIVERS = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary", "pymysql": "pymysql"}
WITHOUT_ZONES = ("sqlite", "mysql", "mariadb")
"""The databases that have no type for a value with a zone; their drivers drop it."""
_MYSQL_SESSION = "SET time_zone = '+00:00', sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')"
_SESSIONS = {
    "mariadb": _MYSQL_SESSION,
    "mysql": _MYSQL_SESSION,
    "postgresql": "SET TIME ZONE 'UTC'",
}
"""By database whose values depend on the settings of the session: the statement that sets them."""
_engines: dict[tuple[int, str, bool, str], Engine] = {}
"""By process, URL, whether it writes, and options."""


class Trouble(Enum):
    """The thing that an error of a database concerns."""

    ROW = "row"
    """These values: another row may be written."""
    TABLE = "table"
    """The table or the rights to it: someone has to change something."""
    AWAY = "away"
    """The database or the connection: the same transaction may succeed later."""


def library() -> Any:
    """Return SQLAlchemy.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import sqlalchemy
    except ImportError:
        raise ConfigError("SQL needs the package sqlalchemy: pip install 'sparkbolt[sql]'") from None
    return sqlalchemy


def checked_url(who: str, url: Any) -> str:
    """Return a database URL whose driver is installed.

    Raises:
        ConfigError: It is not such a URL, or the database is visible to one process only.
    """
    sqlalchemy = library()
    try:
        parsed = sqlalchemy.make_url(url)
    except (sqlalchemy.exc.ArgumentError, AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"{who}: url is no database URL: expected one as of SQLAlchemy, such as 'sqlite:///words.db' or "
            "'postgresql+psycopg://user:password@host/database'"
        ) from None
    try:
        parsed.get_dialect().import_dbapi()
    except ImportError as error:
        name = (error.name or "").split(".")[0]
        get = f"pip install {_DRIVERS.get(name, name)}" if name else str(error)
        raise ConfigError(f"{who}: the driver of {parsed.drivername!r} is not installed: {get}") from None
    except sqlalchemy.exc.NoSuchModuleError:
        raise ConfigError(
            f"{who}: SQLAlchemy knows no database {parsed.drivername!r}: is its package installed?"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        name = parsed.database or ":memory:"
        if ":memory:" in name:
            raise ConfigError(
                f"{who}: {url!r} is in the memory of one process, and tasks run in several: name a file, "
                "such as 'sqlite:///words.db'"
            )
        if not name.startswith("file:"):  # where the topology is built, as for files
            parsed = parsed.set(database=os.path.abspath(os.path.expanduser(name)))
    text: str = parsed.render_as_string(hide_password=False)
    return text


def check_transactions(who: str, url: str, options: Mapping[str, Any]) -> None:
    """Refuse a URL and options of an engine that commit each statement by itself.

    Raises:
        ConfigError: They do.
    """
    levels = [part.get("isolation_level") for part in (options, options.get("execution_options") or {})]
    # Some drivers get the text of a URL unchanged, and "false" is true for them.
    commits = "autocommit" in parsed_url(url).query or (options.get("connect_args") or {}).get("autocommit")
    if commits or "AUTOCOMMIT" in [str(level).upper() for level in levels]:
        raise ConfigError(
            f"{who}: the url or engine=... asks for autocommit: leave it out. Rows are written in one transaction with "
            "a note of the micro-batch, so that none is written twice"
        )


def parsed_url(url: str) -> URL:
    """Return a URL in its parts."""
    parsed: URL = library().make_url(url)
    return parsed


def place_of(url: str) -> str:
    """Return a URL that may be printed.

    >>> place_of("postgresql+psycopg://ann:secret@db/shop?sslpassword=x")
    'postgresql+psycopg://ann:***@db/shop'
    """
    return parsed_url(url).set(query={}).render_as_string(hide_password=True)


def without_zone(value: Any) -> Any:
    """Return a datetime or a time with a zone in UTC and without its zone, and any other value unchanged.

    Raises:
        ValueError: the offset of a time from UTC depends on the day.

    >>> str(without_zone(dt.time.fromisoformat("05:30:00+02:00")))
    '03:30:00'
    """
    if isinstance(value, dt.time) and value.tzinfo is not None:
        if value.utcoffset() is None:
            raise ValueError(f"{value!r} is no time in UTC: the offset of {value.tzinfo} depends on the day")
        return dt.datetime.combine(dt.date(2000, 1, 1), value).astimezone(dt.UTC).time()
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def engine_of(url: str, options: Mapping[str, Any], *, writes: bool) -> Engine:
    """Return this process's engine for a URL; it connects when it is first used."""
    key = os.getpid(), url, writes, repr(sorted(options.items()))
    engine = _engines.get(key)
    if engine is None:
        for other in [other for other in _engines if other[0] != key[0]]:
            _engines.pop(other).dispose(close=False)  # its connections are the parent's
        engine = _engines[key] = _made(url, dict(options), writes)
    return engine


def _made(url: str, options: dict[str, Any], writes: bool) -> Engine:
    sqlalchemy = library()
    parsed = parsed_url(url)
    if parsed.get_backend_name() != "sqlite":
        defaults: dict[str, Any] = {"pool_size": 1, "max_overflow": 10, "pool_pre_ping": True}
        its_log = logging.getLogger("psycopg")
        if its_log.level == logging.NOTSET:
            its_log.setLevel(logging.ERROR)  # it warns of each refused row and lost connection; the bolt logs them once
        if parsed.get_driver_name() == "psycopg" and "connect_timeout" not in parsed.query:
            options["connect_args"] = {"connect_timeout": CONNECT_SECS, **options.get("connect_args", {})}
        made: Engine = sqlalchemy.create_engine(parsed, **{**defaults, **options})
        if (session := _SESSIONS.get(parsed.get_backend_name())) is not None:

            def begin_session(connection: Any, _: Any) -> None:
                cursor = connection.cursor()
                cursor.execute(session)
                cursor.close()
                connection.commit()

            sqlalchemy.event.listen(made, "connect", begin_session)
        return made
    if "timeout" not in parsed.query:
        options["connect_args"] = {"timeout": SQLITE_WAIT_SECS, **options.get("connect_args", {})}
    made = sqlalchemy.create_engine(parsed, **{"poolclass": sqlalchemy.NullPool, **options})

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the module would begin and commit by itself, and break savepoints

    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    sqlalchemy.event.listen(made, "connect", connected)
    sqlalchemy.event.listen(made, "begin", begun)
    return made


_AWAY_CLASSES = frozenset({"08", "25", "28", "3D", "40", "53", "55", "57", "58", "70", "F0", "XX"})
"""Classes of SQLSTATE: connection, state of a transaction, authorization, no such database, rollback (deadlock,
serialization), resources, not in a state for it (locked), operator, system."""
_TABLE_STATES = frozenset({"42P01", "42501", "42P10", "42703", "3F000"})
"""No such table; no right; no unique index for the keys; no such column; no such schema."""
_MYSQL_MODULES = ("pymysql", "MySQLdb", "mysql", "mariadb")
_MYSQL_TABLE = frozenset({1044, 1054, 1142, 1143, 1146, 1227})
"""No right to the database; no such column; no right to the table or the column; no such table; no such right."""
_MYSQL_AWAY = frozenset(
    {1021, 1030, 1037, 1038, 1040, 1041, 1045, 1049, 1053, 1114, 1129, 1130, 1180, 1203, 1205, 1206, 1213, 1223, 1226}
    | {1290, 1305, 1317, 1792, 1836, 1927, 1969, 3024, 3100, 3572, *range(2000, 3000)}
)
"""Disk, memory, connections, logins, shutdown, a full table, locks, deadlock, read only, a savepoint that is gone, a
query that was stopped, and the client's errors about the connection. MySQL's own SQLSTATE is HY000 for most of them."""
_SQLITE_AWAY = ("BUSY", "LOCKED", "FULL", "IOERR", "CANTOPEN", "READONLY", "PROTOCOL", "NOTADB", "CORRUPT", "AUTH")


def trouble_of(error: BaseException) -> Trouble:
    """Return the meaning of the code of an error from a statement, a commit or an attempt to connect.

    A trigger may raise any code for one row, so ``sql_rows`` checks this result.

    >>> trouble_of(OverflowError("Python int too large to convert to SQLite INTEGER"))
    <Trouble.ROW: 'row'>
    """
    exc = library().exc
    if isinstance(error, exc.TimeoutError):  # no connection of the pool is free
        return Trouble.AWAY
    if not isinstance(error, exc.DBAPIError):
        return Trouble.ROW
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        name = getattr(cause, "sqlite_errorname", None) or ""
        if name.startswith(tuple(f"SQLITE_{part}" for part in _SQLITE_AWAY)):
            return Trouble.AWAY
        if "no such table" in str(cause) or "no column named" in str(cause) or "ON CONFLICT clause" in str(cause):
            return Trouble.TABLE
        return Trouble.ROW
    if error.connection_invalidated:
        return Trouble.AWAY
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int) and type(cause).__module__.split(".")[0] in _MYSQL_MODULES:
        if number in _MYSQL_TABLE:
            return Trouble.TABLE
        return Trouble.AWAY if number in _MYSQL_AWAY else Trouble.ROW
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if state:
        if state in _TABLE_STATES:
            return Trouble.TABLE
        return Trouble.AWAY if state[:2] in _AWAY_CLASSES else Trouble.ROW
    return Trouble.AWAY if isinstance(error, exc.OperationalError | exc.InterfaceError) else Trouble.ROW


def error_text(error: BaseException) -> str:
    r"""Return an error as one line, without the statement and its parameters.

    >>> error_text(ValueError("no\n  such thing"))
    'ValueError: no such thing'
    """
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {' '.join(str(cause).split())}"
