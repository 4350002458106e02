"""Finds files by pattern, and reads plain files by offset.

Only regular files are opened: opening a named pipe waits for a writer, and opening a device may have an effect. A file
with several names is found once. Paths are kept as the system returns them, with Python's surrogates for bytes that
are not UTF-8; a path that leaves this process is escaped.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import glob
import logging
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

log = logging.getLogger(__name__)

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
    """By path, why it exists but cannot be read as a file: ``is a link to ..., which does not exist``."""
    other_names: Mapping[str, str]
    """Further names of files, and the name under which each is found."""


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
    other_names = _other_names(found)
    return FilesFound(sorted(found - other_names.keys()), missing, passed_over, other_names)


def _other_names(paths: Iterable[str]) -> dict[str, str]:
    """Return the names of files that have a better one among the paths, with the better one."""
    names: dict[tuple[int, int], list[str]] = {}
    for path in paths:
        try:
            found = os.stat(path)
        except OSError:  # the error is reported when it is opened
            continue
        names.setdefault((found.st_dev, found.st_ino), []).append(path)
    others: dict[str, str] = {}
    for same in names.values():
        if len(same) > 1:
            best = min(same, key=lambda path: (_links_in(path), path))
            others.update((path, best) for path in same if path != best)
    return others


def _links_in(path: str) -> int:
    return sum(os.path.islink(part) for part in (path, *map(str, PurePath(path).parents)))


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


def tell_passed_over(there: FilesFound, told: Set[str] = frozenset()) -> set[str]:
    """Log which paths are skipped and why, without those that were ``told`` before; return all that are skipped.

    A path that cannot be read is a WARNING; another name of a file that is read is not.
    """
    others = {path: f"is another name of {escape(best)}" for path, best in there.other_names.items()}
    for level, reasons in ((logging.WARNING, there.passed_over), (logging.INFO, others)):
        new = [f"{escape(path)} {why} and is passed over" for path, why in sorted(reasons.items()) if path not in told]
        if new:
            more = f"; so are {len(new) - TOLD_MAX} more" if len(new) > TOLD_MAX else ""
            log.log(level, "%s%s", "; ".join(new[:TOLD_MAX]), more)
    return {*there.passed_over, *others}


def open_regular(path: str, flags: int = os.O_RDONLY) -> int:
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


_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_BTIME_OFFSET = 80


@functools.cache
def _statx() -> Callable[..., int] | None:
    try:
        found: Callable[..., int] = ctypes.CDLL(None).statx
    except (OSError, AttributeError):  # another system than Linux, or an old C library
        return None
    return found


def birth_of(descriptor: int) -> int:
    """Return when an open file was created, in microseconds since 1970; 0 if the system does not record it.

    A file keeps it when it is renamed or written to. A new file that gets the inode of a deleted one has another. File
    systems that are shared do not all carry nanoseconds.
    """
    status: Any = os.fstat(descriptor)
    if hasattr(status, "st_birthtime"):
        return int(status.st_birthtime * 1_000_000)
    statx, result = _statx(), ctypes.create_string_buffer(_STATX_BYTES)
    if statx is None or statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, result):
        return 0
    if not struct.unpack_from("I", result.raw)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = struct.unpack_from("qI", result.raw, _BTIME_OFFSET)
    return max(0, int(seconds) * 1_000_000 + int(nanoseconds) // 1000)


class PlainFile:
    """An uncompressed file, read by offset."""

    damage = None
    """It is a plain file: nothing can be wrong with its end."""

    def __init__(self, path: str) -> None:
        """Open the file.

        Raises:
            OSError: It cannot be opened.
        """
        self._descriptor = open_regular(path)

    @property
    def size(self) -> int:
        """The current size in bytes."""
        return self.status.st_size

    @property
    def inode(self) -> int:
        """The file's inode number, which does not depend on its name."""
        return self.status.st_ino

    @property
    def birth(self) -> int:
        """When the file was created, see ``birth_of``."""
        return birth_of(self._descriptor)

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
