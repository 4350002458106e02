"""Scratch: the temporary folders of this process, and those that dead processes have left.

A folder is in use as long as the process that made it lives. This process holds a lock on a file in the folder, and the
kernel releases the lock however the process dies. A folder gets its final name only after its lock is held, and a
folder without such a file is never removed. A folder that a message to the user has named (Spark's log) stays for some
days after its process ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

PREFIX = "sparkbolt-"
KEPT_SECS = 7 * 24 * 3600.0
"""How long a folder that a message has named stays after its process ended."""
_LOCK = ".sparkbolt-scratch"
_KEPT = ".kept"
_held: dict[str, int] = {}
"""The folders of this process, with the file descriptors of their locks."""


def make(kind: str = "") -> str:
    """Make a folder with mode 0700 and return its path; it is in use until ``remove`` or the end of this process."""
    new = tempfile.mkdtemp(prefix=f".{PREFIX}")
    lock = os.open(os.path.join(new, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    head, random = os.path.split(new)
    path = os.path.join(head, f"{PREFIX}{kind}{random.removeprefix(f'.{PREFIX}')}")
    os.rename(new, path)
    _held[path] = lock
    return path


def remove(path: str) -> None:
    """Remove a folder that ``make`` returned; nothing happens if it does not exist."""
    shutil.rmtree(path, ignore_errors=True)
    lock = _held.pop(path, None)
    if lock is not None:
        os.close(lock)


def keep(path: str) -> None:
    """Let ``sweep`` keep the folder for ``KEPT_SECS``, because a message has named it to a user."""
    Path(path, _KEPT).touch()


def sweep() -> list[str]:
    """Remove the folders that dead processes of this user have left; returns their paths, sorted."""
    gone = []
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(PREFIX) and entry.path not in _held]
    for path in found:
        try:
            if _was_left(path):
                shutil.rmtree(path, ignore_errors=True)
                gone.append(path)
        except OSError:  # another process removes it, or it is not Sparkbolt's
            continue
    return sorted(gone)


def _was_left(path: str) -> bool:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return False
    lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if the process that made it lives
        kept = Path(path, _KEPT)
        return not kept.exists() or time.time() - kept.stat().st_mtime > KEPT_SECS
    finally:
        os.close(lock)
