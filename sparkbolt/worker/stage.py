"""The stage: what one process does for one micro-batch, at the source or at a level.

Rule 1: data flows one way. Frames are sorted before user code sees them; a task returns its results. The stage sends
the emissions, and publishes both as one event of work (``results.Work``), once, to all who count or report.
Rule 2: no task's state is committed before the states of all tasks are ready to be committed. If one cannot be stored,
the work is repeated, in the same process, without the tuple that is to blame (``crash_isolation``).
Rule 3: what has failed has not changed the state of a task. If ``flush`` raises, the rows that it was for fail, and the
work is repeated without them. The time of windows passes all the same, so windows that are due are shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

from sparkbolt.api.causes import Cause
from sparkbolt.api.committers import take_rows
from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.api.pickling import attributes_of
from sparkbolt.api.progress import Activity
from sparkbolt.api.reports import ErrorReport, Fail
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.tuples import tick
from sparkbolt.base.ids import U64
from sparkbolt.errors import PrepareError, Unavailable
from sparkbolt.observe.measurements import READ, level_part
from sparkbolt.wire.acker import decode_partials
from sparkbolt.wire.exclusion import NOTHING_EXCLUDED, Exclusion
from sparkbolt.wire.frames import (
    Frame,
    FrameKind,
    Inbox,
    Moment,
    collect,
    decode_control,
    encode_control,
    kind_of,
    moment_of,
    unwrap,
)
from sparkbolt.wire.verdicts import StageFeedback
from sparkbolt.worker.crash_isolation import Unkept
from sparkbolt.worker.emissions import NO_ROWS, Rows
from sparkbolt.worker.failures import FailedFlush, Failure, fails_of, failure_of, stop_without_tree
from sparkbolt.worker.health import WorkSeen
from sparkbolt.worker.held_tuples import forget_in, held_tuples
from sparkbolt.worker.hop_recorder import HopRecorder
from sparkbolt.worker.outbox import Outbox, Started
from sparkbolt.worker.results import (
    Counters,
    Healths,
    Reports,
    Settlements,
    StageResult,
    Subscriber,
    Work,
    WorkListeners,
)
from sparkbolt.worker.routing import EmittedRows, Refusal, RoutedRows, Router, Row, Sent, parted, readable
from sparkbolt.worker.state.segments import SegmentStore
from sparkbolt.worker.tap import Tap
from sparkbolt.worker.tasks import BoltTask
from sparkbolt.worker.worker import Worker

Step: TypeAlias = Callable[[Settlements], None]
"""A step of a bolt runtime before or after its rows."""


class Stage:
    """One process's part in one stage of a micro-batch: it runs tasks, sends their emissions, publishes their work."""

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
        self.router = Router(worker.lane, moment, piece, worker.origin)
        self.reports = Reports(self.lane.topology.config.max_error_report_per_interval)
        self.counters = Counters(worker.environment, part)
        self._healths = Healths()
        self._listeners = WorkListeners(worker.environment)
        self._subscribers: list[Subscriber] = [self.counters, self._healths, self.reports]
        if self.observer is not None:
            self._subscribers.insert(0, self.observer)
        if worker.environment.capture is not None or worker.environment.debug is not None:
            self._subscribers.append(self._listeners)
        self._tap = Tap(worker.peeks, self.lane, moment) if worker.peeks else None
        if self._tap is not None:
            self._subscribers.append(self._tap)
        self._recorder: HopRecorder | None = None
        self._fused: dict[int, BoltTask] = {}
        """By number: the tasks of fused bolts that have got rows."""
        self._unflushed: dict[int, list[Rows]] = {}
        """By number of each fused task that is flushed at the end: the rows that it got."""
        self._ready: list[int] = []
        """Numbers of tasks whose state is ready to be committed."""
        self.failed_before: Mapping[int, FailedFlush] = {}
        """By number: the stateful tasks whose ``flush`` raised in an earlier attempt. Their rows are not run."""
        self.flushes_failed: dict[int, FailedFlush] = {}
        """By number: the stateful tasks whose ``flush`` has raised in this attempt."""
        self._row_failures: dict[int, dict[int, Failure]] = {}
        """By number of each stateful task: why rows have failed, by root."""
        worker.recorder.begin()
        if worker.monitor is not None:
            worker.monitor.stage(moment.micro_batch_id, self.counters.measured.flows)

    # Events for subscribers.

    def _publish(self, work: Work) -> None:
        """Publish an event of work to all subscribers, then let fused bolts work on the sent rows."""
        for subscriber in self._subscribers:
            subscriber.worked(work)
        if work.is_followed(self.lane):
            self.recorder.worked(work)
        if work.output is not None:
            work.output.clear()
        for sent in work.sent:
            for rows in sent.routed:
                if rows.route.fused:
                    self._run_fused(work.task, sent.block, rows)

    def _event(self, number: int, done: Settlements | None = None, rows: Rows = NO_ROWS) -> Work:
        """An event of work of a task, by its number."""
        return Work(number, *self.lane.topology.task_owner(number), rows, done=done or Settlements())

    def start_trees(self, keys: U64) -> None:
        """Report that trees without sent tuples begin: their keys, uint64[trees]."""
        self._publish(Work(0, "", 0, started=[keys]))

    def fail(self, fail: Fail) -> None:
        """Report that a tree fails."""
        self._publish(Work(0, fail.component, fail.task, done=Settlements(fails=[fail])))

    def report(self, report: ErrorReport) -> None:
        """Report an error of a task, or a note."""
        self._publish(Work(0, report.component, report.task, done=Settlements(reports=[report])))

    def counts(self, component: str) -> ComponentMetrics:
        """The counters of a component that are not kept by task and stream."""
        return self.counters.of(component)

    @property
    def work_seen(self) -> defaultdict[int, WorkSeen]:
        """By task number: the counts of its work."""
        return self._healths.seen

    @property
    def recorder(self) -> HopRecorder:
        """The hop recorder; it is made when there is a hop to record."""
        if self._recorder is None:
            self._recorder = HopRecorder(self.lane, self.moment)
        return self._recorder

    # Work.

    def run_task(self, number: int, inbox: Inbox, store: SegmentStore | None) -> None:
        """Run one task of a level on its frames and its clock.

        Args:
            number: the number of the task.
            inbox: its frames and its clock.
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
            self._work(task, NO_ROWS, own, runtime.begin)
        if inbox.clock is not None and inbox.clock.tick:
            rate = spec.config.tick_tuple_freq_secs or 0.0
            tup = tick(rate)
            seen.append(self._run_rows(task, Rows(tup._origin, 1, [[rate]], None, None), own))
        for frame in inbox.in_order():
            if frame.unreadable:
                frame, refusals = readable(frame, self.worker.origin(frame.sender, frame.stream).fields)
                for refusal in refusals:
                    self._refuse(refusal)
            seen.append(self._run_rows(task, self._rows_of(frame), own))
        if runtime is not None:
            self._work(task, NO_ROWS, own, runtime.end)
            self.result.feedback.timers[number] = runtime.timer
            self.result.feedback.marks += runtime.marks
        if number in self.failed_before:
            self._report_flush(number, self.failed_before[number].failure)
            seen = []
        if any(rows.count for rows in seen) or (runtime is not None and runtime.has_run):
            failure = self._flush(task, seen, own)
            self._keep_rows(task)
            if failure is not None and stateful and number not in self.failed_before:
                # Nothing of this attempt counts.
                self.flushes_failed[number] = FailedFlush(failure, self._row_failures.get(number, {}))
                return
        if stateful:
            with self.worker.doing(Activity.STATE, number):
                self.worker.make_ready(number)
            self.ready(number)
        else:
            self.worker.leave(number)

    def _run_rows(self, task: BoltTask, rows: Rows, own: Outbox | None) -> Rows:
        """Run user code on rows of a task, or fail them, if its ``flush`` raised in an earlier attempt."""
        failed = self.failed_before.get(task.context.task)
        if failed is None:
            return self._work(task, rows, own)
        if task.watch is not None:
            task.watch.between()  # places keep their numbers
        self._fail_rows(task.context.task, rows, replace(failed.failure, traceback=None), failed.of_rows)
        return rows

    def _report_flush(self, number: int, failure: Failure) -> None:
        """Report that the ``flush`` of a task raised in an earlier attempt."""
        report = ErrorReport(*self.lane.topology.task_owner(number), failure.reason, failure.traceback)
        self._publish(self._event(number, Settlements(errors=1, reports=[report], flush_failure=failure)))

    def ready(self, number: int) -> None:
        """Note that a task's state is ready to be committed."""
        self._ready.append(number)

    @property
    def stateful_tasks(self) -> list[int]:
        """The numbers of the tasks with state that have run."""
        return [*self._ready, *self.flushes_failed]

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
        """Fail all rows for a task that cannot be prepared, for example because a service is unavailable."""
        owner, failure = self.lane.topology.task_owner(number), failure_of(error)
        report = ErrorReport(*owner, f"it could not be prepared: {failure.reason}", failure.traceback)
        self._publish(self._event(number, Settlements(errors=1, reports=[report])))
        for rows in came:
            self._fail_rows(number, rows, replace(failure, traceback=None))
        self.worker.leave(number)

    def _fail_rows(
        self, number: int, rows: Rows, failure: Failure, own: Mapping[int, Failure] = MappingProxyType({})
    ) -> None:
        """Fail all of some rows of a task without running them.

        Args:
            number: the number of the task.
            rows: the rows.
            failure: why they fail.
            own: by root: the failure of a row that has another one.
        """
        owner = self.lane.topology.task_owner(number)
        done = Settlements(failed=rows.count)
        for row in range(rows.count):
            roots = [root for root, _ in rows.anchors_of(row)]
            of_row = next((own[root] for root in roots if root in own), failure)
            done.failures[row] = of_row
            if not roots:
                stop_without_tree(owner[0], failure, self.lane.topology.components[owner[0]].config.on_error)
            if of_row is not failure and of_row.reported:
                done.errors += 1
                done.reports.append(ErrorReport(*owner, of_row.reason, of_row.traceback))
            done.fails += fails_of(roots, owner, of_row, self.moment.micro_batch_id)
        self._publish(self._event(number, done, rows))

    def _begin(self, task: BoltTask) -> None:
        task.context.micro_batch_id = self.moment.micro_batch_id
        task.context.now_ms = self.moment.now_ms
        task.output.begin()
        take_rows(task.bolt)  # of an earlier attempt at this micro-batch

    # Work that is done and sent.

    def _work(self, task: BoltTask, rows: Rows, own: Outbox | None = None, step: Step | None = None) -> Rows:
        """Run user code on some rows, or a step of a bolt runtime, and send its emissions, piece by piece."""
        clock, monitor = self.worker.environment.clock, self.worker.monitor
        for piece in task.pieces(rows) if step is None else (rows,):
            if self.observer is not None and step is None:
                piece = self.observer.starting(task, piece)
            before = monitor.begin(Activity.EXECUTE, task.context.task, piece.count, task) if monitor else None
            started = clock()
            try:
                done = task.run(piece) if step is None else task.run_between(step)
            finally:
                if monitor is not None and before is not None:
                    monitor.back(before)
            elapsed_ms = (clock() - started) * 1000
            if done.failures and task.flushes:
                own_failures = self._row_failures.setdefault(task.context.task, {})
                for row, failure in done.failures.items():
                    own_failures.update((root, failure) for root, _ in piece.anchors_of(row))
            if task.watch is not None and step is None:
                task.watch.rest()
            self._take(task, piece, done, elapsed_ms, own)
        return rows

    def _flush(self, task: BoltTask, seen: list[Rows], own: Outbox | None = None) -> Failure | None:
        """Flush a task after its last rows of the micro-batch, and send its emissions.

        Args:
            task: the task.
            seen: all rows that it got; if ``flush`` fails, so do they.
            own: its outbox, if it starts trees.

        Returns:
            Why ``flush`` has failed; None if it has not.
        """
        clock = self.worker.environment.clock
        started = clock()
        done = task.flush(seen)
        elapsed_ms = (clock() - started) * 1000
        if done.flush_failure is not None:
            failed = self.reports.failed_by(task.context.component)
            done.fails = [fail for fail in done.fails if fail.key not in failed]  # the first reason is reported
        self._take(task, NO_ROWS, done, elapsed_ms, own)
        return done.flush_failure

    def _take(self, task: BoltTask, rows: Rows, done: Settlements, elapsed_ms: float, own: Outbox | None) -> None:
        """Send the emissions of a task for some rows, and publish its work."""
        context = task.context
        work = Work(context.task, context.component, context.index, rows, task.inputs, task.output, done)
        work.elapsed_ms = elapsed_ms
        for out in task.output.streams.values():
            if not out.count:
                continue
            if not out.collected:
                nothing = EmittedRows(out.routes, (), out.count, out.first, None)
                work.sent.append(Sent(nothing, nothing))
                continue
            for block in out.blocks(rows, self.lane.tracked, context.task):
                self._send(work, own.start(block) if own is not None else Started(block))
        self._publish(work)

    def send_started(self, started: Started, number: int) -> None:
        """Start the trees of a block of rows that no call has emitted, and send it; refuse rows that cannot be kept."""
        work = self._event(number)
        self._send(work, started)
        self._publish(work)

    def _send(self, work: Work, started: Started) -> None:
        for reason in started.refused:
            self._refuse(Refusal(work.task, (), reason, started.block.path))
        if len(started.keys):
            work.started.append(started.keys)
        unfit = [(key, Cause.EMIT, started.unfit) for key in started.keys.tolist()] if started.unfit is not None else []
        for key, cause, text in started.leave_out(self.exclusion) or unfit:
            work.done.fails.append(Fail(key, work.component, work.index, cause, text, self.moment.micro_batch_id))
        if started.block.count:
            sent = self.router.send(started.block, work.task)
            work.sent.append(sent)
            for refusal in sent.refused:
                self._refuse(refusal)

    def _refuse(self, refusal: Refusal) -> None:
        """Report a row that cannot be sent as an error, and fail the trees that it belongs to."""
        owner, failure = self.lane.topology.task_owner(refusal.task), Failure(Cause.EMIT, refusal.reason)
        fails = fails_of(refusal.roots, owner, failure, self.moment.micro_batch_id)
        report = ErrorReport(*owner, refusal.reason)
        work = self._event(refusal.task, Settlements(errors=1, fails=fails, reports=[report]))
        work.refused.append(refusal)
        self._publish(work)

    def _run_fused(self, sender: int, block: EmittedRows, routed: RoutedRows) -> None:
        """Run rows in their fused task."""
        origin = self.worker.origin(sender, block.stream.index)
        rows = Rows(origin, routed.count, routed.columns, routed.anchoring, routed.attempts, block.path)
        try:
            task = self._enter_fused(routed.target)
        except (Unavailable, PrepareError) as error:
            self._not_prepared(routed.target, [rows], error)
            return
        self._work(task, rows)
        if routed.target in self._unflushed:  # without values: a failed flush needs only the trees of the rows
            done = Rows(origin, routed.count, [], routed.anchoring, routed.attempts, block.path)
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
        self.router.rows.append(row)

    def absorb(self, data: Any) -> bool:
        """Combine a row of partials or feedback with this stage's own; return False if the row is neither."""
        kind = kind_of(data)
        if kind == FrameKind.PARTIALS:
            self.reports.parts.append(decode_partials(unwrap(data, FrameKind.PARTIALS)))
        elif kind == FrameKind.FEEDBACK:
            self.result.feedback.add(decode_control(data, FrameKind.FEEDBACK))
        return kind in (FrameKind.PARTIALS, FrameKind.FEEDBACK)

    def finish(self) -> StageResult:
        """Flush the fused tasks, and return the result of the stage."""
        self._end_fused()
        self._listeners.end()
        result, rows = self.result, self.router.rows
        result.rows.extend(rows)
        self.counters.end(rows)
        for component, recorded in self.worker.recorder.take().items():
            self.counters.of(component).user = recorded
        hops = self._recorder.hops() if self._recorder is not None else []
        counters, healths = self.counters, self._healths.by_bolt(self.lane.topology.task_owner)
        result.feedback.add(
            StageFeedback(
                metrics=counters.others,
                measured=counters.measured,
                reports=self.reports.errors,
                hops=hops,
                healths=healths,
                peeked=self._tap.peeked if self._tap is not None else [],
            )
        )
        if self.lane.tracked:
            result.partials = self.reports.partials()
        return result


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
        rows: (dest, frame) in any order. Reports of stages arrive with a task's frames or separately.
        store_of: returns the durable segments of a task, by its dest; None if the level keeps none.
        exclusion: the trees of tasks that are left out.
    """
    own = worker.lane.dests_of_level(level)
    by_dest: dict[int, list[Any]] = {}
    for dest, data in rows:
        by_dest.setdefault(dest, []).append(data)
    if own.isdisjoint(by_dest):  # Spark groups by dest, so rows that pass through are separate from a task's own
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

    If the ``flush`` of tasks with state raises, the work is done once more from the committed states. Then the rows of
    these tasks fail without being run, so nothing that failed has changed a state.

    Raises:
        Unkept: a state cannot be kept; nothing is committed.
    """
    failed: dict[int, FailedFlush] = {}
    while True:
        stage = _worked(worker, level, by_dest, store_of, exclusion, failed)
        if not stage.flushes_failed:
            stage.save()
            return stage.finish()
        failed.update(stage.flushes_failed)
        worker.repeat(stage.stateful_tasks)


def _worked(
    worker: Worker,
    level: int,
    by_dest: Mapping[int, list[Any]],
    store_of: Callable[[int], SegmentStore | None],
    exclusion: Exclusion,
    failed: Mapping[int, FailedFlush],
) -> Stage:
    """A stage that has done all work of the level but the work of fused bolts' flushes; nothing is committed."""
    from sparkbolt.worker.inlet import run_inlet

    own, inlets = worker.lane.dests_of_level(level), worker.lane.inlet_tasks
    stage = Stage(worker, moment_of(next(iter(by_dest.values()))[0]), part=level_part(level))
    stage.exclusion, stage.result.level, stage.failed_before = exclusion, level, failed
    for dest, frames in sorted(by_dest.items()):
        left = [data for data in frames if not stage.absorb(data)]
        if dest not in own:
            stage.result.rows.extend((dest, data) for data in left)
        elif left and worker.lane.task_at[dest] in inlets:
            run_inlet(stage, worker.lane.task_at[dest], collect(left), store_of(dest))
        elif left:
            stage.run_task(worker.lane.task_at[dest], collect(left), store_of(dest))
    return stage
