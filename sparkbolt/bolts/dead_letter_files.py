"""Files of dead letters: one JSON object a line.

Which question it answers: when is a dead letter in the file, and what is read back after a crash?

Rule 1: letters are appended and forced to the disk before ``write`` returns; nothing that is in the file is changed.
Rule 2: processes that write to one file take turns (a lock on the file), and what a crash left of a line is ended
before the next one begins, so it damages no other.
Rule 3: a letter counts once by its id, however often it stands in the file; a line that is damaged is told, not
passed over in silence.

Read before: ``core.model.dead_letters``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparkbolt.core.model import arguments
from sparkbolt.core.model.components import TopologyContext
from sparkbolt.core.model.dead_letters import DeadLetter
from sparkbolt.errors import ConfigError


class FileDeadLetters:
    """A sink that appends to one file: what ``dead_letters="file:PATH"`` stands for.

    On a cluster the path must be one that all machines share, on a file system that knows locks.

    >>> FileDeadLetters("dead.jsonl").path == os.path.abspath("dead.jsonl")
    True
    """

    def __init__(self, path: str | Path) -> None:
        """Keep the path, absolute from here on.

        Raises:
            ConfigError: it is empty, or a directory.
        """
        self.path = arguments.absolute("path", path, "the name of a file for dead letters")
        if os.path.isdir(self.path):
            raise ConfigError(f"dead letters go to a file, and {self.path} is a directory: name a file in it")

    def open(self, context: TopologyContext) -> None:
        """Make the folder of the file."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Append the letters and force them to the disk.

        Raises:
            OSError: they may be in the file or not; writing them again is no harm.
        """
        append_lines(self.path, [letter.to_line() for letter in letters])

    def close(self) -> None:
        """Nothing is kept open: the file may be moved away at any time, and a new one begins."""


def append_lines(path: str, lines: Sequence[str]) -> None:
    """Append lines to a file, whole and durable; others who append here wait.

    Raises:
        OSError: the disk is full, the folder is gone.
    """
    is_new = not os.path.exists(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        data = (b"\n" if torn else b"") + "".join(f"{line}\n" for line in lines).encode()
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@dataclass
class LettersRead:
    """What a file of dead letters holds."""

    letters: list[DeadLetter] = field(default_factory=list)
    """Each id once, in the order in which they came."""
    repeated: int = 0
    """Lines whose letter stands there already."""
    damaged: list[int] = field(default_factory=list)
    """Numbers of lines, from 1, that are no letters."""


def read_letters(path: str | Path) -> LettersRead:
    """All letters of a file.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return letters_of(file)


def letters_of(lines: Iterable[bytes]) -> LettersRead:
    """All letters that stand in some lines."""
    found = LettersRead()
    known: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            letter = DeadLetter.from_json(json.loads(line))
        except (ValueError, RecursionError):
            found.damaged.append(number)
            continue
        if letter.id in known:
            found.repeated += 1
        else:
            known.add(letter.id)
            found.letters.append(letter)
    return found
