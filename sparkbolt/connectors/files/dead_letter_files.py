"""FileDeadLetters: writes dead letters to files, one JSON object per line, and reads them.

Letters are appended and flushed to the disk before ``write`` returns. A letter counts once by its id, however often the
file holds it; a damaged line is reported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from sparkbolt.api.arguments import absolute_path
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.connectors.letters_read import LettersRead
from sparkbolt.errors import ConfigError
from sparkbolt.files.local import append_lines, make_folder


class FileDeadLetters:
    """A sink that appends dead letters to one file; ``dead_letters="file:PATH"`` creates it.

    On a cluster all machines must share the path, and its file system must support locks.

    >>> FileDeadLetters("dead.jsonl").path == os.path.abspath("dead.jsonl")
    True
    """

    def __init__(self, path: str | Path) -> None:
        """Store the path as an absolute path.

        Raises:
            ConfigError: The path is empty or names a directory.
        """
        self.path = absolute_path("path", path, "the name of a file for dead letters")
        if os.path.isdir(self.path):
            raise ConfigError(f"dead letters go to a file, and {self.path} is a directory: name a file in it")

    def open(self, context: TopologyContext) -> None:
        """Create the directory of the file."""
        make_folder(os.path.dirname(self.path))

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Append the letters and sync them to the disk.

        Raises:
            OSError: The write failed. Some or all letters may be in the file; it is safe to write them again.
        """
        append_lines(self.path, [letter.to_line() for letter in letters])

    def close(self) -> None:
        """Do nothing: no file is kept open, so it may be moved away at any time; the next write creates a new one."""


def read_letters(path: str | Path) -> LettersRead[int]:
    """Return all letters of a file.

    Raises:
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        return letters_of(file)


def letters_of(lines: Iterable[bytes]) -> LettersRead[int]:
    """Return all letters of the given lines; the first line has number 1."""
    found = LettersRead[int]()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found.add(number, partial(_letter, line))
    return found


def _letter(line: bytes) -> DeadLetter:
    return DeadLetter.from_json(json.loads(line))
