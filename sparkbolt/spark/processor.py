"""The processor: a stateful level as Spark's ``transformWithState`` calls it.

Which question it answers: where do the tasks of a level that keeps something find their state?
Rule 1: a task's segments are one ``MapState``, committed by Spark with the micro-batch.
Rule 2: Spark also makes one in a process of its own, before the query, to ask which states there are; nothing is loaded
for that. ``level_task`` does the work.

Read before: ``job_bundle``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from sparkbolt.spark.job_bundle import JobBundle

if TYPE_CHECKING:
    import pandas as pd


class LevelProcessor(StatefulProcessor):
    """A stateful level: one grouping key a task."""

    def __init__(self, bundle: JobBundle, level: int) -> None:
        """Run level ``level`` of the bundle's lane."""
        self._bundle = bundle
        self._level = level

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called by Spark once a spark_task, and once before the query."""
        self._segments = handle.getMapState("segments", "key string", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Called by Spark for each task that has rows, and for each dest that passes through."""
        from sparkbolt.spark.level_task import run  # rule 2

        return run(self._bundle, self._level, int(key[0]), rows, self._segments)

    def close(self) -> None:
        """Called by Spark at the end of a spark_task: nothing is open."""
