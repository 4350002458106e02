"""The mark of a directory with part files: a small file that names the checkpoint whose topology writes there.

Rule 1: the mark exists before the first part file.
Rule 2: a topology with another checkpoint replaces a mark only if the marked checkpoint is gone and the directory has
no part files. Any other mark stays until a person removes it.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from sparkbolt.base.codec import decode, encode
from sparkbolt.errors import CheckpointError
from sparkbolt.files import local

MARK = "_sparkbolt"
"""The name of the mark; Spark, pandas and pyarrow ignore names that begin with ``_``."""
_PART = re.compile(r"part-[0-9]+(\.[0-9]+)?-.+")


@dataclass(frozen=True)
class FolderMark:
    """To whom a directory belongs."""

    checkpoint_id: str
    topology: str
    checkpoint: str | None = None
    """The checkpoint's directory or URL; None if a worker made the mark, which does not know it."""
    is_lasting: bool = True
    directory: str | None = None
    """The directory that was marked; another one is a copy of it, or was moved."""
    host: str | None = None
    """The machine of the driver; None if a worker made the mark."""

    def owner(self) -> str:
        """The owner, for a message.

        >>> FolderMark("3fa9", "web", "/srv/state").owner(), FolderMark("3fa9", "web").owner()
        ("topology 'web' with checkpoint /srv/state", "topology 'web' with the checkpoint of id 3fa9")
        """
        if not self.is_lasting:
            return f"topology {self.topology!r}, which was started without a checkpoint"
        if self.checkpoint is None:
            return f"topology {self.topology!r} with the checkpoint of id {self.checkpoint_id}"
        return f"topology {self.topology!r} with checkpoint {self.checkpoint}"


def this_machine() -> str:
    """The name of this machine, as marks have it."""
    return platform.node()


def refusal(directory: str, mark: FolderMark, is_new: bool, checkpoint_at: Callable[[str], str | None]) -> str | None:
    """Why a topology must not write part files into a directory, with what to do; None if it may.

    Args:
        directory: the directory.
        mark: the mark that the topology would make.
        is_new: whether nothing was committed to the topology's checkpoint.
        checkpoint_at: see ``OutputClaim``.

    Raises:
        OSError: the directory cannot be read.
    """
    found = _read(directory)
    if isinstance(found, str):
        return found
    if found is None:
        if is_new and _has_parts(directory):
            return (
                f"{directory} has part files, and no mark {MARK} tells which topology wrote them; a new checkpoint "
                "would replace some of them: name another directory, or move these files away"
            )
        return None
    if found.checkpoint_id != mark.checkpoint_id:
        return None if _is_left(directory, found, checkpoint_at) else _refused(directory, found)
    before = found.checkpoint
    if before in (None, mark.checkpoint) or (found.host, found.directory) != (mark.host, mark.directory):
        return None
    if checkpoint_at(before) != found.checkpoint_id:
        return None
    return (
        f"{directory} belongs to {found.owner()}, and {mark.checkpoint} is a copy of that checkpoint: each would "
        f"replace the files of the other. Name another directory; or, if you continue with the copy from now on, "
        f"remove {os.path.join(directory, MARK)}"
    )


def claim(directory: str, mark: FolderMark, checkpoint_at: Callable[[str], str | None] | None = None) -> None:
    """Mark a directory, which exists; a mark of the same checkpoint is renewed if the checkpoint has moved.

    Args:
        directory: the directory.
        mark: the mark.
        checkpoint_at: see ``OutputClaim``; None on a worker, which replaces no mark.

    Raises:
        CheckpointError: the directory belongs to another checkpoint.
        OSError: the mark cannot be read or written.
    """
    path = os.path.join(directory, MARK)
    found = _read(directory)
    if found is None:
        if local.create(path, _writer(mark)):
            return
        found = _read(directory)
    if isinstance(found, str):
        raise CheckpointError(found)
    is_foreign = found is not None and found.checkpoint_id != mark.checkpoint_id
    if found is not None and is_foreign and (checkpoint_at is None or not _is_left(directory, found, checkpoint_at)):
        raise CheckpointError(_refused(directory, found))
    if checkpoint_at is not None and found != mark:
        local.replace(path, _writer(mark))


def _refused(directory: str, mark: FolderMark) -> str:
    return (
        f"{directory} belongs to {mark.owner()}, and this start with another checkpoint would replace its files: name "
        f"another directory; or, if that topology no longer writes there, move its files away and remove "
        f"{os.path.join(directory, MARK)}"
    )


def _is_left(directory: str, mark: FolderMark, checkpoint_at: Callable[[str], str | None]) -> bool:
    """Whether nobody can continue with the marked checkpoint, and its topology has left no files."""
    if mark.host != this_machine() or mark.checkpoint is None or _has_parts(directory):
        return False
    return checkpoint_at(mark.checkpoint) not in (None, mark.checkpoint_id)


def _has_parts(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(_PART.fullmatch(entry.name) for entry in entries)
    except FileNotFoundError:
        return False


def _read(directory: str) -> FolderMark | str | None:
    """The mark of a directory; None if it has none, and a sentence if it is damaged."""
    path = os.path.join(directory, MARK)
    try:
        with open(path, encoding="utf-8") as file:
            return decode(FolderMark, json.load(file))
    except FileNotFoundError:
        return None
    except ValueError:  # of JSON, and of the codec
        return f"the mark {path} is damaged: remove it if no other topology writes to {directory}"


def _writer(mark: FolderMark) -> Callable[[IO[bytes]], object]:
    return lambda file: file.write(json.dumps(encode(mark), indent=2).encode() + b"\n")
