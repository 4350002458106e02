"""Segment files: what one Python worker of this machine tells the next one, beside Spark's state store.

Which question it answers: how does a worker catch up with what another one has committed for the same task, when a
megabyte out of Spark's state store takes ten times as long as out of a file?
Rule 1: a key of a segment has a random stamp, and its content never changes (``task_state``); so a file with its name
needs no other proof. The directory, which has one key for ever, is not kept.
Rule 2: a file is a copy and may be missing: what cannot be written or read is asked of Spark. Whether a segment counts
is decided by the directory alone, which always comes from Spark.
Rule 3: of each task the newest few are kept, since another worker lacks only what the last micro-batches wrote.

Read before: ``core.state.task_state``.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

FOLDER_ENV = "SPARKBOLT_SEGMENTS"
"""The environment variable that gives worker processes a folder of their driver's; it is set under a local master."""
KEPT_OF_A_NAME = 4
"""How many segments of the same name are kept."""
KEPT_BYTES_MAX = 64 << 20
"""Of one task."""
FILE_BYTES_MIN = 4096
"""Smaller segments come from Spark as fast."""
_WRITING = ".tmp"


class SegmentFiles:
    """The newest segments of one task, as files.

    Args:
        folder: of this task alone; None: nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @classmethod
    def of(cls, *task: object) -> SegmentFiles:
        """Those of a task of this machine.

        Args:
            task: what tells it from all other tasks with the same driver.
        """
        root = os.environ.get(FOLDER_ENV)
        return cls(Path(root, "-".join(map(str, task))) if root else None)

    def get(self, key: str) -> bytes | None:
        """A segment; None if it is not here."""
        if self._folder is None:
            return None
        try:
            return self._path(self._folder, key).read_bytes()
        except (OSError, ValueError):
            return None

    def put(self, key: str, value: bytes) -> None:
        """Keep a segment, and drop old ones; nothing happens if that is impossible."""
        if self._folder is None or not FILE_BYTES_MIN <= len(value) <= KEPT_BYTES_MAX:
            return
        path = self._path(self._folder, key)
        writing = path.with_name(f"{path.name}{os.getpid()}{_WRITING}")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            writing.write_bytes(value)
            now = time.time_ns()  # a file system's own clock has ticks of milliseconds
            os.utime(writing, ns=(now, now))
            writing.replace(path)
            self._drop_old(self._folder)
        except (OSError, ValueError):  # a full disk; the driver has gone; a name that no file can have
            return

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key.replace("/", "_")

    @staticmethod
    def _drop_old(folder: Path) -> None:
        with os.scandir(folder) as entries:
            files = sorted(((entry.stat(), entry.path) for entry in entries), key=lambda file: -file[0].st_mtime_ns)
        total, names = 0, Counter[str]()
        for status, path in files:
            name = path.rpartition("@")[0]
            total += status.st_size
            names[name] += 1
            if total > KEPT_BYTES_MAX or names[name] > KEPT_OF_A_NAME:
                os.unlink(path)
