"""One file for each task and micro-batch.

Which question it answers: how is output written so that a micro-batch that runs again replaces what it wrote?

Rule 1: a file's name is made of the micro-batch, the component and the task. That names one piece of work: a bolt with
a ``flush`` is not fused, so all rows of one of its tasks in a micro-batch come in one piece to one process, however
many spouts and processes they come from; and when the micro-batch runs again, the same rows come in one piece again.
Rule 2: a file appears whole: it is written under a name that begins with ``.``, forced to the disk, then
renamed.
Rule 3: a task removes only what is its own: its file of the same micro-batch, and its unfinished files.
Rule 4: in a rehearsal nothing is written to the directory itself (``TopologyContext.output_path``).

What remains possible: a task learns nothing of a micro-batch that gives it no tuples. If an attempt wrote a
file, and the micro-batch is then repeated without any tuple for that task, the file stays. That takes a
topology that is not the same when it runs again, or a ``Spout`` whose records died with the driver; those are
given again under a later micro-batch, so their rows stand twice. One directory belongs to one checkpoint: a
new checkpoint counts micro-batches from 0 again and would replace files of the old one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import quote

from sparkbolt.core.model import arguments
from sparkbolt.core.model.components import TopologyContext
from sparkbolt.errors import ConfigError, Unavailable

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_UNFINISHED = re.compile(r"\.part-[0-9]+-.*\.tmp")


def absolute_directory(path: str | Path) -> str:
    """The directory as an absolute path, made where the topology is built.

    Raises:
        ConfigError: it is empty, or is a file.
    """
    full = arguments.absolute("path", path, "the name of a directory")
    if os.path.exists(full) and not os.path.isdir(full):
        raise ConfigError(f"path={full!r} is a file, expected a directory: each task writes files of its own into it")
    return full


class WritesPartFiles:
    """What the bolts have in common that write into a directory: they gather until ``flush``, and keep nothing."""

    path: str

    def __init__(self, path: str | Path) -> None:
        """Keep the directory, which is made when a task starts.

        Raises:
            ConfigError: ``path`` is empty, or a file.
        """
        self.path = absolute_directory(path)

    def _begin(self, context: TopologyContext, suffix: str) -> None:
        """Make the directory, with nothing gathered."""
        self._context = context
        self._files = PartFiles(self.path, suffix, context)
        self._gathered = -1


@contextlib.contextmanager
def full_disk_is_away(directory: str) -> Iterator[None]:
    """A disk without room is no tuple's trouble: whoever writes waits until there is some.

    Raises:
        Unavailable: the disk is full, the quota is used up, or it can only be read.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise Unavailable(
            f"nothing can be written to {directory} ({error.strerror}): make room there; it goes on by itself then"
        ) from error


class PartFiles:
    """The files of one task in one directory."""

    def __init__(self, directory: str, suffix: str, context: TopologyContext) -> None:
        """Make the directory, and remove what attempts of this task left unfinished."""
        self.directory = context.output_path(directory)
        self._owner = f"{quote(context.component, safe='')}-{context.index}{suffix}"
        with full_disk_is_away(self.directory):
            os.makedirs(self.directory, exist_ok=True)
            self._remove_unfinished()

    def path(self, micro_batch_id: int) -> str:
        """The name of the file of one micro-batch: ``part-000012-count-0.jsonl``."""
        return os.path.join(self.directory, f"part-{micro_batch_id:06d}-{self._owner}")

    def write(self, micro_batch_id: int, write: Callable[[IO[bytes]], None] | None) -> None:
        """Replace the file of a micro-batch by what ``write`` writes; with None, leave no file.

        Raises:
            Unavailable: the disk is full, or cannot be written; the file that was there is unchanged then.
            OSError: the directory is gone, or is somebody else's.
        """
        final = self.path(micro_batch_id)
        with full_disk_is_away(self.directory):
            if write is None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(final)
            else:
                self._replace(final, write)
            self._sync_directory()

    def _replace(self, final: str, write: Callable[[IO[bytes]], None]) -> None:
        unfinished = os.path.join(self.directory, f".{os.path.basename(final)}.{os.getpid()}.tmp")
        try:
            with open(unfinished, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, final)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise

    def _remove_unfinished(self) -> None:
        """Remove unfinished files of this task: only one attempt of a task runs at a time.

        Once a process is enough: a listing costs time where there are many files, and an attempt that fails
        without taking its process with it removes its file itself.
        """
        for name in os.listdir(self.directory):
            if _UNFINISHED.fullmatch(name) and name.split("-", 2)[2].startswith(f"{self._owner}."):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, name))

    def _sync_directory(self) -> None:
        """Make the rename outlive a power cut."""
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
