"""Checkpoint files: the files of a checkpoint, for commands that inspect one without its topology.

Which question it answers: how does a command read a checkpoint, or write to it, without its topology?
Rule: for a local directory neither Spark nor Java starts.

Read before: ``core.driver.ledger.files``.
"""

from __future__ import annotations

import os
from pathlib import Path

from sparkbolt.core.base.files import Files
from sparkbolt.core.base.locations import local_directory
from sparkbolt.core.driver.ledger.files import check_format
from sparkbolt.errors import InvariantError, WrongUseError


class LocalDirectory:
    """A local checkpoint, only for reading; it implements the ``Files`` protocol."""

    def __init__(self, directory: str) -> None:
        """Use the files below ``directory``."""
        self._root = Path(directory)

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if there is none."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""
        try:
            return os.listdir(self._root / folder)
        except FileNotFoundError:
            return []

    def write(self, name: str, data: bytes) -> None:
        """Not allowed in a checkpoint that is only read."""
        raise InvariantError(f"{name} ({len(data)} bytes) is written to a checkpoint that is only read")

    def create(self, name: str, data: bytes) -> bool:
        """Not allowed in a checkpoint that is only read."""
        raise InvariantError(f"{name} ({len(data)} bytes) is made in a checkpoint that is only read")

    def remove(self, name: str) -> None:
        """Not allowed in a checkpoint that is only read."""
        raise InvariantError(f"{name} is removed from a checkpoint that is only read")


class WritableDirectory(LocalDirectory):
    """A local checkpoint that is repaired, or in which the ids of replayed dead letters are stored."""

    def write(self, name: str, data: bytes) -> None:
        """Write a complete file, flushed to the disk, and replace an older one atomically."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that must not exist yet; False if it exists."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it exists, and Hadoop's checksum of it."""
        path = self._root / name
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def open_files(directory: str, *, write: bool = False) -> Files:
    """The files of a checkpoint, for reading; with ``write`` they may be changed.

    Raises:
        WrongUseError: there is no such directory.
        CheckpointError: the checkpoint has another format.
    """
    files = _files_at(directory, write=write)
    check_format(files, f"checkpoint {directory}")
    return files


def _files_at(directory: str, *, write: bool) -> Files:
    path = local_directory(directory)
    if path is not None:
        if not os.path.isdir(path):
            raise WrongUseError(f"there is no directory {path}: give the one that run was given as --checkpoint")
        return WritableDirectory(path) if write else LocalDirectory(path)
    from sparkbolt.spark.checkpoint import hadoop_files
    from sparkbolt.spark.session import make_session

    return hadoop_files(make_session("sparkbolt", "local[1]", None), directory, make=False)
