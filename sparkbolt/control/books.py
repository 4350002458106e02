"""Books: the newest errors and events of a topology, kept in its driver.

Equal errors of a component are one entry with a count. The newest ``ERRORS_MAX`` of each component are kept, so that a
component with many errors hides no errors of the others, and the newest ``EVENTS_MAX`` events, which are also in the
file ``events`` of the checkpoint, one JSON object a line.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict, deque

from sparkbolt.base.codec import salvage
from sparkbolt.control.documents import ErrorDocument, EventDocument

ERRORS_MAX = 10
TEXT_CHARACTERS_MAX = 2000
TRACEBACK_CHARACTERS_MAX = 20_000
EVENTS_FILE = "events"
EVENTS_MAX = 1000


class ErrorBook:
    """The newest errors of each component of a topology; its methods may be called from any thread.

    >>> book = ErrorBook("here")
    >>> for number in range(1000):
    ...     book.add("noisy", 0, f"error {number}", None, number)
    >>> book.add("calm", 0, "the only one", None, 5)
    >>> [error["text"] for error in book.all()][-3:], len(book.all())
    (['error 998', 'error 999', 'the only one'], 11)
    """

    def __init__(self, host: str) -> None:
        """Begin without errors; ``host`` is named in each."""
        self._host = host
        self._lock = threading.Lock()
        self._added = 0
        self._by_component: dict[str, OrderedDict[str, tuple[int, ErrorDocument]]] = {}
        """By component and text: when it was added last, as a number, and the error."""

    def add(self, component: str, task: int, text: str, traceback: str | None, time_ms: int) -> None:
        """Note an error of a task."""
        text = text[:TEXT_CHARACTERS_MAX]
        with self._lock:
            own = self._by_component.setdefault(component, OrderedDict())
            _, known = own.pop(text, (0, None))
            self._added += 1
            error = ErrorDocument(
                time_ms=time_ms,
                component=component,
                task=task,
                text=text,
                traceback=traceback[-TRACEBACK_CHARACTERS_MAX:] if traceback else known and known["traceback"],
                host=self._host,
                count=1 if known is None else known["count"] + 1,
            )
            own[text] = self._added, error
            if len(own) > ERRORS_MAX:
                own.popitem(last=False)

    def all(self) -> list[ErrorDocument]:
        """The errors of all components, the newest last."""
        with self._lock:
            entries = [entry for own in self._by_component.values() for entry in own.values()]
        return [error for _, error in sorted(entries, key=lambda entry: entry[0])]


class EventBook:
    """The newest events of a topology; its methods may be called from any thread."""

    def __init__(self, before: bytes | None = None) -> None:
        """Go on with the content of the file ``events``; lines that are damaged are passed over."""
        self._lock = threading.Lock()
        self._events: deque[EventDocument] = deque(events_in(before or b""), maxlen=EVENTS_MAX)
        self.dirty = False
        """Whether there are events that were not written yet."""

    def add(self, kind: str, text: str, by: str | None, time_ms: int) -> EventDocument:
        """Note an event; ``kind`` as in ``EventDocument``."""
        event = EventDocument(time_ms=time_ms, kind=kind, text=text[:TEXT_CHARACTERS_MAX], by=by)
        with self._lock:
            self._events.append(event)
            self.dirty = True
        return event

    def all(self) -> list[EventDocument]:
        """The events, the newest last."""
        with self._lock:
            return list(self._events)

    def dumps(self) -> bytes:
        """The content of the file ``events``; from now on it is not ``dirty``."""
        with self._lock:
            self.dirty = False
            return b"".join(json.dumps(event).encode() + b"\n" for event in self._events)


def events_in(data: bytes) -> list[EventDocument]:
    """The events of a file, the newest last."""
    found: list[EventDocument] = []
    for line in data.splitlines()[-EVENTS_MAX:]:
        try:
            body = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(body, dict) and isinstance(body.get("time_ms"), int) and isinstance(body.get("kind"), str):
            found.append(salvage(EventDocument, body))
    return found
