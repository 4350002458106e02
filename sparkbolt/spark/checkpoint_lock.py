"""The lock of a checkpoint: one driver at a time.

Rule: the JVM holds the lock, since the JVM commits: the lock ends exactly when nothing can be committed any more. The
error of a refused driver names the owner and the remedy.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sparkbolt.base.locations import local_directory
from sparkbolt.errors import CheckpointError

LOCK_WAIT_SECS = 20.0
"""How long a start waits for the lock: a JVM whose driver was killed needs a moment to end."""
_OWNER = re.compile(r"another driver \(process (\d+), its JVM is (\d+)\)")


def refuse_if_in_use(place: str | None) -> None:
    """Refuse a local checkpoint that a live driver has locked; call it before Spark starts, which takes seconds.

    A checkpoint whose driver is dead is not refused: its JVM ends while Spark starts.

    Raises:
        CheckpointError: the checkpoint is in use, belongs to another user, or has something else in place of its lock.
    """
    directory = None if place is None else local_directory(place)
    if directory is None:
        return
    file = os.path.join(directory, "lock")
    if os.path.lexists(file) and not os.path.isfile(file):  # opening a named pipe would hang
        raise CheckpointError(f"checkpoint {directory} cannot be locked: {file} is no file; remove it")
    if os.path.exists(file) and not os.access(file, os.W_OK):
        raise CheckpointError(_not_ours(directory, "its lock cannot be written"))
    if not is_locked(directory):
        return
    try:
        owner = Path(directory, "owner").read_text()
    except OSError:
        return
    match = _OWNER.fullmatch(owner)
    # This process's own id proves nothing: in containers the first process always has the id 1.
    if match and int(match[1]) != os.getpid() and all(_lives(int(pid)) for pid in match.groups()):
        raise CheckpointError(_in_use(directory, owner, held_here=False))


def is_locked(directory: str) -> bool:
    """Whether the JVM of another process holds the lock of a directory."""
    try:
        with Path(directory, "lock").open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Java uses the same kind of lock; closing releases it
    except (BlockingIOError, PermissionError):
        return True
    except OSError:  # there is no lock file, or it cannot be read
        return False
    return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return True


def lock(spark: SparkSession, directory: str, owner: str) -> Any:
    """Lock the directory from the JVM: since the JVM commits, the lock must be held exactly as long as it lives."""
    jvm: Any = spark._jvm  # pyspark has no public API for the JVM
    until = time.monotonic() + LOCK_WAIT_SECS
    while True:
        try:
            channel = jvm.java.io.RandomAccessFile(f"{directory}/lock", "rw").getChannel()
        except Py4JJavaError as error:  # its file belongs to another user, or is not a file
            raise CheckpointError(_not_ours(directory, str(error.java_exception.getMessage()))) from None
        try:
            if channel.tryLock() is not None:
                return channel
        except Py4JJavaError as error:  # this JVM itself holds it
            if error.java_exception.getClass().getSimpleName() != "OverlappingFileLockException":
                raise
            until = 0.0
        channel.close()
        refuse_if_in_use(directory)  # by a driver that started at the same time
        if time.monotonic() > until:
            raise CheckpointError(_in_use(directory, owner, held_here=until == 0.0))
        time.sleep(0.25)


def _not_ours(directory: str, why: str) -> str:
    return (
        f"checkpoint {directory} cannot be locked ({why}): run as the user to whom it belongs, where it can be "
        "written, or name another one"
    )


def _in_use(directory: str, owner: str, *, held_here: bool) -> str:
    """A sentence: who uses the checkpoint, and the remedy. ``held_here``: the JVM of this process holds the lock."""
    if held_here and f"(process {os.getpid()}," in owner:
        owner, stop = "this process", "stop the topology that runs with it (running.stop()) first"
    else:
        stop = "stop that one first"
    return (
        f"checkpoint {directory} is in use by {owner}: {stop}, or give this topology a checkpoint directory of its own"
    )
