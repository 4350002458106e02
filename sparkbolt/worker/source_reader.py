"""The source reader: level 0, where spout tasks start trees.

Rule 1: ``sequence = base + (position - start)``. A message has one root, and as many init edges as deliveries.
Rule 2: a record that cannot be read fails its tree, not its task. If reading a range ends too early, one tree fails for
its own position and all later positions of the range. The cause is ``read``; ``away`` if the source is unavailable;
``postponed`` if the spout has read enough. That also holds for a spout that is not tracked: no unread record is lost.
Rule 3: the same entry yields the same rows with the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, ValuesView
from dataclasses import replace
from itertools import chain
from operator import index
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.causes import Cause
from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.progress import Activity
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.reports import ErrorReport, Fail
from sparkbolt.api.tuples import ATTEMPT_MAX, DEFAULT_STREAM, TRACED
from sparkbolt.base.exceptions import line_of, pass_on, reason_of
from sparkbolt.base.ids import empty_u64, mix64, mix64_array, ordinals_within, run_lengths, run_starts, tree_key
from sparkbolt.base.intervals import Interval
from sparkbolt.base.source_names import place_text, short_source
from sparkbolt.errors import EmitError, EnoughRead, SourceUnavailable
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.edges import Parents
from sparkbolt.wire.exclusion import HALVED, LEFT_OUT, NOTHING_EXCLUDED, Exclusion
from sparkbolt.wire.frames import (
    JOINED_ROWS_MAX,
    Clock,
    FrameKind,
    Moment,
    column_of,
    encode_control,
    part,
    python_values,
    sound_column,
    take,
)
from sparkbolt.wire.plan import ASKED_FOR_MAX, Entry, MicroBatchPlan, Piece, Record
from sparkbolt.wire.returned import is_returned_source
from sparkbolt.worker.failures import Failure, failure_of
from sparkbolt.worker.hop_recorder import TRACED_MAX, Chooser
from sparkbolt.worker.outbox import Started
from sparkbolt.worker.results import StageResult
from sparkbolt.worker.routing import EmittedRows, Row, StreamRoutes
from sparkbolt.worker.stage import Stage
from sparkbolt.worker.worker import Worker

Chunk: TypeAlias = BadRecord | tuple[npt.NDArray[np.int64], Sequence[Any]]
"""The result of one read of a spout: a bad record, or (positions: int64[rows], one column for each field)."""
NO_REASON = "the spout gave no reason"
_CONSTANT = {str, bytes, int, float, bool, type(None)}
"""Types of values that nobody can change."""


class EntryReader:
    """Reads one entry of a plan, and sends its rows within a stage."""

    def __init__(
        self, stage: Stage, entry: Entry, traced: Sequence[int] = (), exclusion: Exclusion = NOTHING_EXCLUDED
    ) -> None:
        """Read ``entry`` within ``stage``, whose piece belongs to this entry alone.

        Args:
            stage: the stage.
            entry: the entry to read.
            traced: as in ``Piece``.
            exclusion: what this execution of the plan leaves out.
        """
        self._stage = stage
        self._exclusion = exclusion
        self._left_out = exclusion.sequences_of(entry.task)
        self._entry = entry
        self._traced = np.array(traced, dtype=np.int64)
        self._component, self._index = stage.lane.topology.task_owner(entry.task)
        self._who = f"spout {self._component!r}"
        self._streams = {stream.name: stream for stream in stage.worker.routes(entry.task)}
        self._has_ranges = entry.source is not None and not is_returned_source(entry.source)
        """Whether the source is one of a ``PartitionedSpout``."""
        spout = stage.worker.spout(entry.task) if self._has_ranges else None
        self._tracked = stage.lane.tracked and (spout is None or spout.tracked)
        self._trace = stage.lane.topology.components[self._component].config.trace
        self._emitted: dict[str, int] = {}
        self._reads = 0
        self._broken: BaseException | None = None
        """Why reading the range ended too early; None if it did not."""
        self._bad = False
        """Whether the range had an unreadable record (``BadRecord``)."""
        self._seen = 0
        """The last position of the range that was read; if none was read, the position before its start."""
        self._cut: int | None = None
        """The last position that was read, if it became tuples: there may be more of them."""
        self._misplaced: list[int] = []
        """Positions that were not accepted, because they came after later ones."""
        self._shift = 0
        """The difference between a record's sequence and its position."""
        self._gathered: list[tuple[list[list[Any]], npt.NDArray[np.int64], npt.NDArray[Any]]] = []
        """(columns, sequences, ordinals) of single positions, which wait for more."""

    def read(self, records: Sequence[Record] = ()) -> None:
        """Read the records that the entry names: a range, single positions again, or the records of a ``Spout``."""
        entry = self._entry
        room = self._exclusion.room(entry.reserved)
        if entry.source is None:
            self._records(records[:room])
            for place in range(room, len(records)):
                self._postpone(f"record {place} of {entry.task}", entry.base + place)
        elif entry.positions is not None:
            for offset, position in enumerate(entry.positions):
                if offset >= room:
                    self._postpone(place_text(entry.source, position), entry.base + offset)
                    continue
                if not isinstance(self._broken, SourceUnavailable):
                    self._again(entry.source, position, entry.base + offset)
                else:  # an absent source is waited for once, not once for each record
                    text = f"{place_text(entry.source, position)} was not asked for, since its source is unavailable"
                    self._fail_record(entry.base + offset, Failure(Cause.AWAY, text, reported=False), unread=True)
            self._start_gathered()
        else:
            self._range(Range(self._index, entry.source, entry.start, entry.end), entry.start + room)

    def _postpone(self, which: str, sequence: int) -> None:
        """Fail the tree of a message that this execution leaves for a later micro-batch; no attempt is counted."""
        text = f"{which} is read later: {HALVED}"
        self._fail_record(sequence, Failure(Cause.POSTPONED, text, reported=False), unread=True)

    def _range(self, range_: Range, until: int) -> None:
        """Read a range up to the position ``until``, by default its end; the rest is postponed."""
        shift = self._entry.base - range_.start
        chunks = self._chunks(replace(range_, end=until), shift) if until > range_.start else ()
        for positions, columns, ordinals in numbered(chunks):
            self._start(self._stream(DEFAULT_STREAM), columns, positions + shift, ordinals)
        if self._broken is None and until < range_.end:
            self._broken, self._seen, self._cut = EnoughRead(until, HALVED), until - 1, None
        if self._broken is not None:
            self._break_off(range_, shift, self._broken)
        self._measure(range_)

    def _measure(self, range_: Range) -> None:
        """Report to the driver how many bytes the range has, or the part of it that was read, if the spout knows."""
        spout: PartitionedSpout = self._stage.worker.spout(self._entry.task)
        try:
            size = spout.read_bytes()
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            pass_on(error)
            self._report(failure_of(error))
            return
        end = range_.end if self._broken is None else self._seen + 1
        if size is not None and end > range_.start:
            read = self._component, replace(range_, end=end), size
            self._stage.add_row(
                (self._stage.lane.feedback_dest, encode_control(FrameKind.READS, read, self._stage.moment))
            )

    def _again(self, source: str, position: int, sequence: int) -> None:
        range_, shift = Range(self._index, source, position, position + 1), sequence - position
        found = False
        for positions, columns, ordinals in numbered(self._chunks(range_, shift)):
            found = True
            self._gather(columns, positions + shift, ordinals)
        if self._broken is not None:
            self._break_off(range_, shift, self._broken)
        elif not found and not self._bad:
            text = f"the record at {place_text(source, position)} is gone: it could not be given again"
            self._stage.report(ErrorReport(self._component, self._index, text))
            self._stage.counts(self._component).errors += 1

    def _gather(
        self, columns: Sequence[Any], sequences: npt.NDArray[np.int64], ordinals: npt.NDArray[Any] | int
    ) -> None:
        """``_start`` for the rows of a single position, or of several positions at once if that is possible.

        After an outage there are thousands, and each ``_start`` costs as much as a thousand rows. The next read may use
        the memory of this one, so only values that nobody can change wait for it. The spout may also forget these
        records with the next read, so it is asked about them now.
        """
        values = [list(python_values(column)) for column in columns]
        traced = self._entry.attempt == 1 and (self._trace != 0 or len(self._traced))
        if traced or not all(set(map(type, column)) <= _CONSTANT for column in values):
            self._start_gathered()
            self._start(self._stream(DEFAULT_STREAM), columns, sequences, ordinals)
            return
        if self._entry.attempt > 1 and self._tracked:
            self._ask_for_parents(sequences)
        if isinstance(ordinals, int):  # they count up within each message
            ordinals = ordinals_within(sequences)
        self._gathered.append((values, sequences, ordinals))
        if sum(len(one) for _, one, _ in self._gathered) >= JOINED_ROWS_MAX:
            self._start_gathered()

    def _start_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            columns = [list(chain(*parts)) for parts in zip(*(values for values, _, _ in gathered), strict=True)]
            sequences, ordinals = (np.concatenate(parts) for parts in list(zip(*gathered, strict=True))[1:])
            self._start(self._stream(DEFAULT_STREAM), columns, sequences, ordinals, ask=False)

    def _chunks(self, range_: Range, shift: int) -> Iterator[tuple[npt.NDArray[np.int64], Sequence[Any]]]:
        """Yield the records of the spout as (positions, columns), chunk by chunk, without empty chunks.

        ``positions`` is int64[rows], ascending. If reading ends too early, ``_broken`` has the reason.
        """
        worker = self._stage.worker
        spout: PartitionedSpout = worker.spout(self._entry.task)
        self._bad, self._broken, self._shift = False, None, shift
        self._seen, self._cut, self._misplaced = range_.start - 1, None, []
        chunks: Iterator[Any] | None = None
        while True:
            self._reads += 1
            try:
                with worker.doing(Activity.READ, self._entry.task, self._reads):
                    chunks = iter(spout.read_columns(range_)) if chunks is None else chunks
                    chunk = next(chunks, None)
                checked = None if chunk is None else self._checked(chunk, range_)
            except EnoughRead as error:
                self._broken = self._checked_rest(error, range_)
                return
            except BaseException as error:  # noqa: BLE001  user code may raise anything
                pass_on(error)
                self._broken = error
                return
            if checked is None:
                return
            parts: Iterable[Chunk] = (checked,)
            if not isinstance(checked, BadRecord) and not all(isinstance(one, list | tuple) for one in checked[1]):
                parts = _sound_parts(*checked, self._stream(DEFAULT_STREAM).fields)
            for sound in parts:
                if isinstance(sound, BadRecord):
                    self._bad = True
                    self._seen, self._cut = sound.position, None
                    self._bad_record(sound, shift)
                elif len(sound[0]):
                    self._seen = self._cut = int(sound[0][-1])
                    self._stage.work_seen[self._entry.task].add(len(sound[0]), {}, None)
                    yield sound

    def _checked(self, chunk: Any, range_: Range) -> Chunk:
        """Check a chunk: positions never fall and are in the range, and there is a column for each field.

        Raises:
            EmitError: the chunk breaks one of these rules.
        """
        if isinstance(chunk, BadRecord):
            bad = BadRecord(index(chunk.position), reason_of(chunk.reason)[0] or NO_REASON, index(chunk.skipped))
            self._check_positions(np.array([bad.position], dtype=np.int64), range_)
            return bad
        given, columns = chunk
        positions, columns = np.asarray(given, dtype=np.int64), _columns_of(self._who, columns)
        self._check_positions(positions, range_)
        fields = self._stream(DEFAULT_STREAM).fields
        if len(columns) != len(fields):
            raise EmitError(
                f"{self._who} read {len(columns)} columns on stream {DEFAULT_STREAM!r}, "
                f"which declares {len(fields)} field(s) {fields}"
            )
        lengths = {len(positions), *map(len, columns)}
        if len(lengths) > 1:
            raise EmitError(f"{self._who} read positions and columns of lengths {sorted(lengths)}")
        return positions, columns

    def _checked_rest(self, error: EnoughRead, range_: Range) -> Exception:
        """The reason why reading ended, if the spout has read enough: the error itself, if its position is valid.

        The records so far are complete, and the rest of the range begins at the error's position.
        """
        least = max(self._seen, range_.start) + 1
        try:
            error = EnoughRead(index(error.position), reason_of(error.reason)[0] or NO_REASON)
        except TypeError as raised:
            return raised
        if not least <= error.position < range_.end:
            return EmitError(
                f"{self._who} has read enough of {range_.source!r} up to {error.position}: expected the "
                f"rest to begin at {least} or later, and before {range_.end}"
            )
        self._seen, self._cut = error.position - 1, None
        return error

    def _check_positions(self, positions: npt.NDArray[np.int64], range_: Range) -> None:
        if len(positions) == 0:
            return
        first, last = int(positions[0]), int(positions[-1])
        least = max(self._seen, range_.start)
        if first < least or last >= range_.end or bool((positions[1:] < positions[:-1]).any()):
            behind = positions[(positions >= range_.start) & (positions <= self._seen)]
            self._misplaced = np.unique(behind).tolist()
            raise EmitError(
                f"{self._who} read positions {first} to {last} of {range_.source!r}: expected them to "
                f"rise from {least} on and to stay below {range_.end}"
            )

    def _break_off(self, range_: Range, shift: int, error: BaseException) -> None:
        """Fail trees for a range whose reading ended too early.

        Three kinds of trees fail. First, the tree of the record that was read last, since more of its tuples may be
        missing. Second, one tree for all positions that were not read: that of the first of them. No tuple belongs to
        it, so nothing else can fail it. Third, the tree of each record that came after later ones and was not accepted.
        """
        failure = failure_of(error)
        away = isinstance(error, SourceUnavailable)
        rest = self._seen + 1
        if self._cut is not None:
            text = f"{place_text(range_.source, self._cut)} may not have been read whole: {failure.reason}"
            cause = Cause.INTERRUPTED if away else Cause.CUT
            self._fail_record(self._cut + shift, Failure(cause, text, reported=rest >= range_.end))
        if rest < range_.end:
            more = f" and what follows it up to {range_.end}" if range_.end - rest > 1 else ""
            text = f"reading {place_text(range_.source, rest)}{more}: {failure.reason}"
            if isinstance(error, EnoughRead):
                text = f"{short_source(range_.source)} from {rest} up to {range_.end} is read later: {error}"
                failure = Failure(Cause.POSTPONED, text, reported=not self._stage.lane.tracked)
            elif away:
                text = f"{short_source(range_.source)} is unavailable from {rest} on: {failure.reason}"
                told = self._stage.lane.tracked  # then the driver reports it, once per interval
                failure = Failure(Cause.AWAY, text, reported=not told)
                self._stage.counts(self._component).errors += told
            else:
                failure = Failure(Cause.READ, text, failure.traceback)
            self._fail_record(rest + shift, failure, unread=True)
        for position in self._misplaced:
            text = f"{place_text(range_.source, position)} came behind later records: {failure.reason}"
            self._fail_record(position + shift, Failure(Cause.MISPLACED, text, reported=False))

    def _bad_record(self, record: BadRecord, shift: int) -> None:
        self._stage.counts(self._component).skipped += record.skipped
        failure = Failure(Cause.UNREADABLE, record.reason)
        self._stage.work_seen[self._entry.task].add(1, {0: failure}, None)
        self._fail_record(record.position + shift, failure)

    def _fail_record(self, sequence: int, failure: Failure, *, unread: bool = False) -> None:
        """Start the tree of a record that could not be read, unless it was started before, and fail it.

        A tree of ``unread`` positions fails even if the spout's records are not tracked: they have to be read again.
        """
        if failure.reported:
            self._report(failure)
        if self._tracked or (unread and self._stage.lane.tracked):
            key = tree_key(self._entry.task, sequence)
            self._stage.start_trees(np.array([key], dtype=np.uint64))
            number = self._stage.moment.micro_batch_id
            self._stage.fail(
                Fail(key, self._component, self._index, failure.cause, failure.reason, number, failure.traceback)
            )

    def _report(self, failure: Failure) -> None:
        self._stage.counts(self._component).errors += 1
        self._stage.report(ErrorReport(self._component, self._index, failure.reason, failure.traceback))

    def _records(self, records: Sequence[Record]) -> None:
        by_stream: dict[tuple[str, bool], list[int]] = {}
        values: list[Sequence[Any]] = []
        for place, record in enumerate(records):
            try:
                values.append(record.read())
            except EmitError as error:
                values.append(())
                self._fail_emitted(record, self._entry.base + place, failure_of(error))
                continue
            by_stream.setdefault((record.stream, record.tracked), []).append(place)
        for (name, tracked), places in by_stream.items():
            stream = self._stream(name)
            chosen = [records[place] for place in places]
            columns = [list(column) for column in zip(*(values[place] for place in places), strict=True)]
            sequences = np.array(places, dtype=np.int64) + self._entry.base
            direct_to = np.array([record.direct_to for record in chosen]) if stream.direct else None
            self._start(stream, columns, sequences, 0, tracked=tracked, direct_to=direct_to)

    def _fail_emitted(self, record: Record, sequence: int, failure: Failure) -> None:
        """Report a record of a ``Spout`` that cannot be sent; if the record is tracked, start its tree and fail it."""
        if record.tracked:
            self._fail_record(sequence, Failure(failure.cause, failure.reason))
        else:
            self._report(Failure(failure.cause, failure.reason))

    def _stream(self, name: str) -> StreamRoutes:
        if name not in self._streams:
            raise EmitError(f"spout {self._component!r} declares no stream {name!r}: set `outputs`")
        return self._streams[name]

    def _start(
        self,
        stream: StreamRoutes,
        columns: Sequence[Any],
        sequences: npt.NDArray[np.int64],
        ordinals: npt.NDArray[Any] | int,
        *,
        tracked: bool = True,
        direct_to: npt.NDArray[Any] | None = None,
        ask: bool = True,
    ) -> None:
        """Start a tree for each sequence, and send its first tuples.

        Args:
            stream: the stream of the rows.
            columns: the values of the rows.
            sequences: int64[rows]; equal sequences are neighbours, and their rows belong to one tree.
            ordinals: [rows], the place of each row among the tuples of its message; or the same number for all rows.
            tracked: whether the rows are tracked, if the spout is.
            direct_to: the task number that each row is for, on a direct stream.
            ask: ask the spout for the ``traceparent`` of those that are followed.
        """
        if len(self._left_out):
            out = np.isin(sequences, self._left_out)
            kept = np.flatnonzero(~out)
            for sequence in np.unique(sequences[out]).tolist():
                self._fail_record(sequence, Failure(Cause.EXCLUDED, LEFT_OUT, reported=False))
            if len(kept) == 0:
                return
            if len(kept) < len(sequences):
                sequences, columns = sequences[kept], [take(column_of(column), kept) for column in columns]
                ordinals = ordinals if isinstance(ordinals, int) else ordinals[kept]
                direct_to = None if direct_to is None else direct_to[kept]
        keys = sequences.astype(np.uint64) + np.uint64(tree_key(self._entry.task, 0))
        parents, started = None, empty_u64()
        if self._tracked and tracked:
            starts = run_starts(keys)
            started = keys[starts]
            roots = mix64_array(started)
            several = len(starts) < len(keys)
            of = np.repeat(np.arange(len(starts)), run_lengths(starts, len(keys))) if several else None
            parents = Parents(roots, roots, ordinals, None, of)
        attempts = self._attempts(stream, columns, parents, sequences)
        if attempts is not None and parents is not None and self._has_ranges and ask:
            self._ask_for_parents(sequences[attempts > 1])
        first = self._emitted.get(stream.name, 0)
        self._emitted[stream.name] = first + len(keys)
        path = ((self._entry.task, stream.index),)
        block = EmittedRows(stream, columns, len(keys), first, parents, attempts, direct_to, path)
        self._stage.send_started(Started(block, started), self._entry.task)

    def _ask_for_parents(self, followed: npt.NDArray[np.int64]) -> None:
        """Ask the spout for the ``traceparent`` of messages whose trees are followed.

        Args:
            followed: int64[rows], the sequences of their rows.
        """
        spout: PartitionedSpout = self._stage.worker.spout(self._entry.task)
        if type(spout).trace_parents is PartitionedSpout.trace_parents or not len(followed):
            return
        base = tree_key(self._entry.task, 0)
        roots = {mix64(base + sequence): sequence for sequence in np.unique(followed).tolist()}
        chosen = dict(sorted(roots.items())[:TRACED_MAX])
        try:
            found = dict(spout.trace_parents(sorted(sequence - self._shift for sequence in chosen.values())))
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            pass_on(error)
            self._report(failure_of(error))
            return
        parents = {root: found.get(sequence - self._shift) for root, sequence in chosen.items()}
        self._stage.recorder.came_with({root: text for root, text in parents.items() if text})

    def _attempts(
        self, stream: StreamRoutes, columns: Sequence[Any], parents: Parents | None, sequences: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.uint8] | None:
        """The attempt of each row, uint8[rows], with ``TRACED`` where ``trace`` or an operator chooses the row.

        None: all rows are first attempts, and none is traced.
        """
        ranged = self._entry.source is not None and self._entry.positions is None
        attempt, marks = 1 if ranged else min(self._entry.attempt, ATTEMPT_MAX), None  # records of a range are new
        if self._trace != 0 and parents is not None:
            origin = self._stage.worker.origin(self._entry.task, stream.index)
            chooser = Chooser(self._trace, origin)
            marks = chooser.marks(columns, parents.roots)
            if chooser.error is not None:
                text = f"trace raised {line_of(chooser.error)}; such tuples are not traced"
                self._stage.report(ErrorReport(self._component, self._index, text))
                self._stage.counts(self._component).errors += 1
        if len(self._traced) and parents is not None:
            wanted = np.isin(sequences, self._traced)
            if wanted.any():
                wished = np.where(wanted, np.uint8(TRACED), np.uint8(0))
                marks = wished if marks is None else marks | wished
        if attempt == 1 and marks is None:
            return None
        attempts = np.full(len(sequences), attempt, dtype=np.uint8)
        return attempts if marks is None else attempts | marks


def _sound_parts(positions: npt.NDArray[np.int64], given: Sequence[Any], fields: Sequence[str]) -> Iterator[Chunk]:
    """A chunk in parts, in which a record with a value that cannot be read is a bad record, with all of its tuples.

    Args:
        positions: int64[rows], which never fall.
        given: one column for each field.
        fields: their names.
    """
    columns, reasons, begin = [], {}, 0
    for field, (column, trouble) in zip(fields, map(sound_column, given), strict=True):
        columns.append(column)
        for row in range(len(positions) if trouble is not None else 0):
            reason = sound_column(part(column, row, row + 1))[1]
            if reason is not None:
                reasons[int(positions[row])] = f"field {field!r} cannot be read: {reason}"
    for position, reason in sorted(reasons.items()):
        first, last = np.searchsorted(positions, [position, position + 1]).tolist()
        yield positions[begin:first], [part(column, begin, first) for column in columns]
        yield BadRecord(position, reason)
        begin = last
    yield positions[begin:], [part(column, begin, len(positions)) for column in columns] if begin else columns


def _columns_of(who: str, columns: Any) -> list[Any]:
    """The columns that a spout has read, each an Arrow array, a numpy array, a list or a tuple.

    Raises:
        EmitError: they are not a list of columns; the items of a table or of a dict are not columns.
    """
    if isinstance(columns, str | bytes) or not isinstance(columns, Sequence | ValuesView | np.ndarray):
        raise EmitError(
            f"{who} read a {type(columns).__name__} of columns: expected a list with a column for each field"
        )
    whole = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return [column if isinstance(column, pa.Array | np.ndarray | list | tuple) else list(column) for column in whole]


def numbered(
    chunks: Iterable[tuple[npt.NDArray[np.int64], Sequence[Any]]],
) -> Iterator[tuple[npt.NDArray[np.int64], Sequence[Any], npt.NDArray[Any] | int]]:
    """(positions, columns, ordinals) of chunks, whose positions never fall: the tuples of a message may be in several.

    ``ordinals`` is [rows], the place of each row among the tuples of its message; or 0, where each message begins.
    """
    last, ordinal = -1, 0
    for positions, columns in chunks:
        ordinals: npt.NDArray[Any] | int = 0
        if int(positions[0]) == last:  # the chunk before has the first tuples of this message
            ordinals = ordinals_within(positions)
            ordinals[positions == last] += np.uint32(ordinal)
        ordinal = ordinal if int(positions[-1]) == last else 0
        last = int(positions[-1])
        ordinal += len(positions) - int(positions.searchsorted(last))
        yield positions, columns, ordinals


def clock_rows(lane: Lane, plan: MicroBatchPlan) -> list[Row]:
    """Make a clock row for each task that needs one.

    A clock carries the time, a tick, void trees, trees that time out, outbox acks and values to emit again. A plan of
    an earlier life may name a bolt that is fused now: such a bolt keeps nothing and gets no clock.
    """
    moment = Moment(plan.micro_batch_id, plan.now_ms)
    owner = lane.topology.task_owner
    everybody = {*plan.ticks, *(lane.clocked() if plan.void else ())}
    ranges = plan.source_ranges(owner) if plan.streams else None
    told = {
        *(task for stream in plan.streams for task in lane.topology.tasks(stream.bolt)),
        *plan.asked,
        *plan.clocks,
        *(task for task, _, _ in plan.outbox_acks),
        *(entry.task for entry in plan.again),
    }
    wanted = tuple(mix64(key) for key in plan.expired[:ASKED_FOR_MAX])
    outbox_acks: dict[int, list[Interval]] = {}
    for task, start, end in plan.outbox_acks:
        outbox_acks.setdefault(task, []).append((start, end))
    rows: list[Row] = []
    everyone = told.union(*(lane.topology.tasks(component) for component in everybody))
    for task in sorted(
        (task for task in everyone if owner(task)[0] not in lane.fused_into), key=lambda task: (owner(task)[0], task)
    ):
        clock = Clock(
            tick=owner(task)[0] in plan.ticks,
            void=plan.void,
            wanted=wanted if task in plan.asked else (),
            outbox_acks=tuple(outbox_acks.get(task, ())),
            again=tuple(entry for entry in plan.again if entry.task == task),
            streams=tuple(stream for stream in plan.streams if stream.bolt == owner(task)[0]),
        )
        if clock.streams:
            clock = replace(clock, ranges=ranges)
        rows.append((lane.dests[task], encode_control(FrameKind.CLOCK, clock, moment)))
    return rows


def run_piece(worker: Worker, moment: Moment, piece: Piece, exclusion: Exclusion = NOTHING_EXCLUDED) -> StageResult:
    """Read one entry of a plan, and run the bolts that are fused behind its spout.

    Args:
        worker: the worker of this process.
        moment: the micro-batch.
        piece: the entry, and the records that travel with it.
        exclusion: what this execution of the plan leaves out.
    """
    from sparkbolt.worker.dead_letter_reader import LetterReader
    from sparkbolt.worker.returned_reader import ReturnedReader

    stage, entry = Stage(worker, moment, piece.index), piece.entry
    reader = EntryReader if entry.records is None else ReturnedReader
    (reader if entry.letters is None else LetterReader)(stage, entry, piece.traced, exclusion).read(piece.records)
    return stage.finish()
