"""Files: which there are, and how to read them by offset.

Which question it answers: which files do paths, directories and patterns name, and how are their bytes read,
compressed or not?

Rule 1: a compressed file is read forwards only. Its positions are offsets into what it unpacks to; a reader
that stays open continues where it was, and one that must go back starts again from the first byte.
Rule 2: a damaged compressed file ends where it can no longer be read, in the same place for every reader: all
unpack it in pieces of one size.
Rule 3: only regular files are opened. To open a named pipe waits for whoever writes to it, perhaps for ever, and to
open a device may do something; so what is no regular file is passed over where files are listed, and one that took
the place of a file since then counts as a file that is gone.
Rule 4: a path is as the system gives it, half characters and all; whatever leaves this process has it escaped.
"""

from __future__ import annotations

import bz2
import errno
import glob
import gzip
import importlib
import logging
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

from sparkbolt.errors import ConfigError

log = logging.getLogger(__name__)

UNPACK_BYTES = 1 << 18
TOLD_MAX = 5
"""So many paths that are passed over are named at once."""
_URI = "file://"


def escape(path: str) -> str:
    r"""A path as text that can be written down anywhere: in names of sources, in tuples, in a log.

    It is the path; or, where the name of a file is not valid UTF-8 and Python has half characters in the place of its
    bytes, a URI. Paths are absolute, so none begins as a URI does.

    >>> escape("/var/log/100%.log"), escape("/var/log/caf\udce9.log")
    ('/var/log/100%.log', 'file:///var/log/caf%E9.log')
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return _URI + quote_from_bytes(os.fsencode(path))
    return path


def unescape(text: str) -> str:
    r"""The inverse of ``escape``.

    >>> unescape(escape("/var/log/caf\udce9.log")) == "/var/log/caf\udce9.log"
    True
    """
    return os.fsdecode(unquote_to_bytes(text[len(_URI) :])) if text.startswith(_URI) else text


@dataclass(frozen=True)
class FilesFound:
    """What some patterns name."""

    files: list[str]
    """Sorted, each once."""
    missing: list[str]
    """The patterns that name no file."""
    passed_over: Mapping[str, str]
    """What is there but can be read by nobody, and why: by path, ``is a link to ..., which does not exist``."""


def find_files(patterns: Sequence[str]) -> FilesFound:
    """The files that absolute ``patterns`` name.

    A pattern is a file, a directory (all files below it, but for names that begin with ``.`` or ``_``, as
    Spark leaves them out too), or a glob, where ``**`` stands for any directories (files only).
    """
    found: set[str] = set()
    missing: list[str] = []
    passed_over: dict[str, str] = {}
    for pattern in patterns:
        if os.path.isdir(pattern):
            found.update(_files_below(pattern, passed_over))
            continue
        names = [pattern] if os.path.lexists(pattern) else glob.glob(pattern, recursive=True)
        files = [name for name in names if _is_file(name, passed_over)]
        found.update(files)
        if not files:
            missing.append(pattern)
    return FilesFound(sorted(found), missing, passed_over)


def _files_below(directory: str, passed_over: dict[str, str]) -> Iterator[str]:
    """Links to directories are not followed: they may lead in a circle."""
    folders = [directory]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                entries = [entry for entry in found if not entry.name.startswith((".", "_"))]
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif entry.is_file(follow_symlinks=False) or _is_file(entry.path, passed_over):
                yield entry.path


def _is_file(path: str, passed_over: dict[str, str]) -> bool:
    """Whether it is to be read as a file; one at which this user may not look is, so that it is told."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return True
        try:
            target = os.readlink(path)
        except OSError:  # it is no link: it was deleted just now
            return False
        why = "leads back to itself" if error.errno == errno.ELOOP else "does not exist"
        passed_over[path] = f"is a link to {escape(target)}, which {why}"
        return False
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        passed_over[path] = f"is no regular file ({_kind(mode)})"
    return stat.S_ISREG(mode)


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def tell_passed_over(passed_over: Mapping[str, str]) -> None:
    """Say in a WARNING what is not read, and why; say nothing where that is nothing."""
    if passed_over:
        told = [f"{escape(path)} {why} and is passed over" for path, why in sorted(passed_over.items())]
        more = f"; so are {len(told) - TOLD_MAX} more" if len(told) > TOLD_MAX else ""
        log.warning("%s%s", "; ".join(told[:TOLD_MAX]), more)


def _open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a file and never wait for it, as a named pipe would make one wait.

    Raises:
        FileNotFoundError: no file is there, but perhaps something else.
        OSError: it cannot be opened.
    """
    _check_regular(os.stat(path), path)
    # What lies there may be another thing by now.
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_regular(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(errno.ENOENT, f"what is there is no regular file ({_kind(status.st_mode)})", path)


class PlainFile:
    """A file as it lies on the disk, read by offset."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            OSError: it cannot be opened.
        """
        self._descriptor = _open_regular(path)

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


def _open_zst(file: IO[bytes]) -> Any:
    for module in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(module).open(file, "rb")
        except ImportError:
            continue
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        pass
    else:
        # Its own open() stops after the first frame, without a word.
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
    raise ConfigError(
        f"{file.name!r} is compressed with Zstandard, which this Python cannot read: pip install zstandard"
    )


_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}


class _Unpacking:
    """The stream of what a compressed file unpacks to, and the file, which is closed with it."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", opener=_open_regular)  # noqa: SIM115  it is closed with the stream
        try:
            self._stream = _OPENERS[os.path.splitext(path)[1].lower()](self._file)
        except BaseException:
            self._file.close()
            raise

    def read(self, size: int) -> bytes:
        found: bytes = self._stream.read(size)
        return found

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def check_unpackable(path: str) -> None:
    """Refuse a compressed file for which nothing is installed, before anything is planned.

    Raises:
        ConfigError: it is a ``.zst`` and there is no library for it.
    """
    if path.lower().endswith(".zst"):
        _Unpacking(path).close()


def head_of(path: str, size: int) -> bytes:
    """The first ``size`` bytes of what a compressed file unpacks to; fewer where that is all, none where it is damaged.

    Raises:
        OSError: it cannot be read.
    """
    with closing(_Unpacking(path)) as stream:
        try:
            return stream.read(size)
        except Exception as error:
            if not _is_damage(error):
                raise
            return b""


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
        self._stream: _Unpacking | None = _Unpacking(path)

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
                escape(self.path),
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
                log.warning("%s is gone: what was not yet planned of it is not read", escape(self.path))
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
