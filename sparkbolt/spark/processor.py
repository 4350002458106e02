"""Processor: a stateful level in the form that Spark's ``transformWithState`` calls.

A task's segments are one ``MapState``, which Spark commits with the micro-batch. Before the query, Spark also makes a
processor in a separate process, to ask which states it declares. So this module imports nothing that only tasks need;
``level_task`` does the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from sparkbolt.spark.job_bundle import JobBundle

if TYPE_CHECKING:
    import pandas as pd

KEY = StructType([StructField("key", StringType())])
VALUE = StructType([StructField("value", BinaryType())])
"""As types, not as text: PySpark sends each text to Spark's SQL parser twice in each spark_task."""


class LevelProcessor(StatefulProcessor):
    """A stateful level; each grouping key is a dest, the place of a task."""

    def __init__(self, bundle: JobBundle, level: int) -> None:
        """Run level ``level`` of the bundle's lane."""
        self._bundle = bundle
        self._level = level

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark calls it once per spark_task, and once before the query."""
        self._segments = handle.getMapState("segments", KEY, VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Spark calls it for each task that has rows, and for each dest whose rows only pass through this level."""
        from sparkbolt.spark.level_task import run  # not at the top of the module: only tasks need it

        return run(self._bundle, self._level, int(key[0]), rows, self._segments)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Spark calls it in the first micro-batch of a generation, with segments of a task (``state_moves``)."""
        for name, value in zip(initialState["key"], initialState["value"], strict=True):
            self._segments.updateValue((name,), (bytes(value),))

    def close(self) -> None:
        """Spark calls it at the end of a spark_task; there is nothing to close."""
