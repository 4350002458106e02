"""Memory files: the files of the simulator and of tests."""

from __future__ import annotations


class MemoryFiles:
    """Files in the memory of this process."""

    def __init__(self) -> None:
        """Start without files."""
        self.files: dict[str, bytes] = {}

    def before_change(self) -> None:
        """Called before a file is written or removed; if a subclass raises here, nothing changes."""

    def read(self, name: str) -> bytes | None:
        """See ``Files.read``."""
        return self.files.get(name)

    def create(self, name: str, data: bytes) -> bool:
        """See ``Files.create``."""
        self.before_change()
        return self.files.setdefault(name, data) is data

    def write(self, name: str, data: bytes) -> None:
        """See ``Files.write``."""
        self.before_change()
        self.files[name] = data

    def names(self, folder: str) -> list[str]:
        """See ``Files.names``."""
        start = f"{folder}/" if folder else ""
        below = (name[len(start) :].partition("/")[0] for name in self.files if name.startswith(start))
        return list(dict.fromkeys(name for name in below if not name.startswith(".")))

    def remove(self, name: str) -> None:
        """See ``Files.remove``."""
        self.before_change()
        self.files.pop(name, None)
