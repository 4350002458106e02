"""Succession: at the start with a copy of a checkpoint, which of the two topologies goes on.

Two topologies that go on from one checkpoint would commit to the same consumer groups and tables. So a start with a
copy needs a role (``CopyRole``), and says what both would use.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

from pyspark.sql import SparkSession

from sparkbolt.api.topology import Topology
from sparkbolt.base.file_access import Files
from sparkbolt.base.locations import local_directory
from sparkbolt.control.description import Description, used_outside
from sparkbolt.driver.ledger.generations import SparkLog
from sparkbolt.driver.ledger.ledger_files import FORMAT_FILE, begin_life
from sparkbolt.driver.ledger.origin import (
    SUCCEEDED_FILE,
    CopyOrigin,
    CopyRole,
    check_not_succeeded,
    origin_of,
    store_role,
    successor_of,
)
from sparkbolt.errors import CheckpointError
from sparkbolt.files.local import LocalFiles
from sparkbolt.spark.checkpoint import Checkpoint, identity_in
from sparkbolt.spark.checkpoint_copy import Copying, Place
from sparkbolt.spark.checkpoint_lock import is_locked

log = logging.getLogger("sparkbolt")


def shared_outside(topology: Topology, files: Files) -> list[str]:
    """What the topology uses outside and the one that was copied used, too, as far as their components say so."""
    before = set(Description.read(files).uses.values())
    return [f"{name!r} ({what})" for name, what in used_outside(topology).items() if what in before]


def undecided(topology: Topology, files: Files, origin: CopyOrigin, where: str) -> str:
    """The refusal of a start with a copy whose role nobody has decided.

    Args:
        topology: the topology that would start.
        files: those of the copy, or of what would be copied.
        origin: what it is a copy of.
        where: the copy, for the message.
    """
    shared = shared_outside(topology, files)
    both = f"both use {' and '.join(shared)}" if shared else "no component says that both use the same outside"
    return (
        f"{where} is a copy of {origin.place} after micro-batch {origin.micro_batch_id}, so say which of the two goes "
        f"on. With --instead (copy='instead') this one does, and the other one is never started again. With --beside "
        f"(copy='beside') both do: {both}; look at your own code, too"
    )


def begin_from(savepoint: str, directory: str, session: Callable[[], SparkSession]) -> None:
    """Begin a checkpoint as a copy of a savepoint, or of a checkpoint that no driver uses; once.

    A start with a checkpoint that was begun from the same savepoint goes on with it.

    Raises:
        CheckpointError: the copy is not whole, or there is no checkpoint to copy.
        WrongUseError: something else is in the directory.
    """
    source, target = Place(savepoint, session), Place(directory, session)
    if target.files.read(FORMAT_FILE) is not None:
        origin = origin_of(target.files, target.where)
        if origin is not None and origin.copied_from == source.directory:
            return
        raise CheckpointError(
            f"{target.where} exists, and was not begun from {source.directory}: name a new directory, or start without "
            "--from to go on with it"
        )
    check_copied(source)
    Copying(source, target).run(log.info)


def refuse_undecided(topology: Topology, savepoint: str | None, directory: str | None, role: str | None) -> None:
    """Refuse a start with a local copy whose role nobody has decided, before Spark starts and anything is copied.

    Raises:
        CheckpointError: see ``decide``.
    """
    path = None if directory is None else local_directory(directory)
    if path is None:
        return
    files, where = LocalFiles(path), f"checkpoint {path}"
    if files.read(FORMAT_FILE) is not None:
        check_not_succeeded(files, where)
        why = refusal(topology, files, origin_of(files, where), role, where)
    elif savepoint is not None and local_directory(savepoint) is not None:
        source = Place(savepoint, _no_session)
        check_copied(source)
        why = refusal(topology, source.files, Copying(source, source).origin(), role, where)
    else:
        return
    if why is not None:
        raise CheckpointError(why)


def _no_session() -> SparkSession:
    raise AssertionError("a local directory needs no session")


def check_copied(source: Place) -> None:
    """Check, before it is copied, that a checkpoint is whole and that no driver of this machine uses it.

    Raises:
        CheckpointError: it is not.
    """
    if source.files.read(FORMAT_FILE) is None:
        raise CheckpointError(f"{source.directory} is not a checkpoint, or a copy that was broken off")
    if source.path is not None and is_locked(source.path):
        raise CheckpointError(
            f"{source.where} is in use: `sparkbolt savepoint` copies it while its topology runs; or stop it first"
        )


def decide(held: Checkpoint, topology: Topology, role: str | None, session: SparkSession) -> None:
    """Find out whether a checkpoint is a copy, and let it begin in its role; called before anything is read of it.

    Raises:
        CheckpointError: the start must not happen, or needs a decision.
    """
    where = f"checkpoint {held.directory}"
    check_not_succeeded(held.files, where)
    origin = origin_of(held.files, where)
    why = refusal(topology, held.files, origin, role, where)
    if why is not None:
        raise CheckpointError(why)
    if origin is None or origin.role is not None:
        return
    for shared in shared_outside(topology, held.files) if role == CopyRole.BESIDE else ():
        log.warning("%s is a copy of %s, and both use %s", where, origin.place, shared)
    if role == CopyRole.INSTEAD:
        _succeed(held, origin, session)
    store_role(held.files, origin, CopyRole.of(role or ""))


def refusal(topology: Topology, files: Files, origin: CopyOrigin | None, role: str | None, where: str) -> str | None:
    """Why a start with a checkpoint, copy or not, is refused for its role; None if it is not."""
    if origin is None:
        is_wrong = role is not None
        return f"{where} is no copy of another one: start it without --{role} (copy={role!r})" if is_wrong else None
    if origin.role == CopyRole.SAVEPOINT:
        return f"{where} is a savepoint, which stays as it is: begin another checkpoint from it (--from)"
    if origin.role is None:
        return undecided(topology, files, origin, where) if role is None else None
    if role in (None, origin.role):
        return None
    return f"{where} was begun {origin.role} of {origin.place}, which cannot be changed: copy that one again"


def _succeed(held: Checkpoint, origin: CopyOrigin, session: SparkSession) -> None:
    """Let a copy go on instead of the checkpoint that was copied."""
    files, is_last = _original(origin, session), True
    if files is not None:
        successor = successor_of(files)
        if successor not in (None, held.directory):
            raise CheckpointError(
                f"{successor} goes on instead of checkpoint {origin.place} already: only one copy may"
            )
        if successor is None:
            begin_life(files, uuid.uuid4().hex)  # a driver elsewhere that still uses it counts nothing any more
        is_last = SparkLog(files).last_commit == origin.micro_batch_id
        files.write(SUCCEEDED_FILE, held.directory.encode())
    if is_last:
        held.files.write("identity", origin.checkpoint_id.encode())
    else:
        log.warning(
            "checkpoint %s: %s had gone on after micro-batch %d: what it has written since is written again",
            held.directory,
            origin.place,
            origin.micro_batch_id,
        )


def _original(origin: CopyOrigin, session: SparkSession) -> Files | None:
    """The files of the checkpoint that was copied; None if it is gone, or cannot be reached from here.

    Raises:
        CheckpointError: a driver of this machine uses it.
    """
    is_local = local_directory(origin.place) is not None
    try:
        place = Place(origin.place, lambda: session)
    except CheckpointError as error:
        log.warning("%s: see to it that its topology is not started again", error)
        return None
    if (is_local and not origin.is_here) or identity_in(place.files) != origin.checkpoint_id:
        log.warning("%s is not here: see to it that its topology is not started again", place.where)
        return None
    if place.path is not None and is_locked(place.path):
        raise CheckpointError(f"{place.where} is in use: stop its topology before a copy goes on instead of it")
    return place.files
