"""Column frames: a ``ColumnBolt`` works on whole frames.

It fails with all rows of a frame, unless it splits frames to find the rows at fault.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sparkbolt.api.causes import Cause
from sparkbolt.api.components import ColumnBolt
from sparkbolt.errors import KilledWorkerError
from sparkbolt.wire.frames import arrow_of
from sparkbolt.worker.collectors import ColumnBlockCollector
from sparkbolt.worker.crash_isolation import TaskWatch
from sparkbolt.worker.emissions import Output, Rows
from sparkbolt.worker.failures import Failure, failure_of
from sparkbolt.worker.results import Settlements
from sparkbolt.worker.returned_values import refuse


class ColumnFrames:
    """The frames of one task of a ``ColumnBolt``."""

    def __init__(self, bolt: ColumnBolt, output: Output, collector: ColumnBlockCollector, who: str) -> None:
        """Emit into ``output`` by ``collector``; ``who`` names the call."""
        self._bolt = bolt
        self._output = output
        self._collector = collector
        self._who = who

    def run(self, rows: Rows, result: Settlements, watch: TaskWatch | None) -> None:
        """Execute a frame."""
        try:
            if watch is not None:
                watch.piece()
        except KilledWorkerError as error:
            result.failures = dict.fromkeys(range(rows.count), failure_of(error))
            return
        self._run(rows, 0, result)

    def _run(self, rows: Rows, first: int, result: Settlements) -> None:
        """Execute a frame, or a part of one that begins with row ``first`` of it."""
        self._collector.begin(rows.count, first)
        before = [(out, out.mark()) for out in self._output.streams.values()]
        failure = self._failure(rows)
        if failure is None:
            self._collector.end()
            return
        for out, mark in before:
            out.back_to(mark)
        if self._bolt.splits_frames and rows.count > 1 and failure.cause != Cause.UNAVAILABLE:
            middle = rows.count // 2
            self._run(rows.part(0, middle), first, result)
            self._run(rows.part(middle, rows.count), first + middle, result)
            return
        result.failures.update(dict.fromkeys(range(first, first + rows.count), failure))
        self._collector.end()

    def _failure(self, rows: Rows) -> Failure | None:
        """Call ``execute``; returns why it failed, if it did."""
        try:
            named = zip(rows.origin.fields, rows.columns, strict=True)
            coded, kinds = self._bolt.dictionaries, self._bolt._kinds
            hint = self._bolt._otherwise
            arrays = [arrow_of(name, column, hint, name in coded, kinds.get(name)) for name, column in named]
            batch = pa.RecordBatch.from_arrays(arrays, names=list(rows.origin.fields))
            returned: Any = self._bolt.execute(batch, self._collector)
            refuse(returned, self._who, "a ColumnBolt emits columns by collector.emit alone")
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            return failure_of(error)
        return None
