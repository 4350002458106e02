"""Changes of a topology as a stream of events (SSE).

Many streams of one topology share their questions. The id of an event is a position: ``Last-Event-ID`` continues from
there, also after a restart of this process. Events before the first connection are not sent: they are in the document.
A stream ends when its client disconnects or the topology has ended; then a new request gets 204, which stops the
browser from connecting again.

Events: ``state`` (first, and when the state changes), ``numbers``, ``happened`` (an event of the timeline),
``error-reported`` and ``silent`` (a sentence: there is no answer now).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from sparkbolt.control.documents import NumbersEvent, StateEvent, TopologyDocument, TopologyState
from sparkbolt.errors import SparkboltError
from sparkbolt.faces.ui.answers import finite
from sparkbolt.faces.ui.operator_calls import Asking

LOOK_SECS = 2.0
"""How often a stream looks for changes."""
HEARTBEAT_SECS = 15.0
"""How long a stream is silent at most, so that both sides notice a lost connection."""
RETRY_MS = 3000
STREAMS_MAX = 200


@dataclass(frozen=True)
class Cursor:
    """A reader's position: the newest time that it has received, and how many at that time; of events and of errors.

    >>> Cursor.of_text("5.1.7.2"), Cursor.of_text("x")
    (Cursor(event_ms=5, events=1, error_ms=7, errors=2), None)
    """

    event_ms: int
    events: int
    error_ms: int
    errors: int

    @classmethod
    def at_end_of(cls, document: TopologyDocument) -> Cursor:
        """The position of a reader of the whole document."""
        return cls(*_end(document["events"]), *_end(document["errors"]))

    @classmethod
    def of_text(cls, text: str) -> Cursor | None:
        """The cursor of an event id; None if the id is not valid."""
        parts = text.split(".")
        if len(parts) != 4 or not all(part.isdecimal() and part.isascii() and len(part) < 20 for part in parts):
            return None
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.event_ms}.{self.events}.{self.error_ms}.{self.errors}"


def _end(items: Sequence[Any]) -> tuple[int, int]:
    newest = max((item["time_ms"] for item in items), default=0)
    return newest, sum(item["time_ms"] == newest for item in items)


def after(items: Sequence[Any], time_ms: int, seen: int) -> list[Any]:
    """The items after the first ``seen`` of ``time_ms``, in their order.

    >>> after([{"time_ms": 1}, {"time_ms": 2, "text": "a"}, {"time_ms": 2, "text": "b"}], 2, 1)
    [{'time_ms': 2, 'text': 'b'}]
    """
    same = [item for item in items if item["time_ms"] == time_ms]
    later = [item for item in items if item["time_ms"] > time_ms]
    return same[seen:] + sorted(later, key=lambda item: int(item["time_ms"]))


class Reader:
    """One stream's view of a topology: the events that it has sent, and the next ones."""

    def __init__(self, cursor: Cursor | None) -> None:
        """Continue from ``cursor``; None: send only new events."""
        self._cursor = cursor
        self._state: tuple[Any, ...] | None = None
        self._numbers = ""

    def events(self, document: TopologyDocument) -> list[str]:
        """The events that lead from the last sent document to this one."""
        cursor = self._cursor or Cursor.at_end_of(document)
        self._cursor = end = Cursor.at_end_of(document)
        found: list[tuple[str, Any]] = []
        entry = document["entry"]
        state: StateEvent = {"entry": entry, "live": document["live"]}
        if self._state != (known := _words(state)):
            found.append(("state", state))
            self._state = known
        found += [("happened", each) for each in after(document["events"], cursor.event_ms, cursor.events)]
        found += [("error-reported", each) for each in after(document["errors"], cursor.error_ms, cursor.errors)]
        now = document["now"]
        numbers: NumbersEvent = {"time_ms": now["time_ms"], "gist": entry["gist"], "now": now}
        if self._numbers != (text := json.dumps(numbers)):
            found.append(("numbers", numbers))
            self._numbers = text
        return [event_text(name, value, str(end)) for name, value in found]


def _words(state: StateEvent) -> tuple[Any, ...]:
    entry = state["entry"]
    return state["live"], entry["state"], entry["why"], entry["verdict"]["level"], entry["ended_ms"], entry["exit_code"]


def event_text(name: str, value: Any, id_: str = "") -> str:
    r"""An event as it is sent. JSON has no line feed, so the data is one line.

    >>> event_text("state", {"text": "a\nb"}, "1.0.0.0")
    'id: 1.0.0.0\nevent: state\ndata: {"text":"a\\nb"}\n\n'
    """
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {name}\ndata: {json.dumps(finite(value), separators=(',', ':'))}\n\n"


async def changes(request: Request) -> Response:
    """Stream events (SSE): state, numbers, happened, error-reported, silent. Last-Event-ID resumes the stream."""
    asking: Asking = request.app.state.asking
    entry = await asking.entry(request.path_params["topology"])
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    cursor = Cursor.of_text(request.headers.get("last-event-id", ""))
    if cursor is not None and not TopologyState.of(entry["state"]).runs:
        return Response(status_code=204)
    streams: set[object] = request.app.state.streams
    if len(streams) >= STREAMS_MAX:
        raise HTTPException(503, f"{STREAMS_MAX} streams are open, which is the maximum; close some pages")
    return _Stream(_changes_of(asking, entry["id"], Reader(cursor)), streams)


class _Stream(StreamingResponse):
    """An open stream; it counts from its request on, since many requests may arrive before the first answer."""

    def __init__(self, content: AsyncIterator[str], streams: set[object]) -> None:
        headers = {"x-accel-buffering": "no"}  # for a proxy in between
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._streams = streams
        streams.add(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the changes until one side disconnects."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.discard(self)


async def _changes_of(asking: Asking, topology: str, reader: Reader) -> AsyncIterator[str]:
    silent_secs = 0.0
    yield f"retry: {RETRY_MS}\n\n"
    while True:
        runs = True
        try:
            document = await asking.document(topology)
            found = reader.events(document)
            runs = TopologyState.of(document["entry"]["state"]).runs
        except (SparkboltError, OSError) as error:
            found = [event_text("silent", {"text": str(error)})]
        for text in found:
            yield text
        if not runs:
            return
        silent_secs = 0.0 if found else silent_secs + LOOK_SECS
        if silent_secs >= HEARTBEAT_SECS:
            yield ": still here\n\n"
            silent_secs = 0.0
        await asyncio.sleep(LOOK_SECS)
