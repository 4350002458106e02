"""Rehearsal: the directory for files and messages of a topology that is only rehearsed.

It is removed with its rehearsal, or at the end of the process. A process that starts another one and will kill it
creates and removes the other's directory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

from sparkbolt.api.unsent import unsent_messages


class Rehearsal:
    """The directory of one rehearsal of a topology."""

    def __init__(self, directory: str | None = None) -> None:
        """Create the directory, or use an existing one that the caller removes."""
        self.directory = tempfile.mkdtemp(prefix="sparkbolt-rehearsal-") if directory is None else directory
        self._remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        if directory is not None:
            self._remove.detach()

    @property
    def unsent(self) -> dict[str, int]:
        """Return how many messages each component recorded instead of sending them, since ``clear``."""
        return {component: len(messages) for component, messages in unsent_messages(self.directory).items()}

    def clear(self) -> None:
        """Remove the written files, and keep the directory."""
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)

    def close(self) -> None:
        """Remove the directory, if it was created here."""
        self._remove()
