"""ParquetBolt: writes tuples as Parquet files.

Which question it answers: how do frames become Parquet files, and what happens when their types conflict?
Rule: a frame whose types conflict with earlier frames of the micro-batch fails alone, in ``execute``.

Read before: ``part_files``.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparkbolt.bolts.part_files import WritesPartFiles
from sparkbolt.core.model.components import ColumnBolt, TopologyContext

if TYPE_CHECKING:
    from sparkbolt.core.model.interfaces import ColumnCollector


class ParquetBolt(WritesPartFiles, ColumnBolt):
    """Writes the fields of its tuples as columns of Parquet files in the directory ``path``.

    Each task writes one file per micro-batch.

    Column types follow the values: ints are int64, a column with ints and floats is double, and a column with only
    None is null. If the values of a column have no common type, the tuples of the frame that brought the conflict
    fail. Different streams may have different fields: a field that a tuple does not have is null. Each file has its
    own schema. A micro-batch that runs again replaces its files. The rows of one micro-batch and task are held in
    memory. On a cluster ``path`` must be a directory that all machines share. The simulator and
    ``TopologyTestDriver`` write nothing there (``TopologyContext.output_path``).

    >>> ParquetBolt("out/counts").path.endswith("out/counts")
    True
    """

    # No attribute is durable, and yet it is not declared ``stateless``: see JsonLinesBolt.
    transient = ("path", "_context", "_files", "_tables", "_schema", "_gathered")

    # alike: ``JsonLinesBolt``; the reference shows users the constructor of the class itself.
    def __init__(self, path: str | Path) -> None:
        """Store the directory's path; each task creates the directory when it starts.

        Raises:
            ConfigError: ``path`` is empty or names a file.
        """
        super().__init__(path)

    def prepare(self, context: TopologyContext) -> None:
        """Create the directory and start with no frames."""
        self._begin(context, ".parquet")
        self._tables: list[Any] = []
        self._schema = pa.schema([])

    def execute(self, batch: pa.RecordBatch, collector: ColumnCollector) -> None:
        """Keep the frame until ``flush``.

        Raises:
            TypeError: A column's type conflicts with earlier frames of this micro-batch.
        """
        if self._gathered != self._context.micro_batch_id:
            self._tables, self._schema = [], pa.schema([])
            self._gathered = self._context.micro_batch_id
        table = _plain(batch)
        try:
            self._schema = pa.unify_schemas([self._schema, table.schema], promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise TypeError(
                f"Parquet columns have one type each: the micro-batch began with "
                f"{_types(self._schema)}, a later frame has {_types(table.schema)}: "
                f"emit values of one type ({error})"
            ) from None
        self._tables.append(table)

    def flush(self) -> None:
        """Write the file of the micro-batch; if every tuple failed, remove the file of an earlier attempt."""
        current = self._gathered == self._context.micro_batch_id
        tables, self._tables, self._schema = self._tables if current else [], [], pa.schema([])
        self._gathered = -1

        def write(file: IO[bytes]) -> None:
            pq.write_table(pa.concat_tables(tables, promote_options="permissive"), file)

        rows = sum(table.num_rows for table in tables)
        self._files.write(self._context.micro_batch_id, write if rows else None)


def _plain(batch: pa.RecordBatch) -> Any:
    """Return the frame as a table with dictionary columns decoded."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.table(columns, names=batch.schema.names)


def _types(schema: Any) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
