"""Tuples as JSON lines.

Which question it answers: how does a tuple become a line of JSON, and when is it on the disk? Rule: a tuple
that JSON cannot hold fails alone, in ``execute``; ``flush`` writes only what is known to be fine.

Read before: ``part_files``.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sparkbolt.bolts.part_files import WritesPartFiles
from sparkbolt.core.model.components import BasicBolt, TopologyContext
from sparkbolt.core.model.tuples import Tuple

if TYPE_CHECKING:
    from sparkbolt.core.model.interfaces import BasicCollector


def _other(value: Any) -> Any:
    """What JSON has no form of its own for: bytes as base64, times in ISO 8601, numpy numbers as numbers.

    What has values by name, as a ``LateTuple`` does, is an object.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "keys"):
        return dict(value)
    raise TypeError(
        f"JSON cannot hold {value!r:.80} of type {type(value).__name__}: "
        "emit a str, a number, a list or a dict of those"
    )


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other).encode


class JsonLinesBolt(WritesPartFiles, BasicBolt):
    """Writes each tuple as one JSON object of its fields, into directory ``path``.

    There is one file for each task and micro-batch.

    Bytes become base64, dates and times ISO 8601, a ``LateTuple`` an object of its fields. NaN, infinities and other
    types fail the tuple. A micro-batch that runs again replaces its files. The rows of one micro-batch and task are
    held in memory. On a cluster ``path`` must be a directory that all machines share; under the simulator and
    ``TopologyTestDriver`` nothing is written there (``TopologyContext.output_path``).

    >>> JsonLinesBolt("out/counts").path.endswith("out/counts")
    True
    """

    # Nothing is durable, so nothing is stored. It is not called stateless, though it is: a checkpoint remembers that.
    transient = ("path", "_context", "_files", "_lines", "_gathered")

    # alike: ``ParquetBolt``; the reference shows users the constructor of the class itself.
    def __init__(self, path: str | Path) -> None:
        """Keep the directory, which is made when a task starts.

        Raises:
            ConfigError: ``path`` is empty, or a file.
        """
        super().__init__(path)

    def prepare(self, context: TopologyContext) -> None:
        """Make the directory, with nothing gathered."""
        self._begin(context, ".jsonl")
        self._lines: list[bytes] = []

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Gather the tuple as a line."""
        if self._gathered != self._context.micro_batch_id:
            self._lines, self._gathered = [], self._context.micro_batch_id
        self._lines.append(_encode(dict(tup)).encode())

    def flush(self) -> None:
        """Write the file of the micro-batch; if every tuple failed, remove what an earlier attempt wrote."""
        current = self._gathered == self._context.micro_batch_id
        lines, self._lines = self._lines if current else [], []

        def write(file: IO[bytes]) -> None:
            file.write(b"\n".join(lines) + b"\n")

        self._files.write(self._context.micro_batch_id, write if lines else None)
