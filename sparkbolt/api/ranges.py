"""Ranges: what a ``PartitionedSpout`` reads, and the records in it.

A position always identifies the same record, and the positions of a source ascend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparkbolt.api.named_fields import row_of
from sparkbolt.base.exceptions import pass_on, printed
from sparkbolt.errors import EmitError

POSITION_MAX = (1 << 63) - 1
"""All positions are below it."""
RANGE_POSITIONS_MAX = 1 << 40
"""The largest number of positions of a range; the sequences of a spout's task suffice for 192 such ranges
(``ids.LETTERS``)."""


@dataclass(frozen=True, order=True)
class Range:
    """Positions ``start`` (inclusive) to ``end`` (exclusive) of one source, to be read by one task.

    A source counts its own positions: a file (bytes), a kafka_partition (offsets). A record's position is where it
    starts. Positions of a source ascend, and a position always identifies the same record.
    """

    task: int
    """The index of the spout task that reads it."""
    source: str
    start: int
    end: int

    def __post_init__(self) -> None:
        """Reject a range that is empty or runs backwards, or has more positions than trees can be numbered."""
        if not 0 <= self.start < self.end:
            raise ValueError(f"range of {self.source!r}: expected 0 <= start < end, got {self.start}, {self.end}")
        if self.end > POSITION_MAX:
            raise ValueError(f"range of {self.source!r}: positions are below 2**63, got {self.end}")
        if self.end - self.start > RANGE_POSITIONS_MAX:
            raise ValueError(
                f"range of {self.source!r}: {self.end - self.start:,} positions from {self.start} on, expected at most "
                f"2**40: a tree is reserved for each of them, be there a record or not. Are they nanoseconds? Count in "
                "milliseconds, or give a position several records; and plan as many positions as `budget` says"
            )


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot be read: only its tree fails, with ``reason``, and it is not retried."""

    position: int
    reason: str
    skipped: int = 0
    """How many positions it represents that no longer exist at the source; counted as ``skipped`` in the metrics."""


CHUNK_ROWS = 4096
"""How many records of a ``PartitionedSpout`` are turned into columns at once."""


@dataclass
class RecordChunk:
    """Records that were read one by one."""

    positions: Any = ()
    """int64[rows]."""
    rows: list[Sequence[Any]] = field(default_factory=list)
    bad: BadRecord | None = None
    """The unreadable record that came after them."""
    error: BaseException | None = None
    """The exception that reading raised after them."""
    is_last: bool = False

    def parts(self, range_: Range) -> Iterator[tuple[Any, list[Sequence[Any]]]]:
        """Yield (positions, rows) before the first misplaced record, and (positions, rows) from it on."""
        if not self.rows:
            return
        at = self.positions
        misplaced = (at < range_.start) | (at >= range_.end)
        misplaced[1:] |= at[1:] < at[:-1]
        cut = int(misplaced.argmax()) if misplaced.any() else len(at)
        if cut:
            yield at[:cut], self.rows[:cut]
        if cut < len(at):
            yield at[cut:], self.rows[cut:]


def chunk_of(records: Iterator[Any], fields: tuple[str, ...]) -> RecordChunk:
    """Return the next records, up to the first one that is not valid, at most ``CHUNK_ROWS``."""
    width = len(fields)
    positions: list[int] = []
    chunk = RecordChunk(positions)
    rows = chunk.rows
    try:
        for record in records:
            if isinstance(record, BadRecord):
                chunk.bad = record
                break
            position, values = record
            is_row = values.__class__ is list or values.__class__ is tuple
            row = tuple(values) if is_row else _row_of(values, fields)  # a copy: a reader may reuse its list
            if row is not None and len(row) == width:
                positions.append(position)
                rows.append(row)
            else:
                reason = f"the spout read {printed(values):.60} as values, expected a list of {width}, for {fields}"
                chunk.bad = BadRecord(_position(position), reason)
                break
            if len(rows) >= CHUNK_ROWS:
                break
        else:
            chunk.is_last = True
    except BaseException as error:  # noqa: BLE001  raised again after the records that were read
        pass_on(error)
        chunk.error = error
    try:
        if set(map(type, positions)) <= {int}:
            chunk.positions = np.array(positions, dtype=np.int64)
            return chunk
    except OverflowError:
        pass
    _cut_off(chunk, positions)
    return chunk


def _row_of(values: Any, fields: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return a record's values as a tuple; None if they are not values of the fields."""
    try:
        row = row_of(values, fields)
    except BaseException as error:  # noqa: BLE001  user code may raise anything
        pass_on(error)
        return None
    return None if row is None else tuple(row)


def _cut_off(chunk: RecordChunk, positions: list[Any]) -> None:
    """Keep only the records before the first one whose position is not valid."""
    found: list[int] = []
    for position in positions:
        try:
            found.append(_position(position))
        except EmitError as error:
            chunk.error, chunk.bad = error, None
            break
    chunk.positions = np.array(found, dtype=np.int64)
    del chunk.rows[len(found) :]


def _position(value: Any) -> int:
    """Return a position as an int; raise an EmitError if it is not a valid position."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and -POSITION_MAX <= value <= POSITION_MAX:
        return int(value)
    raise EmitError(f"the spout read a record at {printed(value):.60}, expected a position (an int)")
