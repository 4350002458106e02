"""Arrow files: files on any file system of pyarrow, such as S3, GCS and HDFS."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from sparkbolt.files.local import final_name, temporary_name
from sparkbolt.files.shared import LEFTOVER_SECS, Stamp

_OBJECT_STORES = ("s3", "gcs", "abfs")
"""File systems where an object appears complete when it is closed."""


class ArrowFiles:
    """The files below a path of a file system of pyarrow.

    A file is as durable as the file system makes it when it is closed.
    """

    def __init__(self, system: Any, path: str) -> None:
        """Use the directory ``path`` of the file system; it is made with the first write."""
        self._system, self._path = system, path.rstrip("/")

    def read(self, name: str) -> bytes | None:
        """See ``Files.read``."""
        try:
            with self._system.open_input_stream(self._at(name)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """See ``Files.write``; it is always durable."""
        final = self._at(name)
        folder, _, base = final.rpartition("/")
        self._system.create_dir(folder, recursive=True)
        if self._system.type_name in _OBJECT_STORES:
            self._put(final, data)
            return
        temporary = f"{folder}/{temporary_name(base)}"
        try:
            self._put(temporary, data)
            self._system.move(temporary, final)
        except BaseException:
            with suppress(OSError):
                self._system.delete_file(temporary)
            raise

    def _put(self, path: str, data: bytes) -> None:
        with self._system.open_output_stream(path) as stream:
            stream.write(data)

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """See ``Files.create``; two writers at the same moment may both succeed, since pyarrow has no locks."""
        if self.read(name) is not None:
            return False
        self.write(name, data)
        return self.read(name) == data

    def names(self, folder: str) -> list[str]:
        """See ``Files.names``."""
        return [info.base_name for info in self._infos(folder) if not info.base_name.startswith(".")]

    def listing(self, folder: str) -> dict[str, Stamp]:
        """See ``SharedFiles.listing``."""
        return {
            info.base_name: Stamp(info.mtime_ns or 0, info.size or 0)
            for info in self._infos(folder)
            if info.is_file and not info.base_name.startswith(".")
        }

    def _infos(self, folder: str) -> list[Any]:
        from pyarrow import fs

        infos: list[Any] = self._system.get_file_info(fs.FileSelector(self._at(folder), allow_not_found=True))
        return infos

    def exists(self, folder: str) -> bool:
        """See ``SharedFiles.exists``: an object store has no folders."""
        return True

    def remove(self, name: str) -> None:
        """See ``Files.remove``."""
        with suppress(FileNotFoundError):
            self._system.delete_file(self._at(name))

    def now_ms(self) -> int | None:
        """See ``SharedFiles.now_ms``: unknown, because each request would write an object."""
        return None

    def remove_leftovers(self, folder: str) -> None:
        """See ``SharedFiles.remove_leftovers``."""
        for info in self._infos(folder):
            old = time.time() - (info.mtime_ns or 0) / 1e9 >= LEFTOVER_SECS
            if old and final_name(info.base_name) is not None:
                with suppress(OSError):
                    self._system.delete_file(info.path)

    def _at(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path
