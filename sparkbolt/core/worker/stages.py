"""Stages: what one process does for one micro-batch, at the source or at a level.

Which question it answers: rows in, rows out; what happens between them?
Rule 1: frames are put in order before user code sees them.
Rule 2: ack partials are combined here, once a stage, and split by acker task.

Read before: ``tasks``, ``worker``, ``hop_recorder``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from sparkbolt.core.base.exceptions import pass_on, printed
from sparkbolt.core.base.hashing import UnroutableError
from sparkbolt.core.base.ids import U64, unmix64, unmix64_array
from sparkbolt.core.model.metrics import ComponentMetrics, pack, unpack
from sparkbolt.core.model.outage import Health, add_healths
from sparkbolt.core.model.pickling import attributes_of
from sparkbolt.core.model.progress import Activity
from sparkbolt.core.model.reports import ErrorReport, Fail
from sparkbolt.core.model.runtime_bolts import RuntimeBolt
from sparkbolt.core.model.story import Hop
from sparkbolt.core.model.tuples import SYSTEM_COMPONENT, Origin, tick
from sparkbolt.core.protocol.accounts import Accounts
from sparkbolt.core.protocol.acker import Partials, combine
from sparkbolt.core.protocol.edges import Anchoring
from sparkbolt.core.protocol.frames import (
    FEEDBACK,
    PARTIALS,
    Column,
    Frame,
    Inbox,
    Moment,
    Path,
    decode_control,
    encode,
    encode_control,
    kind_of,
    part,
    python_values,
    unpicklable,
    unwrap,
    wrap,
)
from sparkbolt.core.protocol.plan import Timer
from sparkbolt.core.protocol.shards import shards_of
from sparkbolt.core.protocol.verdict_codec import decode_partials, encode_partials
from sparkbolt.core.state.segments import SegmentStore
from sparkbolt.core.worker.failures import failure_of
from sparkbolt.core.worker.forgetting import forget_in
from sparkbolt.core.worker.health import WorkSeen
from sparkbolt.core.worker.holding import held_tuples
from sparkbolt.core.worker.hop_recorder import Tracer
from sparkbolt.core.worker.outbox import Outbox, Started
from sparkbolt.core.worker.routing import EmittedRows, RoutedRows, roots_of_row, route, without
from sparkbolt.core.worker.tasks import BoltTask, Counts
from sparkbolt.core.worker.tuple_batch import Rows, emitted_rows_of
from sparkbolt.core.worker.worker import Worker
from sparkbolt.errors import PrepareError, Unavailable

Row: TypeAlias = tuple[int, bytes]
"""(dest, frame): what moves between stages."""

COLUMN_BYTES_GUESS = 64
_NOWHERE = Origin("", -1, "", ())
TRACEBACKS_MAX = 50
"""How many failed trees of one stage and micro-batch keep the traceback; all keep the reason."""


class StageRun:
    """One process's part in one micro-batch; obeys the ``Sink`` protocol of ``tasks``."""

    def __init__(self, worker: Worker, moment: Moment, piece: int = 0) -> None:
        """Begin; ``piece`` tells this part of a source's work from the others of the micro-batch."""
        self.worker = worker
        self.lane = worker.lane
        self.moment = moment
        self.piece = piece
        self.observer = worker.environment.observer
        self.rows: list[Row] = []
        self._sequences: dict[tuple[int, int], int] = {}
        self._metrics: dict[str, ComponentMetrics] = {}
        self._reports: list[ErrorReport] = []
        self._accounts = Accounts()
        self._holds: list[tuple[U64, int]] = []
        self._touched: list[U64] = []
        self._fails: list[Fail] = []
        self._tracebacks = 0
        self._reported: dict[tuple[str, int], int] = {}
        self._parts: list[Partials] = []
        self._tracer: Tracer | None = None
        self._hops: list[Hop] = []
        """Of earlier stages."""
        self._fused: dict[int, BoltTask] = {}
        """The tasks of fused bolts that have got rows."""
        self._unflushed: dict[int, list[Rows]] = {}
        """What those of them have got that are to be flushed at the end."""
        self._captured: list[tuple[str, int, str, Sequence[Column]]] = []
        """What was emitted, for whoever is told of it once it counts."""
        self._ready: list[int] = []
        """Tasks whose state is ready to be committed."""
        self._timers: dict[int, Timer | None] = {}
        """When hosted tasks are to be told the time next."""
        self._counted_before: list[dict[str, ComponentMetrics]] = []
        """Counters of earlier stages: passed on with this one's own, which alone say what is done here."""
        self._healths: dict[str, Health] = {}
        """Of earlier stages."""
        self._work_seen: dict[int, WorkSeen] = {}
        """By task, of this one."""
        if worker.monitor is not None:
            worker.monitor.stage(moment.micro_batch_id, self._metrics)

    # What tasks say of trees.

    def ack(self, roots: U64, xors: U64) -> None:
        """Add to the accounts of roots."""
        if self.observer is not None:
            self.observer.settled(roots, xors)
        self._accounts.add(roots, xors)

    def ack_all(self, anchoring: Anchoring) -> None:
        """``ack`` of all rows of a block."""
        if self.observer is not None:
            self.observer.settled(anchoring.roots, anchoring.edges)
        self._accounts.add_all(anchoring)

    def hold(self, roots: U64, task: int) -> None:
        """A task holds tuples of these roots."""
        self._holds.append((unmix64_array(roots), task))

    def touch(self, roots: U64) -> None:
        """These roots get a full timeout again."""
        self._touched.append(unmix64_array(roots))

    def fail(self, fail: Fail) -> None:
        """A tree failed."""
        if self.observer is not None:
            self.observer.failed(fail)
        if fail.traceback is not None:
            self._tracebacks += 1
            if self._tracebacks > TRACEBACKS_MAX:
                fail = replace(fail, traceback=None)
        self._fails.append(fail)

    def report(self, report: ErrorReport) -> None:
        """Somebody reported an error; of a flood of them only the first are passed on, all are counted."""
        who = report.component, report.task
        self._reported[who] = self._reported.get(who, 0) + 1
        if self._reported[who] <= self.lane.topology.config.max_error_report_per_interval:
            self._reports.append(report)

    def start_trees(self, keys: U64, xors: U64) -> None:
        """A spout task has started these trees."""
        if self.observer is not None:
            self.observer.started(keys)
        self._parts.append(Partials(init_keys=keys, init_xors=xors))

    @property
    def tracer(self) -> Tracer:
        """What gathers hops; made when there is one to tell."""
        if self._tracer is None:
            self._tracer = Tracer(self.lane, self.moment)
        return self._tracer

    def counts(self, component: str) -> ComponentMetrics:
        """The counters of a component in this micro-batch."""
        if component not in self._metrics:
            self._metrics[component] = ComponentMetrics()
        return self._metrics[component]

    # Work.

    def run_level(self, number: int, inbox: Inbox, store: SegmentStore | None) -> None:
        """Run one task of a level on what came for it."""
        component, _ = self.lane.topology.task_owner(number)
        spec = self.lane.topology.components[component]
        self.worker.enter(number)
        stateful = store is not None and spec.keeps_state
        own = None
        try:
            if stateful and store is not None:
                with self.worker.doing(Activity.STATE, number):
                    task = self.worker.load(number, store)
                    own = self.worker.outbox(number)
            else:
                task = self.worker.bolt(number)
        except (Unavailable, PrepareError) as error:
            if isinstance(spec.component, RuntimeBolt) or component in self.lane.starters:
                raise  # what its clock says must not be lost: the micro-batch is run again
            self._not_prepared(number, [self._rows_of(frame) for frame in inbox.in_order()], error)
            return
        self._begin(task)
        runtime = self.worker.attach(number, inbox.clock) if stateful else None
        seen: list[Rows] = []
        if inbox.clock is not None and inbox.clock.void:
            forget_in(task.bolt, dict(inbox.clock.void))
        if inbox.clock is not None and inbox.clock.wanted:
            wanted = frozenset(inbox.clock.wanted)
            self.tracer.holds(task.context, held_tuples(attributes_of(task.bolt), wanted), wanted)
        if inbox.clock is not None and own is not None:
            with self.worker.doing(Activity.STATE, number):
                again = own.receive(inbox.clock, task.output)
            for started in again:
                self._send_started(started, number)
        if runtime is not None:
            self._between(task, runtime.begin, own)
        if inbox.clock is not None and inbox.clock.tick:
            rate = spec.config.tick_tuple_freq_secs or 0.0
            tup = tick(rate)
            seen.append(self._work(task, Rows(tup._origin, 1, [[rate]], None, None), own))
        for frame in inbox.in_order():
            if frame.unreadable:
                frame = self._readable(frame)
            seen.append(self._work(task, self._rows_of(frame), own))
        if runtime is not None:
            self._between(task, runtime.end, own)
            self._timers[number] = runtime.timer
        if any(rows.count for rows in seen) or (runtime is not None and runtime.has_run):
            self._flush(task, seen, own)
        if stateful:
            with self.worker.doing(Activity.STATE, number):
                self.worker.make_ready(number)
            self._ready.append(number)
        else:
            self.worker.leave(number)

    def save(self) -> None:
        """Commit the state of all tasks that have run."""
        for number in self._ready:
            with self.worker.doing(Activity.STATE, number):
                warning = self.worker.save(number)
            if warning is not None:
                self.report(ErrorReport(*self.lane.topology.task_owner(number), warning))
            self.worker.leave(number)
        self._ready.clear()

    def _rows_of(self, frame: Frame) -> Rows:
        origin = self.worker.origin(frame.source, frame.stream)
        return Rows(origin, frame.rows, frame.columns, frame.anchoring, frame.attempts, frame.path)

    def _not_prepared(self, number: int, came: Sequence[Rows], error: Unavailable | PrepareError) -> None:
        """A task cannot be prepared, perhaps since something is away that it depends on: all that came for it fails."""
        component, index = self.lane.topology.task_owner(number)
        failure, micro_batch_id = failure_of(error), self.moment.micro_batch_id
        self.report(ErrorReport(component, index, f"it could not be prepared: {failure.reason}", failure.traceback))
        metrics = self.counts(component)
        metrics.errors += 1
        seen = self._work_seen.setdefault(number, WorkSeen())
        for rows in came:
            seen.add(rows.count, dict.fromkeys(range(rows.count), failure), rows.attempts)
            metrics.failed += rows.count
            for row in range(rows.count):
                for root, _ in rows.anchors_of(row):
                    self.fail(Fail(unmix64(root), component, index, failure.cause, failure.reason, micro_batch_id))
        self.worker.leave(number)

    def _begin(self, task: BoltTask) -> None:
        task.context.micro_batch_id = self.moment.micro_batch_id
        task.context.now_ms = self.moment.now_ms
        task.output.begin()

    def _send_started(self, started: Started, number: int) -> None:
        for reason in started.refused:
            self._refuse(number, (), reason, started.block.path)
        if len(started.keys):
            self.start_trees(started.keys, np.zeros(len(started.keys), dtype=np.uint64))
        if started.block.count:
            self.send(started.block, number)

    def _between(self, task: BoltTask, step: Callable[[Counts], None], own: Outbox | None) -> None:
        """A step of a hosted bolt before or behind its rows, then everything it emitted."""
        self._work_on(task, Rows(_NOWHERE, 0, [], None, None), own, lambda _, sink: task.run_between(step, sink))

    def _work(self, task: BoltTask, rows: Rows, own: Outbox | None = None) -> Rows:
        """User code on some rows, then everything it emitted on its way; piece by piece where somebody watches."""
        if task.watch is None:
            self._work_on(task, rows, own)
        else:
            for start, stop in task.watch.spans(rows.count):
                self._work_on(task, rows.part(start, stop), own)
        return rows

    def _work_on(
        self, task: BoltTask, rows: Rows, own: Outbox | None, run: Callable[[Rows, StageRun], Counts] | None = None
    ) -> None:
        clock = self.worker.environment.clock
        if self.observer is not None and run is None:
            rows = self.observer.starting(task, rows)
        monitor = self.worker.monitor
        before = monitor.begin(Activity.EXECUTE, task.context.task, rows.count, task) if monitor is not None else None
        started = clock()
        try:
            counts = (run or task.run)(rows, self)
        finally:
            if monitor is not None and before is not None:
                monitor.back(before)
        if task.watch is not None and run is None:
            task.watch.rest()
        self.counts(task.context.component).execute_ms += (clock() - started) * 1000
        self._add(task.context.component, counts)
        self._judge(task, rows, counts)
        self._trace(task, rows, counts)
        self._send_emitted(task, rows, own)

    def _flush(self, task: BoltTask, seen: list[Rows], own: Outbox | None = None) -> None:
        """The task has got its last rows of the micro-batch; what it emits now goes the way of all that it emits."""
        counts = task.flush(seen, self)
        self._add(task.context.component, counts)
        if counts.flush_failure is not None and task.context.task in self._work_seen:
            self._work_seen[task.context.task].fail_all(counts.flush_failure)
        nothing = Rows(_NOWHERE, 0, [], None, None)
        self._judge(task, nothing, counts)
        self._trace(task, nothing, counts)
        self._send_emitted(task, nothing, own)

    def _send_emitted(self, task: BoltTask, rows: Rows, own: Outbox | None) -> None:
        if self.observer is not None:
            self.observer.sending(task)
        for out in task.output.streams.values():
            if not out.collected:
                self.counts(task.context.component).emitted += out.count
            elif out.count:
                path = (*(rows.path if not out.extras else ()), (task.context.task, out.routes.index))
                for block in emitted_rows_of(out, rows, self.lane.tracked):
                    block.path = path
                    started = own.start(block) if own is not None else Started(block)
                    self._send_started(started, task.context.task)
            out.clear()

    def _trace(self, task: BoltTask, rows: Rows, counts: Counts) -> None:
        """Note the hops that are worth it: a frame of unmarked first attempts that do not fail costs three looks."""
        if rows.attempts is not None or counts.failures:
            self.tracer.worked(task.context, rows, counts.failures, counts.held)
        if counts.late_fails or (counts.late_acks and self.lane.traces):
            self.tracer.settled(task.context, counts.late_acks if self.lane.traces else (), counts.late_fails)

    def _add(self, component: str, counts: Counts) -> None:
        metrics = self.counts(component)
        metrics.executed += counts.executed
        metrics.acked += counts.acked
        metrics.failed += counts.failed
        metrics.errors += counts.errors
        if counts.of_windows is not None:
            metrics.add(counts.of_windows)

    def _judge(self, task: BoltTask, rows: Rows, counts: Counts) -> None:
        """Note whether a bolt does its work on what it gets."""
        given = rows.count if rows.origin.component != SYSTEM_COMPONENT else 0
        if not (given or counts.of_trees or counts.late_acks):
            return
        seen = self._work_seen.setdefault(task.context.task, WorkSeen())
        if given:
            seen.add(given, counts.failures, rows.attempts, counts.held)
        seen.add(len(counts.late_acks), {}, None)
        for trees, failure in counts.of_trees:
            seen.add(trees, dict.fromkeys(range(trees), failure), None)

    def send(self, block: EmittedRows, sender: int) -> None:
        """Route a block; what its parents' accounts owe is kept for the acker."""
        self.counts(block.stream.component).emitted += block.count
        debug = self.worker.environment.debug
        if debug is not None and self.lane.topology.components[block.stream.component].config.debug:
            for values in zip(*map(python_values, block.columns), strict=True):
                debug(f"{block.stream.component} emits on {block.stream.name}: {printed(list(values))}")
        if self.worker.environment.capture is not None:
            _, index = self.lane.topology.task_owner(sender)
            self._captured.append((block.stream.component, index, block.stream.name, block.columns))
        if not block.stream.routes:
            return
        account = None
        stream, path = block.stream.index, block.path

        def deliver(routed: RoutedRows) -> None:
            self._deliver(sender, stream, routed, path)

        while True:
            try:
                account = route(
                    block,
                    sender,
                    self.moment.micro_batch_id,
                    deliver,
                )
                break
            except UnroutableError as error:
                self._refuse(sender, roots_of_row(block, error.row), str(error), path)
                block = without(block, error.row)
        if block.attempts is not None:
            self.tracer.emitted(block, sender)
        if block.parents is not None and account is not None:
            self._accounts.add(block.parents.pair_roots, account)

    def _refuse(self, sender: int, roots: Sequence[int], reason: str, path: Path) -> None:
        """An emitted row cannot travel: the trees that it belongs to fail, and its component is told."""
        component, index = self.lane.topology.task_owner(sender)
        self.counts(component).errors += 1
        self.report(ErrorReport(component, index, reason))
        self.tracer.refused(roots, path)
        for root in roots:
            self.fail(Fail(unmix64(root), component, index, "emit", reason, self.moment.micro_batch_id))

    def _deliver(self, sender: int, stream: int, routed: RoutedRows, path: Path) -> None:
        if self.observer is not None:
            self.observer.sent(sender, stream, routed)
        if routed.route.fused:
            origin = self.worker.origin(sender, stream)
            rows = Rows(origin, routed.count, routed.columns, routed.anchoring, routed.attempts, path)
            try:
                task = self._enter_fused(routed.target)
            except (Unavailable, PrepareError) as error:
                self._not_prepared(routed.target, [rows], error)
                return
            with self.observer.giving(rows) if self.observer is not None else nullcontext():
                self._work(task, rows)
            if routed.target in self._unflushed:  # without their values: only whose they are may still be asked
                done = Rows(origin, routed.count, [], routed.anchoring, routed.attempts, path)
                self._unflushed[routed.target].append(done)
            return
        dest = self.lane.dests[routed.target]
        for start, stop in self._pieces(routed):
            frame = self._frame(sender, stream, routed, start, stop)
            frame.path = path
            self._send_frame(dest, frame)

    def _send_frame(self, dest: int, frame: Frame) -> None:
        """Send a frame as one row, or as several where it turns out too large."""
        try:
            data = encode(frame, self.moment)
        except BaseException as error:  # noqa: BLE001  pickling calls user code, which may raise anything
            pass_on(error)
            frame = self._pickled_alone(frame)
            data = encode(frame, self.moment)
        config = self.lane.topology.config
        if len(data) > 2 * config.frame_bytes_max and frame.rows > 1:
            pieces = min(frame.rows, -(-len(data) // config.frame_bytes_max))
            del data
            for rows in np.array_split(np.arange(frame.rows), pieces):
                part_ = frame.take(rows)
                part_.sequence = self._next_sequence(frame.source, frame.stream)
                self._send_frame(dest, part_)
        elif len(data) > config.tuple_bytes_max and frame.rows:
            text = (
                f"a tuple of {len(data):,} bytes cannot be sent to another task: tuple_bytes_max is "
                f"{config.tuple_bytes_max:,}; send a reference to what is large, such as a path, or raise the limit"
            )
            self._refuse(frame.source, frame.roots_of(0), text, frame.path)
        else:
            self.rows.append((dest, data))

    def _enter_fused(self, number: int) -> BoltTask:
        """The task of a fused bolt, which begins with the first rows that it gets in this run and ends with the run."""
        if number in self._fused:
            return self._fused[number]
        self.worker.enter(number)
        task = self._fused[number] = self.worker.bolt(number)
        self._begin(task)
        if task.flushes:
            self._unflushed[number] = []
        return task

    def _end_fused(self) -> None:
        """Flush the tasks of fused bolts, those first that may give the others more to do."""
        depths, owner = self.lane.depths, self.lane.topology.task_owner
        while self._unflushed:
            number = min(self._unflushed, key=lambda number: (depths[owner(number)[0]], number))
            seen = self._unflushed.pop(number)
            self._flush(self._fused[number], seen)
        for number in self._fused:
            self.worker.leave(number)
        self._fused.clear()

    def _readable(self, frame: Frame) -> Frame:
        """The frame less the rows with a value that cannot be read here; their trees fail."""
        fields = self.worker.origin(frame.source, frame.stream).fields
        for row, (column, reason) in sorted(frame.unreadable.items()):
            text = (
                f"field {fields[column]!r} holds a value that cannot be sent to another task (it can be pickled, and "
                f"reading it back raises {reason})"
            )
            self._refuse(frame.source, frame.roots_of(row), text, frame.path)
        return frame.take(np.delete(np.arange(frame.rows), list(frame.unreadable)))

    def _pickled_alone(self, frame: Frame) -> Frame:
        """The frame less the rows that have a value which cannot be pickled; their trees fail."""
        kept = []
        fields = self.worker.origin(frame.source, frame.stream).fields
        for row in range(frame.rows):
            for field_, column in zip(fields, frame.columns, strict=True):
                reason = unpicklable(column, row)
                if reason is not None:
                    text = f"field {field_!r} holds a value that cannot be sent to another task ({reason})"
                    self._refuse(frame.source, frame.roots_of(row), text, frame.path)
                    break
            else:
                kept.append(row)
        return frame.take(np.array(kept, dtype=np.intp))

    def _frame(self, sender: int, stream: int, routed: RoutedRows, start: int, stop: int) -> Frame:
        sequence = self._next_sequence(sender, stream)
        columns, anchoring, attempts = routed.columns, routed.anchoring, routed.attempts
        if (start, stop) != (0, routed.count):
            columns = [part(column, start, stop) for column in columns]
            anchoring = anchoring.take(np.arange(start, stop)) if anchoring is not None else None
            attempts = attempts[start:stop] if attempts is not None else None
        return Frame(sender, stream, self.piece, sequence, stop - start, columns, anchoring, attempts)

    def _next_sequence(self, sender: int, stream: int) -> int:
        sequence = self._sequences.get((sender, stream), 0)
        self._sequences[sender, stream] = sequence + 1
        return sequence

    def _pieces(self, routed: RoutedRows) -> Iterator[tuple[int, int]]:
        """Split a parcel so that no frame is much larger than ``frame_bytes_max``."""
        most = self.lane.topology.config.frame_bytes_max
        # What a slice leaves out counts as well at first: that is asked for in a twentieth of the time.
        size = sum([_size(column, routed.count, whole=True) for column in routed.columns]) + 16 * routed.count
        if size > most:
            size = sum([_size(column, routed.count) for column in routed.columns]) + 16 * routed.count
        pieces = max(1, -(-size // most))
        step = max(1, -(-routed.count // pieces))
        for start in range(0, routed.count, step):
            yield start, min(start + step, routed.count)

    # What comes in and passes on, and what goes out.

    def absorb(self, data: Any) -> bool:
        """Take in a row of partials or feedback, to be combined with this stage's own; False if it is neither."""
        kind = kind_of(data)
        if kind == PARTIALS:
            self._parts.append(decode_partials(unwrap(data, PARTIALS)))
        elif kind == FEEDBACK:
            metrics, reports, hops, timers, healths = decode_control(data, FEEDBACK)
            self._timers.update(timers)
            self._counted_before.append(unpack(metrics))
            add_healths(self._healths, healths)
            self._reports.extend(reports)
            self._hops.extend(hops)
        else:
            return False
        return True

    def close(self) -> list[Row]:
        """All rows that leave the stage: frames, then partials by acker task, then metrics and reports."""
        self._end_fused()
        rows, self.rows = self.rows, []
        capture = self.worker.environment.capture
        if capture is not None:
            for emitted in self._captured:
                capture(*emitted)
        if self.lane.tracked:
            for shard, partials in shards_of(self._combined(), len(self.lane.acker_dests)).items():
                body = encode_partials(partials)
                rows.append((self.lane.acker_dests[shard], wrap(PARTIALS, body, self.moment)))
        hops = [*self._hops, *(self._tracer.hops() if self._tracer is not None else ())]
        metrics = self._all_metrics()
        for number, seen in self._work_seen.items():
            add_healths(self._healths, {self.lane.topology.task_owner(number)[0]: seen.health()})
        if metrics or self._reports or hops or self._timers or self._healths:
            told = pack(metrics), self._reports, hops, self._timers, self._healths
            rows.append((self.lane.feedback_dest, encode_control(FEEDBACK, told, self.moment)))
        return rows

    def _all_metrics(self) -> dict[str, ComponentMetrics]:
        """What was counted here and in earlier stages."""
        found: dict[str, ComponentMetrics] = {}
        for metrics in (*self._counted_before, self._metrics):
            for component, counts in metrics.items():
                found.setdefault(component, ComponentMetrics()).add(counts)
        return found

    def _combined(self) -> Partials:
        parts = [*self._parts, *self._accounts.partials()]
        for keys, task in self._holds:
            parts.append(Partials(held_keys=keys, held_by=np.full(len(keys), task, dtype=np.int32)))
        for keys in self._touched:
            parts.append(Partials(touched_keys=keys))
        if self._fails:
            parts.append(Partials(fails=self._fails))
        return combine(parts)


def _size(column: Column, count: int, *, whole: bool = False) -> int:
    if isinstance(column, pa.Array):
        return int(column.get_total_buffer_size() if whole else column.nbytes)
    texts = [len(value) for value in column if value.__class__ is str or value.__class__ is bytes]
    return COLUMN_BYTES_GUESS * count + sum(texts)  # of 2 GiB of text and more Arrow makes no column
