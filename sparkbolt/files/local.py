"""Local files: how a file on a disk is replaced, created, appended to and listed.

A file is replaced atomically and durably: a reader, and a start after a power failure, finds the old content or the new
content. If the process dies during a write, the temporary file stays until ``remove_leftovers``; its name begins with a
dot, and listings skip such names.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from sparkbolt.files.shared import LEFTOVER_SECS, Stamp

_TEMPORARY = re.compile(r"\.(.+)\.\d+-[0-9a-f]{8}\.tmp", re.DOTALL)


def temporary_name(name: str) -> str:
    """A hidden name that no other writer uses: it has the process id and a random number.

    >>> final_name(temporary_name("0.entry")), final_name("0.entry")
    ('0.entry', None)
    """
    return f".{name}.{os.getpid()}-{secrets.token_hex(4)}.tmp"


def final_name(temporary: str) -> str | None:
    """The name of the file that a temporary file was written for; None if this is not a temporary name."""
    match = _TEMPORARY.fullmatch(temporary)
    return match[1] if match else None


def replace(path: str, write: Callable[[IO[bytes]], object], *, durable: bool = True, mode: int = 0o666) -> None:
    """Replace a file atomically by the output of ``write``, durably unless ``durable`` is False.

    Raises:
        OSError: The write failed, for example because the disk is full; an older file is unchanged then.
    """
    with _temporary(path, write, durable, mode) as temporary:
        os.replace(temporary, path)
    if durable:
        flush(os.path.dirname(path))


def create(path: str, write: Callable[[IO[bytes]], object], *, durable: bool = True, mode: int = 0o666) -> bool:
    """Write a file that must not exist yet; return False if it exists. Of several writers one succeeds.

    On a file system without links, a reader may see the file empty before it is complete.
    """
    if os.path.lexists(path):
        return False
    with _temporary(path, write, durable, mode) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
            except FileExistsError:
                return False
            os.replace(temporary, path)
    if durable:
        flush(os.path.dirname(path))
    return True


@contextmanager
def _temporary(path: str, write: Callable[[IO[bytes]], object], durable: bool, mode: int) -> Iterator[str]:
    """Write a complete temporary file beside ``path``; at the end it is removed, unless it was renamed."""
    temporary = os.path.join(os.path.dirname(path), temporary_name(os.path.basename(path)))
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            write(file)
            if durable:
                file.flush()
                os.fsync(descriptor)
        yield temporary
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def publish(written: str, path: str) -> None:
    """Give a complete file its name, durably; both names are on one file system."""
    flush(written)
    os.replace(written, path)
    flush(os.path.dirname(path))


def append_lines(path: str, lines: Sequence[str]) -> None:
    """Append complete lines to a file and flush it; other processes that append to it wait.

    If a crash left an incomplete line, a newline ends it first, so it damages no other line.

    Raises:
        OSError: The write failed: the disk is full or the directory is gone, for example.
    """
    is_new = not os.path.exists(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
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
        flush(os.path.dirname(path))


def flush(path: str) -> None:
    """Flush a file or a folder to the disk, whichever process wrote it."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot flush a folder
            raise
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the lock of a folder; other processes wait for it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_folder(path: str, *, durable: bool = True, mode: int = 0o777) -> None:
    """Make a folder, and those above it, if they are missing; ``durable``: they survive a power failure."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above, durable=durable, mode=mode)
    with suppress(FileExistsError):
        os.mkdir(path, mode)
    if durable:
        flush(above)


def remove_leftovers(
    folder: str, of: Callable[[str], bool] = lambda _: True, older_secs: float = LEFTOVER_SECS
) -> None:
    """Remove temporary files of processes that have died.

    Args:
        folder: the folder; nothing happens if it does not exist.
        of: whether to remove the temporary files of a name.
        older_secs: the age from which no process writes a file any more.
    """
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            name = final_name(entry.name)
            if name is not None and of(name):
                with suppress(OSError):
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime >= older_secs:
                        os.unlink(entry.path)


class LocalFiles:
    """The files of a directory of this machine, or of one that several machines share."""

    def __init__(self, directory: str, *, keeps_root: bool = True, private: bool = False) -> None:
        """Use a directory; it is made with the first write.

        Args:
            directory: its path.
            keeps_root: False: the directory exists, and if it is removed, writes fail.
            private: folders have mode 0700 and files 0600.
        """
        self.root = os.path.abspath(os.path.expanduser(directory))
        self._keeps_root = keeps_root
        self._file_mode, self._folder_mode = (0o600, 0o700) if private else (0o666, 0o777)

    def read(self, name: str) -> bytes | None:
        """See ``Files.read``."""
        try:
            with open(self._path(name), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """See ``Files.write``; Hadoop's checksum of an older content is removed."""
        path = self._path(name)
        self._make_folder_of(path, durable)
        _remove(_checksum(path))  # first: a checksum of other content is an error, a missing checksum is not
        replace(path, lambda file: file.write(data), durable=durable, mode=self._file_mode)

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """See ``Files.create``."""
        path = self._path(name)
        self._make_folder_of(path, durable)
        return create(path, lambda file: file.write(data), durable=durable, mode=self._file_mode)

    def names(self, folder: str) -> list[str]:
        """See ``Files.names``."""
        try:
            return [name for name in os.listdir(self._path(folder)) if not name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, name: str) -> None:
        """See ``Files.remove``; Hadoop's checksum of the file is removed, too."""
        path = self._path(name)
        _remove(path)
        _remove(_checksum(path))

    def listing(self, folder: str) -> dict[str, Stamp]:
        """See ``SharedFiles.listing``."""
        stamps: dict[str, Stamp] = {}
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._path(folder)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if not entry.name.startswith(".") and stat.S_ISREG(status.st_mode):
                        stamps[entry.name] = Stamp(status.st_mtime_ns, status.st_size)
        return stamps

    def exists(self, folder: str) -> bool:
        """See ``SharedFiles.exists``."""
        return os.path.isdir(self._path(folder))

    def now_ms(self) -> int | None:
        """See ``SharedFiles.now_ms``: the time that the file system gives to a file that is written now."""
        path = self._path("now")
        try:
            with _temporary(path, lambda _: None, False, self._file_mode) as temporary:
                return os.stat(temporary).st_mtime_ns // 1_000_000
        except OSError:
            return None

    def remove_leftovers(self, folder: str) -> None:
        """See ``SharedFiles.remove_leftovers``."""
        remove_leftovers(self._path(folder))

    def size(self, name: str) -> int | None:
        """The size of a file in bytes, or None if the file does not exist."""
        try:
            return os.stat(self._path(name)).st_size
        except FileNotFoundError:
            return None

    def flush(self, name: str) -> None:
        """Flush a file that another process wrote, and its folder; nothing happens if it does not exist."""
        path = self._path(name)
        for place in (path, os.path.dirname(path)):
            with suppress(FileNotFoundError):
                flush(place)

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name) if name else self.root

    def _make_folder_of(self, path: str, durable: bool) -> None:
        if self._keeps_root or os.path.isdir(self.root):
            make_folder(os.path.dirname(self.root), durable=durable)
            make_folder(os.path.dirname(path), durable=durable, mode=self._folder_mode)


def _checksum(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.crc")


def _remove(path: str) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)
