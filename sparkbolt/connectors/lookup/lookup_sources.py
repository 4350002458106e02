"""Sources of a lookup: a table, and a web service.

A source that may answer later raises ``Unavailable``; an answer that is an exception concerns its key alone.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from sparkbolt.api.arguments import POSITIVE, PROPERTIES, checked, field_names, function, text, whole
from sparkbolt.connectors.argument_pickle import PicklesArguments
from sparkbolt.connectors.sql.sql_link import (
    WITHOUT_ZONES,
    Trouble,
    checked_url,
    engine_of,
    error_text,
    library,
    place_of,
    trouble_of,
    without_zone,
)
from sparkbolt.connectors.sql.sql_search import find_refused
from sparkbolt.errors import ConfigError, Unavailable

_AWAY = frozenset({408, 425, 429, 502, 503, 504})
_MISSING = frozenset({404, 410})
_answered: dict[tuple[int, str, str, str], Any] = {}
"""By process, URL, table and column: a key for which the database had an answer."""


class RefusedLookupError(Exception):
    """The source refuses a key, or its answer cannot be read."""


class SqlSource:
    """Rows of a table by one column; called with keys, it returns the rows of those that exist."""

    @checked
    def __init__(
        self,
        url: str,
        table: Annotated[str, text("the name of a table")],
        key: Annotated[str, text("the name of a column")],
        columns: str | Sequence[str] | None,
        engine: Annotated[Mapping[str, Any], PROPERTIES] | None,
    ) -> None:
        """Check and store the arguments; see ``Lookup.sql``."""
        self.url = checked_url("Lookup.sql", url)
        self.table = table
        self.key = key
        self.only = columns if isinstance(columns, str) else None
        """The column whose values are the answers; None if they are dicts."""
        self.columns = None if columns is None else tuple(field_names("columns", [columns] if self.only else columns))
        self.options = dict(engine or {})

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """Ask with one statement; halve the keys to find those for which the database has no answer."""
        place = f"table {self.table} at {place_of(self.url)}"
        place_key = os.getpid(), self.url, self.table, self.key
        found: dict[Any, Any] = {}

        def attempt(part: Sequence[Any]) -> Exception | None:
            error = self._ask(part, found)
            if error is None:
                _answered[place_key] = part[-1]
            return error

        def refuse(key: Any, error: Exception) -> None:
            found[key] = RefusedLookupError(f"{place}, {self.key} {key!r:.80}: {error_text(error)}")

        def is_well(*keys: Any) -> bool:
            error = self._ask(keys, {})
            return error is None or trouble_of(error) is Trouble.ROW

        def sample() -> bool | None:
            return is_well(_answered[place_key]) if place_key in _answered else None

        try:
            find_refused([keys], attempt, refuse, sample=sample, probe=lambda _: is_well())
        except Exception as error:
            raise Unavailable(f"{place}: {error_text(error)}") from error
        return found

    def _ask(self, keys: Sequence[Any], found: dict[Any, Any]) -> Exception | None:
        """Add the rows of some keys to those that are found; return the error of the database or its driver instead.

        Raises:
            DBAPIError: the database cannot be reached.
        """
        sa, engine = library(), engine_of(self.url, self.options, writes=False)
        schema, _, name = self.table.rpartition(".")
        table = sa.table(name, schema=schema or None)
        wanted = [sa.literal_column("*")] if self.columns is None else [sa.column(one) for one in self.columns]
        with engine.connect() as connection:
            try:
                asked = [without_zone(one) for one in keys] if engine.dialect.name in WITHOUT_ZONES else keys
                # SQLite has no dates: SQLAlchemy writes and reads them as text, by the type of the column.
                is_day = engine.dialect.name == "sqlite" and isinstance(next(iter(asked), None), dt.date | dt.time)
                key = sa.column(self.key, sa.literal(asked[0]).type if is_day else None)
                ask = sa.select(key.label("lookup_key"), *wanted).select_from(table).where(key.in_(asked))
                rows = connection.execute(ask).all()
            except Exception as error:  # noqa: BLE001  drivers raise anything for a value that they cannot send
                return error
        names = self.columns or (rows[0]._fields[1:] if rows else ())
        # A column gives back datetimes with or without a zone, however it was asked.
        answers = {_instant(row[0]): row[1] if self.only else dict(zip(names, row[1:], strict=True)) for row in rows}
        found.update({one: answers[_instant(one)] for one in keys if _instant(one) in answers})
        return None


def _instant(value: Any) -> Any:
    return without_zone(value) if isinstance(value, dt.datetime) else value


class HttpSource(PicklesArguments):
    """Answers of a web service; called with keys, it makes one request for each."""

    @checked
    def __init__(
        self,
        url: Annotated[str, text("an address such as 'https://users/{key}'")],
        headers: Annotated[Mapping[str, str], PROPERTIES] | None,
        timeout_secs: Annotated[float, POSITIVE],
        connections: Annotated[int, whole()],
        decode: Annotated[Callable[[bytes], Any], function("a function of the body")] | None,
    ) -> None:
        """Check and store the arguments; see ``Lookup.http``."""
        self.url = url
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc or self.url.count("{key}") != 1:
            raise ConfigError("Lookup.http: url is no address such as 'https://users/{key}', with {key} in it once")
        self.place = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        self.headers = dict(headers or {})
        self.timeout_secs = timeout_secs
        self.connections = connections
        self.decode = json.loads if decode is None else decode
        _urllib3()
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._pool: Any = None
        self._threads: ThreadPoolExecutor | None = None

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """Ask for all keys, ``connections`` at a time."""
        if self._process != os.getpid():
            self._begin()
        if self._pool is None or self._threads is None:
            self._pool = _urllib3().PoolManager(maxsize=self.connections, block=True)
            self._threads = ThreadPoolExecutor(self.connections, thread_name_prefix="sparkbolt-http")
        answers = self._threads.map(self._answer, keys)
        return {key: answer[0] for key, answer in zip(keys, answers, strict=True) if answer is not None}

    def close(self) -> None:
        """Close the connections."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._pool.clear()
        self._begin()

    def _answer(self, key: Any) -> tuple[Any] | None:
        """Return the value of a key or the exception to raise for it; None if it has no value."""
        urllib3 = _urllib3()
        # A connection that was kept open may be closed by now, which shows at the next use only.
        retries = urllib3.Retry(total=None, connect=0, read=1, redirect=3, status=0, other=0)
        address = self.url.replace("{key}", quote(str(key), safe=""))
        try:
            answer = self._pool.request(
                "GET", address, headers=self.headers, timeout=self.timeout_secs, retries=retries
            )
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error
            return (Unavailable(f"{self.place} does not answer: {type(cause).__name__}"),)
        if answer.status in _MISSING:
            return None
        if answer.status in _AWAY:
            return (Unavailable(f"{self.place} answers {answer.status} {answer.reason}"),)
        if not 200 <= answer.status < 300:
            return (RefusedLookupError(f"{self.place}, key {key!r:.80}: {answer.status} {answer.reason}"),)
        try:
            return (self.decode(answer.data),)
        except Exception as error:  # noqa: BLE001  a function of the user's may raise anything
            why = f"{type(error).__name__}: {error}"
            return (RefusedLookupError(f"{self.place}, key {key!r:.80}: the answer cannot be decoded: {why:.200}"),)


def _urllib3() -> Any:
    try:
        import urllib3
    except ImportError:
        raise ConfigError("Lookup.http needs the package urllib3: pip install 'sparkbolt[http]'") from None
    return urllib3
