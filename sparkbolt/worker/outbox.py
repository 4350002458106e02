"""The outbox: the tuples with which a bolt's task has started trees, kept until the outcome of their trees is known.

Rule 1: a tuple that is emitted and belongs to no tree starts one. The next unused sequence is in the task's durable
state, together with the values; both are committed with the micro-batch that emitted the tuple, or neither is.
Rule 2: a value is identified by its position, which is the sequence of its first attempt. Plans reserve the sequences
of later attempts (``ids.AGAIN``), so that no sequence is used twice.
Rule 3: a value is dropped when the ledger's outbox acks name its position: its tree was acked, or its message was given
up. A task may get an outbox ack twice.

Values are kept in pages, one for each micro-batch. A page is pickled once, and is read only when one of its values has
to be emitted again. A table holds the open positions of each page.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.api.causes import Cause
from sparkbolt.api.pickling import CannotKeepError, Pickling
from sparkbolt.api.tuples import ATTEMPT_MAX
from sparkbolt.base.ids import AGAIN, U64, empty_u64, mix64_array, tree_key
from sparkbolt.base.intervals import (
    Interval,
    Intervals,
    from_inclusive,
    size,
    subtract,
    to_inclusive,
    union_of_columns,
)
from sparkbolt.errors import check
from sparkbolt.wire.edges import Parents
from sparkbolt.wire.exclusion import HALVED, LEFT_OUT, Exclusion
from sparkbolt.wire.frames import Clock, Column, python_values, take
from sparkbolt.wire.plan import Entry
from sparkbolt.wire.returned import ReturnedRecord
from sparkbolt.worker.emissions import Output
from sparkbolt.worker.routing import EmittedRows, StreamRoutes, with_rows, without
from sparkbolt.worker.state.task_state import TaskState

_TABLE = "__trees"


@dataclass(frozen=True)
class _Table:
    """The next sequence, and, by the first position of each page, its open positions."""

    next_sequence: int = 0
    open: Mapping[int, Intervals] = field(default_factory=dict)


@dataclass(frozen=True)
class _Piece:
    """Consecutive positions of a page, emitted on one stream."""

    first: int
    count: int
    stream: str
    direct_to: npt.NDArray[np.int64] | None
    columns: bytes
    """The pickled columns."""


@dataclass
class Started:
    """A block of emitted rows, some of which have started trees."""

    block: EmittedRows
    keys: U64 = field(default_factory=empty_u64)
    """uint64[trees]: the keys of the trees that were started."""
    refused: list[str] = field(default_factory=list)
    """Reasons, one for each row that should have started a tree and is not in the block, since it cannot be kept; or
    for positions that cannot be emitted again, because their values are gone."""
    unfit: str | None = None
    """Why the trees have no rows, and fail; None if they have rows."""

    def leave_out(self, exclusion: Exclusion) -> list[tuple[int, Cause, str]]:
        """Remove from the block the rows whose trees one execution of a micro-batch leaves out.

        Returns:
            (key, cause, reason) of each of these trees: those that are excluded, and those for which there is no room.
        """
        if not exclusion:
            return []
        excluded = np.isin(self.keys, exclusion.keys)
        postponed = ~excluded & exclusion.postpones(self.keys)
        gone, parents = excluded | postponed, self.block.parents
        if gone.any() and parents is not None:
            own = np.isin(parents.roots, mix64_array(self.keys[gone]))
            if parents.offsets is not None:
                counts = np.diff(parents.offsets)
                own = np.isin(np.arange(self.block.count), np.repeat(np.arange(self.block.count), counts)[own])
            self.block = with_rows(self.block, np.flatnonzero(~own))
        return [
            *((key, Cause.EXCLUDED, LEFT_OUT) for key in self.keys[excluded].tolist()),
            *((key, Cause.POSTPONED, HALVED) for key in self.keys[postponed].tolist()),
        ]


class Outbox:
    """The outbox of one task in one micro-batch.

    In each micro-batch call ``receive`` with the clock, then ``start`` for each block that the task emits, then
    ``save``, before the task's state is committed.
    """

    def __init__(self, state: TaskState, number: int, pickling: Pickling) -> None:
        """Load the table of open positions.

        Args:
            state: the task's state, begun for this micro-batch.
            number: the number of the task.
            pickling: turns values into bytes.
        """
        self._state = state
        self._number = number
        self._pickling = pickling
        table = state.load(_TABLE, _decode_table) or _Table()
        self._table = table
        self._first = self._next = table.next_sequence
        self._open = dict(table.open)
        self._pieces: list[_Piece] = []

    @property
    def kept(self) -> int:
        """How many values are kept."""
        return sum(map(size, self._open.values())) + self._next - self._first

    def receive(self, clock: Clock, output: Output) -> list[Started]:
        """Drop the values that the clock's outbox acks name; return the values that the clock requests again.

        The returned rows are numbered as the next rows of ``output``.
        """
        self.settle(clock.outbox_acks)
        streams = {name: out.routes for name, out in output.streams.items()}
        found = [started for entry in clock.again for started in self.again(entry, streams)]
        for started in found:
            out = output.streams[started.block.stream.name]
            started.block.first = out.first
            out.first += started.block.count
        return found

    def settle(self, positions: Sequence[Interval]) -> None:
        """Drop the values at these positions, given in any order; positions that are not kept are ignored."""
        columns = np.array(positions, dtype=np.int64).reshape(-1, 2)
        gone = union_of_columns(columns[:, 0], columns[:, 1])
        ends = [end for _, end in gone]
        for page, open_ in list(self._open.items()):
            near = slice(bisect_right(ends, open_[0][0]), bisect_left(gone, (open_[-1][1],)))
            if near.start >= near.stop:
                continue
            left = subtract(open_, gone[near])
            if left:
                self._open[page] = left
            else:
                del self._open[page]
                self._state.drop(_page_name(page))

    def again(self, entry: Entry, streams: Mapping[str, StreamRoutes]) -> Iterator[Started]:
        """Yield the values that an entry names, with the sequences that it reserves.

        Positions at which no value is kept are named in the ``refused`` of a block without rows.
        """
        if entry.records is not None:
            yield from self._returned(entry, streams)
            return
        positions = entry.positions or ()
        missing = dict.fromkeys(positions)
        for piece, rows, within in self._places(positions):
            for row in rows.tolist():
                missing.pop(positions[row], None)
            yield self._block(piece, within, entry, rows, streams[piece.stream])
        if missing:
            nothing = EmittedRows(next(iter(streams.values())), [], 0, 0, None)
            why = f"what was emitted at positions {list(missing)[:5]} is not kept any more: it could not be given again"
            yield Started(nothing, refused=[why])

    def _returned(self, entry: Entry, streams: Mapping[str, StreamRoutes]) -> Iterator[Started]:
        """Yield the values of returned letters, which are not kept here any more."""
        for place, text in enumerate(entry.records or ()):
            record, keys = ReturnedRecord.loads(text), np.array([tree_key(self._number, entry.base + place)], np.uint64)
            stream = streams.get(record.stream)
            if stream is None or not record.fits(tuple(stream.fields)) or stream.direct:
                nothing = EmittedRows(next(iter(streams.values())), [], 0, 0, None)
                fields = f"{record.stream!r} ({', '.join(record.fields)})"
                yield Started(nothing, keys, unfit=f"a dead letter of stream {fields} has no values for its fields now")
                continue
            roots = mix64_array(keys)
            attempts = np.full(1, min(entry.attempt, ATTEMPT_MAX), dtype=np.uint8)
            columns, path = [[value] for value in record.rows[0]], ((self._number, stream.index),)
            yield Started(EmittedRows(stream, columns, 1, 0, Parents(roots, roots, 0), attempts, None, path), keys)

    def values_at(self, positions: Sequence[int]) -> dict[int, tuple[Any, ...]]:
        """The values at these positions; positions without a value are left out."""
        found: dict[int, tuple[Any, ...]] = {}
        for piece, rows, within in self._places(positions):
            values = zip(*map(python_values, self._columns(piece, within)), strict=True)
            found.update(zip((positions[row] for row in rows.tolist()), values, strict=True))
        return found

    def _places(self, positions: Sequence[int]) -> Iterator[tuple[_Piece, npt.NDArray[np.intp], npt.NDArray[np.int64]]]:
        """Yield the values at these positions: (piece, places in ``positions``, rows of the piece)."""
        wanted = np.array(positions, dtype=np.int64)
        pages = sorted(self._open)
        for page in sorted({bisect_right(pages, position) - 1 for position in positions} - {-1}):
            data = self._state.read(_page_name(pages[page]))
            check(data is not None, f"task {self._number} has lost the page of values from {pages[page]} on")
            for piece in pickle.loads(data or b""):
                rows = np.flatnonzero((wanted >= piece.first) & (wanted < piece.first + piece.count))
                if len(rows):
                    yield piece, rows, wanted[rows] - piece.first

    def _columns(self, piece: _Piece, within: npt.NDArray[np.int64]) -> list[Column]:
        return [take(column, within) for column in self._pickling.loads(piece.columns)]

    def start(self, block: EmittedRows) -> Started:
        """Start a tree for each row that belongs to none, and keep its values."""
        starting = _without_tree(block)
        if len(starting) == 0 or not block.stream.routes:
            return Started(block)
        own = len(starting) == block.count
        columns = list(block.columns) if own else [take(column, starting) for column in block.columns]
        try:
            data = self._pickling.proved(columns)
        except CannotKeepError:
            return self._start_what_can_be_kept(block, starting)
        keys = np.arange(self._next, self._next + len(starting), dtype=np.uint64)
        check(self._next + len(starting) <= AGAIN, f"task {self._number} has used up its sequences")
        direct_to = block.direct_to[starting] if block.direct_to is not None else None
        self._pieces.append(_Piece(self._next, len(starting), block.stream.name, direct_to, data))
        self._next += len(starting)
        keys += np.uint64(tree_key(self._number, 0))
        parents = _with_roots(block.parents if not own else None, starting, mix64_array(keys))
        path = block.path[-1:] if own else block.path
        return Started(replace(block, parents=parents, path=path), keys)

    def save(self) -> None:
        """Write the changes to the task's state; ``TaskState.commit`` makes them durable."""
        if self._pieces:
            self._open[self._first] = [(self._first, self._next)]
            self._state.write_own(_page_name(self._first), pickle.dumps(self._pieces, 5))
        if self._open != self._table.open:
            table = _Table(self._next, self._open)
            self._state.write_own(_TABLE, _encode_table(table), table)

    def _block(
        self,
        piece: _Piece,
        within: npt.NDArray[np.int64],
        entry: Entry,
        rows: npt.NDArray[np.intp],
        stream: StreamRoutes,
    ) -> Started:
        keys = (rows + entry.base).astype(np.uint64) + np.uint64(tree_key(self._number, 0))
        roots = mix64_array(keys)
        parents = Parents(roots, roots, 0)
        attempts = np.full(len(rows), min(entry.attempt, ATTEMPT_MAX), dtype=np.uint8)
        direct_to = piece.direct_to[within] if piece.direct_to is not None else None
        columns, path = self._columns(piece, within), ((self._number, stream.index),)
        return Started(EmittedRows(stream, columns, len(rows), 0, parents, attempts, direct_to, path), keys)

    def _start_what_can_be_kept(self, block: EmittedRows, starting: npt.NDArray[np.intp]) -> Started:
        refused = []
        for row in reversed(starting.tolist()):
            for name, column in zip(block.stream.fields, block.columns, strict=True):
                why = self._unpicklable(column, row)
                if why is not None:
                    refused.append(
                        f"field {name!r} holds a value that cannot be kept until its tree is finished ({why})"
                    )
                    block = without(block, row)
                    break
        check(bool(refused), f"task {self._number} emitted values that cannot be pickled together, but one by one")
        started = self.start(block)
        return Started(started.block, started.keys, refused[::-1] + started.refused)

    def _unpicklable(self, column: Column, row: int) -> str | None:
        try:
            self._pickling.proved(column[row])
        except CannotKeepError as error:
            return f"{type(column[row]).__name__}: {error}"
        return None


def _encode_table(table: _Table) -> bytes:
    open_ = {page: to_inclusive(intervals) for page, intervals in table.open.items()}
    return pickle.dumps((table.next_sequence, open_), 5)


def _decode_table(data: bytes) -> _Table:
    next_sequence, open_ = pickle.loads(data)
    return _Table(next_sequence, {page: from_inclusive(pairs) for page, pairs in open_.items()})


def _page_name(first: int) -> str:
    return f"{_TABLE}/{first:x}"


def _without_tree(block: EmittedRows) -> npt.NDArray[np.intp]:
    """The rows that belong to no tree: intp[rows], ascending."""
    if block.parents is None:
        return np.arange(block.count)
    if block.parents.offsets is None:
        return np.empty(0, dtype=np.intp)
    return np.flatnonzero(np.diff(block.parents.offsets) == 0)


def _with_roots(parents: Parents | None, starting: npt.NDArray[np.intp], roots: U64) -> Parents:
    """The parents of a block after its rows ``starting``, which had none, have got ``roots``.

    Args:
        parents: the parents before; None: no row of the block had any.
        starting: intp[starting], the rows that start trees.
        roots: uint64[starting], their roots.
    """
    if parents is None or parents.offsets is None:
        return Parents(roots, roots, 0)
    counts = np.diff(parents.offsets)
    counts[starting] = 1
    offsets = np.zeros(len(parents.offsets), dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    new = np.zeros(offsets[-1], dtype=bool)
    new[offsets[starting]] = True

    def mixed(before: U64, of_new: U64) -> U64:
        column = np.empty(len(new), dtype=np.uint64)
        column[new], column[~new] = of_new, before
        return column

    ordinals = mixed(parents.row_ordinals, np.zeros(len(roots), dtype=np.uint64))
    return Parents(mixed(parents.roots, roots), mixed(parents.edges, roots), ordinals, offsets)
