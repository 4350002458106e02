"""Shared files: what readers need of a folder that other processes and machines write to."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sparkbolt.base.file_access import Files

LEFTOVER_SECS = 3600.0
"""A temporary file that is older than this was left by a process that has died."""


class Stamp(NamedTuple):
    """A file has changed if its stamp has."""

    modified_ns: int
    """In nanoseconds since the epoch, by the clock of the file system."""
    size: int


class SharedFiles(Files, Protocol):
    """``Files`` with stamps that show when a file changed."""

    def write(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """See ``Files.write``; ``durable=False``: the file may be lost in a power failure."""

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bool:
        """See ``Files.create``; ``durable=False``: the file may be lost in a power failure."""

    def listing(self, folder: str) -> dict[str, Stamp]:
        """Return the files in a folder with their stamps, without subfolders and hidden files."""

    def exists(self, folder: str) -> bool:
        """Return whether a folder, or the root (an empty name), exists; True where folders need not exist."""

    def now_ms(self) -> int | None:
        """Return the time by the clock of the stamps; None if it is unknown."""

    def remove_leftovers(self, folder: str) -> None:
        """Remove the temporary files of processes that have died."""
