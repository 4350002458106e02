"""JsonLinesBolt: writes tuples as JSON lines; a tuple that JSON cannot represent fails alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from sparkbolt.api.components import BasicBolt, TopologyContext
from sparkbolt.api.tuples import Tuple
from sparkbolt.connectors.files.part_files import PartFileBolt
from sparkbolt.connectors.json_values import json_of

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import BasicCollector


class JsonLinesBolt(PartFileBolt, BasicBolt):
    """Writes each tuple as one JSON object of its fields to files in the directory ``path``.

    Each task writes one file per micro-batch. In a transactional topology the driver writes one file per micro-batch,
    with the rows of the messages that have succeeded.

    Bytes become base64, dates and times ISO 8601, a ``Decimal`` and a ``UUID`` their text, and a ``LateTuple`` an
    object of its fields. A tuple with NaN, NaT, an infinity or a value of any other type fails; the reason names the
    field and what to emit instead. A micro-batch that runs again replaces its files. The rows of one micro-batch and
    task are held in memory. On a cluster ``path`` must be a directory that all machines share. The
    simulator and ``TopologyTestDriver`` write nothing there (``TopologyContext.output_path``).

    >>> JsonLinesBolt("out/counts").path.endswith("out/counts")
    True
    """

    suffix = ".jsonl"

    def prepare(self, context: TopologyContext) -> None:
        """Create the directory and start with no lines."""
        self._begin(context)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Encode the tuple as a line and keep it until ``flush``, or for ``commit``."""
        (self.keep if self._commits else self._gather)(json_of(dict(tup)))

    def commit(self, txid: int, rows: Sequence[bytes]) -> None:
        """Write the file of a micro-batch; the same rows again replace it by the same file."""
        self._write(txid, rows)

    def _write(self, micro_batch_id: int, items: Sequence[bytes]) -> None:
        def write(file: IO[bytes]) -> None:
            file.write(b"\n".join(items) + b"\n")

        self._files.write(micro_batch_id, write if items else None)
