"""ParquetBolt: writes tuples as Parquet files; a tuple whose types conflict fails alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from sparkbolt.api.components import TopologyContext
from sparkbolt.connectors.files.part_files import PartFileBolt
from sparkbolt.connectors.tables.table_committer import FrameKeeper, joined
from sparkbolt.connectors.tables.table_schema import CommonColumns, SchemaLike, plain, schema_of

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import ColumnCollector


class ParquetBolt(PartFileBolt, FrameKeeper):
    """Writes the fields of its tuples as columns of Parquet files in the directory ``path``.

    Each task writes one file per micro-batch. In a transactional topology the driver writes one file per micro-batch,
    with the rows of the messages that have succeeded.

    With a ``schema`` all files have these columns, and a tuple that does not fit fails alone. Without it column types
    follow the values: ints are int64, a column with ints and floats is double, and a column with only None is null.
    A tuple fails whose values have no common type with those before it in the micro-batch. Different streams may have
    different fields: a field that a tuple does not have is null. Each file has its own columns then.

    A micro-batch that runs again replaces its files. The rows of one micro-batch and task are held in memory. On a
    cluster ``path`` must be a directory that all machines share. The simulator and ``TopologyTestDriver`` write nothing
    there (``TopologyContext.output_path``).

    >>> ParquetBolt("out/counts").path.endswith("out/counts")
    True
    """

    transient = (*PartFileBolt.transient, "_schema", "_columns", "_columns_so_far")
    suffix = ".parquet"

    def __init__(self, path: str | Path, *, schema: SchemaLike = None) -> None:
        """Store the directory's path; each task creates the directory when it starts.

        Args:
            path: the directory.
            schema: the columns, as ``"number long, name string"`` or a ``pyarrow.Schema``.

        Raises:
            ConfigError: ``path`` is empty or names a file, or ``schema`` is not a schema.
        """
        super().__init__(path)
        self._schema = schema_of(schema)

    def prepare(self, context: TopologyContext) -> None:
        """Create the directory and start with no frames."""
        super().prepare(context)
        self._begin(context)
        self._columns = CommonColumns()

    def execute(self, batch: pa.RecordBatch, collector: ColumnCollector) -> None:
        """Keep the frame until ``flush``, or for ``commit``.

        Raises:
            TypeError: A value does not fit ``schema``, or earlier frames of this micro-batch.
        """
        if self._commits:
            self.keep_frame(batch)
            return
        if self._is_new:
            self._columns = CommonColumns()
        batch = plain(batch) if self._schema is None else self._schema.fit(batch)
        if self._schema is None:
            self._columns = self._columns.widened(batch)
        self._gather(pa.Table.from_batches([batch]))

    def commit(self, txid: int, rows: Sequence[bytes]) -> None:
        """Write the file of a micro-batch; the same rows again replace it by the same file.

        Without a schema tasks may have kept values of a column that have nothing in common. Then there are several
        files, each with the tables that fit together, in their order.
        """
        tables = self.tables(rows)
        if self._schema is not None:
            self._write(txid, [joined(tables, self._schema)])
            return
        groups: list[tuple[CommonColumns, list[pa.Table]]] = []
        for table in tables:
            for number, (columns, group) in enumerate(groups):
                try:
                    groups[number] = columns.widened(table), group
                except TypeError:
                    continue
                group.append(table)
                break
            else:
                groups.append((CommonColumns().widened(table), [table]))
        for piece, (_, group) in enumerate(groups):
            self._write(txid, group, piece)

    def _write(self, micro_batch_id: int, items: Sequence[pa.Table], piece: int = 0) -> None:
        def write(file: IO[bytes]) -> None:
            pq.write_table(pa.concat_tables(items, promote_options="permissive"), file)

        rows = sum(table.num_rows for table in items)
        self._files.write(micro_batch_id, write if rows else None, piece)
