"""Frames out: rows on their way to a task as rows of Spark, none much larger than the settings allow.

Which question it answers: into how many frames are these rows cut, and which of them cannot travel at all?
Rule 1: what cannot travel is returned as a ``Refusal``: a value that cannot be pickled, or read back, or is too large.
Whoever asked decides what becomes of its trees.
Rule 2: frames of one task on one stream are numbered in the order in which they are written.

Read before: ``frames``, ``routing``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sparkbolt.core.base.exceptions import pass_on
from sparkbolt.core.model.lane import Lane
from sparkbolt.core.model.tuples import Origin
from sparkbolt.core.protocol.frames import Column, Frame, Moment, Path, encode, part, unpicklable
from sparkbolt.core.worker.results import Row
from sparkbolt.core.worker.routing import RoutedRows

COLUMN_BYTES_GUESS = 64


class Refusal(NamedTuple):
    """A row that cannot travel."""

    task: int
    """The number of the task that emitted it."""
    roots: Sequence[int]
    """Of the trees that it belongs to."""
    reason: str
    path: Path
    """As in ``Frame``."""


class FrameWriter:
    """Writes the frames of one process's part in one stage of a micro-batch."""

    def __init__(self, lane: Lane, moment: Moment, piece: int, origin_of: Callable[[int, int], Origin]) -> None:
        """Nothing is written yet.

        Args:
            lane: the topology, laid out.
            moment: the micro-batch.
            piece: tells this part of a source's work from the others of the micro-batch.
            origin_of: the origin of a (task number, stream index).
        """
        self.rows: list[Row] = []
        """What was written."""
        self._lane = lane
        self._config = lane.topology.config
        self._moment = moment
        self._piece = piece
        self._origin_of = origin_of
        self._sequences: dict[tuple[int, int], int] = {}
        """By (task number, stream index): how many frames were written."""

    def write(self, routed: RoutedRows, sender: int, stream: int, path: Path) -> list[Refusal]:
        """Write the rows that one task sends to another on one stream; what cannot travel is left out and returned."""
        refusals: list[Refusal] = []
        dest = self._lane.dests[routed.target]
        for start, stop in self._pieces(routed):
            frame = self._frame(routed, sender, stream, start, stop)
            frame.path = path
            self._write(dest, frame, refusals)
        return refusals

    def _write(self, dest: int, frame: Frame, refusals: list[Refusal]) -> None:
        """Write a frame as one row, or as several where it turns out too large."""
        try:
            data = encode(frame, self._moment)
        except BaseException as error:  # noqa: BLE001  pickling calls user code, which may raise anything
            pass_on(error)
            frame = self._without_unpicklable(frame, refusals)
            data = encode(frame, self._moment)
        config = self._config
        if len(data) > 2 * config.frame_bytes_max and frame.rows > 1:
            pieces = min(frame.rows, -(-len(data) // config.frame_bytes_max))
            del data
            for rows in np.array_split(np.arange(frame.rows), pieces):
                part_ = frame.take(rows)
                part_.sequence = self._next_sequence(frame.sender, frame.stream)
                self._write(dest, part_, refusals)
        elif len(data) > config.tuple_bytes_max and frame.rows:
            text = (
                f"a tuple of {len(data):,} bytes cannot be sent to another task: tuple_bytes_max is "
                f"{config.tuple_bytes_max:,}; send a reference to what is large, such as a path, or raise the limit"
            )
            refusals.append(Refusal(frame.sender, frame.roots_of(0), text, frame.path))
        else:
            self.rows.append((dest, data))

    def _without_unpicklable(self, frame: Frame, refusals: list[Refusal]) -> Frame:
        """The frame less the rows that have a value which cannot be pickled."""
        kept = []
        fields = self._origin_of(frame.sender, frame.stream).fields
        for row in range(frame.rows):
            for field, column in zip(fields, frame.columns, strict=True):
                reason = unpicklable(column, row)
                if reason is not None:
                    text = f"field {field!r} holds a value that cannot be sent to another task ({reason})"
                    refusals.append(Refusal(frame.sender, frame.roots_of(row), text, frame.path))
                    break
            else:
                kept.append(row)
        return frame.take(np.array(kept, dtype=np.intp))

    def _frame(self, routed: RoutedRows, sender: int, stream: int, start: int, stop: int) -> Frame:
        sequence = self._next_sequence(sender, stream)
        columns, anchoring, attempts = routed.columns, routed.anchoring, routed.attempts
        if (start, stop) != (0, routed.count):
            columns = [part(column, start, stop) for column in columns]
            anchoring = anchoring.take(np.arange(start, stop)) if anchoring is not None else None
            attempts = attempts[start:stop] if attempts is not None else None
        return Frame(sender, stream, self._piece, sequence, stop - start, columns, anchoring, attempts)

    def _next_sequence(self, sender: int, stream: int) -> int:
        sequence = self._sequences.get((sender, stream), 0)
        self._sequences[sender, stream] = sequence + 1
        return sequence

    def _pieces(self, routed: RoutedRows) -> Iterator[tuple[int, int]]:
        """Split rows, as (start, stop), so that no frame is much larger than ``frame_bytes_max``."""
        most = self._config.frame_bytes_max
        # What a slice leaves out counts as well at first: that is asked for in a twentieth of the time.
        size = sum([_size(column, routed.count, whole=True) for column in routed.columns]) + 16 * routed.count
        if size > most:
            size = sum([_size(column, routed.count) for column in routed.columns]) + 16 * routed.count
        pieces = max(1, -(-size // most))
        step = max(1, -(-routed.count // pieces))
        for start in range(0, routed.count, step):
            yield start, min(start + step, routed.count)


def readable(frame: Frame, fields: Sequence[str]) -> tuple[Frame, list[Refusal]]:
    """A frame that came less the rows with a value that cannot be read here.

    Args:
        frame: what was decoded; ``unreadable`` names the rows.
        fields: those of its stream.
    """
    refusals = []
    for row, (column, reason) in sorted(frame.unreadable.items()):
        text = (
            f"field {fields[column]!r} holds a value that cannot be sent to another task (it can be pickled, and "
            f"reading it back raises {reason})"
        )
        refusals.append(Refusal(frame.sender, frame.roots_of(row), text, frame.path))
    return frame.take(np.delete(np.arange(frame.rows), list(frame.unreadable))), refusals


def _size(column: Column, count: int, *, whole: bool = False) -> int:
    """About how many bytes a column of ``count`` values takes; ``whole``: with those that a slice leaves out."""
    if isinstance(column, pa.Array):
        return int(column.get_total_buffer_size() if whole else column.nbytes)
    texts = [len(value) for value in column if value.__class__ is str or value.__class__ is bytes]
    return COLUMN_BYTES_GUESS * count + sum(texts)  # of 2 GiB of text and more Arrow makes no column
