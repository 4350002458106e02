"""Files: the operations on files that a checkpoint needs, on any file system.

Which question it answers: which operations must a file system support?

Read before: nothing.
"""

from __future__ import annotations

from typing import Protocol


class Files(Protocol):
    """The operations on files that a checkpoint needs; names are relative to the checkpoint's folder."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if the file does not exist."""

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file; a file of that name is replaced atomically."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file; return False and write nothing if the file exists."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; an empty list if the folder does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
