"""Checkpoint files: opens the files of a checkpoint for commands that work without its topology.

For a local directory neither Spark nor Java starts.
"""

from __future__ import annotations

import os

from sparkbolt.base.file_access import Files
from sparkbolt.base.locations import local_directory
from sparkbolt.driver.ledger.ledger_files import check_format
from sparkbolt.errors import InvariantError, WrongUseError
from sparkbolt.files.local import LocalFiles


class ReadOnlyFiles:
    """A guard for commands that only inspect a checkpoint: the same files, without a way to change them."""

    def __init__(self, files: Files) -> None:
        """Read ``files``."""
        self.read, self.names = files.read, files.names

    def write(self, name: str, data: bytes) -> None:
        """Not allowed."""
        raise InvariantError(f"{name} ({len(data)} bytes) is written to files that are only read")

    def create(self, name: str, data: bytes) -> bool:
        """Not allowed."""
        raise InvariantError(f"{name} ({len(data)} bytes) is created in files that are only read")

    def remove(self, name: str) -> None:
        """Not allowed."""
        raise InvariantError(f"{name} is removed from files that are only read")


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
    files: Files
    if path is not None:
        if not os.path.isdir(path):
            raise WrongUseError(f"there is no directory {path}: give the one that run was given as --checkpoint")
        files = LocalFiles(path, keeps_root=False)
    else:
        from sparkbolt.spark.checkpoint import hadoop_files
        from sparkbolt.spark.session import make_session

        files = hadoop_files(make_session("sparkbolt", "local[1]", None), directory, make=False)
    return files if write else ReadOnlyFiles(files)
