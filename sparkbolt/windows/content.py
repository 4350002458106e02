"""Content: the tuples of a window, column by column; it never changes.

A window may hold tuples of several streams. If all streams have the same fields, there is one column for each field;
otherwise there is one column of value tuples, and the origin of each row has its fields.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.moved_code import loads
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.errors import UnknownNameError
from sparkbolt.wire.edges import Anchoring
from sparkbolt.wire.frames import Column, column_of, part, python_values, take

I64: TypeAlias = npt.NDArray[np.int64]
RowIndices: TypeAlias = npt.NDArray[np.intp] | None
"""Rows of some content: intp[rows], ascending; None: all rows."""

SMALL_ROWS = 64
"""Content of fewer rows is pickled whole: an Arrow stream alone costs half a kilobyte and 50 microseconds."""


@dataclass(eq=False)
class Content:
    """Some tuples in the order of arrival."""

    origins: tuple[Origin, ...]
    codes: npt.NDArray[np.int32] | None
    """int32[rows]: the index of each row's origin; None: all rows have the first origin."""
    columns: list[Column]
    """One column for each field; where origins differ in their fields, one column of value tuples."""
    times: I64
    """int64[rows]: the timestamp of each row in milliseconds."""
    trees: Anchoring | None = None
    """The trees of the rows, where tuples are acked when they expire."""

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.times)

    @property
    def is_mixed(self) -> bool:
        """Whether origins differ in their fields."""
        return any(origin.fields != self.origins[0].fields for origin in self.origins)

    def take(self, rows: RowIndices) -> Content:
        """The content of some rows."""
        if rows is None:
            return self
        return Content(
            self.origins,
            None if self.codes is None else self.codes[rows],
            [take(column, rows) for column in self.columns],
            self.times[rows],
            None if self.trees is None else self.trees.take(rows),
        )

    def part(self, start: int, stop: int) -> Content:
        """Rows ``start`` to ``stop`` (exclusive); they share memory with this content."""
        if (start, stop) == (0, len(self)):
            return self
        return Content(
            self.origins,
            None if self.codes is None else self.codes[start:stop],
            [part(column, start, stop) for column in self.columns],
            self.times[start:stop],
            None if self.trees is None else self.trees.take(np.arange(start, stop)),
        )

    def split(self, groups: Mapping[Any, npt.NDArray[np.intp]]) -> Iterator[tuple[Any, Content]]:
        """The rows of each group; small groups become Python values, which cost less than small Arrow arrays.

        Args:
            groups: by key, the rows of the group: intp[rows].
        """
        if not groups:
            return
        ordered = self.take(np.concatenate(list(groups.values())))
        values = [python_values(column) for column in ordered.columns]
        stop = 0
        for key, rows in groups.items():
            start, stop = stop, stop + len(rows)
            own = ordered.part(start, stop)
            if len(rows) < SMALL_ROWS:
                own = replace(own, columns=[column[start:stop] for column in values])
            yield key, own

    def value_rows(self) -> Iterator[tuple[Any, ...]]:
        """The values of each row."""
        if self.is_mixed:
            return iter(python_values(self.columns[0]))
        if not self.columns:
            return iter([()] * len(self))
        return zip(*map(python_values, self.columns), strict=True)

    def tuples(self, rows: RowIndices) -> Iterator[Tuple]:
        """Some rows as tuples, created one after the other."""
        content = self.take(rows)
        origins, codes = content.origins, content.codes
        if codes is None:
            for values in content.value_rows():
                yield Tuple.of(origins[0], values)
        else:
            for values, code in zip(content.value_rows(), codes.tolist(), strict=True):
                yield Tuple.of(origins[code], values)

    def column(self, name: str, rows: RowIndices) -> Column:
        """The values of a field.

        Raises:
            KeyError: a row has no such field.
        """
        for origin in self.origins:
            if name not in origin.fields:
                raise UnknownNameError(
                    f"{name!r} does not exist in stream {origin.stream!r} of {origin.component!r}, "
                    f"whose fields are {list(origin.fields)}"
                )
        if not self.is_mixed:
            column = self.columns[self.origins[0].fields.index(name)]
            return column if rows is None else take(column, rows)
        places = [origin.fields.index(name) for origin in self.origins]
        assert self.codes is not None
        values = [row[places[code]] for row, code in zip(self.value_rows(), self.codes.tolist(), strict=True)]
        return values if rows is None else [values[row] for row in rows.tolist()]

    def pairs(self, rows: RowIndices) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """(roots, edges) of all trees of some rows, each uint64[pairs]; empty where nothing is tracked."""
        if self.trees is None:
            nothing = np.empty(0, dtype=np.uint64)
            return nothing, nothing
        trees = self.trees if rows is None else self.trees.take(rows)
        return trees.roots, trees.edges


def join(parts: Sequence[Content]) -> Content:
    """The rows of all parts, in their order."""
    if len(parts) == 1:
        return parts[0]
    origins = tuple(dict.fromkeys(origin for part in parts for origin in part.origins))
    place = {origin: index for index, origin in enumerate(origins)}
    codes = None
    if len(origins) > 1:
        codes = np.concatenate([_codes(part, place) for part in parts])
    mixed = any(origin.fields != origins[0].fields for origin in origins)
    columns: list[Column]
    if mixed:
        columns = [[values for part in parts for values in part.value_rows()]]
    else:
        columns = [join_columns([part.columns[i] for part in parts]) for i in range(len(origins[0].fields))]
    return Content(origins, codes, columns, np.concatenate([part.times for part in parts]), _join_trees(parts))


def _codes(part: Content, place: dict[Origin, int]) -> npt.NDArray[np.int32]:
    new_codes = np.array([place[origin] for origin in part.origins], dtype=np.int32)
    return new_codes[part.codes] if part.codes is not None else np.full(len(part), new_codes[0], dtype=np.int32)


def join_columns(columns: Sequence[Column]) -> Column:
    """Join columns one after the other: into Arrow if all have one type, otherwise into Python values."""
    if len(columns) == 1:
        return columns[0]
    plain = [column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column for column in columns]
    if all(isinstance(column, pa.Array) and column.type == plain[0].type for column in plain):  # type: ignore[union-attr]
        return pa.concat_arrays(plain)
    return [value for column in columns for value in python_values(column)]


def _join_trees(parts: Sequence[Content]) -> Anchoring | None:
    """The trees of all rows; a row of a part without trees has none."""
    if all(part.trees is None for part in parts):
        return None
    roots = np.concatenate([part.pairs(None)[0] for part in parts])
    edges = np.concatenate([part.pairs(None)[1] for part in parts])
    counts = [
        np.zeros(len(part), dtype=np.int64)
        if part.trees is None
        else (np.ones(len(part), dtype=np.int64) if part.trees.offsets is None else np.diff(part.trees.offsets))
        for part in parts
    ]
    offsets = np.concatenate(([0], np.cumsum(np.concatenate(counts)))).astype(np.int64)
    return Anchoring(roots, edges, offsets)


def encode(content: Content) -> bytes:
    """The content as bytes; Arrow dictionaries are written as plain columns."""
    trees = content.trees
    ids = None if trees is None else (trees.roots.tobytes(), trees.edges.tobytes(), _bytes(trees.offsets))
    times = _times_bytes(content.times)
    head: tuple[Any, ...]
    if len(content) < SMALL_ROWS:
        values = [list(python_values(column)) for column in content.columns]
        return pickle.dumps((content.origins, _bytes(content.codes), times, ids, values, None), 5)
    arrow: list[pa.Array] = []
    plain: dict[int, list[Any]] = {}
    for index, column in enumerate(content.columns):
        column = column_of(column)
        if isinstance(column, pa.Array):
            arrow.append(column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column)
        else:
            plain[index] = list(column)
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays(arrow, [str(i) for i in range(len(arrow))])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    head = (content.origins, _bytes(content.codes), times, ids, plain, sink.getvalue().to_pybytes())
    return pickle.dumps(head, 5)


def decode(data: bytes) -> Content:
    """The inverse of ``encode``."""
    origins, codes, times, ids, values, stream = loads(data)
    columns: list[Column]
    if stream is None:
        columns = values
    else:
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            columns = list(reader.read_next_batch().columns)
        for index, column in sorted(values.items()):
            columns.insert(index, column)
    trees = None
    if ids is not None:
        roots, edges = np.frombuffer(ids[0], dtype=np.uint64), np.frombuffer(ids[1], dtype=np.uint64)
        trees = Anchoring(roots, edges, None if ids[2] is None else np.frombuffer(ids[2], dtype=np.int64))
    return Content(
        origins, None if codes is None else np.frombuffer(codes, dtype=np.int32), columns, _times_of(times), trees
    )


def _bytes(array: npt.NDArray[Any] | None) -> bytes | None:
    return None if array is None else array.tobytes()


def _times_bytes(times: I64) -> tuple[int, int, bytes]:
    """Pack times as (count, first, distances from the first).

    The distances are empty if all times are equal, int32[count] if they fit, otherwise int64[count].
    """
    first = int(times[0]) if len(times) else 0
    far = times - first
    if not far.any():
        return len(times), first, b""
    small = far.astype(np.int32)
    return len(times), first, (small if bool((small == far).all()) else far).tobytes()


def _times_of(packed: tuple[int, int, bytes]) -> I64:
    count, first, rest = packed
    if not rest:
        return np.full(count, first, dtype=np.int64)
    return np.frombuffer(rest, dtype=np.int32 if len(rest) == 4 * count else np.int64).astype(np.int64) + first
