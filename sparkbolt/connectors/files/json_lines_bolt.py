"""JsonLinesBolt: writes tuples as JSON lines.

Rule: a tuple that JSON cannot represent fails alone, in ``execute``; ``flush`` writes only lines that are encoded
already.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sparkbolt.api.components import BasicBolt, TopologyContext
from sparkbolt.api.tuples import Tuple
from sparkbolt.connectors.files.part_files import WritesPartFiles
from sparkbolt.connectors.json_values import json_of

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import BasicCollector


class JsonLinesBolt(WritesPartFiles, BasicBolt):
    """Writes each tuple as one JSON object of its fields to files in the directory ``path``.

    Each task writes one file per micro-batch. In a transactional topology the driver writes one file per micro-batch,
    with the rows of the messages that have succeeded.

    Bytes become base64, dates and times ISO 8601, and a ``LateTuple`` an object of its fields. A tuple with NaN, NaT,
    an infinity or a value of any other type fails. A micro-batch that runs again replaces its files. The rows of one
    micro-batch and task are held in memory. On a cluster ``path`` must be a directory that all machines share. The
    simulator and ``TopologyTestDriver`` write nothing there (``TopologyContext.output_path``).

    >>> JsonLinesBolt("out/counts").path.endswith("out/counts")
    True
    """

    # No attribute is durable, so no state is stored. The bolt is stateless, but it does not declare itself
    # ``stateless``, because a checkpoint remembers that.
    transient = ("path", "_context", "_files", "_lines", "_gathered", "_commits")
    suffix = ".jsonl"

    def __init__(self, path: str | Path) -> None:
        """Store the directory's path; each task creates the directory when it starts.

        Raises:
            ConfigError: ``path`` is empty or names a file.
        """
        super().__init__(path)

    def prepare(self, context: TopologyContext) -> None:
        """Create the directory and start with no lines."""
        self._begin(context)
        self._lines: list[bytes] = []

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Encode the tuple as a line and keep it until ``flush``, or for ``commit``."""
        if self._commits:
            self.keep(json_of(dict(tup)))
            return
        if self._gathered != self._context.micro_batch_id:
            self._lines, self._gathered = [], self._context.micro_batch_id
        self._lines.append(json_of(dict(tup)))

    def flush(self) -> None:
        """Write the file of the micro-batch; if every tuple failed, remove the file of an earlier attempt."""
        if self._commits:
            return
        current = self._gathered == self._context.micro_batch_id
        lines, self._lines = self._lines if current else [], []
        self._write(self._context.micro_batch_id, lines)

    def commit(self, txid: int, rows: Sequence[bytes]) -> None:
        """Write the file of a micro-batch; the same rows again replace it by the same file."""
        self._write(txid, rows)

    def _write(self, micro_batch_id: int, lines: Sequence[bytes]) -> None:
        def write(file: IO[bytes]) -> None:
            file.write(b"\n".join(lines) + b"\n")

        self._files.write(micro_batch_id, write if lines else None)
