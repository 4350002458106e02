"""SqlWriter: writes the rows of a task and micro-batch exactly once, in one transaction.

Rule 1: the rows and the note that they are written are one transaction. The note is a row of the table of commits, for
one checkpoint, component and task: the last micro-batch, and the edge of each row that was written in it. Edges are the
same when a micro-batch runs again, so a repeat writes only the missing rows. A repeat may have other rows: a bolt
before this one may have failed for a tuple in the first run and not in the second.
Rule 2: the note is locked first. If two attempts run at once, for example because a driver was believed dead, the
second one sees the rows of the first.
Rule 3: when the connection is lost during a commit, its outcome is unknown. The next connection reads the note to find
out.
Rule 4: in a transactional topology tasks only ``try_rows``: their rows are written and rolled back, so that the
database refuses a row before it counts. ``commit`` in the driver writes the rows of all tasks, all or none, with one
note for the component (task ``WHOLE``); it does not write a txid that is noted already.
"""

from __future__ import annotations

import datetime as dt
import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from sparkbolt.connectors.sql.sql_link import Trouble, engine_of, error_text, place_of, trouble_of
from sparkbolt.connectors.sql.sql_rows import RowInserter, RowRefusedError, SqlRow, WriterSettings
from sparkbolt.connectors.sql.sql_table import Target, commits_table, ddl, described
from sparkbolt.connectors.txid_note import CommitRefusedError, TxidNote
from sparkbolt.errors import Unavailable

log = logging.getLogger(__name__)

BACKOFF_SECS, BACKOFF_SECS_MAX = 0.1, 2.0
WHOLE = 0
"""The task of the note of a component whose rows are committed by the driver; tasks are numbered from 1."""
PROBE = -1
"""The task of a note that is written and rolled back to learn whether the database takes rows."""
TRIES = 2
"""After how many failures of a transaction, such as by a deadlock, it is repeated in search of a row at fault."""


@dataclass(frozen=True)
class Author:
    """The owner of the rows: the key of the note, and the name that people know."""

    checkpoint: str
    component: str
    task: int
    topology: str


class SqlWriter:
    """Writes the rows of one task."""

    def __init__(
        self,
        settings: WriterSettings,
        author: Author,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Keep the settings; the first ``write`` connects."""
        self._settings, self._author = settings, author
        self._clock, self._sleep = clock, sleep
        self._commits = commits_table(settings.commits)
        self._has_commits = False
        self._target: Target | None = None
        self._is_away = False
        """Whether the last ``write`` ended because the database was unavailable: then the next one does not wait."""
        self._in_doubt = False
        self._failures = 0
        """How often the present transaction has failed although the database answers, or may answer."""
        self._postponed = False
        """Whether the last failure was one that a search for a row at fault may explain."""
        self.place = f"table {settings.table.name} at {place_of(settings.url)}"

    def write(self, number: int, rows: Sequence[SqlRow]) -> dict[int, RowRefusedError]:
        """Write the rows of a micro-batch that are not written yet, and wait for an unavailable database.

        Args:
            number: the micro-batch.
            rows: all rows of the task in it; their order is kept for rows of the same key.

        Returns:
            By index of each row that the database refuses: why. All others are committed.

        Raises:
            Unavailable: The database was unavailable for ``wait_secs``, or someone has to change the table. Nothing
                of these rows is written, unless a commit was under way whose outcome could not be learned.
        """
        return self._patiently(number, lambda: self._transact(number, rows))

    def try_rows(self, number: int, rows: Sequence[SqlRow]) -> dict[int, RowRefusedError]:
        """Write rows and roll them back; waits for an unavailable database.

        Deferred constraints are checked at once. The table is created, if the user wants that.

        Args:
            number: the micro-batch.
            rows: all rows of the task in it.

        Returns:
            By index of each row that the database refuses: why.

        Raises:
            Unavailable: The database was unavailable for ``wait_secs``, or someone has to change the table.
        """
        return self._patiently(number, lambda: self._try(rows))

    def commit(self, number: int, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Write the rows of a transaction and the note of it, all or none; does not wait.

        Args:
            number: the txid.
            rows: the values of all rows of the component in it.

        Returns:
            Whether they were written now; they were written before otherwise.

        Raises:
            Unavailable: The database is unavailable, or someone has to change the table. The same call may succeed
                later; it also finds out the outcome of a commit that was interrupted.
            RowRefusedError: The database refuses a row, which is named; nothing is written.
            CommitRefusedError: The database refuses the commit as a whole; nothing is written.
            CheckpointError: Another driver that uses the checkpoint, or a copy of it, has written the note.
        """
        try:
            is_new = self._commit(number, [SqlRow(0, values) for values in rows])
        except sa.exc.SQLAlchemyError as error:
            trouble, text = trouble_of(error), error_text(error)
            if trouble is Trouble.AWAY:
                self._failures += 1
                raise Unavailable(f"{self.place} is unavailable: {text}") from error
            self._target, self._has_commits = None, False
            if trouble is Trouble.TABLE:
                raise Unavailable(f"{self.place}: {text}") from error
            raise CommitRefusedError(
                f"{self.place} refuses the commit of txid {number} as a whole, and names no row: {text}"
            ) from error
        self._failures = 0
        return is_new

    def close(self) -> None:
        """Close the connections of this process to the database; other writers connect again."""
        engine_of(self._settings.url, self._settings.options, writes=True).dispose()

    def _patiently(self, number: int, attempt: Callable[[], dict[int, RowRefusedError]]) -> dict[int, RowRefusedError]:
        until = self._clock() + self._settings.wait_secs
        wait = BACKOFF_SECS
        self._in_doubt = False
        self._failures = TRIES if self._is_away else 0
        while True:
            try:
                refused = attempt()
            except sa.exc.SQLAlchemyError as error:
                trouble, text = trouble_of(error), error_text(error)
                if trouble is not Trouble.AWAY:  # outside of the rows: of the table, or of the commit
                    self._target, self._has_commits = None, False
                    raise Unavailable(f"{self.place}: {text}") from error
                self._failures += 1
                is_late = self._clock() >= until or (self._is_away and not self._in_doubt)
                if is_late and self._postponed:
                    self._failures = TRIES  # the last attempt searches
                elif is_late:
                    self._give_up(number, text)
                    raise Unavailable(f"{self.place} is unavailable: {text}") from error
                if wait == BACKOFF_SECS:
                    log.warning("%s: %s; the same rows are written when it is back", self.place, text)
                self._sleep(wait * random.uniform(0.5, 1))
                wait = min(2 * wait, BACKOFF_SECS_MAX)
            else:
                self._is_away = False
                return refused

    def _give_up(self, number: int, text: str) -> None:
        self._is_away = True
        if self._in_doubt:
            log.error(
                "%s: the connection was lost during the commit of micro-batch %d of task %d, and is not back after "
                "%s s (%s): if the commit was carried out, these rows are written once more",
                self.place,
                number,
                self._author.task,
                self._settings.wait_secs,
                text,
            )

    @contextmanager
    def _begun(self, rows: Sequence[SqlRow]) -> Iterator[tuple[sa.Connection, sa.RootTransaction, RowInserter]]:
        """Begin a transaction with a table that is there; roll it back after an exception."""

        def probe(data: bytes) -> None:
            connection.execute(sa.insert(self._commits), {**self._noted(-1, ()), "task": PROBE, "edges": data})

        engine = engine_of(self._settings.url, self._settings.options, writes=True)
        self._postponed = False
        if not self._has_commits:
            self._create(engine, self._commits)
            self._has_commits = True
        known = self._target is not None
        with engine.connect() as connection:
            # A table that lacks a column may have been altered since it was looked at.
            if self._target is None or any(self._target.missing(row.values) for row in rows):
                self._target = self._found(engine, connection, rows)
        target, settings, searching = self._target, self._settings, self._failures >= TRIES
        with engine.connect() as connection:
            transaction = connection.begin()
            inserter = RowInserter(settings, self.place, connection, target, probe, searching=searching)
            try:
                yield connection, transaction, inserter
            except BaseException as error:
                self._postponed = inserter.postponed
                if known and isinstance(error, sa.exc.DBAPIError) and trouble_of(error) is Trouble.TABLE:
                    self._target = None
                if transaction.is_active and not connection.invalidated:
                    transaction.rollback()
                raise

    def _try(self, rows: Sequence[SqlRow]) -> dict[int, RowRefusedError]:
        with self._begun(rows) as (connection, transaction, inserter):
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
            inserter.insert(rows, range(len(rows)))
            transaction.rollback()
        return inserter.refused

    def _commit(self, number: int, rows: Sequence[SqlRow]) -> bool:
        with self._begun(rows) as (connection, transaction, inserter):
            note = self._locked(connection)
            if note is not None and self._is_committed(note, number, len(rows)):
                transaction.rollback()
                return False
            inserter.insert(rows, range(len(rows)), whole=True)
            if inserter.refused:
                refused = inserter.refused
                first = min(refused.values(), key=lambda one: not one.certain)
                others = f", and {len(refused) - 1} more of {len(rows)} rows" if len(refused) > 1 else ""
                kind = RowRefusedError if first.certain else Unavailable
                raise kind(f"{first}{others}; nothing of txid {number} is written")
            noted = {**self._noted(number, ()), "rows_written": len(rows)}
            connection.execute(sa.update(self._commits).where(self._mine()), noted)
            transaction.commit()
        return True

    def _is_committed(self, note: Any, number: int, count: int) -> bool:
        author, commits = self._author, self._settings.commits
        mend = f"delete the row of {commits} with this checkpoint, this component and task {WHOLE}"
        where = f"{commits} (checkpoint {author.checkpoint}, component {author.component})"
        return TxidNote(note.micro_batch, note.rows_written).has(number, count, where, mend)

    def _transact(self, number: int, rows: Sequence[SqlRow]) -> dict[int, RowRefusedError]:
        with self._begun(rows) as (connection, transaction, inserter):
            written = self._written(connection, number)
            left = [index for index, row in enumerate(rows) if written is None or row.edge not in written]
            inserter.insert(rows, left)
            refused = inserter.refused
            edges = {row.edge for index, row in enumerate(rows) if index not in refused} | (written or {0})
            connection.execute(sa.update(self._commits).where(self._mine()), self._noted(number, edges - {0}))
            self._in_doubt = True
            try:
                transaction.commit()
            except sa.exc.DBAPIError as error:
                if trouble_of(error) is not Trouble.ROW:
                    raise
                reason = RowRefusedError(
                    f"{self.place} refused the commit of the whole micro-batch: {error_text(error)}: a deferred "
                    "constraint is checked only then; make it immediate, and the row alone is refused"
                )
                refused = dict.fromkeys(range(len(rows)), reason)
            self._in_doubt = False
        return refused

    # The table.

    def _found(self, engine: sa.Engine, connection: sa.Connection, rows: Sequence[SqlRow]) -> Target:
        """Return the table, as the database knows it now."""
        settings = self._settings.table
        schema, name = settings.parts
        was_there = settings.create and self._has_written(connection)  # first: another task may create it meanwhile
        try:
            table = sa.Table(name, sa.MetaData(), schema=schema, autoload_with=connection)
        except sa.exc.NoSuchTableError:
            wanted = described(settings, [row.values for row in rows])
            if not settings.create:
                raise Unavailable(
                    f"{self.place} does not exist: create it, for these rows with {ddl(wanted, engine.dialect)}, or "
                    "give create=True"
                ) from None
            if was_there:
                raise Unavailable(
                    f"{self.place} is gone, and rows were written to it: was it renamed or dropped? create=True makes "
                    f"it once. Rename it back, or create it, for these rows with {ddl(wanted, engine.dialect)}"
                ) from None
            connection.rollback()
            self._create(engine, wanted)
            table = sa.Table(name, sa.MetaData(), schema=schema, autoload_with=connection)
        finally:
            connection.rollback()
        return Target(table, settings, engine.dialect.name)

    def _create(self, engine: sa.Engine, table: sa.Table) -> None:
        """Create a table unless it exists; another task may do so at the same time."""
        for again in (False, True):
            try:
                with engine.begin() as connection:
                    table.create(connection, checkfirst=True)
                return
            except sa.exc.DBAPIError as error:
                if trouble_of(error) is Trouble.AWAY:
                    raise
                if again:
                    raise Unavailable(
                        f"table {table.fullname} at {place_of(self._settings.url)} cannot be created "
                        f"({error_text(error)}): create it with {ddl(table, engine.dialect)}"
                    ) from error

    # The note.

    def _has_written(self, connection: sa.Connection) -> bool:
        """Whether any task of the component has written rows, with this checkpoint."""
        columns, author = self._commits.c, self._author
        ask = sa.select(columns.task).where(columns.checkpoint == author.checkpoint, columns.micro_batch >= 0)
        return connection.execute(ask.where(columns.component == author.component).limit(1)).first() is not None

    def _mine(self) -> Any:
        columns, author = self._commits.c, self._author
        return sa.and_(
            columns.checkpoint == author.checkpoint,
            columns.component == author.component,
            columns.task == author.task,
        )

    def _written(self, connection: sa.Connection, number: int) -> frozenset[int] | None:
        """Lock the note, and return the edges of the rows of the micro-batch that are written; None if it is new.

        In a micro-batch that runs again, rows without an edge (0) count as written: nobody waits for them.
        """
        author, note = self._author, self._locked(connection)
        if note is None or note.micro_batch < number:
            return None
        if note.micro_batch > number:
            raise Unavailable(
                f"{self._settings.commits} says that micro-batch {note.micro_batch} of checkpoint {author.checkpoint} "
                f"is written by {author.component}[{author.task}], and this is {number}: another driver goes on with "
                "this checkpoint or a copy of it. If an older copy of the checkpoint was put back on purpose, delete "
                f"the rows of {self._settings.commits} with this checkpoint; what it wrote since is written again"
            )
        return frozenset([0, *np.frombuffer(note.edges, dtype="<u8").tolist()])

    def _locked(self, connection: sa.Connection) -> Any:
        """Lock the note, and return it; make it, and return None, if there is none."""
        columns = self._commits.c
        ask = sa.select(columns.micro_batch, columns.edges, columns.rows_written)
        ask = ask.where(self._mine()).with_for_update()
        note = connection.execute(ask).first()
        if note is None:
            try:
                with connection.begin_nested():
                    connection.execute(sa.insert(self._commits), self._noted(-1, ()))
                return None
            except sa.exc.IntegrityError:  # another attempt was faster, and has ended
                note = connection.execute(ask).one()
        return note

    def _noted(self, number: int, edges: Collection[int]) -> dict[str, Any]:
        author = self._author
        return {
            "checkpoint": author.checkpoint,
            "component": author.component,
            "task": author.task,
            "topology": author.topology,
            "micro_batch": number,
            "rows_written": len(edges),
            "edges": np.array(sorted(edges), dtype="<u8").tobytes(),
            "committed_at": dt.datetime.now(dt.UTC),
        }
