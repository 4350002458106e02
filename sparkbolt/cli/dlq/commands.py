"""Commands: ``sparkbolt dlq`` lists and shows dead letters, and replays them into a topology.

Which question it answers: which dead letters are there, what is the story of this one, and how is it replayed?

Rule 1: letters are read and never changed; the ids of replayed letters are stored beside them.
Rule 2: a letter is noted as replayed only after it is durable at its target: after a crash between the two steps it may
be replayed twice, but is never lost.
Rule 3: a letter that cannot be replayed unchanged is left out and reported; it is never replayed in another form.
Rule 4: a line that is not a valid letter is reported by every command, and no tuples are written to where the letters
are.

Read before: ``core.model.dead_letters``, ``bolts.dead_letter_files``.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlparse

from sparkbolt.bolts.dead_letter_files import append_lines, letters_of, read_letters
from sparkbolt.cli.checkpoint_files import open_files
from sparkbolt.cli.dlq.common import ID_CHARACTERS_SHOWN, LettersFound, Replay
from sparkbolt.cli.dlq.topic import KAFKA, LetterTopic, client_properties, give_again
from sparkbolt.cli.locate import WrongUseError
from sparkbolt.core.driver.ledger.files import LETTERS_FOLDER
from sparkbolt.core.model.dead_letters import FILE, DeadLetter, plain
from sparkbolt.core.model.story import short_values, time_text
from sparkbolt.errors import SparkboltError
from sparkbolt.spark.locations import local_directory

REPLAYED = ".replayed"
"""The suffix of the file with the ids of replayed letters; it is added to the name of the file of letters."""


class LetterStore(Protocol):
    """A store of dead letters: a file, a folder of a checkpoint, or a topic."""

    def letters(self) -> LettersFound:
        """All letters, in the order in which they were written."""

    def replayed(self) -> set[str]:
        """The ids of the letters that were replayed."""

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
                f"there is no file of dead letters {path}, nor a folder: give the checkpoint of the topology, or the "
                "PATH of the spout's dead_letters='file:PATH'"
            )

    def letters(self) -> LettersFound:
        """All letters of the file."""
        read = read_letters(self._path)
        return LettersFound(read.letters, read.repeated, [f"line {number}" for number in read.damaged])

    def replayed(self) -> set[str]:
        """The ids in the file of replayed letters beside this file."""
        try:
            with open(self._path + REPLAYED, encoding="ascii") as file:
                return {line.strip() for line in file if line.strip()}
        except FileNotFoundError:
            return set()

    def replay(self, letters: Sequence[DeadLetter], into: str | None) -> Replay:
        """Append the tuples to the file ``into``, one JSON object per line, as ``JsonLinesSpout`` reads them.

        Raises:
            WrongUseError: ``into`` is missing, or is where the letters are.
        """
        if into is None:
            raise WrongUseError("say where the tuples go: --into FILE, which a JsonLinesSpout of the topology reads")
        done = append_tuples(letters, into, (self._path, self._path + REPLAYED))
        if done.ids:
            append_lines(self._path + REPLAYED, done.ids)
        return done


def append_tuples(letters: Sequence[DeadLetter], into: str, read: Sequence[str]) -> Replay:
    """Append the tuples of letters to a file, one JSON object per line, as ``JsonLinesSpout`` reads them.

    Args:
        letters: the letters to replay.
        into: the path of the file.
        read: the files and directories that contain the letters and the notes about them.

    Raises:
        WrongUseError: ``into`` is one of these files, is below one of these directories, or is a directory.
    """
    path = os.path.abspath(os.path.expanduser(into))
    if any(_is_in(path, place) for place in read):
        raise WrongUseError(
            f"--into {into} is where the dead letters are read from, and tuples are none: name another file, which a "
            "JsonLinesSpout of the topology reads"
        )
    if os.path.isdir(path):
        raise WrongUseError(f"--into {into} is a directory: name a file in it, which a JsonLinesSpout reads")
    done = Replay()
    lines: list[str] = []
    for letter in letters:
        why = _not_for_json(letter)
        if why is not None:
            done.left_out.append(f"{letter.id[:ID_CHARACTERS_SHOWN]} {letter.where}: {why}")
            continue
        lines += [json.dumps(values, separators=(",", ":")) for values in letter.values()]
        done.ids.append(letter.id)
    done.tuples = len(lines)
    if lines:
        append_lines(path, lines)
    return done


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
                same = plain(value) == value and json.loads(json.dumps(value)) == value
            except (TypeError, ValueError):
                same = False
            if not same:
                return f"field {name!r} holds {type(value).__name__}, for which JSON has no form: replay it by program"
    return None


class LetterFolder:
    """The dead letters of a checkpoint, in its folder ``dead-letters``, on any file system."""

    def __init__(self, directory: str, client: Mapping[str, str]) -> None:
        """Check that the checkpoint exists.

        Args:
            directory: the checkpoint, or its folder ``dead-letters``.
            client: properties of Kafka's client, for a replay to Kafka.

        Raises:
            WrongUseError: there is no such directory.
        """
        self._client = client
        above, _, name = directory.rstrip("/").rpartition("/")
        self._directory = (above or ".") if name == LETTERS_FOLDER else directory
        self._files = open_files(self._directory, write=True)

    def letters(self) -> LettersFound:
        """All letters of the folder, in the order of their micro-batches."""
        names = sorted(name for name in self._files.names(LETTERS_FOLDER) if name.endswith(".jsonl"))
        bodies = {name: self._files.read(f"{LETTERS_FOLDER}/{name}") or b"" for name in names}
        lines = [(name, at, line) for name in names for at, line in enumerate(bodies[name].splitlines(), start=1)]
        read = letters_of(line for _, _, line in lines)
        damaged = [lines[number - 1][:2] for number in read.damaged]
        return LettersFound(read.letters, read.repeated, [f"{name} line {at}" for name, at in damaged])

    def replayed(self) -> set[str]:
        """The ids in the file ``replayed`` beside the letters."""
        return set((self._files.read(f"{LETTERS_FOLDER}/replayed") or b"").decode("ascii").split())

    def replay(self, letters: Sequence[DeadLetter], into: str | None) -> Replay:
        """Append the tuples to a file, one JSON object per line; or write messages of Kafka to Kafka again, unchanged.

        Raises:
            WrongUseError: ``into`` is missing, or is where the letters are.
        """
        if into is None:
            raise WrongUseError(
                "say where they go: --into FILE, which a JsonLinesSpout of the topology reads; or, for messages of "
                "Kafka, --into kafka:HOST:PORT (to their topics) or kafka:HOST:PORT/TOPIC"
            )
        if into.startswith(KAFKA):
            done = give_again(letters, into[len(KAFKA) :], self._client)
        else:
            local = local_directory(self._directory)
            done = append_tuples(letters, into, () if local is None else (os.path.join(local, LETTERS_FOLDER),))
        if done.ids:
            known = sorted(self.replayed().union(done.ids))
            self._files.write(f"{LETTERS_FOLDER}/replayed", "".join(f"{id_}\n" for id_ in known).encode())
        return done


def shelf_at(where: str, client: Mapping[str, str]) -> LetterStore:
    """The store for a checkpoint, a folder or a file."""
    url = urlparse(where)
    folder = url.scheme not in ("", "file") or os.path.isdir(os.path.expanduser(url.path if url.scheme else where))
    return LetterFolder(os.path.expanduser(where), client) if folder else LetterFile(where, client)


SHELVES: Mapping[str, Callable[[str, Mapping[str, str]], LetterStore]] = {FILE: shelf_at, KAFKA: LetterTopic}
"""By prefix of a location, what makes the store from the rest. Without a known prefix it is a folder or a file."""


@dataclass(frozen=True)
class LetterLocation:
    """The location of dead letters, as it is given on the command line."""

    where: str
    client_config: str | None = None
    """A file of properties of Kafka's client; it is read when the store is opened, and never printed."""


def open_letters(place: LetterLocation) -> LetterStore:
    """The store of dead letters at a location.

    Raises:
        WrongUseError: there is no such store.
    """
    client = client_properties(place.client_config) if place.client_config is not None else {}
    for start, make in SHELVES.items():
        if place.where.startswith(start):
            return make(place.where[len(start) :], client)
    return shelf_at(place.where, client)


def list_letters(place: LetterLocation, limit: int, spout: str | None, *, as_json: bool) -> list[str]:
    """The lines of the newest letters; the newest is last."""
    store = open_letters(place)
    read = store.letters()
    replayed = store.replayed()
    letters = _of(read.letters, spout)
    shown = letters[-limit:]
    if as_json:
        _warn(read)
        return [json.dumps({**letter.to_json(), "replayed": letter.id in replayed}) for letter in shown]
    lines = [line for letter in shown for line in _two_lines(letter, letter.id in replayed)]
    return [*lines, *_closing(read, letters, len(shown), replayed)]


def _of(letters: Sequence[DeadLetter], spout: str | None) -> list[DeadLetter]:
    known = sorted({letter.component for letter in letters})
    if spout is not None and letters and spout not in known:
        raise WrongUseError(f"there is no dead letter of spout {spout!r} here: there are some of {', '.join(known)}")
    return [letter for letter in letters if spout in (None, letter.component)]


def _two_lines(letter: DeadLetter, replayed: bool) -> list[str]:
    tries = f"{letter.attempts_in_all} attempt{'s' if letter.attempts_in_all > 1 else ''}"
    again = ", replayed" if replayed else ""
    name = letter.id[:ID_CHARACTERS_SHOWN]
    return [
        f"{time_text(letter.last.ended_ms)}  {name}  {letter.where}, {tries}{again}",
        f"    {letter.last.cause} in {letter.last.component}[{letter.last.task}]: {letter.last.reason}",
    ]


def _warn(read: LettersFound) -> None:
    if read.damage is not None:
        print(f"sparkbolt: {read.damage}", file=sys.stderr)


def _closing(read: LettersFound, letters: Sequence[DeadLetter], shown: int, replayed: set[str]) -> list[str]:
    done = sum(letter.id in replayed for letter in letters)
    lines = [f"{len(letters)} dead letter(s), {shown} shown, {done} replayed"]
    causes = Counter(letter.last.cause for letter in letters)
    if len(causes) > 1:
        lines.append("causes: " + ", ".join(f"{cause} {count}" for cause, count in causes.most_common()))
    if read.repeated:
        lines.append(f"{read.repeated} {read.what}(s) repeat a letter that is there already (same id), and count once")
    return lines if read.damage is None else [*lines, read.damage]


def show_letters(place: LetterLocation, names: Sequence[str], *, as_json: bool) -> list[str]:
    """The lines with all details of some letters.

    Args:
        place: where the letters are.
        names: beginnings of their ids.
        as_json: whether each letter is one JSON object.

    Raises:
        WrongUseError: no letter's id, or several ids, begin with one of the names.
    """
    read = open_letters(place).letters()
    _warn(read)
    letters = _named(read.letters, names)
    if as_json:
        return [json.dumps(letter.to_json()) for letter in letters]
    lines: list[str] = []
    for letter in letters:
        lines += [*([""] if lines else []), *_all_lines(letter)]
    return lines


def _all_lines(letter: DeadLetter) -> list[str]:
    lines = [
        f"dead letter {letter.id}",
        f"  message   {letter.where}",
        f"  topology  {letter.topology}, version {letter.version}",
    ]
    for values in letter.values():
        lines.append(f"  tuple     {letter.stream}: {short_values(letter.fields, list(values.values()))}")
    if letter.raw is not None:
        value = letter.raw.value
        headers = f", headers {', '.join(name for name, _ in letter.raw.headers)}" if letter.raw.headers else ""
        lines.append(f"  as it came  key {letter.raw.key!r}, value {value!r:.200}{headers}")
    lines += [f"  note      {letter.note}"] if letter.note else []
    for place, attempt in enumerate(letter.attempts):
        if place == 1 and letter.attempts_left_out:
            lines.append(f"  ... {letter.attempts_left_out} attempt(s) are left out")
        lines.append(f"  attempt {attempt.number}, root {attempt.root}: failed {time_text(attempt.ended_ms)}")
        lines.append(f"    {attempt.cause} in {attempt.component}[{attempt.task}]: {attempt.reason}")
    if letter.last.traceback:
        lines += ["", *("    " + line for line in letter.last.traceback.rstrip().split("\n"))]
    return lines


def _named(letters: Sequence[DeadLetter], names: Sequence[str]) -> list[DeadLetter]:
    found = []
    for name in names:
        matches = [letter for letter in letters if letter.id.startswith(name)]
        if len(matches) != 1:
            what = (
                f"{len(matches)} dead letters have ids that begin"
                if matches
                else "no dead letter has an id that begins"
            )
            raise WrongUseError(f"{what} with {name!r}: `sparkbolt dlq list` shows the ids")
        found += matches
    return found


@dataclass(frozen=True)
class ReplayOrder:
    """The arguments of ``sparkbolt dlq replay``."""

    place: LetterLocation
    names: Sequence[str] = ()
    """Beginnings of ids; if empty, all letters that were not replayed."""
    spout: str | None = None
    into: str | None = None
    again: bool = False
    """Whether letters that were replayed before are replayed, too."""


class NotAllReplayedError(SparkboltError):
    """Some letters were left out, or lines could not be read; the message lists them with the reasons."""


def replay(order: ReplayOrder) -> list[str]:
    """Replay letters; returns the lines to print.

    Raises:
        WrongUseError: the arguments are wrong, or the letters come from several spouts.
        NotAllReplayedError: some letters were left out; or all letters were requested, and some lines are not valid
            letters. The other letters are replayed.
    """
    store = open_letters(order.place)
    read = store.letters()
    if order.names:
        _warn(read)
    every = _of(read.letters, order.spout)
    letters = _named(every, order.names) if order.names else every
    before = store.replayed() if not order.again else set()
    chosen = [letter for letter in letters if letter.id not in before]
    spouts = sorted({letter.component for letter in chosen})
    if len(spouts) > 1:
        raise WrongUseError(f"these are letters of several spouts ({', '.join(spouts)}): choose one with --spout")
    done = store.replay(chosen, order.into)
    skipped = len(letters) - len(chosen)
    more = f"; {skipped} were replayed before and are left alone (--again replays them)" if skipped else ""
    text = f"{len(done.ids)} letter(s) replayed, {done.tuples} tuple(s){more}"
    missed = "" if read.damage is None or order.names else f"; {read.damage}"
    if done.left_out:
        told = "".join(f"\n  {sentence}" for sentence in done.left_out)
        raise NotAllReplayedError(f"{text}{missed}; {len(done.left_out)} could not be:{told}")
    if missed:
        raise NotAllReplayedError(f"{text}{missed}")
    return [text]
