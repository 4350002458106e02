"""Log reading: the newest lines of a log, and the lines that follow.

Files are read backwards from their end, at most ``SEARCHED_BYTES_MAX`` bytes, so that a log of any size answers at
once. Files may be rotated during reading: no line is skipped or read twice.
"""

from __future__ import annotations

import glob
import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from sparkbolt.control.logs import INDENT, TEXT_CHARACTERS_MAX, LogLine, log_path, read_line

SEARCHED_BYTES_MAX = 32_000_000
"""So many bytes from the end are searched for lines about a component, or with a text."""
BLOCK_BYTES = 1 << 16
LINE_BYTES_MAX = 4 * TEXT_CHARACTERS_MAX
"""A longer line is read in pieces: something else than a log."""


def last_lines(
    directory: str,
    topology: str,
    *,
    component: str | None = None,
    search: str = "",
    last: int = 200,
    bytes_max: int = SEARCHED_BYTES_MAX,
) -> list[LogLine]:
    """The newest lines of a topology's log, the newest last; an empty list if there is no log.

    Args:
        directory: where the files are.
        topology: the name of the topology.
        component: only lines about it.
        search: only lines whose text, component or root contains it, in small or capital letters.
        last: how many lines at most.
        bytes_max: how many bytes from the end are searched.
    """
    found: deque[LogLine] = deque()
    wanted = Wanted(topology, component, search)
    for line in wanted.of(_written_backwards(log_path(directory, topology), bytes_max)):
        found.appendleft(line)
        if len(found) >= last:
            break
    return list(found)


class Wanted:
    """Finds lines about a component that contain a text, among written lines."""

    def __init__(self, topology: str, component: str | None = None, search: str = "") -> None:
        """Take those of ``last_lines``."""
        self._topology = topology
        self._component = component
        self._search = search.casefold()
        self._plain = not (set(f"{component or ''}{search}") & set('"\\\n\t'))
        """Whether JSON contains the searched text unchanged."""

    def is_wanted(self, line: LogLine) -> bool:
        """Whether a line is about the component, if one is given, and contains the text.

        A line without a component counts if its text names the component, as in ``count[1] reported``.
        """
        component = self._component
        if component is not None and line["component"] != component:
            named = f"{component}[" in line["text"] or f"'{component}'" in line["text"]
            if line["component"] is not None or not named:
                return False
        parts = (line["text"], line["component"] or "", line["root"] or "", line["level"])
        return not self._search or any(self._search in part.casefold() for part in parts)

    def of(self, written: Iterable[str]) -> Iterator[LogLine]:
        """The wanted lines among the written lines of a file; the newest first in both."""
        further: list[str] = []
        for one in written:
            if not one and not further:
                continue  # the rest after the last line feed
            further.append(one)
            if not _may_be_head(one):
                continue
            line = self._read(further[::-1])
            if line is not None:
                yield line
            further = []
        if any(further):
            line = self._read(further[::-1])
            if line is not None:
                yield line

    def _read(self, written: list[str]) -> LogLine | None:
        """The line that was written so, if it is wanted."""
        whole = "\n".join(written)
        if self._plain:  # most lines need not be parsed
            if self._component is not None and self._component not in whole:
                return None
            if self._search and self._search not in whole.casefold():
                return None
        line = read_line(self._topology, whole)
        if line is None and len(written) > 1:  # JSON, followed by lines of another program
            line = read_line(self._topology, written[0])
            if line is not None:
                line["text"] = "\n".join([line["text"], *written[1:]])
        if line is None:
            line = _without_head(self._topology, written)
        return line if self.is_wanted(line) else None


def _may_be_head(written: str) -> bool:
    return written[:1] == "{" or written[23:26] == "Z  "


def files_of(path: str) -> list[str]:
    """The files of a log that exist, the newest first."""
    older = [
        (int(end), name) for name in glob.glob(f"{glob.escape(path)}.*") if (end := name[len(path) + 1 :]).isdigit()
    ]
    return [path, *(name for _, name in sorted(older))]


def opened(path: str) -> BinaryIO | None:
    """The file, open for reading; None if it does not exist."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        return None


def _written_backwards(path: str, bytes_max: int) -> Iterator[str]:
    """The written lines of all files, the newest first, of their last ``bytes_max`` bytes."""
    seen: set[tuple[int, int]] = set()
    left = bytes_max
    for name in files_of(path):
        file = opened(name)
        if file is None:
            continue  # it was rotated just now, and is found under its next name
        with file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) in seen:
                continue  # it was rotated since its name was read
            seen.add((status.st_dev, status.st_ino))
            yield from _backwards(file, status.st_size, left)
            left -= status.st_size
        if left <= 0:
            return


def _backwards(file: BinaryIO, size: int, bytes_max: int) -> Iterator[str]:
    """The complete lines of a file of ``size`` bytes, the newest first, of its last ``bytes_max`` bytes."""
    at, first = size, max(0, size - bytes_max)
    rest = b""
    while at > first:
        start = max(first, at - BLOCK_BYTES)
        file.seek(start)
        *lines, rest = (file.read(at - start) + rest).split(b"\n")[::-1]
        at = start
        for line in lines:
            yield line.decode("utf-8", "replace")
        if len(rest) > LINE_BYTES_MAX:
            yield rest.decode("utf-8", "replace")
            rest = b""
    if first == 0 and size:
        yield rest.decode("utf-8", "replace")


def _without_head(topology: str, lines: list[str]) -> LogLine:
    """Lines that have no head: another program has written them, or their head is not read any more."""
    text = "\n".join(line.removeprefix(INDENT) for line in lines)
    return LogLine(
        time_ms=0, level="", topology=topology, component=None, task=None, micro_batch=None, root=None, text=text
    )


class LogFollower:
    """Reads the lines that are written to a log from now on, through all rotations."""

    def __init__(self, directory: str, topology: str, *, component: str | None = None, search: str = "") -> None:
        """Begin at the log's end; ``component`` and ``search`` are those of ``last_lines``."""
        self._path = log_path(directory, topology)
        self._wanted = Wanted(topology, component, search)
        self._rest = b""
        self._file: BinaryIO | None = opened(self._path)
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def lines(self) -> list[LogLine]:
        """The lines that were written since the last call; it does not wait for any."""
        written: list[str] = []
        for file in self._newer():
            written += self._whole_lines(file)
            if self._file is not None and file is not self._file:
                self._file.close()
            self._file = file
        if self._file is not None and self._file.tell() > os.fstat(self._file.fileno()).st_size:
            self._file.seek(0)  # somebody has emptied it
            written += self._whole_lines(self._file)
        return list(self._wanted.of(written[::-1]))[::-1]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _newer(self) -> list[BinaryIO]:
        """The file that was read last and all that are newer, opened, the oldest first."""
        newer: list[BinaryIO] = []
        own = None if self._file is None else os.fstat(self._file.fileno())
        seen: set[tuple[int, int]] = set()
        for name in files_of(self._path):
            file = opened(name)
            if file is None:
                continue
            status = os.fstat(file.fileno())
            if own is not None and os.path.samestat(own, status):
                file.close()
                break
            if (status.st_dev, status.st_ino) in seen:
                file.close()
                continue
            seen.add((status.st_dev, status.st_ino))
            newer.append(file)
            if own is None:
                break  # nothing was read yet: a log that has just begun
        return [*([] if self._file is None else [self._file]), *newer[::-1]]

    def _whole_lines(self, file: BinaryIO) -> list[str]:
        data = self._rest + file.read()
        *lines, self._rest = data.split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest], b""
        return [line.decode("utf-8", "replace") for line in lines]
