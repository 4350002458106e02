"""Home: the registry of topologies, a file for each run in ``SPARKBOLT_HOME``.

It lists the topologies that run, that have ended, and that died without notice.

    HOME/topologies/ID.json   the entry of one run (``TopologyEntry``), rewritten every few seconds while it runs
    HOME/tokens/ID            the secret that a client needs to ask the topology over TCP

An entry is a claim that a reader checks: on the same machine, whether the process lives; elsewhere, whether the entry
was rewritten within ``BEAT_LOST_SECS``. Nobody waits for a home longer than ``READ_SECS``: if its file system does not
answer, or the home is gone, the last look counts and ``trouble`` gives the reason. Files that are not valid entries are
skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.background import in_background, within
from sparkbolt.base.codec import salvage
from sparkbolt.control.documents import Gist, TopologyEntry, TopologyState
from sparkbolt.control.problems import verdict_of
from sparkbolt.control.processes import ProcessNote, gone
from sparkbolt.driver.ledger.generations import TOPOLOGY_FILE
from sparkbolt.errors import ConfigError, SparkboltError
from sparkbolt.files.arrow import ArrowFiles
from sparkbolt.files.local import LocalFiles
from sparkbolt.files.shared import SharedFiles, Stamp

HOME_ENV = "SPARKBOLT_HOME"
FOLDER, TOKENS = "topologies", "tokens"
BEAT_LOST_SECS = 30.0
"""After so many seconds without a sign of life, a topology on another machine is taken for dead."""
READ_SECS = 0.7
"""How long a reader waits for the file system of a home."""
ENDED_MAX = 200
"""How many entries of topologies that have ended are kept: the newest."""
ENDED_DAYS_MAX = 30
"""For how many days they are kept."""
ENTRY_BYTES_MAX = 1 << 20
IDS_TRIED_MAX = 1000
TAKEN_SECS = 3600.0
"""After so long, a reserved id without an entry belongs to a dead process."""
_TAKEN = b"{}\n"
"""The content of the file that reserves an id."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class HomeError(SparkboltError):
    """The home cannot be read: its file system does not answer, or refuses."""


class UnknownTopologyError(SparkboltError):
    """No topology is registered under that name or id."""


class AmbiguousTopologyError(SparkboltError):
    """Several topologies of that name run: use the id of one of them."""


def default_home() -> str:
    """``SPARKBOLT_HOME``, or the user's own default: ``$XDG_STATE_HOME/sparkbolt``, ``~/.local/state/sparkbolt``."""
    given = os.environ.get(HOME_ENV, "").strip()
    if given:
        return given
    state = os.environ.get("XDG_STATE_HOME", "").strip()
    return os.path.join(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"), "sparkbolt")


def checked_entry(data: bytes) -> TopologyEntry | None:
    """The entry that a file holds, whatever version wrote it; None if it holds none."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or not all(isinstance(body.get(name), str) for name in ("id", "name")):
        return None
    entry = entry_with(**body)
    return {**entry, "state": entry["state"] or TopologyState.STARTING}


def entry_with(**fields: Any) -> TopologyEntry:
    """An entry with these fields; the others are empty."""
    return salvage(TopologyEntry, fields)


def process_of(entry: TopologyEntry) -> ProcessNote:
    """The process that works on a topology, or has worked on it."""
    return ProcessNote(entry["host"], entry["pid"], entry["pid_started"], entry["pid_space"])


@dataclass
class _Watched:
    """This reader's observations of one entry."""

    stamp: Stamp
    entry: TopologyEntry
    since_s: float
    """When this reader first saw its present state, on its own monotonic clock."""
    changed: bool = False
    """Whether this reader has seen it change."""


def open_home(place: str) -> SharedFiles:
    """The files of a home, readable for this user only: a path, or a URL of a file system that pyarrow knows.

    Raises:
        ConfigError: the URL names no file system that can be used.
    """
    match = _URL.match(place)
    if match is None or match[1].lower() == "file":
        return LocalFiles(place[len(match[0]) :] if match else place, private=True)
    from pyarrow import ArrowException, fs

    try:
        system, path = fs.FileSystem.from_uri(place)
    except (ArrowException, OSError, ValueError) as error:
        raise ConfigError(
            f"SPARKBOLT_HOME is {place!r}, which cannot be used: {error}. Expected a directory, or a URL of a file "
            "system that pyarrow knows, such as s3://bucket/sparkbolt"
        ) from error
    return ArrowFiles(system, path)


class Home:
    """The registry of one home; its methods may be called from any thread."""

    def __init__(
        self, place: str | None = None, *, files: SharedFiles | None = None, mono: Callable[[], float] = time.monotonic
    ) -> None:
        """Use the home ``place``, a path or URL (None: ``default_home()``); nothing is made before it is written to.

        Raises:
            ConfigError: the URL names no file system that can be used.
        """
        self.place = place or default_home()
        self.files = files or open_home(self.place)
        self._mono = mono
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._last: list[TopologyEntry] | None = None
        self._reading: Future[None] | None = None
        self._trouble: str | None = None
        self._looked_s = mono()
        """When the home answered last, on this reader's own monotonic clock."""

    # For readers.

    def entries(self) -> list[TopologyEntry]:
        """All registered topologies, judged: running ones first, then ended ones, the newest first.

        Raises:
            HomeError: the home has never answered this reader, and does not now.
        """
        with self._lock:
            if self._reading is None or self._reading.done():
                self._reading = in_background(self._look, "sparkbolt-home")
            reading = self._reading
        wait([reading], READ_SECS)
        if self._last is None:
            raise HomeError(
                f"the home {self.place} cannot be read: {self._trouble or 'it does not answer'}. Is its disk mounted, "
                f"and does {HOME_ENV} name the right one?"
            )
        return sorted(
            (self._judged(entry) for entry in self._last),
            key=lambda entry: (not TopologyState.of(entry["state"]).runs, -entry["started_ms"], entry["id"]),
        )

    @property
    def trouble(self) -> str | None:
        """Why the last look failed, or has not returned, in a sentence; ``entries`` are then of an earlier look."""
        reading = self._reading
        if reading is not None and not reading.done():
            return f"the home {self.place} does not answer"
        return f"the home {self.place} cannot be read: {self._trouble}" if self._trouble is not None else None

    def _look(self) -> None:
        try:
            listing = self.files.listing(FOLDER)
            if not listing and self._is_gone():
                return
            watched: dict[str, _Watched] = {}
            for name, stamp in listing.items():
                one = self._watch(name, stamp) if name.endswith(".json") else None
                if one is not None:
                    watched[name] = one
            self._watched, self._last = watched, [one.entry for one in watched.values()]
            self._trouble, self._looked_s = None, self._mono()
        except Exception as error:  # noqa: BLE001  a file system may raise anything
            self._trouble = f"{type(error).__name__}: {error}"

    def _is_gone(self) -> bool:
        """Whether the home or its content is gone; then the last look stays."""
        if self._last:
            if self.files.exists(FOLDER):
                return False
            self._trouble = "its content is gone"
            return True
        if self.files.exists(""):
            return False
        self._last, self._trouble = [], "there is no such directory; the first topology that starts creates it"
        return True

    def _watch(self, name: str, stamp: Stamp) -> _Watched | None:
        known = self._watched.get(name)
        if known is not None and known.stamp == stamp:
            return known
        data = self.files.read(f"{FOLDER}/{name}") if stamp.size <= ENTRY_BYTES_MAX else None
        entry = checked_entry(data) if data else None
        if entry is None or f"{entry['id']}.json" != name:
            return known
        return _Watched(stamp, entry, self._mono(), changed=known is not None)

    def _judged(self, entry: TopologyEntry) -> TopologyEntry:
        judged = self._with_state(entry)
        if judged is entry and entry["verdict"]["text"]:
            return entry
        return {**judged, "verdict": verdict_of(judged)}

    def _with_state(self, entry: TopologyEntry) -> TopologyEntry:
        if not TopologyState.of(entry["state"]).runs:
            return {**entry, "control": None}
        ended = gone(process_of(entry))
        if ended:
            why = f"its process ({entry['pid']}) is gone and has not reported how it ended"
        elif (silent := self._silent_secs(entry)) <= BEAT_LOST_SECS:
            return entry
        elif ended is None:
            why = f"{entry['host']} has sent no heartbeat for {silent:.0f} s"
        else:  # it has not ended, and nothing more is known: it may be stopped, or cannot write to the home
            why = f"its process ({entry['pid']}) is running, but has sent no heartbeat for {silent:.0f} s"
            return {**entry, "why": why}
        gist: Gist = {**entry["gist"], "rate": 0.0}
        dead: TopologyEntry = {**entry, "state": TopologyState.DEAD, "why": why, "control": None, "gist": gist}
        dead["ended_ms"] = entry["beat_ms"]
        return dead

    def _silent_secs(self, entry: TopologyEntry) -> float:
        """The seconds since an entry was last rewritten, by one clock if possible: clocks of machines differ."""
        watched = self._watched.get(f"{entry['id']}.json")
        blind = self._mono() - self._looked_s if self.trouble is not None else 0.0
        own = self._mono() - blind - watched.since_s if watched is not None else 0.0
        if watched is None or watched.changed or own > BEAT_LOST_SECS:
            return own
        modified_ms = watched.stamp.modified_ns // 1_000_000
        age = time.time() - blind - max(entry["beat_ms"], modified_ms) / 1000
        if age > BEAT_LOST_SECS:  # the clocks may differ, so ask the clock of the file system
            now_ms = self.files.now_ms()
            age = age if now_ms is None else (now_ms - modified_ms) / 1000
        return max(own, age)

    def find(self, topology: str) -> TopologyEntry:
        """The entry of a topology, by its id or name; of several of one name the one that runs, or else stands for it.

        See ``standing``.

        Raises:
            UnknownTopologyError: none is registered under that name or id; the message names similar ones.
            AmbiguousTopologyError: two of that name run; the message names their ids.
            HomeError: the home does not answer.
        """
        known = self.entries()
        try:
            return chosen(known, topology, self.place)
        except UnknownTopologyError:
            if self.trouble is None:
                raise
            raise UnknownTopologyError(f"no topology {topology!r} was found: {self.trouble}") from None

    def token(self, id_: str) -> str | None:
        """The secret for control over TCP; None if this home has none."""
        given = os.environ.get("SPARKBOLT_TOKEN", "").strip()
        data = None if given else self.files.read(f"{TOKENS}/{safe(id_)}")
        return given or (data.decode("ascii", "replace").strip() if data else None)

    # For the process that runs a topology.

    def new_id(self, name: str, now_ms: int) -> str:
        """An id for a topology that starts now: ``NAME-N-SECONDS``, as Storm's; no other run has it.

        The id is taken by a file. If the home does not answer, N is the number of the process.
        """
        start = safe(name)

        def take() -> str | None:
            own = [_number(file, start) for file in self.files.listing(FOLDER)]
            first = max(own, default=0) + 1
            for number in range(first, first + IDS_TRIED_MAX):
                id_ = f"{start}-{number}-{now_ms // 1000}"
                if self.files.create(f"{FOLDER}/{id_}.json", _TAKEN, durable=False):
                    return id_
            return None

        taken = None
        with contextlib.suppress(OSError):  # a ``TimeoutError`` is one
            taken = within(2 * READ_SECS, take, "sparkbolt-home")
        return taken or f"{start}-{os.getpid()}-{now_ms // 1000}"

    def write(self, entry: TopologyEntry, *, durable: bool = False) -> None:
        """Write an entry; readers see the old one or the new one.

        Raises:
            OSError: the home is gone, its disk is full, or it may not be written to.
        """
        data = json.dumps(entry, separators=(",", ":")).encode()
        self.files.write(f"{FOLDER}/{entry['id']}.json", data + b"\n", durable=durable)

    def write_token(self, id_: str) -> str:
        """Make a secret for a topology, store it in a file that only this user can read, and return it."""
        given = os.environ.get("SPARKBOLT_TOKEN", "").strip()
        token = given or secrets.token_urlsafe(32)
        if not given:
            self.files.write(f"{TOKENS}/{safe(id_)}", token.encode(), durable=False)
        return token

    def remove_token(self, id_: str) -> None:
        """Remove the secret of a topology that has ended."""
        self.files.remove(f"{TOKENS}/{safe(id_)}")

    def prune(self) -> None:
        """Remove the entries of topologies that ended long ago, and all but the newest ``ENDED_MAX``.

        Also the remains of dead processes: unfinished files, and reserved ids without an entry.
        """
        ended = [entry for entry in self.entries() if not TopologyState.of(entry["state"]).runs]
        ended.sort(key=lambda entry: entry["ended_ms"] or entry["beat_ms"], reverse=True)
        oldest_ms = (time.time() - ENDED_DAYS_MAX * 86_400) * 1000
        for place, entry in enumerate(ended):
            if place >= ENDED_MAX or (entry["ended_ms"] or entry["beat_ms"]) < oldest_ms:
                self.files.remove(f"{FOLDER}/{entry['id']}.json")
                self.remove_token(entry["id"])
        for folder in (FOLDER, TOKENS):
            self.files.remove_leftovers(folder)
        for name, (modified_ns, size) in self.files.listing(FOLDER).items():
            if size <= len(_TAKEN) and time.time() - modified_ns / 1e9 > TAKEN_SECS:
                self.files.remove(f"{FOLDER}/{name}")


def safe(name: str) -> str:
    """A name as part of an id, which is valid in a URL and as a file's name.

    >>> safe("word count/2"), safe("../x")
    ('word_count_2', '_._x')
    """
    text = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:150]
    return f"_{text[1:]}" if text.startswith(".") else text or "_"


def _number(file: str, start: str) -> int:
    match = re.fullmatch(rf"{re.escape(start)}-(\d{{1,9}})-\d+\.json", file)
    return int(match[1]) if match else 0


def chosen(entries: Iterable[TopologyEntry], topology: str, place: str) -> TopologyEntry:
    """The entry that an id or a name means; see ``Home.find``."""
    known = list(entries)
    for entry in known:
        if entry["id"] == topology:
            return entry
    named = [entry for entry in known if entry["name"] == topology]
    running = [entry for entry in named if TopologyState.of(entry["state"]).runs]
    if len(running) > 1:
        ids = ", ".join(entry["id"] for entry in running)
        raise AmbiguousTopologyError(
            f"{len(running)} topologies named {topology!r} run: use the id of one of them ({ids})"
        )
    if running or named:
        return running[0] if running else standing(named)
    names = {name for entry in known for name in (entry["name"], entry["id"])}
    hint = did_you_mean(topology, names) or (
        ": `sparkbolt list` shows the registered topologies" if known else ": it has no topologies"
    )
    raise UnknownTopologyError(f"no topology {topology!r} is registered in {place}{hint}")


def standing(runs: Iterable[TopologyEntry]) -> TopologyEntry:
    """Of runs with one name that have ended, the one that the name means: the newest with a checkpoint, if any has one.

    So a trial without ``--checkpoint`` hides no topology that can go on.
    """
    return max(runs, key=lambda entry: (bool(entry["checkpoint"]), entry["started_ms"]))


def is_place(topology: str) -> bool:
    """Whether a topology is named by the path or URL of a checkpoint, not by a name or id."""
    return "/" in topology or Path(topology, TOPOLOGY_FILE).is_file()
