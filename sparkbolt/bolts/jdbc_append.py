"""JdbcAppend: a function for ``SparkSink`` that appends to a database by Spark's JDBC writer, each micro-batch once.

Which question it answers: how do rows that several spark_tasks write become one transaction?
Rule 1: Spark's writer commits each spark_partition on its own, so it writes a staging table, which a repeat replaces.
Rule 2: one transaction moves the staged rows into the table and notes the number of their micro-batch. A micro-batch
that is noted is not written again.

Read before: ``spark_targets``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from sparkbolt.bolts.sql_link import SESSIONS
from sparkbolt.bolts.table_committer import owner_of, refuse_older
from sparkbolt.core.base.exceptions import cause_in_jvm, line_of
from sparkbolt.core.model import arguments
from sparkbolt.core.model.components import TopologyContext
from sparkbolt.errors import ConfigError, EngineError, SparkboltError, Unavailable

NOTES = "sparkbolt_jdbc_commits"
_TABLE = re.compile(r'[\w$"`\[\]. -]+', re.ASCII)
_AWAY = ("08", "57P", "53", "40")
"""How the SQL states begin of a connection that is lost, a server that stops or has no room, a transaction that is to
be repeated."""
_NO_DRIVER = "No suitable driver"
"""What ``java.sql.DriverManager`` says when no class that it has takes a URL."""
_CONNECT = -1
"""Where Spark is asked for a connection: in the driver."""


class JdbcAppend:
    """A function for ``SparkSink`` that appends to a table of a database by JDBC; a repeat adds nothing.

    Spark's executors write a staging table; one transaction of the driver moves its rows into the table, and notes the
    number of their micro-batch in the table ``sparkbolt_jdbc_commits``. The driver of the database must be among
    Spark's jars (``spark.jars.packages``), and ``properties`` name its class. A table that is not there is created.
    Columns are found by name, in any case. While the database is away, the topology waits. ``SqlBolt`` needs no jar and
    writes upserts, too.

    >>> JdbcAppend("jdbc:postgresql://db/shop", "orders", {"driver": "org.postgresql.Driver", "user": "shop"})
    JdbcAppend('orders')
    """

    def __init__(self, url: str, table: str, properties: Mapping[str, str] | None = None) -> None:
        """Store where it writes.

        Args:
            url: the URL of the database, which begins with ``jdbc:``.
            table: the name of the table, as in SQL.
            properties: options of Spark's JDBC writer, and of the driver: ``driver`` (its class; needed where its jar
                came to Spark with the session), ``user``, ``password``.

        Raises:
            ConfigError: an argument is of a wrong kind.
        """
        self.url = arguments.text("url", url, "the URL of a database, such as 'jdbc:postgresql://db/shop'")
        if not self.url.startswith("jdbc:"):
            raise ConfigError(f"url={self.url:.40}, expected a URL that begins with 'jdbc:'; SqlBolt takes others")
        self.table = arguments.text("table", table, "the name of a table")
        if not _TABLE.fullmatch(self.table):
            raise ConfigError(f"table={self.table!r:.80}, expected the name of a table, as in SQL")
        given = arguments.properties("properties", properties)
        self.properties = {key: str(value) for key, value in given.items()}

    def begin(self, context: TopologyContext) -> None:
        """Learn under which name the database counts."""
        self._owner = owner_of(context)
        component = blake2b(context.component.encode(), digest_size=4).hexdigest()
        self._staged = f"sparkbolt_staged_{context.checkpoint_id[:8]}_{component}"
        self._failed: int | None = None

    def __call__(self, batch_df: Any, txid: int) -> None:
        """Append the rows of a micro-batch, unless the database has them.

        Raises:
            Unavailable: the database is away, or failed for the first time in this micro-batch.
            CheckpointError: the database has a later micro-batch.
            EngineError: the table lacks a column, or Spark has no driver for the database.
        """
        try:
            with self._connected(batch_df) as connection:
                last = self._noted(connection)
                refuse_older(f"table {self.table}", last, txid)
                if last < txid:
                    self._append(batch_df, connection, txid)
        except SparkboltError:
            raise
        except Exception as error:
            if _lacks_driver(error):
                raise EngineError(
                    f"Spark has no driver for {self.url.partition('//')[0]} ({_said(error)}): name its jar in "
                    "spark.jars or spark.jars.packages, and its class with properties={'driver': ...}"
                ) from error
            if _is_away(error):
                self._failed = None
                raise Unavailable(f"the database of table {self.table} is away: {_said(error)}") from error
            if self._failed != txid:  # what a task says of a lost connection is a text: it is tried once more
                self._failed = txid
                raise Unavailable(f"table {self.table} was not written: {_said(error)}") from error
            raise
        self._failed = None

    def _append(self, batch_df: Any, connection: Any, txid: int) -> None:
        if not _exists(connection, self.table):
            batch_df.limit(0).write.jdbc(self.url, self.table, "append", self.properties)
        columns = self._columns(connection, batch_df.columns)
        staged = _with_zones(batch_df) if self._database == "postgresql" else batch_df
        staged.write.jdbc(self.url, self._staged, "overwrite", self.properties)
        quote = self._dialect(batch_df.sparkSession).quoteIdentifier
        into, out = (", ".join(map(quote, names)) for names in (columns, batch_df.columns))
        connection.setAutoCommit(False)
        try:
            _execute(connection, f"insert into {self.table} ({into}) select {out} from {self._staged}")
            if not _execute(connection, f"update {NOTES} set txid = ? where sink = ?", txid, self._owner):
                _execute(connection, f"insert into {NOTES} (txid, sink) values (?, ?)", txid, self._owner)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        connection.setAutoCommit(True)
        _execute(connection, f"drop table {self._staged}")

    def _noted(self, connection: Any) -> int:
        """The last micro-batch that the database has; 0 if there is none."""
        if not _exists(connection, NOTES):
            _execute(connection, f"create table {NOTES} (sink varchar(250) not null primary key, txid bigint not null)")
        statement = connection.prepareStatement(f"select txid from {NOTES} where sink = ?")
        try:
            statement.setString(1, self._owner)
            rows = statement.executeQuery()
            return int(rows.getLong(1)) if rows.next() else 0
        finally:
            statement.close()

    def _columns(self, connection: Any, names: list[str]) -> list[str]:
        """The columns of the table that have these names, in whatever case."""
        statement = connection.createStatement()
        try:
            about = statement.executeQuery(f"select * from {self.table} where 1 = 0").getMetaData()
            there = [about.getColumnName(place) for place in range(1, about.getColumnCount() + 1)]
        finally:
            statement.close()
        alike = {column.lower(): column for column in there}
        found = [name if name in there else alike.get(name.lower()) for name in names]
        missing = [name for name, column in zip(names, found, strict=True) if column is None]
        if missing:
            raise EngineError(f"table {self.table} has no column {missing[0]!r}: its columns are {there}")
        return [column for column in found if column is not None]

    def _dialect(self, spark: Any) -> Any:
        return spark._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self.url)

    @property
    def _database(self) -> str:
        name: str = self.url.split(":")[1]
        return name

    @contextmanager
    def _connected(self, batch_df: Any) -> Iterator[Any]:
        """A connection as Spark makes it, which commits each statement, with UTC as its time zone."""
        spark = batch_df.sparkSession
        jvm = spark._jvm
        options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
            self.url, self.table, jvm.PythonUtils.toScalaMap(self.properties)
        )
        connection = self._dialect(spark).createConnectionFactory(options).apply(_CONNECT)
        try:
            if (session := SESSIONS.get(self._database)) is not None:
                _execute(connection, session)
            yield connection
        finally:
            connection.close()

    def __repr__(self) -> str:
        return f"JdbcAppend({self.table!r})"


def _with_zones(rows: Any) -> Any:
    """The rows with timestamps without a zone as instants of UTC, since Spark passes them on in the JVM's zone.

    In the hour that the JVM's zone skips in spring, Spark would write them an hour later.
    """
    parts = ("year({0})", "month({0})", "day({0})", "hour({0})", "minute({0})", "extract(second from {0})", "'UTC'")
    columns = []
    for field in rows.schema:
        name = f"`{field.name.replace('`', '``')}`"
        is_bare = field.dataType.typeName() == "timestamp_ntz"
        columns.append(f"make_timestamp({', '.join(parts).format(name)}) as {name}" if is_bare else name)
    return rows.selectExpr(*columns)


def _exists(connection: Any, table: str) -> bool:
    try:
        _execute(connection, f"select 1 from {table} where 1 = 0")
    except Exception as error:
        if _is_away(error):
            raise
        return False
    return True


def _execute(connection: Any, text: str, *values: int | str) -> int:
    """Execute a statement; return how many rows it has changed, 0 for one that asks."""
    statement = connection.prepareStatement(text)
    try:
        for place, value in enumerate(values, 1):
            if isinstance(value, int):
                statement.setLong(place, value)
            else:
                statement.setString(place, value)
        return 0 if statement.execute() else int(statement.getUpdateCount())
    finally:
        statement.close()


def _said(error: BaseException) -> str:
    return cause_in_jvm(error) or line_of(error)


def _is_away(error: BaseException) -> bool:
    """Whether an exception of the JVM says that the database cannot be reached now."""
    for cause in _causes(error):
        state = getattr(cause, "getSQLState", lambda: None)() if "SQL" in cause.getClass().getName() else None
        if state and str(state).startswith(_AWAY):
            return True
    return False


def _lacks_driver(error: BaseException) -> bool:
    """Whether an exception of the JVM says that there is no driver; its state is that of a lost connection."""
    return any(
        cause.getClass().getSimpleName() == "ClassNotFoundException" or str(cause.getMessage()) == _NO_DRIVER
        for cause in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[Any]:
    """The exceptions of the JVM behind one of Python's."""
    cause = getattr(error, "java_exception", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()
