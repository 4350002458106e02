"""Registration: a running topology reports to the home that it lives.

A separate thread writes the entry, so the engine never waits for the home. A failure is logged once, and the entry is
written again as soon as possible. Each beat writes the whole entry, so an entry that somebody has removed is restored.
The end of a topology waits for its last entry, for ``LAST_SECS`` at most.
"""

from __future__ import annotations

import getpass
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypedDict

from sparkbolt.base.exceptions import line_of
from sparkbolt.control.documents import Gist, TopologyEntry, TopologyState, Verdict
from sparkbolt.control.home import Home, entry_with
from sparkbolt.control.processes import this_process
from sparkbolt.version import __version__

BEAT_SECS = 2.0
LAST_SECS = 2.0
"""How long the end of a topology waits for its last entry to be written."""
RATE_SECS = 60.0
log = logging.getLogger("sparkbolt")


class News(TypedDict, total=False):
    """The changes of a topology since the last beat; missing fields are unchanged."""

    state: str
    why: str | None
    verdict: Verdict
    control: str | None
    spark_ui: str | None
    application_id: str | None
    master: str | None
    log_directory: str | None
    gist: Gist


def first_entry(
    home: Home,
    name: str,
    *,
    checkpoint: str | None,
    directory: str | None = None,
    command: list[str],
    now_ms: int,
) -> TopologyEntry:
    """The entry of a topology that starts now in this process; its id is new."""
    process = this_process()
    return entry_with(
        id=home.new_id(name, now_ms),
        name=name,
        state=TopologyState.STARTING,
        started_ms=now_ms,
        beat_ms=now_ms,
        host=process.host,
        user=user_name(),
        pid=process.pid,
        pid_started=process.started,
        pid_space=process.space,
        checkpoint=checkpoint,
        directory=checkpoint if directory is None else directory,
        version=__version__,
        command=command,
    )


def user_name() -> str:
    """The name of the user of this process; empty if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


class Rate:
    """Trees a second over the last minute, from totals that are seen now and then.

    >>> rate = Rate()
    >>> [rate.seen(total, at_s) for total, at_s in ((100, 0.0), (100, 2.0), (300, 4.0), (300, 104.0))]
    [0.0, 0.0, 50.0, 0.0]
    """

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._seen: deque[tuple[float, int]] = deque()

    def seen(self, total: int, at_s: float) -> float:
        """Note a total, and return the rate.

        Args:
            total: how many there have been; it never falls.
            at_s: the time by a monotonic clock.
        """
        self._seen.append((at_s, total))
        while len(self._seen) > 2 and self._seen[1][0] <= at_s - RATE_SECS:
            self._seen.popleft()
        first_s, first = self._seen[0]
        return (total - first) / (at_s - first_s) if at_s > first_s else 0.0


class Growth:
    """By how much a lag has risen over the last minute, from lags that are seen now and then.

    It has risen if each lag of the second half of the minute is above each lag of the first half: a lag that rises and
    falls with each micro-batch has not.

    >>> growth = Growth()
    >>> [growth.seen(lag, at_s) for lag, at_s in ((100, 0.0), (150, 20.0), (200, 40.0), (260, 60.0))]
    [0, 0, 0, 50]
    >>> growth.seen(90, 62.0)
    0
    """

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._seen: deque[tuple[float, int]] = deque()

    def seen(self, lag: int | None, at_s: float) -> int:
        """Note a lag, and return the growth; 0 if there is none, or if it was seen for less than a minute.

        Args:
            lag: the lag now; None if it is unknown.
            at_s: the time by a monotonic clock.
        """
        if lag is None:
            self._seen.clear()
            return 0
        self._seen.append((at_s, lag))
        while len(self._seen) > 2 and self._seen[1][0] <= at_s - RATE_SECS:
            self._seen.popleft()
        if self._seen[0][0] > at_s - RATE_SECS:
            return 0
        middle_s = at_s - RATE_SECS / 2
        before = [seen for time_s, seen in self._seen if time_s <= middle_s]
        after = [seen for time_s, seen in self._seen if time_s > middle_s]
        return max(0, min(after) - max(before))


class Registration:
    """Rewrites the entry of one topology, from its start to its end."""

    def __init__(
        self,
        home: Home,
        entry: TopologyEntry,
        tell: Callable[[], News],
        *,
        beat_secs: float = BEAT_SECS,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Prepare; ``begin`` starts the thread.

        Args:
            home: where the entry is written.
            entry: the first entry.
            tell: called in the thread before each beat; it must return soon and never waits for the engine.
            beat_secs: the time between two beats.
            now_ms: the wall clock.
        """
        self._home, self._tell, self._beat_secs, self._now_ms = home, tell, beat_secs, now_ms
        self._entry = entry
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._written = threading.Event()
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="sparkbolt-beat", daemon=True)

    @property
    def entry(self) -> TopologyEntry:
        """The last written entry."""
        with self._lock:
            return self._entry

    @property
    def trouble(self) -> str | None:
        """Why the entry cannot be written at the moment; None if it can."""
        return self._trouble

    def begin(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def beat_now(self) -> None:
        """Let the next beat follow at once, since something has changed."""
        self._wake.set()

    def end(
        self,
        state: TopologyState,
        why: str | None,
        exit_code: int | None = None,
        *,
        gist: Gist | None = None,
        drained: bool | None = None,
    ) -> None:
        """Write the last entry, and wait a little for it; may be called again when the exit code is known."""
        with self._lock:
            ended_ms = self._entry["ended_ms"] or self._now_ms()
            code = self._entry["exit_code"] if exit_code is None else exit_code
            self._entry = {**self._entry, "state": state, "why": why, "exit_code": code, "ended_ms": ended_ms}
            self._entry["control"] = None
            self._entry["drained"] = self._entry["drained"] if drained is None else drained
            self._entry["gist"] = gist or self._entry["gist"]
        if not self._ended.is_set() and self._thread.ident is not None:
            self._ended.set()
            self._wake.set()
        elif self._written.is_set():
            self._written.clear()
            threading.Thread(target=self._last, name="sparkbolt-last-beat", daemon=True).start()
        self._written.wait(LAST_SECS)

    def _run(self) -> None:
        pruned = False
        while not self._ended.is_set():
            self._beat()
            if not pruned and self._trouble is None:
                pruned = True
                self._prune()
            self._wake.wait(self._beat_secs)
            self._wake.clear()
        self._last()

    def _beat(self) -> None:
        try:
            news = self._tell()
        except Exception as error:  # noqa: BLE001  a beat without news is a sign of life, too
            log.debug("the state of %s cannot be read: %s", self._entry["id"], line_of(error))
            news = News()
        with self._lock:
            if not self._ended.is_set():
                self._entry = {**self._entry, **news, "beat_ms": self._now_ms()}
        self._write(durable=False)

    def _last(self) -> None:
        with self._lock:
            self._entry = {**self._entry, "beat_ms": self._now_ms()}
        self._write(durable=True)
        self._written.set()

    def _write(self, *, durable: bool) -> None:
        entry = self.entry
        try:
            self._home.write(entry, durable=durable)
        except Exception as error:  # noqa: BLE001  a file system may raise anything
            if self._trouble is None:
                log.warning(
                    "topology %s cannot be registered in %s (%s): it continues to run, but `sparkbolt list` may show "
                    "an old state; retrying every %g s",
                    entry["id"],
                    self._home.place,
                    line_of(error),
                    self._beat_secs,
                )
            self._trouble = line_of(error)
            return
        if self._trouble is not None:
            log.warning("topology %s is registered in %s again", entry["id"], self._home.place)
        self._trouble = None

    def _prune(self) -> None:
        try:
            self._home.prune()
        except Exception as error:  # noqa: BLE001  it is tried again with the next start
            log.debug("old entries in %s cannot be removed: %s", self._home.place, line_of(error))
