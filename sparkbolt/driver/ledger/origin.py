"""CopyOrigin: of which checkpoint a checkpoint is a copy, and which of the two goes on.

    DIR/origin     in a copy: the checkpoint that was copied, and what the copy is for
    DIR/succeeded  in the checkpoint that was copied: the copy that goes on instead of it

Rule 1: a copy has its file ``origin`` before anything else, and its file ``format``, without which nothing starts with
it, after everything else.
Rule 2: a copy is started only with a role. If it goes on instead of the other checkpoint, that one is not started any
more: the file ``succeeded`` exists before the copy begins a life.
Rule 3: only one of two checkpoints commits under one id. A copy that goes on after the last commit of the other one
takes over its id, since everything that was committed outside is noted under this id; any other copy has its own.
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass, replace

from sparkbolt.base.codec import MismatchError, decode, encode
from sparkbolt.base.file_access import Files
from sparkbolt.base.words import Word
from sparkbolt.errors import CheckpointError

ORIGIN_FILE = "origin"
SUCCEEDED_FILE = "succeeded"
SAVEPOINTS_FOLDER = "savepoints"


class CopyRole(Word):
    """What a copy of a checkpoint is for."""

    SAVEPOINT = "savepoint"
    """It is kept, and never started itself: ``--from`` copies it."""
    INSTEAD = "instead"
    """Its topology goes on instead of the other one."""
    BESIDE = "beside"
    """Its topology goes on beside the other one."""


@dataclass(frozen=True)
class CopyOrigin:
    """What a copy is a copy of."""

    checkpoint_id: str
    """The id of the checkpoint that was copied; that of a savepoint's topology, if a savepoint was copied."""
    place: str
    """Its directory or URL."""
    host: str
    """The machine on which it was copied."""
    micro_batch_id: int
    """The last micro-batch of the copy."""
    copied_from: str
    """The directory or URL that was copied: ``place``, or that of a savepoint."""
    role: CopyRole | None = None
    """None: nobody has decided yet."""

    @property
    def is_here(self) -> bool:
        """Whether the path of the other checkpoint means the same on this machine."""
        return self.host == platform.node()

    def to_bytes(self) -> bytes:
        """The content of its file."""
        return json.dumps(encode(self), indent=2).encode()


def origin_of(files: Files, where: str) -> CopyOrigin | None:
    """What a checkpoint is a copy of; None if it is no copy.

    Raises:
        CheckpointError: the file is damaged.
    """
    data = files.read(ORIGIN_FILE)
    if data is None:
        return None
    try:
        return decode(CopyOrigin, json.loads(data))
    except (ValueError, MismatchError) as error:
        raise CheckpointError(f"{where}: the file {ORIGIN_FILE!r} is damaged ({error}): make the copy again") from None


def store_role(files: Files, origin: CopyOrigin, role: CopyRole) -> CopyOrigin:
    """Store the role of a copy, and return its origin with it."""
    decided = replace(origin, role=role)
    files.write(ORIGIN_FILE, decided.to_bytes())
    return decided


def successor_of(files: Files) -> str | None:
    """The place of the copy that goes on instead of a checkpoint; None if there is none."""
    data = files.read(SUCCEEDED_FILE)
    return None if data is None else data.decode(errors="replace")


def check_not_succeeded(files: Files, where: str) -> None:
    """Refuse a checkpoint instead of which a copy goes on.

    Raises:
        CheckpointError: there is such a copy.
    """
    successor = successor_of(files)
    if successor is not None:
        raise CheckpointError(
            f"{where}: its topology goes on with {successor}, which is a copy of it: start it with that one. If the "
            f"copy is never used again, remove the file {SUCCEEDED_FILE!r}; what it has done since is then done again"
        )
