"""Part files: one output file per task and micro-batch, or per micro-batch of a transactional topology.

Rule 1: a file's name consists of the micro-batch, the component and the task. When the micro-batch runs again, one
process receives the same rows of the task again, since a bolt with a ``flush`` is not fused.
Rule 2: a file becomes visible only when it is complete and on the disk (``files.local.replace``).
Rule 3: a task removes only its own files: its file of the same micro-batch, and its unfinished files.
Rule 4: in a transactional topology the driver writes the rows of all tasks when the micro-batch has succeeded, to a
file whose name consists of the micro-batch, which is the txid, and the component.

Rule 5: a directory belongs to one checkpoint, since another one counts micro-batches from 0 and would replace its
files. A mark in the directory names the checkpoint, and any other is refused (``folder_mark``).

A task is not called in a micro-batch without tuples for it. So if one attempt wrote a file, and the micro-batch then
runs again without a tuple for that task, the file stays. If the topology was changed meanwhile, the driver removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from sparkbolt.api.arguments import absolute_path
from sparkbolt.api.committers import CommittingBolt
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.output_claims import OutputClaim, OutputClaimer
from sparkbolt.connectors.files import folder_mark
from sparkbolt.connectors.files.folder_mark import FolderMark
from sparkbolt.errors import ConfigError, Unavailable
from sparkbolt.files import local

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


def absolute_directory(path: str | Path) -> str:
    """Return the directory as an absolute path, resolved where the topology is built.

    Raises:
        ConfigError: The path is empty or names a file.
    """
    full = absolute_path("path", path, "the name of a directory")
    if os.path.exists(full) and not os.path.isdir(full):
        raise ConfigError(f"path={full!r} is a file, expected a directory: each task writes files of its own into it")
    return full


class PartFileBolt(OutputClaimer, CommittingBolt):
    """The base of the bolts that write into a directory: they gather until ``flush``, and keep nothing.

    In a transactional topology they gather nothing: they keep rows, which the driver writes.
    """

    ignores_ticks = True
    path: str
    suffix: str
    stateless = True

    def __init__(self, path: str | Path) -> None:
        """Store the directory's path; each task creates the directory when it starts.

        Raises:
            ConfigError: ``path`` is empty, or a file.
        """
        self.path = absolute_directory(path)

    def output_refusal(self, claim: OutputClaim) -> str | None:
        """Driver: why this topology must not write into the directory; None if it may, or if it cannot be read here."""
        with contextlib.suppress(OSError):
            why = folder_mark.refusal(self.path, self._mark_of(claim), claim.is_new, claim.checkpoint_at)
            return None if why is None else f"{type(self).__name__} {claim.component!r}: {why}"
        return None

    def claim_output(self, claim: OutputClaim) -> None:
        """Driver: mark the directory; if this machine cannot write to it, the tasks do it when they start."""
        with contextlib.suppress(OSError):
            local.make_folder(self.path)
            folder_mark.claim(self.path, self._mark_of(claim), claim.checkpoint_at)

    def forget_output(self, ids: Collection[str], micro_batch_id: int) -> None:
        """Driver: remove the part files of a micro-batch that is not committed, of all tasks with these ids."""
        owners = "|".join(re.escape(quote(id_, safe="")) for id_ in ids)
        own = re.compile(rf"part-{micro_batch_id:06d}(\.[0-9]+)?-({owners})-[0-9]+{re.escape(self.suffix)}")
        with contextlib.suppress(OSError):
            for name in os.listdir(self.path):
                if own.fullmatch(name):
                    os.unlink(os.path.join(self.path, name))

    def _mark_of(self, claim: OutputClaim) -> FolderMark:
        host = folder_mark.this_machine()
        return FolderMark(claim.checkpoint_id, claim.topology, claim.checkpoint, claim.is_lasting, self.path, host)

    def _begin(self, context: TopologyContext) -> None:
        """Make the directory, with nothing gathered."""
        self._context = context
        self._commits = context.config.transactional
        if not self._commits:
            owner = f"{quote(context.component, safe='')}-{context.index}"
            self._files = PartFiles(self.path, f"{owner}{self.suffix}", context)
        self._gathered: list[Any] = []
        self._gathered_in: int | None = None

    @property
    def _is_new(self) -> bool:
        """Whether nothing is gathered yet in this micro-batch; an attempt before it may have been cut off."""
        return self._gathered_in != self._context.micro_batch_id

    def _gather(self, item: Any) -> None:
        """Gather something of this micro-batch until ``flush``."""
        if self._is_new:
            self._gathered, self._gathered_in = [], self._context.micro_batch_id
        self._gathered.append(item)

    def flush(self) -> None:
        """Write the file of the micro-batch; if every tuple failed, remove the file of an earlier attempt."""
        if self._commits:
            return
        items = [] if self._is_new else self._gathered
        self._gathered, self._gathered_in = [], None
        self._write(self._context.micro_batch_id, items)

    @abstractmethod
    def _write(self, micro_batch_id: int, items: Sequence[Any]) -> None:
        """Write the gathered rows into a file, or remove the file if there are none."""

    def begin(self, context: TopologyContext) -> None:
        """Driver: make the directory."""
        owner = quote(context.component, safe="")
        self._files = PartFiles(self.path, f"{owner}{self.suffix}", context)


@contextlib.contextmanager
def full_disk_is_away(directory: str) -> Iterator[None]:
    """Turn the error of a full disk into ``Unavailable``: no tuple is at fault, so the bolt waits for free space.

    Raises:
        Unavailable: The disk is full, the quota is exhausted, or the file system is read-only.
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
    """The files of one writer in one directory: a task, or the driver for a component."""

    def __init__(self, directory: str, owner: str, context: TopologyContext) -> None:
        """Create the directory with its mark, and remove the unfinished files of earlier attempts of this writer.

        Args:
            directory: as the user has given it.
            owner: the end of the names of the writer's files.
            context: tells whether it is a rehearsal, and which checkpoint the directory must belong to.

        Raises:
            CheckpointError: The directory belongs to another checkpoint.
            Unavailable: The disk is full or read-only.
        """
        self.directory = context.output_path(directory)
        self._owner = owner
        with full_disk_is_away(self.directory):
            local.make_folder(self.directory)
            if context.checkpoint_id and context.rehearsal_directory is None:
                folder_mark.claim(self.directory, FolderMark(context.checkpoint_id, context.topology))
            # At once, whatever their age, since only one attempt of a task runs at a time. Once per process, since
            # listing a directory with many files is slow; an attempt that fails removes its own file.
            local.remove_leftovers(self.directory, self._is_own, older_secs=0.0)

    def _is_own(self, name: str) -> bool:
        return re.fullmatch(rf"part-[0-9]+(\.[0-9]+)?-{re.escape(self._owner)}", name) is not None

    def path(self, micro_batch_id: int, piece: int = 0) -> str:
        """Return the path of one micro-batch's file, such as ``part-000012-count-0.jsonl`` in the directory."""
        number = f"{micro_batch_id:06d}.{piece}" if piece else f"{micro_batch_id:06d}"
        return os.path.join(self.directory, f"part-{number}-{self._owner}")

    def write(self, micro_batch_id: int, write: Callable[[IO[bytes]], None] | None, piece: int = 0) -> None:
        """Replace the file of a micro-batch by the output of ``write``; if ``write`` is None, remove the file.

        Args:
            micro_batch_id: the micro-batch.
            write: writes the content.
            piece: the number of the file, if the micro-batch has several.

        Raises:
            Unavailable: The disk is full or read-only; an existing file is unchanged then.
            OSError: The directory is gone or this user may not write to it.
        """
        final = self.path(micro_batch_id, piece)
        with full_disk_is_away(self.directory):
            if write is not None:
                local.replace(final, write)
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(final)
            local.flush(self.directory)
