"""Home files: the few operations on files that the registry needs, on a disk or on any file system of pyarrow.

Which question it answers: how is a small file written so that no reader ever sees half of it?
Rule 1: folders have mode 0700 and files 0600. A file is written under another name and renamed; on a store of objects,
which has no modes, an object appears complete or not at all.
Rule 2: a missing folder is made again with the next write: somebody may have removed it meanwhile.

Read before: nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from sparkbolt.errors import ConfigError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
LEFT_OVER_SECS = 3600.0
"""An unfinished file that is older than this was left by a process that has died."""


class Seen(tuple[int, int]):
    """(modified, size) of a file: it has changed if this has; ``modified`` is in nanoseconds since the epoch."""


class HomeFiles(Protocol):
    """The operations on files of a home; names are relative to it, with at most one folder."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Write a complete file and replace an older one at once; ``durable``: it is on the disk afterwards."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that must not exist yet; False if it exists."""

    def listing(self, folder: str) -> dict[str, Seen]:
        """The names of the files in a folder, with what shows whether they changed; none if there is no folder."""

    def exists(self, folder: str) -> bool:
        """Whether a folder, or the home itself (an empty name), is there; True where folders need not exist."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    def now_ms(self) -> int | None:
        """The time by the clock that ``listing`` tells; None if that cannot be known."""


def open_home(place: str) -> HomeFiles:
    """The files of a home: a path, or a URL of a file system that pyarrow knows.

    Raises:
        ConfigError: the URL names no file system that can be used.
    """
    match = _URL.match(place)
    if match is None or match[1].lower() == "file":
        return DiskFiles(place[len(match[0]) :] if match else place)
    from pyarrow import ArrowException, fs

    try:
        system, path = fs.FileSystem.from_uri(place)
    except (ArrowException, OSError, ValueError) as error:
        raise ConfigError(
            f"SPARKBOLT_HOME is {place!r}, which cannot be used: {error}. Expected a directory, or a URL of a file "
            "system that pyarrow knows, such as s3://bucket/sparkbolt"
        ) from error
    return ArrowFiles(system, path)


class DiskFiles:
    """A home in a directory of this machine, or one that several machines share."""

    def __init__(self, directory: str) -> None:
        """Use a directory; it is made with the first write."""
        self.root = Path(os.path.abspath(os.path.expanduser(directory)))

    def read(self, name: str) -> bytes | None:
        """See ``HomeFiles.read``."""
        try:
            return (self.root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """See ``HomeFiles.write``."""
        path = self._with_folder(name)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            self._fill(temporary, os.O_TRUNC, data, durable)
            temporary.replace(path)
        except OSError:  # a full disk: the incomplete file only takes space
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def create(self, name: str, data: bytes) -> bool:
        """See ``HomeFiles.create``: a link to a complete file, which exists once or not at all."""
        path = self._with_folder(name)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        self._fill(temporary, os.O_TRUNC, data, durable=False)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return self._created_without_link(path, data)
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _created_without_link(self, path: Path, data: bytes) -> bool:
        try:
            self._fill(path, os.O_EXCL, data, durable=False)
        except FileExistsError:
            return False
        return True

    def listing(self, folder: str) -> dict[str, Seen]:
        """See ``HomeFiles.listing``; unfinished files that were left are removed."""
        found: dict[str, Seen] = {}
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        if not entry.name.startswith(".") and stat.S_ISREG(status.st_mode):
                            found[entry.name] = Seen((status.st_mtime_ns, status.st_size))
                        elif entry.name.endswith(".tmp") and time.time() - status.st_mtime > LEFT_OVER_SECS:
                            os.unlink(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return found

    def exists(self, folder: str) -> bool:
        """See ``HomeFiles.exists``."""
        return (self.root / folder).is_dir()

    def remove(self, name: str) -> None:
        """See ``HomeFiles.remove``."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (self.root / name).unlink()

    def now_ms(self) -> int | None:
        """See ``HomeFiles.now_ms``: the time that the file system gives to a file that is written now."""
        path = self.root / f".now.{os.getpid()}-{threading.get_ident()}.tmp"
        try:
            self._fill(path, os.O_TRUNC, b"", durable=False)
            return path.stat().st_mtime_ns // 1_000_000
        except OSError:
            return None
        finally:
            with contextlib.suppress(OSError):
                path.unlink()

    def _with_folder(self, name: str) -> Path:
        path = self.root / name
        for folder in (self.root, path.parent):
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    @staticmethod
    def _fill(path: Path, flags: int, data: bytes, durable: bool) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flags, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(descriptor)


class ArrowFiles:
    """A home on a file system of pyarrow: S3, GCS, HDFS and others."""

    def __init__(self, system: Any, path: str) -> None:
        """Use the directory ``path`` of the file system; it is made with the first write."""
        self._system, self._path = system, path.rstrip("/")

    def read(self, name: str) -> bytes | None:
        """See ``HomeFiles.read``."""
        try:
            with self._system.open_input_stream(self._at(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """See ``HomeFiles.write``; it is always durable."""
        final = self._at(name)
        self._system.create_dir(final.rpartition("/")[0], recursive=True)
        if self._system.type_name in ("s3", "gcs", "abfs"):  # an object appears when it is closed
            self._put(final, data)
            return
        temporary = f"{final.rpartition('/')[0]}/.{name.rpartition('/')[2]}.{os.getpid()}-{threading.get_ident()}.tmp"
        self._put(temporary, data)
        self._system.move(temporary, final)

    def _put(self, path: str, data: bytes) -> None:
        with self._system.open_output_stream(path) as stream:
            stream.write(data)

    def create(self, name: str, data: bytes) -> bool:
        """See ``HomeFiles.create``; two writers at the same moment may both succeed: such a store has no locks."""
        if self.read(name) is not None:
            return False
        self.write(name, data)
        return self.read(name) == data

    def listing(self, folder: str) -> dict[str, Seen]:
        """See ``HomeFiles.listing``."""
        from pyarrow import fs

        infos = self._system.get_file_info(fs.FileSelector(self._at(folder), allow_not_found=True))
        return {
            info.base_name: Seen((info.mtime_ns or 0, info.size or 0))
            for info in infos
            if info.type == fs.FileType.File and not info.base_name.startswith(".")
        }

    def exists(self, folder: str) -> bool:
        """See ``HomeFiles.exists``: a store of objects has no folders."""
        return True

    def remove(self, name: str) -> None:
        """See ``HomeFiles.remove``."""
        with contextlib.suppress(FileNotFoundError):
            self._system.delete_file(self._at(name))

    def now_ms(self) -> int | None:
        """See ``HomeFiles.now_ms``: not known, since each look would write an object."""
        return None

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}"
