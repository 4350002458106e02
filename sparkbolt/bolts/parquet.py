"""Tuples as Parquet.

Which question it answers: how do frames become Parquet files, and what happens when their types do not agree?
Rule: a frame whose types do not fit what the micro-batch gave before fails alone, in ``execute``.

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
    """Writes the fields of its tuples as columns of Parquet files, into directory ``path``.

    There is one file for each task and micro-batch.

    Types are those of the values: ints are int64, and a column that has floats too becomes double; a column
    of None alone has type null. A column of types that have no common one fails the tuples of the frame where
    it happens. Different streams may have different fields: what a tuple does not have is null. Each file has
    a schema of its own. A micro-batch that runs again replaces its files. The rows of one micro-batch and
    task are held in memory. On a cluster ``path`` must be a directory that all machines share; under the simulator
    and ``TopologyTestDriver`` nothing is written there (``TopologyContext.output_path``).

    >>> ParquetBolt("out/counts").path.endswith("out/counts")
    True
    """

    # Nothing is durable, and not stateless: see JsonLinesBolt.
    transient = ("path", "_context", "_files", "_tables", "_schema", "_gathered")

    # alike: ``JsonLinesBolt``; the reference shows users the constructor of the class itself.
    def __init__(self, path: str | Path) -> None:
        """Keep the directory, which is made when a task starts.

        Raises:
            ConfigError: ``path`` is empty, or a file.
        """
        super().__init__(path)

    def prepare(self, context: TopologyContext) -> None:
        """Make the directory, with nothing gathered."""
        self._begin(context, ".parquet")
        self._tables: list[Any] = []
        self._schema = pa.schema([])

    def execute(self, batch: pa.RecordBatch, collector: ColumnCollector) -> None:
        """Gather the frame.

        Raises:
            TypeError: a column's type does not fit what came before in this micro-batch.
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
        """Write the file of the micro-batch; if every tuple failed, remove what an earlier attempt wrote."""
        current = self._gathered == self._context.micro_batch_id
        tables, self._tables, self._schema = self._tables if current else [], [], pa.schema([])
        self._gathered = -1

        def write(file: IO[bytes]) -> None:
            pq.write_table(pa.concat_tables(tables, promote_options="permissive"), file)

        rows = sum(table.num_rows for table in tables)
        self._files.write(self._context.micro_batch_id, write if rows else None)


def _plain(batch: pa.RecordBatch) -> Any:
    """The frame as a table, with dictionaries written out."""
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    return pa.table(columns, names=batch.schema.names)


def _types(schema: Any) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
