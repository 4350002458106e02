"""Files: which there are, and how to read them by offset.

Which question it answers: which files do paths, directories and patterns name, and how are their bytes read,
compressed or not?

Rule 1: a compressed file is read forwards only. Its positions are offsets into what it unpacks to; a reader
that stays open continues where it was, and one that must go back starts again from the first byte.
Rule 2: a damaged compressed file ends where it can no longer be read, in the same place for every reader: all
unpack it in pieces of one size.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import importlib
import logging
import lzma
import os
import zlib
from collections.abc import Callable, Iterable
from typing import IO, Any

from sparkbolt.errors import ConfigError

log = logging.getLogger(__name__)

UNPACK_BYTES = 1 << 18


def find_files(patterns: Iterable[str]) -> tuple[list[str], list[str]]:
    """The files that absolute ``patterns`` name, sorted, each once; and the patterns that name none.

    A pattern is a file, a directory (all files below it, but for names that begin with ``.`` or ``_``, as
    Spark leaves them out too), or a glob, where ``**`` stands for any directories (files only).
    """
    found: set[str] = set()
    missing: list[str] = []
    for pattern in patterns:
        if os.path.isdir(pattern):
            found.update(_files_below(pattern))
            continue
        if os.path.isfile(pattern):
            names = [pattern]
        else:
            names = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
        found.update(names)
        if not names:
            missing.append(pattern)
    return sorted(found), missing


def _files_below(directory: str) -> Iterable[str]:
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (os.path.join(folder, name) for name in names if not name.startswith((".", "_")))


class PlainFile:
    """A file as it lies on the disk, read by offset."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            OSError: it cannot be opened.
        """
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    @property
    def size(self) -> int:
        """How many bytes there are now."""
        return self.status.st_size

    @property
    def inode(self) -> int:
        """Which file of its device it is, whatever its name."""
        return self.status.st_ino

    @property
    def status(self) -> os.stat_result:
        """What the system knows of the open file."""
        return os.fstat(self._descriptor)

    def read_at(self, offset: int, size: int, keep: int) -> bytes:
        """At most ``size`` bytes from ``offset``; empty only at the end."""
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def is_compressed(path: str) -> bool:
    """Whether the name says that the file is compressed: ``.gz``, ``.bz2``, ``.xz`` or ``.zst``."""
    return os.path.splitext(path)[1].lower() in _OPENERS


def _open_zst(path: str) -> Any:
    for module in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(module).open(path, "rb")
        except ImportError:
            continue
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        pass
    else:
        # Its own open() stops after the first frame, without a word.
        file = open(path, "rb")  # noqa: SIM115  closed with the reader
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=True)
    raise ConfigError(f"{path!r} is compressed with Zstandard, which this Python cannot read: pip install zstandard")


_OPENERS: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}


def check_unpackable(path: str) -> None:
    """Refuse a compressed file for which nothing is installed, before anything is planned.

    Raises:
        ConfigError: it is a ``.zst`` and there is no library for it.
    """
    if path.lower().endswith(".zst"):
        _open_zst(path).close()


def head_of(path: str, size: int) -> bytes:
    """The first ``size`` bytes of what a compressed file unpacks to; fewer where that is all, none where it is damaged.

    Raises:
        OSError: it cannot be read.
    """
    with _OPENERS[os.path.splitext(path)[1].lower()](path) as stream:
        try:
            found: bytes = stream.read(size)
        except Exception as error:
            if not _is_damage(error):
                raise
            return b""
        return found


def _is_damage(error: Exception) -> bool:
    """Whether the content is at fault; an error of the system (it has a number) is not, and may pass."""
    if isinstance(error, OSError):
        return error.errno is None
    return isinstance(error, EOFError | zlib.error | lzma.LZMAError) or type(error).__name__ == "ZstdError"


class UnpackedFile:
    """What a compressed file unpacks to, read forwards."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            OSError: it cannot be opened.
            ConfigError: nothing is installed that unpacks it.
        """
        self.path = path
        self.end: int | None = None
        """How long the content is, once the end was met."""
        self.unpacked = 0
        """How many bytes were unpacked so far."""
        self._buffer = b""
        self._stream: IO[bytes] | None = _OPENERS[os.path.splitext(path)[1].lower()](path)

    @property
    def oldest(self) -> int:
        """The first offset that can still be read."""
        return self.unpacked - len(self._buffer)

    def advance(self) -> bytes:
        """Unpack the next piece; empty at the end, or where the file is damaged (which is logged)."""
        if self._stream is None:
            return b""
        try:
            piece = self._stream.read(UNPACK_BYTES)
        except Exception as error:
            if not _is_damage(error):
                raise
            log.warning(
                "%s is damaged after about %d unpacked bytes (%s): the rest is not read",
                self.path,
                self.unpacked,
                error,
            )
            piece = b""
        self.unpacked += len(piece)
        if not piece:
            self.end = self.unpacked
            self.close()
        return piece

    def read_at(self, offset: int, size: int, keep: int) -> bytes:
        """At most ``size`` bytes from ``offset``, which is not below ``oldest``; empty only at the end."""
        lowest = min(offset, keep)
        if lowest > self.oldest:
            self._buffer = self._buffer[lowest - self.oldest :]
        parts = [self._buffer]
        while self.unpacked < offset + size:
            piece = self.advance()
            if not piece:
                break
            first = self.unpacked - len(piece)
            if self.unpacked > lowest:
                parts.append(piece[max(0, lowest - first) :])
        self._buffer = b"".join(parts)
        begin = offset - self.oldest
        return self._buffer[begin : begin + size] if begin >= 0 else b""

    def close(self) -> None:
        """Close the file; what is buffered can still be read."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class UnpackedEnd:
    """A compressed file, unpacked ahead of the plan to know how much there is."""

    begin = 0
    splittable = False

    def __init__(self, path: str) -> None:
        """Open nothing yet."""
        self.path = path
        self._file: UnpackedFile | None = None
        self._end: int | None = None

    def reach(self, start: int, want: int) -> int:
        """As far as wanted, or to the end; unpacks up to there, keeping nothing."""
        if self._end is None and self._file is None:
            try:
                self._file = UnpackedFile(self.path)
            except FileNotFoundError:
                log.warning("%s is gone: what was not yet planned of it is not read", self.path)
                self._end = 0
        if self._file is not None:
            while self._file.unpacked <= start + want and self._file.advance():
                pass
            if self._file.end is None:
                return start + want
            self._end, self._file = self._file.end, None
        assert self._end is not None
        return max(start, min(self._end, start + want))

    def reached(self, position: int) -> bool:
        """Whether the end is known and was planned."""
        return self._end is not None and position >= self._end

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
