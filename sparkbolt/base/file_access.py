"""Files: what the engine expects of a file system; ``sparkbolt.files`` implements it.

Names are relative to a root and may have folders. A name that begins with a dot is hidden.
"""

from __future__ import annotations

from typing import Protocol


class Files(Protocol):
    """The operations on files that a checkpoint needs; missing folders are made by ``write`` and ``create``."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None if the file does not exist."""

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file durably and replace an older one atomically; if it fails, nothing changes."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a new file durably; return False and write nothing if the file exists."""

    def names(self, folder: str) -> list[str]:
        """Return the names of files and folders in a folder, without hidden ones; none if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
