"""Stores: files, folders of checkpoints, and topics that hold dead letters.

Rule 1: letters are read and never changed; the ids of replayed or discarded letters are stored beside them.
Rule 2: a letter is noted as replayed only after it is durable at its target: after a crash between the two steps it may
be replayed twice, but is never lost.
Rule 3: a letter that cannot be replayed unchanged is skipped and reported; it is never replayed in another form, unless
somebody has edited it.
Rule 4: a letter has the ids that components had when it was written; a store returns those of today.
Rule 5: a store may hold more letters than memory: ``newest`` and ``named`` hold only the requested ones.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from urllib.parse import urlparse

from sparkbolt.api.dead_letters import FILE, DeadLetter
from sparkbolt.base.file_access import Files
from sparkbolt.base.locations import local_directory
from sparkbolt.connectors.files.dead_letter_files import letters_of, read_letters
from sparkbolt.control.letters.common import (
    ID_CHARACTERS_SHOWN,
    LettersFound,
    Replay,
    letters_named,
    newest_letters,
)
from sparkbolt.control.letters.topic import KAFKA, LetterTopic, client_properties, give_again
from sparkbolt.driver.ledger.generations import TOPOLOGY_FILE, Generations
from sparkbolt.driver.ledger.ledger_files import LETTERS_FOLDER
from sparkbolt.driver.returned_letters import letter_today
from sparkbolt.errors import WrongUseError
from sparkbolt.files.local import append_lines

REPLAYED, DISCARDED = ".replayed", ".discarded"
"""The suffixes of the files with the ids of letters that were seen to; added to the name of the file of letters."""
TEXT, JSON_LINES = "text", "json lines"
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
LINES_AT_ONCE = 200
"""How many lines of a file are looked at together."""


class OpenFiles(Protocol):
    """Opens the files of a checkpoint."""

    def __call__(self, directory: str, *, write: bool = False) -> Files:
        """Return the files below a path or URL; with ``write`` they may be changed.

        Raises:
            WrongUseError: there is no such directory, or it is not a checkpoint.
        """


class LetterStore(Protocol):
    """A store of dead letters: a file, a folder of a checkpoint, or a topic."""

    def letters(self) -> LettersFound:
        """All letters, in the order in which they were written."""

    def newest(self, last: int, wanted: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
        """The newest letters that are wanted, each id once, the newest last."""

    def named(self, ids: Collection[str]) -> list[DeadLetter]:
        """The letters with these ids, each once."""

    def replayed(self) -> set[str]:
        """The ids of the letters that were replayed."""

    def discarded(self) -> set[str]:
        """The ids of the letters that were discarded."""

    def discard(self, ids: Collection[str]) -> None:
        """Note letters as seen to."""

    def mark_replayed(self, ids: Collection[str]) -> None:
        """Note letters as replayed, once their messages are durable elsewhere."""

    def replay(self, letters: Sequence[DeadLetter], into: str | None) -> Replay:
        """Replay letters and note them as replayed.

        Args:
            letters: the letters to replay.
            into: the target, if it is not where the messages came from.
        """


class LetterFile:
    """A file of letters, as ``dead_letters="file:PATH"`` writes it."""

    def __init__(self, path: str, client: Mapping[str, str]) -> None:
        """Check that the file exists.

        Raises:
            WrongUseError: there is no such file, or properties of a Kafka client were given, which a file does not use.
        """
        if client:
            raise WrongUseError(f"--client-config is for letters in a topic (kafka:HOST:PORT/TOPIC), {path} is a file")
        self._path = os.path.expanduser(path)
        if not os.path.isfile(self._path):
            raise WrongUseError(
                f"there is no file or directory of dead letters {path}: use the checkpoint of the topology, or the "
                "PATH of the spout's dead_letters='file:PATH'"
            )

    def letters(self) -> LettersFound:
        """All letters of the file."""
        read = read_letters(self._path)
        return LettersFound(read.letters, read.repeated, [f"line {number}" for number in read.damaged])

    def _stream(self) -> Iterator[DeadLetter]:
        with open(self._path, "rb") as file:
            while lines := list(itertools.islice(file, LINES_AT_ONCE)):
                yield from letters_of(lines).letters

    def newest(self, last: int, wanted: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
        """See ``LetterStore.newest``."""
        return newest_letters(self._stream(), last, wanted)

    def named(self, ids: Collection[str]) -> list[DeadLetter]:
        """See ``LetterStore.named``."""
        return letters_named(self._stream(), ids)

    def replayed(self) -> set[str]:
        """The ids in the file of replayed letters beside this file."""
        return _ids_in(self._path + REPLAYED)

    def discarded(self) -> set[str]:
        """The ids in the file of discarded letters beside this file."""
        return _ids_in(self._path + DISCARDED)

    def discard(self, ids: Collection[str]) -> None:
        """See ``LetterStore.discard``."""
        append_lines(self._path + DISCARDED, sorted(ids))

    def mark_replayed(self, ids: Collection[str]) -> None:
        """See ``LetterStore.mark_replayed``."""
        append_lines(self._path + REPLAYED, sorted(ids))

    def replay(self, letters: Sequence[DeadLetter], into: str | None) -> Replay:
        """Append the tuples to the file ``into``, one JSON object per line, as ``JsonLinesSpout`` reads them.

        Raises:
            WrongUseError: ``into`` is missing, or is where the letters are.
        """
        if into is None:
            raise WrongUseError("name a destination for the tuples: --into FILE, which a spout of the topology reads")
        done = append_tuples(letters, into, (self._path, self._path + REPLAYED, self._path + DISCARDED))
        if done.ids:
            append_lines(self._path + REPLAYED, done.ids)
        return done


def _ids_in(path: str) -> set[str]:
    try:
        with open(path, encoding="ascii") as file:
            return {line.strip() for line in file if line.strip()}
    except FileNotFoundError:
        return set()


def append_tuples(letters: Sequence[DeadLetter], into: str, read: Sequence[str]) -> Replay:
    """Append the tuples of letters to a file, one JSON object per line, as ``JsonLinesSpout`` reads them.

    Args:
        letters: the letters to replay.
        into: the path of the file.
        read: the files and directories that contain the letters and the notes about them.

    A line of a ``TextSpout`` is appended as its text, unless the file has lines of JSON.

    Raises:
        WrongUseError: ``into`` is one of these files, is below one of these directories, is a directory, is compressed,
            or has lines of text that no letter may become; or its directory is not there. Nothing is written then.
    """
    path = os.path.abspath(os.path.expanduser(into))
    if any(_is_in(path, place) for place in read):
        raise WrongUseError(
            f"--into {into} is the file that the dead letters are read from: name another file, which a "
            "JsonLinesSpout of the topology reads"
        )
    if os.path.isdir(path):
        raise WrongUseError(f"--into {into} is a directory: name a file in it, which a JsonLinesSpout reads")
    if not os.path.isdir(os.path.dirname(path)):
        raise WrongUseError(f"--into {into}: there is no directory {os.path.dirname(path)}; make it first")
    form = _form_of(path)
    if form is None:
        raise WrongUseError(
            f"--into {into} is a compressed file, to which no line can be appended: name another file, or omit --into "
            "to give the letters back to the spout that they came from"
        )
    done = Replay()
    lines: list[str] = []
    for letter in letters:
        as_text = form != JSON_LINES and _is_line_of_text(letter)
        if form == TEXT and not as_text:
            raise WrongUseError(
                f"--into {into} has lines of text, and letter {letter.id[:ID_CHARACTERS_SHOWN]} of "
                f"{letter.component} is not a line of text: its fields ({', '.join(letter.fields)}) would be written "
                "as JSON. Name a file with JSON lines, such as again.jsonl, or omit --into to give the letters back to "
                "the spout that they came from"
            )
        why = None if as_text else _not_for_json(letter)
        if why is not None:
            done.left_out.append(f"{letter.id[:ID_CHARACTERS_SHOWN]} {letter.where}: {why}")
            continue
        rows = letter.values()
        lines += [row["line"] if as_text else json.dumps(row, separators=(",", ":")) for row in rows]
        done.ids.append(letter.id)
    done.tuples = len(lines)
    if lines:
        append_lines(path, lines)
    return done


def _form_of(path: str) -> str | None:
    """The form of the lines of a file: ``TEXT``, ``JSON_LINES``, or empty if it may have either; None: compressed."""
    name = path.lower()
    if name.endswith(COMPRESSED):
        return None
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return JSON_LINES
    try:
        with open(path, "rb") as file:
            first = next((line for line in itertools.islice(file, LINES_AT_ONCE) if line.strip()), b"")
    except FileNotFoundError:
        return ""
    if not first:
        return ""
    try:
        return JSON_LINES if isinstance(json.loads(first), dict) else TEXT
    except ValueError:
        return TEXT


def _is_line_of_text(letter: DeadLetter) -> bool:
    """Whether a letter is one line of a ``TextSpout``, which reads the line's text and no JSON."""
    if letter.fields != ("line", "path", "offset") or len(letter.tuples) != 1:
        return False
    line = letter.tuples[0][0]
    return isinstance(line, str) and "\n" not in line


def _is_in(path: str, place: str) -> bool:
    """Whether a path is the file or directory ``place``, or is below it; links are followed."""
    if os.path.exists(path) and os.path.exists(place) and os.path.samefile(path, place):
        return True
    real = os.path.realpath(place)
    return os.path.commonpath([os.path.realpath(path), real]) == real


def _not_for_json(letter: DeadLetter) -> str | None:
    """Why a letter's tuples cannot be written as JSON without a change; None if they can."""
    if not letter.tuples:
        return f"it has no tuples ({letter.note or 'the message could not be read'})"
    for values in letter.values():
        for name, value in values.items():
            try:
                same = json.loads(json.dumps(value, allow_nan=False)) == value
            except (TypeError, ValueError):
                same = False
            if not same:
                kind = type(value).__name__
                return f"field {name!r} holds {kind}, which JSON cannot represent: replay it with a program"
    return None


class LetterFolder:
    """The dead letters of a checkpoint, in its folder ``dead-letters``, on any file system."""

    def __init__(self, directory: str, client: Mapping[str, str], open_files: OpenFiles) -> None:
        """Check that the checkpoint exists.

        Args:
            directory: the checkpoint, or its folder ``dead-letters``.
            client: properties of Kafka's client, for a replay to Kafka.
            open_files: opens the checkpoint.

        Raises:
            WrongUseError: there is no such directory, or it is not a checkpoint.
        """
        self._client = client
        above, _, name = directory.rstrip("/").rpartition("/")
        self._directory = (above or ".") if name == LETTERS_FOLDER else directory
        self._files = open_files(self._directory, write=True)
        if not self._names() and self._files.read(TOPOLOGY_FILE) is None:
            raise WrongUseError(
                f"{directory} has no dead letters and no file {TOPOLOGY_FILE!r}: check that it is the checkpoint of a "
                "topology that has started"
            )

    @property
    def generations(self) -> Generations:
        """Those of the checkpoint."""
        return Generations.known(self._files)

    def _names(self) -> list[str]:
        return sorted(name for name in self._files.names(LETTERS_FOLDER) if name.endswith(".jsonl"))

    def letters(self) -> LettersFound:
        """All letters of the folder, in the order of their micro-batches."""
        names = self._names()
        bodies = {name: self._files.read(f"{LETTERS_FOLDER}/{name}") or b"" for name in names}
        lines = [(name, at, line) for name in names for at, line in enumerate(bodies[name].splitlines(), start=1)]
        read = letters_of(line for _, _, line in lines)
        damaged = [lines[number - 1][:2] for number in read.damaged]
        return LettersFound(read.letters, read.repeated, [f"{name} line {at}" for name, at in damaged])

    def _backwards(self) -> Iterator[DeadLetter]:
        """The letters, the newest first; one file is read at a time."""
        for name in reversed(self._names()):
            body = self._files.read(f"{LETTERS_FOLDER}/{name}") or b""
            yield from reversed(letters_of(body.splitlines()).letters)

    def newest(self, last: int, wanted: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
        """See ``LetterStore.newest``."""
        found: dict[str, DeadLetter] = {}
        for letter in self._backwards():
            if letter.id not in found and wanted(letter):
                found[letter.id] = letter
                if len(found) == last:
                    break
        return list(reversed(found.values()))

    def named(self, ids: Collection[str]) -> list[DeadLetter]:
        """See ``LetterStore.named``."""
        return letters_named(self._backwards(), ids)

    def replayed(self) -> set[str]:
        """The ids in the file ``replayed`` beside the letters."""
        return self._noted("replayed")

    def discarded(self) -> set[str]:
        """The ids in the file ``discarded`` beside the letters."""
        return self._noted("discarded")

    def discard(self, ids: Collection[str]) -> None:
        """See ``LetterStore.discard``."""
        self._note("discarded", ids)

    def mark_replayed(self, ids: Collection[str]) -> None:
        """See ``LetterStore.mark_replayed``."""
        self._note("replayed", ids)

    def _noted(self, name: str) -> set[str]:
        return set((self._files.read(f"{LETTERS_FOLDER}/{name}") or b"").decode("ascii").split())

    def _note(self, name: str, ids: Iterable[str]) -> None:
        known = sorted(self._noted(name).union(ids))
        self._files.write(f"{LETTERS_FOLDER}/{name}", "".join(f"{id_}\n" for id_ in known).encode())

    def replay(self, letters: Sequence[DeadLetter], into: str | None) -> Replay:
        """Append the tuples to a file, one JSON object per line; or write messages of Kafka to Kafka again, unchanged.

        Raises:
            WrongUseError: ``into`` is missing, or is where the letters are.
        """
        if into is None:
            raise WrongUseError(
                "name a destination: --into FILE, which a JsonLinesSpout of the topology reads; or, for messages of "
                "Kafka, --into kafka:HOST:PORT (to their topics) or kafka:HOST:PORT/TOPIC"
            )
        if into.startswith(KAFKA):
            done = give_again(letters, into[len(KAFKA) :], self._client)
        else:
            local = local_directory(self._directory)
            done = append_tuples(letters, into, () if local is None else (os.path.join(local, LETTERS_FOLDER),))
        if done.ids:
            self._note("replayed", done.ids)
        return done


class LettersToday:
    """A store whose letters have the ids that components have now."""

    def __init__(self, store: LetterStore, generations: Generations) -> None:
        """Read the letters of a store with the names of the newest of these generations."""
        self._store, self._generations = store, generations
        self.replayed, self.discarded, self.discard = store.replayed, store.discarded, store.discard
        self.mark_replayed, self.replay = store.mark_replayed, store.replay

    def _today(self, letter: DeadLetter) -> DeadLetter:
        return letter_today(letter, self._generations)

    def letters(self) -> LettersFound:
        """See ``LetterStore.letters``."""
        found = self._store.letters()
        return replace(found, letters=[self._today(letter) for letter in found.letters])

    def newest(self, last: int, wanted: Callable[[DeadLetter], bool]) -> list[DeadLetter]:
        """See ``LetterStore.newest``."""
        return [self._today(letter) for letter in self._store.newest(last, lambda one: wanted(self._today(one)))]

    def named(self, ids: Collection[str]) -> list[DeadLetter]:
        """See ``LetterStore.named``."""
        return [self._today(letter) for letter in self._store.named(ids)]


@dataclass(frozen=True)
class LetterLocation:
    """The location of dead letters, in the form of the command line."""

    where: str
    client_config: str | None = None
    """A file of properties of Kafka's client; it is read when the store is opened, and never printed."""
    checkpoint: str | None = None
    """The checkpoint of the topology, which knows today's ids; None: the location itself, if it is a checkpoint."""


def open_store(place: LetterLocation, open_files: OpenFiles) -> LetterStore:
    """The store of dead letters at a location: ``kafka:HOST:PORT/TOPIC``, ``file:PATH``, a path, or a checkpoint.

    Raises:
        WrongUseError: there is no such store.
    """
    client = client_properties(place.client_config) if place.client_config is not None else {}
    store: LetterStore
    if place.where.startswith(KAFKA):
        store = LetterTopic(place.where[len(KAFKA) :], client)
    else:
        store = _shelf_at(place.where.removeprefix(FILE), client, open_files)
    if place.checkpoint is not None:
        return LettersToday(store, Generations.known(open_files(place.checkpoint)))
    return LettersToday(store, store.generations) if isinstance(store, LetterFolder) else store


def _shelf_at(where: str, client: Mapping[str, str], open_files: OpenFiles) -> LetterStore:
    """The store for a checkpoint, a folder or a file."""
    url = urlparse(where)
    folder = url.scheme not in ("", "file") or os.path.isdir(os.path.expanduser(url.path if url.scheme else where))
    if folder:
        return LetterFolder(os.path.expanduser(where), client, open_files)
    return LetterFile(where, client)
