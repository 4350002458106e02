"""Level task: processes the rows of one dest in a spark_task of a stateful level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from sparkbolt.spark.crash_shield import shielded
from sparkbolt.spark.executor import batches_of, staged, worker_of
from sparkbolt.spark.job_bundle import JobBundle
from sparkbolt.spark.repetition import announced
from sparkbolt.spark.segment_files import SegmentFiles
from sparkbolt.worker.stage import run_level
from sparkbolt.worker.state.task_state import DIRECTORY_KEY


class MapStateStore:
    """A task's segments in Spark's state store; each call takes 50 to 100 microseconds, and long for large ones.

    Args:
        state: Spark's ``MapState``.
        files: copies of segments that this machine has just written.
    """

    def __init__(self, state: Any, files: SegmentFiles) -> None:
        """Wrap the ``MapState`` of the key that is being processed."""
        self._state = state
        self._files = files

    def get(self, key: str) -> bytes | None:
        """The value of a key, or None."""
        copy = self._files.get(key) if key != DIRECTORY_KEY else None
        if copy is not None:
            return copy
        row = self._state.getValue((key,))
        return None if row is None else bytes(row[0])

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self._state.updateValue((key,), (value,))
        if key != DIRECTORY_KEY:
            self._files.put(key, value)

    def delete(self, key: str) -> None:
        """Remove a key if it exists."""
        self._state.removeKey((key,))
        self._files.delete(key)

    def keys(self) -> Iterable[str]:
        """All keys."""
        return [row[0] for row in self._state.keys()]  # noqa: SIM118  no dict


def run(bundle: JobBundle, level: int, dest: int, rows: Iterator[Any], segments: Any) -> Iterator[pd.DataFrame]:
    """Run the tasks of ``dest`` on their rows.

    Args:
        bundle: the job bundle of the run.
        level: the number of the level.
        dest: the place of the tasks, the grouping key of the rows.
        rows: data frames with the columns ``dest`` and ``frame``.
        segments: Spark's ``MapState`` for this key.

    Yields:
        Data frames with the columns ``dest`` (int) and ``frame`` (bytes).
    """
    files = SegmentFiles.of(bundle.run, level, dest)
    store = MapStateStore(segments, files)
    exclusion = announced()
    with staged():
        came = [(dest, frame) for part in rows for frame in part["frame"]]
        out = shielded(
            worker_of(bundle),
            lambda own, stores: run_level(own, level, came, stores, exclusion).to_rows(own.lane),
            lambda _: store,
        )
        files.drop_old()
    for batch in batches_of(out):
        dests, frames = batch.columns
        # PySpark forwards Arrow's memory unchanged; a list it would convert to objects, and these to Arrow's memory.
        yield pd.DataFrame({"dest": dests.to_numpy(), "frame": pd.arrays.ArrowExtensionArray(frames)})
