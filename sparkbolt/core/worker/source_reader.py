"""Level 0: spout tasks start trees.

Which question it answers: how does an entry of a plan become rows with roots and init edges?
Rule 1: ``sequence = base + (position - start)``; one root a message, with as many init edges as it has deliveries.
Rule 2: a record that cannot be read as one is a tree that failed, not a task that failed. So is a range whose
reading breaks off: a tree fails with cause ``read``, or ``away`` where its source is, which stands for all positions of
the range from its own on; ``postponed`` where the spout has read enough. That holds for a spout that is not tracked,
too: what was not read is not lost.
Rule 3: the same entry gives the same rows with the same ids.

Read before: ``plan``, ``stage``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.exceptions import line_of, pass_on
from sparkbolt.core.base.ids import mix64, mix64_array, ordinals_within, run_lengths, run_starts, tree_key, xor_by_key
from sparkbolt.core.base.intervals import Interval
from sparkbolt.core.model.causes import Cause
from sparkbolt.core.model.components import BadRecord, PartitionedSpout, Range
from sparkbolt.core.model.lane import Lane
from sparkbolt.core.model.progress import Activity
from sparkbolt.core.model.reports import ErrorReport, Fail
from sparkbolt.core.model.tuples import ATTEMPT_MAX, DEFAULT_STREAM
from sparkbolt.core.protocol.edges import Parents
from sparkbolt.core.protocol.frames import Clock, FrameKind, Moment, encode_control
from sparkbolt.core.protocol.plan import ASKED_FOR_MAX, Entry, MicroBatchPlan, Record
from sparkbolt.core.worker.failures import Failure, failure_of
from sparkbolt.core.worker.hop_recorder import Chooser
from sparkbolt.core.worker.results import Row, StageResult
from sparkbolt.core.worker.routing import EmittedRows, StreamRoutes
from sparkbolt.core.worker.stage import Stage
from sparkbolt.core.worker.worker import Worker
from sparkbolt.errors import EmitError, EnoughRead, SourceUnavailable


class EntryReader:
    """Reads one entry of a plan into a stage's run."""

    def __init__(self, stage: Stage, entry: Entry) -> None:
        """Read ``entry`` within ``stage``, whose piece belongs to it alone."""
        self._stage = stage
        self._entry = entry
        self._component, self._index = stage.lane.topology.task_owner(entry.task)
        self._streams = {stream.name: stream for stream in stage.worker.routes(entry.task)}
        spout = stage.worker.spout(entry.task) if entry.source is not None else None
        self._tracked = stage.lane.tracked and (spout is None or spout.tracked)
        self._trace = stage.lane.topology.components[self._component].config.trace
        self._emitted: dict[str, int] = {}
        self._reads = 0
        self._broken: BaseException | None = None
        """Why reading the range ended too early."""
        self._bad = False
        """Whether the range had a record that is none."""
        self._seen = 0
        """The last position of the range that was read; the one before its start, if none was."""
        self._cut: int | None = None
        """The last position, if tuples of it were given: there may have been more of them."""
        self._misplaced: list[int] = []
        """Positions that came behind later ones, and so were not taken."""

    def read(self, records: Sequence[Record] = ()) -> None:
        """Read what the entry names: a range, some positions again, or the records that came along."""
        entry = self._entry
        if entry.source is None:
            self._records(records)
        elif entry.positions is not None:
            for offset, position in enumerate(entry.positions):
                if not isinstance(self._broken, SourceUnavailable):
                    self._again(entry.source, position, entry.base + offset)
                else:  # it is not waited for as often as there are records
                    text = f"{entry.source}@{position} was not asked for, since its source is away"
                    self._fail_record(entry.base + offset, Failure(Cause.AWAY, text, reported=False), unread=True)
        else:
            self._range(Range(self._index, entry.source, entry.start, entry.end))

    def _range(self, range_: Range) -> None:
        shift = self._entry.base - range_.start
        last, ordinal = -1, 0
        for positions, columns in self._chunks(range_, shift):
            ordinals: npt.NDArray[Any] | int = 0
            if int(positions[0]) == last:  # the message's tuples began in the chunk before
                ordinals = ordinals_within(positions)
                ordinals[positions == last] += np.uint32(ordinal)
            ordinal = ordinal if int(positions[-1]) == last else 0
            last = int(positions[-1])
            ordinal += len(positions) - int(positions.searchsorted(last))
            self._start(self._stream(DEFAULT_STREAM), columns, positions + shift, ordinals)
        if self._broken is not None:
            self._break_off(range_, shift, self._broken)
        self._measure(range_)

    def _measure(self, range_: Range) -> None:
        """Tell the driver how large the range was, or what was read of it, if the spout says so."""
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
        for positions, columns in self._chunks(range_, shift):
            found = True
            self._start(self._stream(DEFAULT_STREAM), columns, positions + shift, 0)
        if self._broken is not None:
            self._break_off(range_, shift, self._broken)
        elif not found and not self._bad:
            text = f"the record at {source}@{position} is gone: it could not be given again"
            self._stage.report(ErrorReport(self._component, self._index, text))
            self._stage.counts(self._component).errors += 1

    def _chunks(self, range_: Range, shift: int) -> Iterator[tuple[npt.NDArray[np.int64], Sequence[Any]]]:
        """What the spout reads, chunk by chunk, none of them empty; ``_broken`` says why it ended too early."""
        worker = self._stage.worker
        spout: PartitionedSpout = worker.spout(self._entry.task)
        self._bad, self._broken = False, None
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
            if isinstance(checked, BadRecord):
                self._bad = True
                self._seen, self._cut = checked.position, None
                self._bad_record(checked, shift)
            elif len(checked[0]):
                self._seen = self._cut = int(checked[0][-1])
                yield checked

    def _checked(self, chunk: Any, range_: Range) -> BadRecord | tuple[npt.NDArray[np.int64], Sequence[Any]]:
        """A chunk as it has to be: positions rise and are in the range, and there are as many columns as fields."""
        if isinstance(chunk, BadRecord):
            self._check_positions(np.array([chunk.position], dtype=np.int64), range_)
            return chunk
        given, columns = chunk
        positions = np.asarray(given, dtype=np.int64)
        self._check_positions(positions, range_)
        fields = self._stream(DEFAULT_STREAM).fields
        if len(columns) != len(fields):
            raise EmitError(
                f"spout {self._component!r} read {len(columns)} columns on stream {DEFAULT_STREAM!r}, "
                f"which declares {len(fields)} field(s) {fields}"
            )
        lengths = {len(positions), *map(len, columns)}
        if len(lengths) > 1:
            raise EmitError(f"spout {self._component!r} read positions and columns of lengths {sorted(lengths)}")
        return positions, columns

    def _checked_rest(self, error: EnoughRead, range_: Range) -> Exception:
        """Where a spout has read enough of a range: what was given is whole, and the rest begins where it says."""
        least = max(self._seen, range_.start) + 1
        if not least <= error.position < range_.end:
            return EmitError(
                f"spout {self._component!r} has read enough of {range_.source!r} up to {error.position}: expected the "
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
                f"spout {self._component!r} read positions {first} to {last} of {range_.source!r}: expected them to "
                f"rise from {least} on and to stay below {range_.end}"
            )

    def _break_off(self, range_: Range, shift: int, error: BaseException) -> None:
        """Reading ended too early: nobody knows what would have come.

        The tree of the record fails that was given last, which may be the first tuple of several; for all positions
        behind it that of the first of them, to which no tuple belongs, so that nothing else can fail it; and that of
        each record that came too late to be taken.
        """
        failure = failure_of(error)
        away = isinstance(error, SourceUnavailable)
        rest = self._seen + 1
        if self._cut is not None:
            text = f"{range_.source}@{self._cut} may not have been read whole: {failure.reason}"
            cause = Cause.INTERRUPTED if away else Cause.CUT
            self._fail_record(self._cut + shift, Failure(cause, text, reported=rest >= range_.end))
        if rest < range_.end:
            more = f" and what follows it up to {range_.end}" if range_.end - rest > 1 else ""
            text = f"reading {range_.source}@{rest}{more}: {failure.reason}"
            if isinstance(error, EnoughRead):
                text = f"{range_.source} from {rest} up to {range_.end} is read later: {error}"
                failure = Failure(Cause.POSTPONED, text, reported=not self._stage.lane.tracked)
            elif away:
                text = f"{range_.source} is away, from {rest} on: {failure.reason}"
                told = self._stage.lane.tracked  # who hears of the verdict says so, once an interval
                failure = Failure(Cause.AWAY, text, reported=not told)
                self._stage.counts(self._component).errors += told
            else:
                failure = Failure(Cause.READ, text, failure.traceback)
            self._fail_record(rest + shift, failure, unread=True)
        for position in self._misplaced:
            text = f"{range_.source}@{position} came behind later records: {failure.reason}"
            self._fail_record(position + shift, Failure(Cause.MISPLACED, text, reported=False))

    def _bad_record(self, record: BadRecord, shift: int) -> None:
        self._stage.counts(self._component).skipped += record.skipped
        self._fail_record(record.position + shift, Failure(Cause.UNREADABLE, record.reason))

    def _fail_record(self, sequence: int, failure: Failure, *, unread: bool = False) -> None:
        """The tree of a record that could not be read: it is started, unless it was, and fails.

        What is ``unread`` is asked for again even where records are not tracked.
        """
        if failure.reported:
            self._report(failure)
        if self._tracked or (unread and self._stage.lane.tracked):
            key = tree_key(self._entry.task, sequence)
            self._stage.start_trees(np.array([key], dtype=np.uint64), np.zeros(1, dtype=np.uint64))
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
        """A ``Spout`` has emitted what cannot travel: its tree begins and fails, if there is to be one."""
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
    ) -> None:
        """Start a tree for each sequence and send its first tuples off."""
        keys = sequences.astype(np.uint64) + np.uint64(tree_key(self._entry.task, 0))
        parents = None
        if self._tracked and tracked:
            starts = run_starts(keys)
            started = keys[starts]
            roots = mix64_array(started)
            several = len(starts) < len(keys)
            of = np.repeat(np.arange(len(starts)), run_lengths(starts, len(keys))) if several else None
            parents = Parents(roots, roots, ordinals, None, of)
            self._stage.start_trees(*xor_by_key(started, np.zeros(len(started), dtype=np.uint64)))
        attempts = self._attempts(stream, columns, parents, len(keys))
        first = self._emitted.get(stream.name, 0)
        self._emitted[stream.name] = first + len(keys)
        path = ((self._entry.task, stream.index),)
        self._stage.send(
            EmittedRows(stream, columns, len(keys), first, parents, attempts, direct_to, path), self._entry.task
        )

    def _attempts(
        self, stream: StreamRoutes, columns: Sequence[Any], parents: Parents | None, count: int
    ) -> npt.NDArray[np.uint8] | None:
        """The attempt of each row, with ``TRACED`` where ``trace`` chooses it; None: all first and not traced."""
        ranged = self._entry.source is not None and self._entry.positions is None
        attempt, marks = 1 if ranged else min(self._entry.attempt, ATTEMPT_MAX), None  # what a range gives is new
        if self._trace != 0 and parents is not None:
            origin = self._stage.worker.origin(self._entry.task, stream.index)
            chooser = Chooser(self._trace, origin)
            marks = chooser.marks(columns, parents.roots)
            if chooser.error is not None:
                text = f"trace raised {line_of(chooser.error)}; such tuples are not traced"
                self._stage.report(ErrorReport(self._component, self._index, text))
                self._stage.counts(self._component).errors += 1
        if attempt == 1 and marks is None:
            return None
        attempts = np.full(count, attempt, dtype=np.uint8)
        return attempts if marks is None else attempts | marks


def clock_rows(lane: Lane, plan: MicroBatchPlan) -> list[Row]:
    """One row for each task that is told something: the time, a tick, what is void or asked, what became of trees.

    A plan of an earlier life may name a bolt that has become fused since, which keeps nothing and hears nothing.
    """
    moment = Moment(plan.micro_batch_id, plan.now_ms)
    owner = lane.topology.task_owner
    everybody = {*plan.ticks, *(lane.clocked() if plan.void else ())}
    told = {
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
        )
        rows.append((lane.dests[task], encode_control(FrameKind.CLOCK, clock, moment)))
    return rows


def run_entry(worker: Worker, moment: Moment, piece: int, entry: Entry, records: Sequence[Record] = ()) -> StageResult:
    """Read one entry of a plan and run whatever is fused behind its spout.

    Args:
        worker: what the process keeps.
        moment: the micro-batch.
        piece: the entry's index in the plan.
        entry: what to read.
        records: for an entry of a ``Spout``, what it emitted.
    """
    from sparkbolt.core.worker.dead_letter_reader import LetterReader

    stage = Stage(worker, moment, piece)
    (EntryReader if entry.letters is None else LetterReader)(stage, entry).read(records)
    return stage.finish()
