"""Results: what a task returns, what a stage returns for all its tasks, and how that leaves the process.

Rule 1: data flows one way. A task does not call the stage: it returns a ``TaskResult``, and its emissions are in its
``Output``. The stage folds both into one ``StageResult``, which ``to_rows`` turns into rows of Spark at the very end.
Rule 2: a row that cannot be sent is returned as a ``Refusal``: a value cannot be pickled, cannot be read back, or is
too large. The caller decides what becomes of its trees.
Rule 3: frames of one task on one stream are numbered in the order in which they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.metrics import ComponentMetrics, pack
from sparkbolt.api.outage import Health
from sparkbolt.api.reports import ErrorReport, Fail
from sparkbolt.api.story import Hop
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.base.exceptions import pass_on
from sparkbolt.base.ids import U64
from sparkbolt.layout.lane import Lane
from sparkbolt.observe.measurements import Measurements
from sparkbolt.wire.acker import encode_partials, shards_of
from sparkbolt.wire.edges import Anchoring
from sparkbolt.wire.frames import (
    Column,
    Frame,
    FrameKind,
    Moment,
    Path,
    encode,
    encode_control,
    part,
    take,
    unpicklable,
    wrap,
)
from sparkbolt.wire.plan import Timer
from sparkbolt.wire.verdicts import Partials
from sparkbolt.worker.failures import Failure
from sparkbolt.worker.routing import RoutedRows

Row: TypeAlias = tuple[int, bytes]
"""(dest, frame): a row of Spark, as it moves between stages."""


@dataclass
class TaskResult:
    """What one task did with some rows, or in a ``flush``."""

    executed: int = 0
    acked: int = 0
    failed: int = 0
    errors: int = 0
    failures: dict[int, Failure] = field(default_factory=dict)
    """By row that failed: why."""
    held: npt.NDArray[np.bool_] | None = None
    """bool[rows]: rows that were neither acked nor failed; None if there are none."""
    acked_whole: Anchoring | None = None
    """The anchoring of the rows, if all of them are acked and tracked; then ``acks`` does not have them."""
    acks: list[tuple[U64, U64]] = field(default_factory=list)
    """(roots, edges), each uint64[pairs], to be added to the accounts of the roots."""
    holds: list[U64] = field(default_factory=list)
    """Roots, uint64[pairs], of tuples that the task holds."""
    touched: list[U64] = field(default_factory=list)
    """Roots, uint64[pairs], whose timeout begins again."""
    fails: list[Fail] = field(default_factory=list)
    reports: list[ErrorReport] = field(default_factory=list)
    late_acks: list[Tuple] = field(default_factory=list)
    late_fails: list[Tuple] = field(default_factory=list)
    """Tuples that the task had kept from earlier rows, and has acked or failed now."""
    of_windows: ComponentMetrics | None = None
    """The metrics that a bolt runtime counts itself."""
    of_trees: list[tuple[int, Failure]] = field(default_factory=list)
    """(number of trees, or of tuples kept from earlier rows, that failed besides the rows; why)."""
    elapsed_ms: float = 0.0
    """How long the call took."""
    flush_failure: Failure | None = None
    """Why ``flush`` failed, and with it all rows that the task got."""


@dataclass
class StageResult:
    """What one process did for one stage of a micro-batch."""

    moment: Moment
    level: int = 0
    """The level that ran; 0: the source."""
    rows: list[Row] = field(default_factory=list)
    """Frames for later levels, and rows that only pass through."""
    partials: Partials = field(default_factory=Partials)
    metrics: dict[str, ComponentMetrics] = field(default_factory=dict)
    """By component; includes the metrics of earlier stages that came here."""
    hops: list[Hop] = field(default_factory=list)
    reports: list[ErrorReport] = field(default_factory=list)
    timers: dict[int, Timer | None] = field(default_factory=dict)
    """By number of each task with a runtime that ran: its next timer; None: it needs none."""
    marks: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    """As in ``Feedback``."""
    healths: dict[str, Health] = field(default_factory=dict)
    """By bolt: how its work went."""
    measured: Measurements = field(default_factory=Measurements)
    """What this stage and those before it have measured."""

    def to_rows(self, lane: Lane) -> list[Row]:
        """All rows that leave the stage: ``rows``, then the partials for each acker task, then one row of feedback.

        Before the last level, partials and feedback go to tasks of the next one, which combine them with their own:
        dests of their own would cost more there than what they carry. To which tasks depends on the lane alone. If
        Spark repeats the stage for some of its readers only, each part is still read once, from one attempt or another.
        """
        rows = list(self.rows)
        ride = lane.riding_dests(self.level + 1)
        if lane.tracked:
            for shard, partials in shards_of(self.partials, len(lane.acker_dests)).items():
                dest = ride[shard % len(ride)] if ride else lane.acker_dests[shard]
                rows.append((dest, wrap(FrameKind.PARTIALS, encode_partials(partials), self.moment)))
        if self.metrics or self.reports or self.hops or self.timers or self.healths:
            measured = self.measured.pack()
            feedback = pack(self.metrics), self.reports, self.hops, self.timers, self.marks, self.healths, measured
            dest = ride[0] if ride else lane.feedback_dest
            rows.append((dest, encode_control(FrameKind.FEEDBACK, feedback, self.moment)))
        return rows


COLUMN_BYTES_GUESS = 64


class Refusal(NamedTuple):
    """A row that cannot be sent."""

    task: int
    """The number of the task that emitted it."""
    roots: Sequence[int]
    """The roots of the trees that it belongs to."""
    reason: str
    path: Path
    """See ``Frame.path``."""


class FrameWriter:
    """Writes the frames of one process's part in one stage of a micro-batch."""

    def __init__(self, lane: Lane, moment: Moment, piece: int, origin_of: Callable[[int, int], Origin]) -> None:
        """Begin without any frames.

        Args:
            lane: the lane that runs the topology.
            moment: the micro-batch.
            piece: distinguishes this part of the sources' work from the other parts in the micro-batch.
            origin_of: returns the origin of a task number and a stream index.
        """
        self.rows: list[Row] = []
        """The frames that were written."""
        self._lane = lane
        self._config = lane.topology.config
        self._moment = moment
        self._piece = piece
        self._origin_of = origin_of
        self._sequences: dict[tuple[int, int], int] = {}
        """By (task number, stream index): how many frames were written."""

    def take(self) -> list[Row]:
        """The frames that were written since the last call."""
        rows, self.rows = self.rows, []
        return rows

    def write(self, routed: RoutedRows, sender: int, stream: int, path: Path) -> list[Refusal]:
        """Write the rows that one task sends to another on one stream; rows that cannot be sent are returned."""
        refusals: list[Refusal] = []
        dest = self._lane.dests[routed.target]
        for start, stop in self._pieces(routed):
            frame = self._frame(routed, sender, stream, start, stop)
            frame.path = path
            self._write(dest, frame, refusals)
        return refusals

    def _write(self, dest: int, frame: Frame, refusals: list[Refusal]) -> None:
        """Write a frame as one row of Spark, or as several if its encoded size is too large."""
        try:
            data = encode(frame, self._moment)
        except BaseException as error:  # noqa: BLE001  pickling calls user code, which may raise anything
            pass_on(error)
            frame = self._without_unpicklable(frame, refusals)
            data = encode(frame, self._moment)
        config = self._config
        most = min(config.frame_bytes_max, config.tuple_bytes_max)
        if len(data) > min(2 * most, config.tuple_bytes_max) and frame.rows > 1:
            pieces = min(frame.rows, -(-len(data) // most))
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
        """The frame without the rows that have an unpicklable value; these are added to ``refusals``."""
        kept = []
        fields = self._origin_of(frame.sender, frame.stream).fields
        for row in range(frame.rows):
            for name, column in zip(fields, frame.columns, strict=True):
                reason = unpicklable(column, row)
                if reason is not None:
                    text = f"field {name!r} holds a value that cannot be sent to another task ({reason})"
                    refusals.append(Refusal(frame.sender, frame.roots_of(row), text, frame.path))
                    break
            else:
                kept.append(row)
        return frame.take(np.array(kept, dtype=np.intp))

    def _frame(self, routed: RoutedRows, sender: int, stream: int, start: int, stop: int) -> Frame:
        sequence = self._next_sequence(sender, stream)
        columns, anchoring, attempts = routed.columns, routed.anchoring, routed.attempts
        if (start, stop) != (0, routed.count):
            rows = np.arange(start, stop)
            columns = [_part(column, rows) for column in columns]
            anchoring = anchoring.take(rows) if anchoring is not None else None
            attempts = attempts[start:stop] if attempts is not None else None
        return Frame(sender, stream, self._piece, sequence, stop - start, columns, anchoring, attempts)

    def _next_sequence(self, sender: int, stream: int) -> int:
        sequence = self._sequences.get((sender, stream), 0)
        self._sequences[sender, stream] = sequence + 1
        return sequence

    def _pieces(self, routed: RoutedRows) -> Iterator[tuple[int, int]]:
        """Split rows, as (start, stop), so that no frame is much larger than ``frame_bytes_max``."""
        most = self._config.frame_bytes_max
        # The first estimate counts the whole buffers of slices: it takes a twentieth of the time of an exact one.
        size = sum([_size(column, routed.count, whole=True) for column in routed.columns]) + 16 * routed.count
        if size > most:
            size = sum([_size(column, routed.count) for column in routed.columns]) + 16 * routed.count
        pieces = max(1, -(-size // most))
        step = max(1, -(-routed.count // pieces))
        for start in range(0, routed.count, step):
            yield start, min(start + step, routed.count)


def _part(column: Column, rows: npt.NDArray[np.intp]) -> Column:
    """Consecutive rows of a column, without values that only others use: one of them may be too large to be sent."""
    if isinstance(column, pa.DictionaryArray):
        return take(column, rows)
    return part(column, int(rows[0]), int(rows[-1]) + 1)


def parted(rows: Sequence[bytes], size_max: int) -> Iterator[list[bytes]]:
    """Split rows into lists of not much more than ``size_max`` bytes, each with one row at least.

    >>> list(parted([b"12", b"3", b"4567", b"8"], 3))
    [[b'12', b'3'], [b'4567'], [b'8']]
    """
    some: list[bytes] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row)
        if size >= size_max:
            yield some
            some, size = [], 0
    if some:
        yield some


def readable(frame: Frame, fields: Sequence[str]) -> tuple[Frame, list[Refusal]]:
    """A received frame without the rows that have an unreadable value, and a refusal for each such row.

    Args:
        frame: the decoded frame; its ``unreadable`` names the rows.
        fields: the fields of its stream.
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
    """About how many bytes a column of ``count`` values takes; ``whole``: with the parts that a slice leaves out."""
    if isinstance(column, pa.Array):
        return int(column.get_total_buffer_size() if whole else column.nbytes)
    texts = [len(value) for value in column if type(value) is str or type(value) is bytes]
    return COLUMN_BYTES_GUESS * count + sum(texts)  # text of 2 GiB or more is a list, since Arrow makes no column of it
