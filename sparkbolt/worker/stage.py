"""The stage: what one process does for one micro-batch, at the source or at a level.

Rule 1: data flows one way. Frames are sorted before user code sees them; a task returns what it did, and the stage
folds that into its ``StageResult``. Ack partials are combined here, once for each stage.
Rule 2: no task's state is committed before all tasks' states are known to be such that they can be kept. If one cannot
be kept, the work is repeated, in the same process, without the tuple that is to blame (``crash_isolation``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from sparkbolt.api.causes import Cause
from sparkbolt.api.committers import take_rows
from sparkbolt.api.metrics import ComponentMetrics, unpack
from sparkbolt.api.outage import add_healths
from sparkbolt.api.pickling import attributes_of
from sparkbolt.api.progress import Activity
from sparkbolt.api.reports import ErrorReport, Fail
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.tuples import SYSTEM_COMPONENT, TRACED, tick
from sparkbolt.base.exceptions import printed
from sparkbolt.base.hashing import UnroutableError
from sparkbolt.base.ids import U64, unmix64, unmix64_array
from sparkbolt.errors import PrepareError, Unavailable
from sparkbolt.observe.measurements import READ, Measurements, level_part
from sparkbolt.wire.acker import Accounts, combine, decode_partials
from sparkbolt.wire.exclusion import NOTHING_EXCLUDED, Exclusion
from sparkbolt.wire.frames import (
    Column,
    Frame,
    FrameKind,
    Inbox,
    Moment,
    Path,
    collect,
    decode_control,
    encode_control,
    kind_of,
    moment_of,
    python_values,
    unwrap,
)
from sparkbolt.wire.verdicts import Partials
from sparkbolt.worker.crash_isolation import Unkept
from sparkbolt.worker.emissions import Rows
from sparkbolt.worker.failures import failure_of, stop_without_tree
from sparkbolt.worker.health import WorkSeen
from sparkbolt.worker.held_tuples import forget_in, held_tuples
from sparkbolt.worker.hop_recorder import HopRecorder
from sparkbolt.worker.meter import NOWHERE, Call, Meter
from sparkbolt.worker.outbox import Outbox, Started
from sparkbolt.worker.results import FrameWriter, Refusal, Row, StageResult, TaskResult, parted, readable
from sparkbolt.worker.routing import EmittedRows, RoutedRows, roots_of_row, route, without
from sparkbolt.worker.state.segments import SegmentStore
from sparkbolt.worker.tasks import BoltTask
from sparkbolt.worker.worker import Worker

TRACEBACKS_MAX = 50
"""How many failures of one stage in one micro-batch keep their traceback; all keep their reason."""


class Stage:
    """One process's part in one stage of a micro-batch: it runs tasks, and folds what they return into one result."""

    exclusion: Exclusion = NOTHING_EXCLUDED
    """The trees that its tasks may have started, and whose tuples are not sent."""

    def __init__(self, worker: Worker, moment: Moment, piece: int = 0, *, part: str = READ) -> None:
        """Begin the stage.

        Args:
            worker: the worker of this process.
            moment: the micro-batch.
            piece: distinguishes this part of the sources' work from the other parts.
            part: the name of the part of the micro-batch, for its measurements.
        """
        self.worker = worker
        self.lane = worker.lane
        self.moment = moment
        self.observer = worker.environment.observer
        self.result = StageResult(moment)
        self.meter = Meter(worker.environment, part, self.result.measured)
        self.writer = FrameWriter(worker.lane, moment, piece, worker.origin)
        self._metrics: dict[str, ComponentMetrics] = {}
        """This stage's own counts; the ``ActivityMonitor`` reads them, so those of earlier stages are kept apart."""
        self._accounts = Accounts()
        self._parts: list[Partials] = []
        """All other partials: trees that begin, holders, reset timeouts, and the partials of earlier stages."""
        self._fails: list[Fail] = []
        self._tracebacks = 0
        self._reported: Counter[tuple[str, int]] = Counter()
        self._recorder: HopRecorder | None = None
        self._fused: dict[int, BoltTask] = {}
        """By number: the tasks of fused bolts that have got rows."""
        self._unflushed: dict[int, list[Rows]] = {}
        """By number of each fused task that is flushed at the end: the rows that it got."""
        self._captured: list[tuple[str, int, str, Sequence[Column]]] = []
        """What was emitted, for ``capture``, which gets it only when the stage finishes."""
        self._ready: list[int] = []
        """Numbers of tasks whose state is ready to be committed."""
        self.work_seen: defaultdict[int, WorkSeen] = defaultdict(WorkSeen)
        """By task number: how its work goes."""
        if worker.monitor is not None:
            worker.monitor.stage(moment.micro_batch_id, self._metrics)

    # Reports about trees: from the source, from the results of tasks, and about rows that cannot be sent.

    def start_trees(self, keys: U64, xors: U64) -> None:
        """Report that trees begin: their keys, and the first XOR of their roots; each uint64[trees]."""
        if self.observer is not None:
            self.observer.started(keys)
        self._parts.append(Partials(init_keys=keys, init_xors=xors))

    def fail(self, fail: Fail) -> None:
        """Report that a tree fails; only the first ``TRACEBACKS_MAX`` tracebacks of a stage are kept."""
        if self.observer is not None:
            self.observer.failed(fail)
        if fail.traceback is not None:
            self._tracebacks += 1
            if self._tracebacks > TRACEBACKS_MAX:
                fail = replace(fail, traceback=None)
        self._fails.append(fail)

    def report(self, report: ErrorReport) -> None:
        """Pass on a task's error report, at most ``max_error_report_per_interval`` of one task in a stage."""
        who = report.component, report.task
        self._reported[who] += 1
        if self._reported[who] <= self.lane.topology.config.max_error_report_per_interval:
            self.result.reports.append(report)

    def _fold(self, task: BoltTask, rows: Rows, result: TaskResult) -> None:
        """Add what a task did with some rows to what the stage has done."""
        if result.acked_whole is not None:
            if self.observer is not None:
                self.observer.settled(result.acked_whole.roots, result.acked_whole.edges)
            self._accounts.add_all(result.acked_whole)
        for roots, edges in result.acks:
            if self.observer is not None:
                self.observer.settled(roots, edges)
            self._accounts.add(roots, edges)
        for roots in result.holds:
            holders = np.full(len(roots), task.context.task, dtype=np.int32)
            self._parts.append(Partials(held_keys=unmix64_array(roots), held_by=holders))
        for roots in result.touched:
            self._parts.append(Partials(touched_keys=unmix64_array(roots)))
        for fail in result.fails:
            self.fail(fail)
        for report in result.reports:
            self.report(report)
        metrics = self.counts(task.context.component)
        metrics.executed += result.executed
        metrics.acked += result.acked
        metrics.failed += result.failed
        metrics.errors += result.errors
        if result.of_windows is not None:
            metrics.add(result.of_windows)
        origins = [[tup._origin for tup in late] for late in (result.late_acks, result.late_fails)]
        call = Call(rows.count, result.executed, result.acked, result.failed, result.elapsed_ms, *origins)
        self.meter.called(task.context, task.inputs, rows.origin, call)

    @property
    def recorder(self) -> HopRecorder:
        """The hop recorder; it is made when there is a hop to record."""
        if self._recorder is None:
            self._recorder = HopRecorder(self.lane, self.moment)
        return self._recorder

    def counts(self, component: str) -> ComponentMetrics:
        """The counters of a component in this micro-batch."""
        if component not in self._metrics:
            self._metrics[component] = ComponentMetrics()
        return self._metrics[component]

    # Work.

    def run_task(self, number: int, inbox: Inbox, store: SegmentStore | None) -> None:
        """Run one task of a level on its frames and its clock.

        Args:
            number: the number of the task.
            inbox: the frames and the clock that came for it.
            store: the durable segments of the task; None if the level keeps none.
        """
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
                raise  # its clock must not be lost: the micro-batch is run again
            self._not_prepared(number, [self._rows_of(frame) for frame in inbox.in_order()], error)
            return
        self._begin(task)
        runtime = self.worker.attach(number, inbox.clock) if stateful else None
        seen: list[Rows] = []
        if inbox.clock is not None and inbox.clock.void:
            forget_in(task.bolt, dict(inbox.clock.void))
        if inbox.clock is not None and inbox.clock.wanted:
            wanted = frozenset(inbox.clock.wanted)
            self.recorder.holds(task.context, held_tuples(attributes_of(task.bolt), wanted), wanted)
        if inbox.clock is not None and own is not None:
            with self.worker.doing(Activity.STATE, number):
                again = own.receive(inbox.clock, task.output)
            for started in again:
                self.send_started(started, number)
        if runtime is not None:
            self._between(task, runtime.begin, own)
        if inbox.clock is not None and inbox.clock.tick:
            rate = spec.config.tick_tuple_freq_secs or 0.0
            tup = tick(rate)
            seen.append(self._work(task, Rows(tup._origin, 1, [[rate]], None, None), own))
        for frame in inbox.in_order():
            if frame.unreadable:
                frame, refusals = readable(frame, self.worker.origin(frame.sender, frame.stream).fields)
                for refusal in refusals:
                    self._refuse(refusal)
            seen.append(self._work(task, self._rows_of(frame), own))
        if runtime is not None:
            self._between(task, runtime.end, own)
            self.result.timers[number] = runtime.timer
            self.result.marks += runtime.marks
        if any(rows.count for rows in seen) or (runtime is not None and runtime.has_run):
            self._flush(task, seen, own)
            self._keep_rows(task)
        if stateful:
            with self.worker.doing(Activity.STATE, number):
                self.worker.make_ready(number)
            self.ready(number)
        else:
            self.worker.leave(number)

    def ready(self, number: int) -> None:
        """Note that a task's state is ready to be committed."""
        self._ready.append(number)

    def save(self) -> None:
        """Commit the states of all tasks that have run."""
        for number in self._ready:
            with self.worker.doing(Activity.STATE, number):
                said = self.worker.save(number)
            for report in said:
                self.report(report)
            self.worker.leave(number)
        self._ready.clear()

    def _rows_of(self, frame: Frame) -> Rows:
        origin = self.worker.origin(frame.sender, frame.stream)
        return Rows(origin, frame.rows, frame.columns, frame.anchoring, frame.attempts, frame.path)

    def _not_prepared(self, number: int, came: Sequence[Rows], error: Unavailable | PrepareError) -> None:
        """Fail all rows that came for a task that cannot be prepared, perhaps since something it depends on is away."""
        component, index = self.lane.topology.task_owner(number)
        failure, micro_batch_id = failure_of(error), self.moment.micro_batch_id
        self.report(ErrorReport(component, index, f"it could not be prepared: {failure.reason}", failure.traceback))
        metrics = self.counts(component)
        metrics.errors += 1
        seen = self.work_seen[number]
        for rows in came:
            seen.add(rows.count, dict.fromkeys(range(rows.count), failure), rows.attempts)
            metrics.failed += rows.count
            for row in range(rows.count):
                anchors = rows.anchors_of(row)
                if not anchors:
                    stop_without_tree(component, failure, self.lane.topology.components[component].config.on_error)
                for root, _ in anchors:
                    self.fail(Fail(unmix64(root), component, index, failure.cause, failure.reason, micro_batch_id))
        self.worker.leave(number)

    def _begin(self, task: BoltTask) -> None:
        task.context.micro_batch_id = self.moment.micro_batch_id
        task.context.now_ms = self.moment.now_ms
        task.output.begin()
        take_rows(task.bolt)  # of an earlier attempt at this micro-batch

    def send_started(self, started: Started, number: int) -> None:
        """Start the trees of a block of rows, and send it; refuse the rows that cannot be kept."""
        for reason in started.refused:
            self._refuse(Refusal(number, (), reason, started.block.path))
        if len(started.keys):
            self.start_trees(started.keys, np.zeros(len(started.keys), dtype=np.uint64))
        for key, cause, text in started.leave_out(self.exclusion):
            owner = self.lane.topology.task_owner(number)
            self.fail(Fail(key, *owner, cause, text, self.moment.micro_batch_id))
        if started.block.count:
            self.send(started.block, number)

    def _between(self, task: BoltTask, step: Callable[[TaskResult], None], own: Outbox | None) -> None:
        """Run a step of a bolt runtime before or after its rows, and send what it emitted."""
        self._work_on(task, Rows(NOWHERE, 0, [], None, None), own, step)

    def _work(self, task: BoltTask, rows: Rows, own: Outbox | None = None) -> Rows:
        """Run user code on some rows, and send what it emitted, piece by piece."""
        for piece in task.pieces(rows):
            self._work_on(task, piece, own)
        return rows

    def _work_on(
        self, task: BoltTask, rows: Rows, own: Outbox | None, step: Callable[[TaskResult], None] | None = None
    ) -> None:
        clock = self.worker.environment.clock
        if self.observer is not None and step is None:
            rows = self.observer.starting(task, rows)
        monitor = self.worker.monitor
        before = monitor.begin(Activity.EXECUTE, task.context.task, rows.count, task) if monitor is not None else None
        started = clock()
        try:
            result = task.run(rows) if step is None else task.run_between(step)
        finally:
            if monitor is not None and before is not None:
                monitor.back(before)
        if task.watch is not None and step is None:
            task.watch.rest()
        result.elapsed_ms = (clock() - started) * 1000
        self.counts(task.context.component).execute_ms += result.elapsed_ms
        self._take(task, rows, result, own)

    def _flush(self, task: BoltTask, seen: list[Rows], own: Outbox | None = None) -> None:
        """Flush a task after its last rows of the micro-batch, and send what it emits.

        If ``flush`` fails, so do all rows that the task got, ``seen``. ``own`` is its outbox, if it starts trees.
        """
        clock = self.worker.environment.clock
        started = clock()
        result = task.flush(seen)
        result.elapsed_ms = (clock() - started) * 1000
        self.counts(task.context.component).execute_ms += result.elapsed_ms
        if result.flush_failure is not None:
            if task.context.task in self.work_seen:
                self.work_seen[task.context.task].fail_all(result.flush_failure)
            failed = {fail.key for fail in self._fails if fail.component == task.context.component}
            result.fails = [fail for fail in result.fails if fail.key not in failed]  # the first reason is reported
        self._take(task, Rows(NOWHERE, 0, [], None, None), result, own)

    def _take(self, task: BoltTask, rows: Rows, result: TaskResult, own: Outbox | None) -> None:
        """Fold, judge and record what a task did with some rows, and send what it emitted."""
        self._fold(task, rows, result)
        self._judge(task, rows, result)
        self._record(task, rows, result)
        self._send_emitted(task, rows, own)

    def _send_emitted(self, task: BoltTask, rows: Rows, own: Outbox | None) -> None:
        if self.observer is not None:
            self.observer.sending(task)
        for out in task.output.streams.values():
            if not out.collected:
                self.counts(task.context.component).emitted += out.count
                self.meter.output(task.context.task, out.routes.name).emitted += out.count
            elif out.count:
                for block in out.blocks(rows, self.lane.tracked, task.context.task):
                    started = own.start(block) if own is not None else Started(block)
                    self.send_started(started, task.context.task)
            out.clear()

    def _record(self, task: BoltTask, rows: Rows, result: TaskResult) -> None:
        """Record hops, if rows are marked or failed; any other frame costs only three checks."""
        if rows.attempts is not None or result.failures:
            self.recorder.worked(task.context, rows, result.failures, result.held)
        late_acks = result.late_acks if self.lane.traces else [tup for tup in result.late_acks if tup.mark & TRACED]
        if result.late_fails or late_acks:
            self.recorder.settled(task.context, late_acks, result.late_fails)

    def _judge(self, task: BoltTask, rows: Rows, result: TaskResult) -> None:
        """Count for how many of its tuples a bolt did its work (``health``)."""
        given = rows.count if rows.origin.component != SYSTEM_COMPONENT else 0
        if not (given or result.of_trees or result.late_acks):
            return
        seen = self.work_seen[task.context.task]
        if given:
            seen.add(given, result.failures, rows.attempts, result.held)
        seen.add(len(result.late_acks), {}, None)
        for trees, failure in result.of_trees:
            seen.add(trees, dict.fromkeys(range(trees), failure), None)

    def send(self, block: EmittedRows, sender: int) -> None:
        """Route a block and deliver its rows; the edges that its parents' accounts get are kept for the acker."""
        self.counts(block.stream.component).emitted += block.count
        flow = self.meter.output(sender, block.stream.name)
        flow.emitted += block.count
        debug = self.worker.environment.debug
        if debug is not None and self.lane.topology.components[block.stream.component].config.debug:
            for values in zip(*map(python_values, block.columns), strict=True):
                debug(f"{block.stream.component} emits on {block.stream.name}: {printed(list(values))}")
        if self.worker.environment.capture is not None:
            _, index = self.lane.topology.task_owner(sender)
            self._captured.append((block.stream.component, index, block.stream.name, block.columns))
        if not block.stream.routes:
            return
        path = block.path
        routed: list[RoutedRows] | None = None
        account = None
        while routed is None:
            try:
                routed, account = route(block, sender, self.moment.micro_batch_id)
            except UnroutableError as error:
                self._refuse(Refusal(sender, roots_of_row(block, error.row), str(error), path))
                block = without(block, error.row)
        for rows in routed:
            flow.transferred += rows.count
            self._deliver(sender, block.stream.index, rows, path)
        if block.attempts is not None:
            self.recorder.emitted(block, sender)
        if block.parents is not None and account is not None:
            self._accounts.add(block.parents.pair_roots, account)

    def _refuse(self, refusal: Refusal) -> None:
        """Report a row that cannot be sent as an error, and fail the trees that it belongs to."""
        component, index = self.lane.topology.task_owner(refusal.task)
        self.counts(component).errors += 1
        self.report(ErrorReport(component, index, refusal.reason))
        self.recorder.refused(refusal.roots, refusal.path)
        for root in refusal.roots:
            self.fail(Fail(unmix64(root), component, index, Cause.EMIT, refusal.reason, self.moment.micro_batch_id))

    def _deliver(self, sender: int, stream: int, routed: RoutedRows, path: Path) -> None:
        """Run rows in their fused task, or write them as frames."""
        if self.observer is not None:
            self.observer.sent(sender, stream, routed)
        if not routed.route.fused:
            for refusal in self.writer.write(routed, sender, stream, path):
                self._refuse(refusal)
            return
        origin = self.worker.origin(sender, stream)
        rows = Rows(origin, routed.count, routed.columns, routed.anchoring, routed.attempts, path)
        try:
            task = self._enter_fused(routed.target)
        except (Unavailable, PrepareError) as error:
            self._not_prepared(routed.target, [rows], error)
            return
        with self.observer.giving(rows) if self.observer is not None else nullcontext():
            self._work(task, rows)
        if routed.target in self._unflushed:  # without values: a failed flush needs only the trees of the rows
            done = Rows(origin, routed.count, [], routed.anchoring, routed.attempts, path)
            self._unflushed[routed.target].append(done)

    def _enter_fused(self, number: int) -> BoltTask:
        """The task of a fused bolt; it begins with its first rows in this stage, and ends with the stage."""
        if number in self._fused:
            return self._fused[number]
        self.worker.enter(number)
        task = self._fused[number] = self.worker.bolt(number)
        self._begin(task)
        if task.flushes:
            self._unflushed[number] = []
        return task

    def _end_fused(self) -> None:
        """Flush the tasks of fused bolts, producers before their consumers, which may get more rows from them."""
        depths, owner = self.lane.depths, self.lane.topology.task_owner
        while self._unflushed:
            number = min(self._unflushed, key=lambda number: (depths[owner(number)[0]], number))
            seen = self._unflushed.pop(number)
            self._flush(self._fused[number], seen)
        for number, task in self._fused.items():
            self._keep_rows(task)
            self.worker.leave(number)
        self._fused.clear()

    def _keep_rows(self, task: BoltTask) -> None:
        """Send the rows that a committer has kept to the driver."""
        for some in parted(take_rows(task.bolt), self.lane.topology.config.frame_bytes_max):
            kept = task.context.component, task.context.index, some
            self.add_row((self.lane.feedback_dest, encode_control(FrameKind.ROWS, kept, self.moment)))

    # Rows that come in and pass through, and rows that leave.

    def add_row(self, row: Row) -> None:
        """Add a row to those that leave the stage."""
        self.writer.rows.append(row)

    def absorb(self, data: Any) -> bool:
        """Combine a row of partials or feedback with this stage's own; return False if the row is neither."""
        kind = kind_of(data)
        if kind == FrameKind.PARTIALS:
            self._parts.append(decode_partials(unwrap(data, FrameKind.PARTIALS)))
        elif kind == FrameKind.FEEDBACK:
            metrics, reports, hops, timers, marks, healths, measured = decode_control(data, FrameKind.FEEDBACK)
            self.result.measured.add(Measurements.unpack(measured))
            self.result.timers.update(timers)
            self.result.marks += marks
            _add_metrics(self.result.metrics, unpack(metrics))
            add_healths(self.result.healths, healths)
            self.result.reports.extend(reports)
            self.result.hops.extend(hops)
        return kind in (FrameKind.PARTIALS, FrameKind.FEEDBACK)

    def finish(self) -> StageResult:
        """Flush the fused tasks, and return the result of the stage."""
        self._end_fused()
        capture = self.worker.environment.capture
        if capture is not None:
            for emitted in self._captured:
                capture(*emitted)
        result = self.result
        result.rows.extend(self.writer.rows)
        self.meter.end(len(self.writer.rows), sum(len(data) for _, data in self.writer.rows))
        _add_metrics(result.metrics, self._metrics)
        if self._recorder is not None:
            result.hops.extend(self._recorder.hops())
        for number, seen in self.work_seen.items():
            add_healths(result.healths, {self.lane.topology.task_owner(number)[0]: seen.health()})
        if self.lane.tracked:
            fails = [Partials(fails=self._fails)] if self._fails else []
            result.partials = combine([*self._parts, *self._accounts.partials(), *fails])
        return result


def _add_metrics(sums: dict[str, ComponentMetrics], counted: Mapping[str, ComponentMetrics]) -> None:
    for component, counts in counted.items():
        sums.setdefault(component, ComponentMetrics()).add(counts)


def run_level(
    worker: Worker,
    level: int,
    rows: Iterable[tuple[int, Any]],
    store_of: Callable[[int], SegmentStore | None],
    exclusion: Exclusion = NOTHING_EXCLUDED,
) -> StageResult:
    """Run one process's part of a level; rows for later levels pass through.

    Args:
        worker: the worker of this process.
        level: the number of the level, from 1.
        rows: (dest, frame) in any order. What stages report rides with a task's frames, or comes by itself.
        store_of: returns the durable segments of a task, by its dest; None if the level keeps none.
        exclusion: the trees of tasks that are left out.
    """
    own = worker.lane.dests_of_level(level)
    by_dest: dict[int, list[Any]] = {}
    for dest, data in rows:
        by_dest.setdefault(dest, []).append(data)
    if own.isdisjoint(by_dest):  # Spark groups by dest, so rows that pass through come apart from a task's own
        passing = [(dest, data) for dest, frames in by_dest.items() for data in frames]
        return StageResult(moment_of(passing[0][1]) if passing else Moment(-1, 0), level, passing)
    try:
        return _attempt(worker, level, by_dest, store_of, exclusion)
    except Unkept as error:
        unkept = error
    return _again(worker, unkept, lambda: _attempt(worker, level, by_dest, store_of, exclusion))


def _again(worker: Worker, unkept: Unkept, attempt: Callable[[], StageResult]) -> StageResult:
    """Make further attempts, each without the calls that were blamed for the ends of earlier attempts."""
    watch = worker.watch
    try:
        while True:
            worker.begin_again(unkept)
            try:
                return attempt()
            except Unkept as another:
                unkept = another
    finally:
        worker.end_again(watch)


def _attempt(
    worker: Worker,
    level: int,
    by_dest: Mapping[int, list[Any]],
    store_of: Callable[[int], SegmentStore | None],
    exclusion: Exclusion,
) -> StageResult:
    """Do all the work of the level; the states of its tasks are committed once all of them can be kept.

    Raises:
        Unkept: a state cannot be kept; nothing is committed.
    """
    from sparkbolt.worker.inlet import run_inlet

    own, inlets = worker.lane.dests_of_level(level), worker.lane.inlet_tasks
    stage = Stage(worker, moment_of(next(iter(by_dest.values()))[0]), part=level_part(level))
    stage.exclusion, stage.result.level = exclusion, level
    for dest, frames in sorted(by_dest.items()):
        left = [data for data in frames if not stage.absorb(data)]
        if dest not in own:
            stage.result.rows.extend((dest, data) for data in left)
        elif left and worker.lane.task_at[dest] in inlets:
            run_inlet(stage, worker.lane.task_at[dest], collect(left), store_of(dest))
        elif left:
            stage.run_task(worker.lane.task_at[dest], collect(left), store_of(dest))
    stage.save()
    return stage.finish()
