"""Scratch: folders that this process needs for a while, and those that dead processes have left.

Which question it answers: what of ``/tmp/sparkbolt-*`` is still needed?
Rule 1: a folder is in use as long as its maker lives: it holds a lock on a file in it, which dies with it however it
dies. A folder without such a file is somebody else's, whatever its name, and stays.
Rule 2: a folder gets its name when its lock is held, so nobody takes one that is being made for one that was left.
Rule 3: what somebody was told of (Spark's log) outlives its maker for some days.

Read before: nothing.
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
"""How long a folder stays that somebody was told of."""
_LOCK = ".sparkbolt-scratch"
_KEPT = ".kept"
_held: dict[str, int] = {}
"""The folders of this process, with the descriptors of their locks."""


def make(kind: str = "") -> str:
    """A new folder, for its owner alone (0700), until ``remove`` or the end of this process; its path."""
    new = tempfile.mkdtemp(prefix=f".{PREFIX}")
    lock = os.open(os.path.join(new, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    head, random = os.path.split(new)
    path = os.path.join(head, f"{PREFIX}{kind}{random.removeprefix(f'.{PREFIX}')}")
    os.rename(new, path)
    _held[path] = lock
    return path


def remove(path: str) -> None:
    """Remove a folder that was made here; nothing happens if it is gone."""
    shutil.rmtree(path, ignore_errors=True)
    lock = _held.pop(path, None)
    if lock is not None:
        os.close(lock)


def keep(path: str) -> None:
    """Somebody was told of what is in the folder: it stays for some days."""
    Path(path, _KEPT).touch()


def sweep() -> list[str]:
    """Remove what processes of this user have left that are dead; the paths of it."""
    gone = []
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(PREFIX) and entry.path not in _held]
    for path in found:
        try:
            if _was_left(path):
                shutil.rmtree(path, ignore_errors=True)
                gone.append(path)
        except OSError:  # somebody else removes it, or it is none of ours
            continue
    return sorted(gone)


def _was_left(path: str) -> bool:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return False
    lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where its maker lives
        kept = Path(path, _KEPT)
        return not kept.exists() or time.time() - kept.stat().st_mtime > KEPT_SECS
    finally:
        os.close(lock)
