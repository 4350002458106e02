"""Asking: lets handlers of requests, which must not block, ask the Operator, which does.

Handlers ask only about topologies in the list: a text from the network never reaches the Operator as a name or a path.
Concurrent requests share a question, and its answer serves for ``FRESH_SECS``. A handler waits for at most
``ANSWER_SECS``, or as long as the question says (``wait_secs``). A call that hangs keeps its thread; the limits are
``CALLS_MAX``, and ``TOPOLOGY_CALLS_MAX`` for one topology, so that it does not block the others.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from sparkbolt.background import in_background
from sparkbolt.control.documents import (
    Answer,
    SeriesDocument,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
)
from sparkbolt.control.operator import Operator
from sparkbolt.control.questions import QUESTIONS
from sparkbolt.errors import SparkboltError

FRESH_SECS = 1.0
"""How long an answer serves other requests of the same question."""
ANSWER_SECS = 5.0
"""How long a handler waits; the Operator itself gives up a topology after its own ``ANSWER_SECS``."""
CHANGE_SECS = 15.0
"""How long a handler waits for a change."""
CALLS_MAX = 32
TOPOLOGY_CALLS_MAX = 4
ANSWERS_MAX = 512
"""How many answers are kept at most."""

UNSURE = "the change may still apply: check the topology before you try again"
"""The text about a change that was not answered in time."""

T = TypeVar("T")
_log = logging.getLogger(__name__)
_ALL = ""
"""The key of the question about all topologies."""


class UnknownTopology(SparkboltError):  # noqa: N818  as ``InvalidTopology``
    """No topology of this id or name is in the list."""


class AmbiguousTopology(SparkboltError):  # noqa: N818  as ``InvalidTopology``
    """Several topologies of this name run."""


class LateAnswerError(SparkboltError):
    """The Operator has not answered in time, or too many questions wait for their answers."""


class Asking:
    """Asks an ``Operator`` from coroutines. All methods raise ``LateAnswerError`` if there is no answer in time."""

    def __init__(
        self,
        operator: Operator,
        checkpoints: Sequence[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask ``operator``; beside its topologies those of ``checkpoints`` (paths or URLs) are listed."""
        self._operator = operator
        self._checkpoints = tuple(checkpoints)
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[Any, tuple[float, Any]] = {}
        self._waiting: dict[Any, Future[Any]] = {}
        self._running: dict[str, int] = {}
        self._told: set[str] = set()

    # Questions.

    async def topologies(self, *, ended: bool = True) -> list[TopologyEntry]:
        """All topologies, as ``Operator.topologies`` lists them; then those of the checkpoints that were given."""
        entries = [entry for entry, _ in await self._listed()]
        return [entry for entry in entries if ended or TopologyState.of(entry["state"]).runs]

    @property
    def trouble(self) -> str | None:
        """As ``Operator.trouble``; it never waits."""
        return self._operator.trouble

    async def entry(self, topology: str) -> TopologyEntry:
        """The entry of an id, or of a name: then of the one that runs, or else of the newest.

        Raises:
            UnknownTopology: there is no such topology.
            AmbiguousTopology: two of that name run.
        """
        return (await self._find(topology))[0]

    async def document(self, topology: str) -> TopologyDocument:
        """As ``Operator.document``, with the id from the list."""
        entry, _ = await self._find(topology)
        document = cast(TopologyDocument, await self.ask(topology, "document"))
        if document["entry"]["id"] == entry["id"]:
            return document
        return {**document, "entry": {**document["entry"], "id": entry["id"]}}

    async def series(self, topology: str, since_ms: int | None = None, until_ms: int | None = None) -> SeriesDocument:
        """As ``Operator.series``."""
        return cast(SeriesDocument, await self.ask(topology, "series", since_ms=since_ms, until_ms=until_ms))

    async def ask(self, topology: str, question: str, **arguments: Any) -> Any:
        """Ask a question of ``QUESTIONS``; arguments that are missing have their defaults."""
        _, asked = await self._find(topology)
        row = QUESTIONS[question]
        given = {one.name: arguments.get(one.name, one.default) for one in row.parameters}
        key, method = (asked, question, tuple(given.items())), getattr(self._operator, question)
        what = f"{question} of {topology!r}"
        return await self._shared(key, what, lambda: method(asked, **given), row.wait_secs)

    # Changes.

    async def change(self, topology: str, verb: str, /, *, by: str, **arguments: Any) -> Answer:
        """As ``Operator.change``; forgets the stored answers about the topology.

        A change is never shared: two requests change twice.

        Raises:
            UnknownTopology: no topology has this id or name.
            AmbiguousTopology: two of that name run.
        """
        _, asked = await self._find(topology)
        try:
            future = self._start(asked, lambda: self._operator.change(asked, verb, by=by, **arguments))
            return await _result(future, CHANGE_SECS, f"{verb} of {topology!r}", UNSURE)
        finally:
            with self._lock:
                self._known = {key: known for key, known in self._known.items() if key[0] not in (asked, _ALL)}

    # Calls.

    async def _listed(self) -> list[tuple[TopologyEntry, str]]:
        """(entry, its name for the Operator)."""
        asked = self._shared((_ALL,), "the list of topologies", self._operator.topologies)
        entries, *opened = await asyncio.gather(asked, *map(self._opened, self._checkpoints))
        listed: list[tuple[TopologyEntry, str]] = [(entry, entry["id"]) for entry in entries]
        ids = {entry["id"] for entry, _ in listed}
        return listed + [(entry, path) for entry, path in opened if entry is not None and entry["id"] not in ids]

    async def _opened(self, path: str) -> tuple[TopologyEntry | None, str]:
        """The entry of a checkpoint's topology; None if it cannot be read now, which must not hide the others."""
        try:
            document = await self._shared((path, "document", ()), path, lambda: self._operator.document(path))
        except (SparkboltError, OSError) as error:
            if path not in self._told:
                self._told.add(path)
                _log.warning("checkpoint %s cannot be read, and is not listed until it can: %s", path, error)
            return None, path
        self._told.discard(path)
        entry: TopologyEntry = document["entry"].copy()
        entry["id"] = id_of_place(entry["id"])
        return entry, path

    async def _find(self, topology: str) -> tuple[TopologyEntry, str]:
        listed = await self._listed()
        for entry, asked in listed:
            if entry["id"] == topology:
                return entry, asked
        named = [(entry, asked) for entry, asked in listed if entry["name"] == topology]
        if not named:
            raise UnknownTopology(f"no topology has the id or name {topology!r}; GET /api/v2/topologies lists them")
        running = [each for each in named if TopologyState.of(each[0]["state"]).runs]
        if len(running) > 1:
            ids = ", ".join(entry["id"] for entry, _ in running)
            raise AmbiguousTopology(
                f"{len(running)} topologies named {topology!r} run: use the id of one of them ({ids})"
            )
        return max(running or named, key=lambda each: each[0]["started_ms"])

    async def _shared(
        self, key: tuple[Any, ...], what: str, ask: Callable[[], Any], wait_secs: float | None = None
    ) -> Any:
        with self._lock:
            until, value = self._known.get(key, (0.0, None))
            if key in self._known and self._clock() < until:
                return value
            future = self._waiting.get(key)
        if future is None:
            future = self._start(key[0], ask, key)
        return await _result(future, ANSWER_SECS if wait_secs is None else wait_secs, what)

    def _start(self, asked: str, ask: Callable[[], T], key: tuple[Any, ...] | None = None) -> Future[T]:
        """Call ``ask`` in a separate thread, which does not keep the process from ending."""

        def call() -> T:
            try:
                value = ask()
            except BaseException:
                self._end(asked, key)
                raise
            self._end(asked, key, value)
            return value

        with self._lock:
            if self._running.get(asked, 0) >= TOPOLOGY_CALLS_MAX or sum(self._running.values()) >= CALLS_MAX:
                raise LateAnswerError("too many requests are waiting for answers; try again in a few seconds")
            future = in_background(call, "sparkbolt-ui-asks")  # ``_end`` waits for the lock
            self._running[asked] = self._running.get(asked, 0) + 1
            if key is not None:
                self._waiting[key] = future
        return future

    def _end(self, asked: str, key: tuple[Any, ...] | None, *value: Any) -> None:
        with self._lock:
            self._running[asked] -= 1
            if not self._running[asked]:
                del self._running[asked]
            if key is None:
                return
            self._waiting.pop(key, None)
            if value:
                now = self._clock()
                if len(self._known) >= ANSWERS_MAX:
                    self._known = {each: known for each, known in self._known.items() if known[0] > now}
                if len(self._known) < ANSWERS_MAX:
                    self._known[key] = (now + FRESH_SECS, value[0])


def id_of_place(id_: str) -> str:
    """The id of a topology that is known by its checkpoint only: its place, as a text that is valid in a URL's path.

    >>> id_of_place("words-1-1767262800"), id_of_place("/data/old words")
    ('words-1-1767262800', 'old_words-7a040573')
    """
    if re.fullmatch(r"[\w.-]+", id_, re.ASCII):
        return id_
    name = re.sub(r"[^A-Za-z0-9_-]", "_", id_.rstrip("/").rpartition("/")[2]) or "checkpoint"
    return f"{name}-{hashlib.sha256(id_.encode()).hexdigest()[:8]}"


async def _result(future: Future[T], wait_secs: float, what: str, then: str = "try again in a few seconds") -> T:
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), wait_secs)
    except TimeoutError:
        if future.done():  # then it is the question's own error
            raise
        raise LateAnswerError(f"{what}: no answer within {wait_secs:g} s; {then}") from None
