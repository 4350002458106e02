"""Files: finds files by pattern and reads them by offset.

Which question it answers: which files do paths, directories and patterns name, and how are their bytes read,
compressed or not?

Rule 1: a compressed file is read forwards only. Its positions are offsets into its unpacked content. An open reader
continues where it stopped; to go back, a reader starts again from the first byte.
Rule 2: a damaged compressed file ends where it can no longer be read, at the same offset for every reader, because all
readers unpack it in pieces of the same size.
Rule 3: only regular files are opened. Opening a named pipe waits for a writer, perhaps for ever, and opening a device
may have an effect. So listings skip everything that is not a regular file, and a file that something else has replaced
since then counts as gone.
Rule 4: paths are kept as the system returns them, with Python's surrogates for bytes that are not UTF-8; a path that
leaves this process is escaped.
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
"""At most this many skipped paths are named in one log line."""
_URI = "file://"


def escape(path: str) -> str:
    r"""Return a path as text that can be written anywhere: in names of sources, in tuples, in a log.

    This is the path itself. If the path is not valid UTF-8, so that Python holds surrogates in place of its bytes, it
    is a URI. Paths are absolute, so no path looks like a URI.

    >>> escape("/var/log/100%.log"), escape("/var/log/caf\udce9.log")
    ('/var/log/100%.log', 'file:///var/log/caf%E9.log')
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return _URI + quote_from_bytes(os.fsencode(path))
    return path


def unescape(text: str) -> str:
    r"""Undo ``escape``.

    >>> unescape(escape("/var/log/caf\udce9.log")) == "/var/log/caf\udce9.log"
    True
    """
    return os.fsdecode(unquote_to_bytes(text[len(_URI) :])) if text.startswith(_URI) else text


@dataclass(frozen=True)
class FilesFound:
    """The files that some patterns name."""

    files: list[str]
    """Sorted, each once."""
    missing: list[str]
    """The patterns that name no file."""
    passed_over: Mapping[str, str]
    """What exists but cannot be read as a file, and why; by path: ``is a link to ..., which does not exist``."""


def find_files(patterns: Sequence[str]) -> FilesFound:
    """Find the files that absolute ``patterns`` name.

    A pattern is a file, a directory (all files below it, except names that begin with ``.`` or ``_``, which Spark
    leaves out too), or a glob, in which ``**`` matches any directories (files only).
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
    """Yield the files below a directory; links to directories are not followed, since they may form a cycle."""
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
    """Whether to read it as a file; also True if this user may not stat it, so that the error is reported."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return True
        try:
            target = os.readlink(path)
        except OSError:  # it is not a link: it was deleted just now
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
    """Log a WARNING that names the skipped paths and the reasons; log nothing if there are none."""
    if passed_over:
        told = [f"{escape(path)} {why} and is passed over" for path, why in sorted(passed_over.items())]
        more = f"; so are {len(told) - TOLD_MAX} more" if len(told) > TOLD_MAX else ""
        log.warning("%s%s", "; ".join(told[:TOLD_MAX]), more)


def _open_regular(path: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file without blocking, as opening a named pipe would.

    Raises:
        FileNotFoundError: There is no regular file, but perhaps something else.
        OSError: It cannot be opened.
    """
    _check_regular(os.stat(path), path)
    # Something else may have replaced the file since the check, so the open file is checked again.
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
    """An uncompressed file, read by offset."""

    def __init__(self, path: str) -> None:
        """Open the file.

        Raises:
            OSError: It cannot be opened.
        """
        self._descriptor = _open_regular(path)

    @property
    def size(self) -> int:
        """The current size in bytes."""
        return self.status.st_size

    @property
    def inode(self) -> int:
        """The file's inode number, which does not depend on its name."""
        return self.status.st_ino

    @property
    def status(self) -> os.stat_result:
        """The system's status of the open file."""
        return os.fstat(self._descriptor)

    def read_at(self, offset: int, size: int, keep: int) -> bytes:
        """Return at most ``size`` bytes from ``offset``; empty only at the end."""
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def is_compressed(path: str) -> bool:
    """Whether the name's extension marks a compressed file: ``.gz``, ``.bz2``, ``.xz`` or ``.zst``."""
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
        # Its own open() silently stops after the first frame.
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
    """The stream of a compressed file's unpacked content; closing it closes the file too."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", opener=_open_regular)  # noqa: SIM115  closed together with the stream
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
    """Refuse a compressed file that no installed library can unpack, before anything is planned.

    Raises:
        ConfigError: It is a ``.zst`` file and there is no library for it.
    """
    if path.lower().endswith(".zst"):
        _Unpacking(path).close()


def head_of(path: str, size: int) -> bytes:
    """Return the first ``size`` bytes of the unpacked content; fewer if it is shorter, none if the file is damaged.

    Raises:
        OSError: The file cannot be read.
    """
    with closing(_Unpacking(path)) as stream:
        try:
            return stream.read(size)
        except Exception as error:
            if not _is_damage(error):
                raise
            return b""


def _is_damage(error: Exception) -> bool:
    """Whether the content is damaged; a system error (with an errno) is not damage and may pass."""
    if isinstance(error, OSError):
        return error.errno is None
    return isinstance(error, EOFError | zlib.error | lzma.LZMAError) or type(error).__name__ == "ZstdError"


class UnpackedFile:
    """The unpacked content of a compressed file, read forwards."""

    def __init__(self, path: str) -> None:
        """Open the file.

        Raises:
            OSError: It cannot be opened.
            ConfigError: No installed library can unpack it.
        """
        self.path = path
        self.end: int | None = None
        """Length of the content in bytes; None until the end was reached."""
        self.unpacked = 0
        """How many bytes are unpacked so far."""
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
        """Return at most ``size`` bytes from ``offset``, which is not below ``oldest``; empty only at the end."""
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
        """Close the file; buffered bytes can still be read."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class UnpackedEnd:
    """A compressed file that the driver unpacks ahead of the plan, to find its end."""

    begin = 0
    splittable = False

    def __init__(self, path: str) -> None:
        """Store the path; no file is opened yet."""
        self.path = path
        self._file: UnpackedFile | None = None
        self._end: int | None = None

    def reach(self, start: int, want: int) -> int:
        """Return the wanted end, or the end of the file; unpacks up to there and keeps nothing."""
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
        """Whether the end is known and is planned."""
        return self._end is not None and position >= self._end

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
