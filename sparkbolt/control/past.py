"""Past: the data of a topology that its checkpoint holds, whether the topology runs or not.

It only reads, and it never raises: for a checkpoint that is damaged or gone, ``trouble`` gives the reason. A ledger is
loaded again only after the checkpoint has changed, and loading takes a fifth of the time at most.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.story import Story
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.exceptions import line_of
from sparkbolt.base.file_access import Files
from sparkbolt.control.books import EVENTS_FILE, ErrorBook, EventBook, events_in
from sparkbolt.control.description import Description
from sparkbolt.control.documents import ErrorDocument, EventDocument
from sparkbolt.driver.ledger.generations import SparkLog
from sparkbolt.driver.ledger.reader import LedgerReader, UnknownTreeError, read_ledger
from sparkbolt.errors import SparkboltError
from sparkbolt.observe.history import History
from sparkbolt.observe.measurements import Flow, FlowCounts

HISTORY_SECS = 2.0
OPEN_SEARCHED_MAX = 10_000
"""How many open trees are searched."""
REST = 4.0
"""How many times as long as it took to load a ledger, it is not loaded again."""
_EXACT = re.compile(r"(?:0x)?[0-9a-fA-F]{16}|.+\[\d+\]:\d+|\d+:\d+|.+@\d+")


class Past:
    """One checkpoint; its methods may be called from any thread."""

    def __init__(self, directory: str, files: Files) -> None:
        """Look at ``directory``, whose files are ``files``."""
        self.directory, self.files = directory, files
        self.trouble: str | None = None
        """Why the checkpoint cannot be read, in a sentence; None if it can."""
        self._lock = threading.Lock()
        self._signature: object = None
        self._rests_until_s = 0.0
        self._reader: LedgerReader | None = None
        self._history: History | None = None
        self._history_s = 0.0

    def reader(self) -> LedgerReader | None:
        """The ledger; None if there is none that can be read."""
        with self._lock:
            if self._reader is not None and time.monotonic() < self._rests_until_s:
                return self._reader
            began_s = time.monotonic()
            try:
                signature = SparkLog(self.files).last_commit, tuple(sorted(self.files.names("ledger")))
                if signature != self._signature or self._reader is None:
                    self._reader = read_ledger(self.files, f"checkpoint {self.directory}")
                    self._signature = signature
                    self._rests_until_s = time.monotonic() + REST * (time.monotonic() - began_s)
                self.trouble = None
            except Exception as error:  # noqa: BLE001  a file system may raise anything
                self._reader, self._signature = None, None
                self.trouble = str(error) if isinstance(error, SparkboltError) else line_of(error)
            return self._reader

    def _told(self, ask: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001  a damaged checkpoint may raise anything
            self.trouble = str(error) if isinstance(error, SparkboltError) else line_of(error)
            return otherwise

    def description(self) -> Description:
        """The shape of the topology."""
        found: Description = self._told(lambda: Description.read(self.files), Description())
        return found

    def metrics(self) -> TopologyMetrics:
        """The counts since the first start."""
        reader = self.reader()
        return reader.metrics if reader is not None else TopologyMetrics()

    def flows(self) -> Mapping[Flow, FlowCounts]:
        """The counts by task and stream since the first start."""
        reader = self.reader()
        return reader.flows if reader is not None else {}

    def history(self) -> History:
        """The history as it was written last; read again at most every ``HISTORY_SECS``."""
        with self._lock:
            read_s = time.monotonic()
            if self._history is None or read_s >= self._history_s + HISTORY_SECS:
                self._history, self._history_s = self._told(lambda: History.load(self.files), History()), read_s
            return self._history

    def events(self) -> list[EventDocument]:
        """The newest events, the newest last."""
        found: list[EventDocument] = self._told(lambda: events_in(self.files.read(EVENTS_FILE) or b""), [])
        return found

    def add_event(self, files: Files, kind: str, text: str, by: str) -> None:
        """Note an event of a topology that does not run; ``files`` are the checkpoint's, and may be changed."""
        book = EventBook(files.read(EVENTS_FILE))
        book.add(kind, text, by, time.time_ns() // 1_000_000)
        files.write(EVENTS_FILE, book.dumps())

    def errors(self) -> list[ErrorDocument]:
        """The errors that failed trees with a kept story, as an ``ErrorBook`` keeps them."""
        reader, book = self.reader(), ErrorBook("")
        for tree in reader.failed_trees() if reader is not None else ():
            fail = tree.fail
            book.add(fail.component, fail.task, fail.reason, fail.traceback, tree.ended_ms or 0)
        return book.all()

    # Trees.

    def stories(self, state: str, search: str, last: int) -> list[dict[str, Any]]:
        """See ``Operator.stories``."""
        reader = self.reader()
        if reader is None or last < 1:
            return []
        found = {story.key: story for story in self._found(reader, search)}
        for story in self._of_state(reader, state, search, last):
            found.setdefault(story.key, story)
        order = sorted(found.values(), key=lambda story: (story.ended_ms or story.started_ms or 0, story.key))
        return [story.to_json() for story in order[-last:]]

    @staticmethod
    def _of_state(reader: LedgerReader, state: str, search: str, last: int) -> list[Story]:
        if state == TreeState.OPEN:
            stories: Iterable[Story] = reader.open(OPEN_SEARCHED_MAX if search else last)
            return list(islice((story for story in stories if _matches(story, search)), last))
        kept = reader.traced() if state == TreeState.ACKED else reader.failed() if state == TreeState.FAILED else []
        return [story for story in kept if _matches(story, search)][-last:]

    @staticmethod
    def _found(reader: LedgerReader, text: str) -> list[Story]:
        """The trees that a text names exactly."""
        if not _EXACT.fullmatch(text):
            return []
        try:
            return [story for story in reader.find(text) if story.state != TreeState.UNKNOWN]
        except UnknownTreeError:
            return []

    def story(self, root: str) -> dict[str, Any] | None:
        """See ``Operator.story``."""
        reader = self.reader()
        found = self._found(reader, root.strip()) if reader is not None else []
        if reader is None or not found:
            return None
        story = found[-1]
        others = [
            {"root": one.root, "attempt": one.attempt, "state": one.state} for one in reader.other_attempts(story)
        ]
        return {**story.to_json(), "other_attempts": others}


def _matches(story: Story, search: str) -> bool:
    if not search:
        return True
    texts = (story.message, story.root, story.why, story.message_id or "")
    return any(search.lower() in text.lower() for text in texts)
