"""Reads a source as columns, and makes rows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.ranges import BadRecord, Range


class ColumnSource(PartitionedSpout):
    """A spout whose ``read_columns`` yields (``int64[rows]`` positions, columns)."""

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Yield the records of the range, as (position, values)."""
        for chunk in self.read_columns(range_):
            if isinstance(chunk, BadRecord):
                yield chunk
                continue
            positions, columns = chunk
            plain = [column.to_pylist() if hasattr(column, "to_pylist") else column for column in columns]
            yield from zip(positions.tolist(), map(list, zip(*plain, strict=True)), strict=True)
