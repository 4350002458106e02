"""Files: what a checkpoint does with files, wherever they are.

Which question it answers: which few things must a file system be able to do?

Read before: nothing.
"""

from __future__ import annotations

from typing import Protocol


class Files(Protocol):
    """The few things that a checkpoint does with files; names are relative to it."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole, replacing it atomically."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that must not be there yet; False, and nothing written, if it is."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file that may or may not be there."""
