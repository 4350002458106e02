"""Lookup: values by key from a database or a web service, for bolts that enrich tuples.

Concurrent requests for a key are one request. Answers are cached, also the answer that a key has no value; errors are
not.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeAlias

from sparkbolt.api.arguments import POSITIVE, checked, function, whole
from sparkbolt.connectors.argument_pickle import PicklesArguments
from sparkbolt.connectors.lookup.lookup_sources import HttpSource, SqlSource
from sparkbolt.errors import Unavailable

Fetch: TypeAlias = Callable[[list[Any]], Mapping[Any, Any]]
"""Returns the values of some keys; a key that is not in the result has none. A value that is an exception is raised for
its key alone."""

_MISSING: Any = object()
AWAY_SECS = 1.0
"""How long an unavailable source is not asked again: each request may wait for its timeout."""


def _own(value: Any) -> Any:
    """Copy the dicts and lists of an answer, which its bolt may change and emit; the cache keeps them as they were."""
    if type(value) is dict:
        return {key: _own(item) for key, item in value.items()}
    return [_own(item) for item in value] if type(value) is list else value


class Lookup(PicklesArguments):
    """Values by key, from ``fetch`` or a source made by ``Lookup.sql`` or ``Lookup.http``, with a cache.

    A bolt keeps it in an attribute. The cache belongs to one task in one process: it is not stored, and begins empty
    there. Keep it in a bolt with ``stateless = True``, or name the attribute in ``transient``.

    In an ``AsyncBolt``, ``await lookup.get(key)``: concurrent requests of its coroutines are fetched together. In
    any other bolt ``lookup.many(keys)`` does so, best with all keys of a frame in a ``ColumnBolt``.

    Each call returns its own copy of an answer that consists of dicts and lists: a bolt may change and emit it. Other
    objects are those of the cache; do not change them.

    The simulator and ``TopologyTestDriver`` ask the source, too: in a test, give the bolt a ``Lookup`` over a dict.

    >>> names = {1: "ann", 2: "bo"}
    >>> lookup = Lookup(lambda keys: {key: names[key] for key in keys if key in names})
    >>> lookup.many([1, 3, 1]), lookup.asked
    ({1: 'ann'}, 2)
    >>> lookup.many([1, 3]), lookup.asked
    ({1: 'ann'}, 2)
    """

    @checked
    def __init__(
        self,
        fetch: Annotated[Fetch, function("a function that returns the values of some keys")],
        *,
        ttl_secs: Annotated[float, POSITIVE] = 60.0,
        missing_ttl_secs: Annotated[float, POSITIVE] = 5.0,
        size: Annotated[int, whole()] = 10_000,
        batch: Annotated[int, whole()] = 500,
        clock: Annotated[Callable[[], float], function("a function that returns the time in seconds")] = time.monotonic,
    ) -> None:
        """Check and store the arguments.

        Args:
            fetch: called with at most ``batch`` different keys, in another thread when it is for ``get``. If it raises
                for several keys, it is called with parts of them, to find the keys at fault.
            ttl_secs: how long a value is kept.
            missing_ttl_secs: how long it is kept that a key has no value.
            size: how many answers are kept; the one used longest ago goes first.
            batch: how many keys are fetched at once.
            clock: the time in seconds, for tests.

        Raises:
            ConfigError: An argument is wrong.
        """
        self.fetch = fetch
        self.ttl_secs = ttl_secs
        self.missing_ttl_secs = missing_ttl_secs
        self.size, self.batch = size, batch
        self.clock = clock
        self._begin()

    @classmethod
    def sql(
        cls,
        url: str,
        table: str,
        key: str,
        columns: str | Sequence[str] | None = None,
        *,
        engine: Mapping[str, Any] | None = None,
        **cache: Any,
    ) -> Lookup:
        """Look up rows of a table or a view, many with one statement.

        Args:
            url: the database, as for ``SqlBolt``.
            table: its name, perhaps with its schema.
            key: the column to look for; it should be unique and have an index.
            columns: one name gives values as they are in that column, a list gives dicts; by default all columns.
            engine: further arguments of SQLAlchemy's ``create_engine``.
            cache: the arguments of ``Lookup``.

        Raises:
            ConfigError: An argument is wrong, or the package or the driver is not installed.
        """
        return cls(SqlSource(url, table, key, columns, engine), **cache)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_secs: float = 10.0,
        connections: int = 10,
        decode: Callable[[bytes], Any] | None = None,
        **cache: Any,
    ) -> Lookup:
        """Look up by ``GET``, one request for each key, over connections that stay open.

        404 and 410 mean that there is no value. 408, 425, 429, 502, 503, 504, and no answer within ``timeout_secs``
        mean ``Unavailable``. Any other status but those of success fails the tuple.

        Args:
            url: the address, with ``{key}`` where the key belongs; it is quoted.
            headers: sent with each request, such as ``{"Authorization": "..."}``.
            timeout_secs: how long to wait to connect, and for each piece of the answer.
            connections: how many requests run at once, for each task.
            decode: makes a value from the answer's body; by default the body is JSON.
            cache: the arguments of ``Lookup``.

        Raises:
            ConfigError: An argument is wrong, or the package urllib3 is not installed.
        """
        return cls(HttpSource(url, headers, timeout_secs, connections, decode), **cache)

    def _begin(self) -> None:
        """Start with an empty cache, in this process."""
        self.asked = 0
        """For how many keys the source was asked."""
        self._away: tuple[float, Unavailable] | None = None
        """Until when no key is asked for, because the source was unavailable a moment ago, and its error."""
        self._process = os.getpid()
        self._cache: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._waiting: dict[Hashable, asyncio.Future[Any]] = {}
        """By key that is being fetched for ``get``, the future of the answer."""
        self._wanted: list[Any] = []
        """Keys of ``_waiting`` whose fetch has not begun."""
        self._fetching: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: ThreadPoolExecutor | None = None

    def many(self, keys: Collection[Any]) -> dict[Any, Any]:
        """Return the values of some keys, without those that have none.

        Raises:
            Unavailable: The source is unavailable.
            Exception: The error that the source raised for one of the keys.
        """
        self._check_process()
        found, left = {}, []
        for key in dict.fromkeys(keys):
            value = self._cached(key)
            if value is None:
                left.append(key)
            else:
                found[key] = value[0]
        for start in range(0, len(left), self.batch):
            found.update(self._ask(left[start : start + self.batch]))
        errors = [value for value in found.values() if isinstance(value, BaseException)]
        if errors:
            raise errors[0]
        return {key: _own(value) for key, value in found.items() if value is not _MISSING}

    async def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or ``default`` if it has none.

        Raises:
            Unavailable: The source is unavailable.
            Exception: The error that the source raised for this key.
        """
        self._check_process()
        known = self._cached(key)
        if known is None:
            loop = asyncio.get_running_loop()
            if loop is not self._loop:
                self._loop, self._waiting, self._wanted = loop, {}, []
            if key not in self._waiting:
                self._waiting[key] = loop.create_future()
                if not self._wanted:
                    loop.call_soon(self._fetch_wanted)  # after all coroutines that are ready now have asked
                self._wanted.append(key)
            known = (await asyncio.shield(self._waiting[key]),)  # one caller may be cancelled; the others still wait
        value = known[0]
        if isinstance(value, BaseException):
            raise value
        return default if value is _MISSING else _own(value)

    def close(self) -> None:
        """Release threads and connections; call it in ``cleanup``."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        getattr(self.fetch, "close", lambda: None)()
        self._begin()

    def _check_process(self) -> None:
        if self._process != os.getpid():  # a forked child has none of its parent's threads
            self._begin()

    def _cached(self, key: Any) -> tuple[Any] | None:
        entry = self._cache.get(key)
        if entry is None:
            return None
        if entry[0] <= self.clock():
            del self._cache[key]
            return None
        self._cache.move_to_end(key)
        return (entry[1],)

    def _ask(self, keys: list[Any]) -> dict[Any, Any]:
        """Ask the source and keep its answers, except for exceptions."""
        self.asked += len(keys)
        return self._keep(keys, self._called(keys))

    def _called(self, keys: list[Any]) -> Mapping[Any, Any]:
        """Call the function; if it raises for several keys, call it with parts of them to find those at fault.

        Returns:
            The values of the keys; the value of a key at fault is the exception. If nothing succeeds within as many
            calls as it takes to find one key, no key is at fault, and all that are left have the same exception.
        """
        answers: dict[Any, Any] = {}
        parts, failed, calls_max = [keys], 0, len(keys).bit_length() + 2
        while parts:
            part = parts.pop()
            try:
                answers.update(self._call(part))
            except Unavailable:
                raise
            except Exception as error:  # noqa: BLE001  a function of the user's may raise anything
                failed += 1
                if len(part) == 1:
                    answers[part[0]] = error
                elif failed < calls_max:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                else:
                    answers.update(dict.fromkeys(part, error))
            else:
                calls_max = 2 * len(keys)  # the function works, so every key at fault is worth finding
        return answers

    def _call(self, keys: list[Any]) -> Mapping[Any, Any]:
        """Call the function with a copy of the list, which it may change."""
        if self._away is not None and self.clock() < self._away[0]:
            raise Unavailable(str(self._away[1])) from self._away[1]
        try:
            answers: Mapping[Any, Any] = self.fetch(list(keys))
        except Unavailable as error:
            self._away = self.clock() + AWAY_SECS, error
            raise
        except StopIteration as error:  # a future cannot hold it
            raise RuntimeError("the function of the lookup raised StopIteration: next() found nothing") from error
        return answers

    def _keep(self, keys: list[Any], answers: Mapping[Any, Any]) -> dict[Any, Any]:
        now = self.clock()
        found = {}
        for key in keys:
            value = found[key] = answers.get(key, _MISSING)
            if not isinstance(value, BaseException):
                self._cache[key] = now + (self.missing_ttl_secs if value is _MISSING else self.ttl_secs), value
        while len(self._cache) > self.size:
            self._cache.popitem(last=False)
        return found

    def _fetch_wanted(self) -> None:
        """Begin to fetch the keys that coroutines have requested."""
        keys, self._wanted = self._wanted, []
        for start in range(0, len(keys), self.batch):
            fetching = asyncio.ensure_future(self._fetch_some(keys[start : start + self.batch], self._waiting))
            self._fetching.add(fetching)  # the loop itself keeps no task alive
            fetching.add_done_callback(self._fetching.discard)

    async def _fetch_some(self, keys: list[Any], waiting: dict[Hashable, asyncio.Future[Any]]) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(2, thread_name_prefix="sparkbolt-lookup")
        self.asked += len(keys)
        answers: dict[Any, Any]
        try:
            fetched = await asyncio.get_running_loop().run_in_executor(self._threads, self._called, keys)
            answers = self._keep(keys, fetched)
        except BaseException as error:  # noqa: BLE001  the waiting callers raise it
            answers = dict.fromkeys(keys, error)
        for key in keys:
            future = waiting.pop(key)
            if not future.done():
                future.set_result(answers[key])
