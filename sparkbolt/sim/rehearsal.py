"""Rehearsals: where files and messages go that a topology writes while it is only tried.

Which question it answers: where do bolts write under the simulator and the test driver, and who removes that?
Rule 1: each rehearsal has a directory that nobody else has, so it changes nothing that is real, and two processes that
rehearse the same topology do not meet.
Rule 2: the directory is removed with its rehearsal, or at the end of the process. Whoever starts a process that he will
kill makes its directory, and removes it.

Read before: ``core.model.components``, ``core.model.unsent``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref

from sparkbolt.core.model.unsent import unsent_messages


class Rehearsal:
    """A directory for one try of a topology."""

    def __init__(self, directory: str | None = None) -> None:
        """Make the directory, or use one that somebody else removes."""
        self.directory = tempfile.mkdtemp(prefix="sparkbolt-rehearsal-") if directory is None else directory
        self._remove = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        if directory is not None:
            self._remove.detach()

    @property
    def unsent(self) -> dict[str, int]:
        """By component, how many messages were noted since ``clear`` in the place of being sent."""
        return {component: len(messages) for component, messages in unsent_messages(self.directory).items()}

    def clear(self) -> None:
        """Remove what was written, and keep the directory."""
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)

    def close(self) -> None:
        """Remove the directory, if it was made here."""
        self._remove()
