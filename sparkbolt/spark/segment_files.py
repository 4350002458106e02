"""Segment files: copies of segments that one Python worker of this machine leaves for the next one.

Rule 1: a key of a segment has a random stamp, and its content never changes (``task_state``); so a file with its name
needs no other proof. The directory, which always has the same key, is not kept.
Rule 2: a file is a copy and may be missing: a segment that cannot be written or read comes from Spark. Whether a
segment counts is decided by the directory alone, which always comes from Spark.
Rule 3: the newest segments of each task are kept, since another worker lacks only the writes of the last micro-batches.
A segment that is removed from Spark is removed here too. The driver makes a folder for each run of a topology and
removes it, so that no copy of users' data stays after its end; a run without that folder keeps nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from sparkbolt.files.local import final_name, replace

FOLDER_ENV = "SPARKBOLT_SEGMENTS"
"""The environment variable that gives worker processes a folder of their driver's; it is set under a local master."""
KEPT_FILES_MAX = 256
"""Of one task."""
KEPT_BYTES_MAX = 64 << 20
"""Of one task; while a micro-batch runs there may be twice as many."""
FILE_BYTES_MIN = 4096
"""Spark returns smaller segments equally fast."""


class SegmentFiles:
    """The newest segments of one task, as files.

    Args:
        folder: of this task alone; None: nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._put_bytes = 0

    @classmethod
    def of(cls, run: str, *task: int) -> SegmentFiles:
        """The files of a task of this machine.

        Args:
            run: the id of the run.
            task: its unique name within the run.
        """
        root = os.environ.get(FOLDER_ENV)
        return cls(Path(root, run, "-".join(map(str, task))) if root else None)

    def get(self, key: str) -> bytes | None:
        """A segment; None if it is not here."""
        if self._folder is None:
            return None
        try:
            return self._path(self._folder, key).read_bytes()
        except (OSError, ValueError):
            return None

    def put(self, key: str, value: bytes) -> None:
        """Keep a segment; nothing happens if that is impossible, or if there are too many since ``drop_old``."""
        if self._folder is None or len(value) < FILE_BYTES_MIN:
            return
        if self._put_bytes + len(value) > KEPT_BYTES_MAX:
            return
        path = self._path(self._folder, key)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            replace(str(path), lambda file: file.write(value), durable=False)
        except (OSError, ValueError):  # a full disk; the run has ended; a name that no file can have
            return
        self._put_bytes += len(value)

    def delete(self, key: str) -> None:
        """Drop a segment if it is here."""
        if self._folder is None:
            return
        try:
            os.unlink(self._path(self._folder, key))
        except (OSError, ValueError):
            return

    def drop_old(self) -> None:
        """Drop surplus files, and unfinished files of dead workers; call it after the last ``put``."""
        if self._folder is None or not self._put_bytes:
            return
        self._put_bytes = 0
        try:
            with os.scandir(self._folder) as entries:
                files = sorted((-entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries)
            total = count = 0
            for _, size, path in files:
                total, count = total + size, count + 1
                if count > KEPT_FILES_MAX or total > KEPT_BYTES_MAX or final_name(os.path.basename(path)) is not None:
                    os.unlink(path)
        except OSError:  # the run has ended; another worker drops the same
            return

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key.replace("/", "_")
