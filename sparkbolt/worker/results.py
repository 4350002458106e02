"""Results: the results of a task for some rows, and the reports of a stage to the driver.

A task does not call the stage: it returns ``Settlements``, and its emissions are in its ``Output``. The stage sends the
emissions, and publishes both to all subscribers as one ``Work``. Everything is counted once, by task and stream
(``Counters``); the driver adds up the totals of components.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.api.outage import Health, add_healths
from sparkbolt.api.reports import ErrorReport, Fail
from sparkbolt.api.tuples import SYSTEM_COMPONENT, TRACED, Origin, Tuple
from sparkbolt.base.exceptions import printed
from sparkbolt.base.ids import U64, unmix64_array
from sparkbolt.layout.lane import Lane
from sparkbolt.observe.measurements import ANY, FlowCounts, Measurements, TimeSpan
from sparkbolt.wire.acker import Accounts, combine, encode_partials, shards_of
from sparkbolt.wire.edges import Anchoring
from sparkbolt.wire.frames import Column, FrameKind, Moment, encode_control, python_values, wrap
from sparkbolt.wire.verdicts import Partials, StageFeedback
from sparkbolt.worker.emissions import NO_ROWS, NOWHERE, Output, Rows
from sparkbolt.worker.failures import Failure
from sparkbolt.worker.health import WorkSeen
from sparkbolt.worker.routing import Refusal, Row, Sent

if TYPE_CHECKING:
    from sparkbolt.worker.environment import WorkerEnvironment

TRACEBACKS_MAX = 50
"""How many failures of one stage in one micro-batch keep their traceback; all keep their reason."""


@dataclass
class Settlements:
    """The acks, fails and holds of one task: for the rows of its call, and for tuples that it had kept."""

    executed: int = 0
    acked: int = 0
    failed: int = 0
    errors: int = 0
    failures: dict[int, Failure] = field(default_factory=dict)
    """By row that failed: why."""
    held: npt.NDArray[np.bool_] | None = None
    """bool[rows]: rows that were neither acked nor failed; None if there are none."""
    acks: list[Anchoring] = field(default_factory=list)
    """Pairs that are acked: each edge is added to the account of its root."""
    holds: list[U64] = field(default_factory=list)
    """Roots, uint64[pairs], of tuples that the task holds."""
    touched: list[U64] = field(default_factory=list)
    """Roots, uint64[pairs], whose timeout begins again."""
    fails: list[Fail] = field(default_factory=list)
    reports: list[ErrorReport] = field(default_factory=list)
    late_acks: list[Tuple] = field(default_factory=list)
    late_fails: list[tuple[Tuple, Failure]] = field(default_factory=list)
    """Tuples that the task had kept from earlier rows, and has acked or failed now; ``acked`` and ``failed`` include
    them."""
    of_windows: ComponentMetrics | None = None
    """The metrics that a bolt runtime counts itself."""
    of_trees: list[tuple[int, Failure]] = field(default_factory=list)
    """(number of trees, or of tuples kept from earlier rows, that failed besides the rows; why)."""
    flush_failure: Failure | None = None
    """Why ``flush`` failed, and with it all rows that the task got."""


@dataclass
class Work:
    """One event of work: the results of one task for some rows, and the rows that it sent for them."""

    task: int
    """The number of the task; 0: none."""
    component: str
    index: int
    rows: Rows = NO_ROWS
    inputs: Sequence[tuple[str, str]] = ()
    """(component, stream) of each stream that the task's bolt subscribes to."""
    output: Output | None = None
    """The emissions of the task, unchanged; None for a source."""
    done: Settlements = field(default_factory=Settlements)
    started: list[U64] = field(default_factory=list)
    """Keys, uint64[trees], of trees that begin."""
    sent: list[Sent] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    elapsed_ms: float = 0.0
    """How long the call took."""

    def is_followed(self, lane: Lane) -> bool:
        """Whether hops are recorded for it; any other work costs only these checks."""
        done = self.done
        return bool(
            self.rows.attempts is not None
            or done.failures
            or done.late_fails
            or self.refused
            or any(sent.block.attempts is not None for sent in self.sent)
            or (done.late_acks and (lane.traces or any(tup.mark & TRACED for tup in done.late_acks)))
        )


class Subscriber(Protocol):
    """Gets each event of work in a stage."""

    def worked(self, work: Work) -> None:
        """Called once for each event of work, before fused bolts work on the sent rows."""


class Reports:
    """The reports of a stage about trees, and the errors of its tasks."""

    def __init__(self, reports_max: int) -> None:
        """Begin empty; ``reports_max``: how many error reports of one task in a stage are passed on."""
        self.parts: list[Partials] = []
        """Partials besides accounts and fails: trees that begin, holders, reset timeouts, those of earlier stages."""
        self.fails: list[Fail] = []
        self.errors: list[ErrorReport] = []
        self._reports_max = reports_max
        self._reported: Counter[tuple[str, int]] = Counter()
        self._accounts = Accounts()
        self._tracebacks = 0

    def worked(self, work: Work) -> None:
        """See ``Subscriber``."""
        done = work.done
        self.parts += [Partials(init_keys=keys, init_xors=np.zeros_like(keys)) for keys in work.started]
        for acked in done.acks:
            self._accounts.add_all(acked)
        for sent in work.sent:
            if sent.account is not None and sent.block.parents is not None:
                self._accounts.add(sent.block.parents.pair_roots, sent.account)
        for roots in done.holds:
            holders = np.full(len(roots), work.task, dtype=np.int32)
            self.parts.append(Partials(held_keys=unmix64_array(roots), held_by=holders))
        for roots in done.touched:
            self.parts.append(Partials(touched_keys=unmix64_array(roots)))
        for fail in done.fails:
            self._tracebacks += fail.traceback is not None
            self.fails.append(fail if self._tracebacks <= TRACEBACKS_MAX else replace(fail, traceback=None))
        for report in done.reports:
            self._reported[report.component, report.task] += 1
            if self._reported[report.component, report.task] <= self._reports_max:
                self.errors.append(report)

    def failed_by(self, component: str) -> set[int]:
        """The keys of the trees that a component has failed."""
        return {fail.key for fail in self.fails if fail.component == component}

    def partials(self) -> Partials:
        """All partials, combined."""
        fails = [Partials(fails=self.fails)] if self.fails else []
        return combine([*self.parts, *self._accounts.partials(), *fails])


class Counters:
    """Counts the work of the tasks of one stage, by task and stream, and measures how long the stage takes."""

    def __init__(self, environment: WorkerEnvironment, part: str) -> None:
        """Begin to measure; ``part`` is the name of the stage's part of the micro-batch."""
        self.measured = Measurements()
        self.others: dict[str, ComponentMetrics] = {}
        """By component: the counts that are not kept by task and stream."""
        self._calls: defaultdict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        """By component and task index: (milliseconds, tuples) of each call of ``execute``, or of several at once."""
        self._between_ms: defaultdict[tuple[str, int], float] = defaultdict(float)
        """The time of the same task outside of ``execute``: of ``flush``, and of the steps of a bolt runtime."""
        self._environment = environment
        self._part = part
        self._began_ms, self._began_s = environment.wall_ms(), environment.clock()

    def of(self, component: str) -> ComponentMetrics:
        """The counters of a component that are not kept by task and stream."""
        if component not in self.others:
            self.others[component] = ComponentMetrics()
        return self.others[component]

    def worked(self, work: Work) -> None:
        """See ``Subscriber``."""
        done = work.done
        if work.rows.count or done.acked or done.failed or work.elapsed_ms:
            self._settled(work, done)
        if done.errors:
            self.of(work.component).errors += done.errors
        if done.of_windows is not None:
            self.of(work.component).add(done.of_windows)
        for sent in work.sent:
            flow = self.measured.flow(work.component, work.index, "", sent.whole.stream.name)
            flow.emitted += sent.whole.count
            flow.transferred += sum([rows.count for rows in sent.routed])

    def _settled(self, work: Work, done: Settlements) -> None:
        flow = self._input(work, work.rows.origin)
        flow.executed += done.executed
        flow.acked += done.acked
        flow.failed += done.failed
        flow.execute_ms += work.elapsed_ms
        if not done.executed:
            self._between_ms[work.component, work.index] += work.elapsed_ms
        else:
            self._calls[work.component, work.index].append((work.elapsed_ms, done.executed))
            at_once = done.acked - len(done.late_acks)
            flow.process_ms += work.elapsed_ms / done.executed * at_once
            flow.processed += at_once
        if len(work.inputs) > 1:  # tuples that were kept may have come from another stream
            for tup in done.late_acks:
                flow.acked -= 1
                self._input(work, tup._origin).acked += 1
            for tup, _ in done.late_fails:
                flow.failed -= 1
                self._input(work, tup._origin).failed += 1

    def _input(self, work: Work, origin: Origin) -> FlowCounts:
        """The flow by which a task got tuples; that of its only input if they have no sender."""
        sender, stream = origin.component, origin.stream
        if origin is NOWHERE:
            sender, stream = work.inputs[0] if len(work.inputs) == 1 else (ANY, ANY)
        return self.measured.flow(work.component, work.index, sender, stream)

    def end(self, frames: Sequence[Row]) -> None:
        """End the stage, which has sent these frames to other stages.

        The tuples that a task got share the time of its ``flush``, as they share that of their call.
        """
        for task, calls in self._calls.items():
            share_ms = self._between_ms[task] / sum(tuples for _, tuples in calls)
            for elapsed_ms, tuples in calls:
                self.measured.executed(task[0], elapsed_ms + share_ms * tuples, tuples)
        elapsed_ms = (self._environment.clock() - self._began_s) * 1000
        self.measured.frames += len(frames)
        self.measured.frame_bytes += sum(len(data) for _, data in frames)
        span = TimeSpan(self._began_ms, self._began_ms + elapsed_ms, elapsed_ms)
        self.measured.worked(self._part, span, self._environment.process())


class Healths:
    """Counts how many of its tuples each task has processed (``health``)."""

    def __init__(self) -> None:
        """Begin without any."""
        self.seen: defaultdict[int, WorkSeen] = defaultdict(WorkSeen)
        """By task number: its counts."""

    def worked(self, work: Work) -> None:
        """See ``Subscriber``."""
        done, rows = work.done, work.rows
        given = rows.count if rows.origin.component != SYSTEM_COMPONENT else 0
        if done.flush_failure is not None and work.task in self.seen:
            self.seen[work.task].fail_all(done.flush_failure)
        if not (given or done.of_trees or done.late_acks):
            return
        seen = self.seen[work.task]
        if given:
            seen.add(given, done.failures, rows.attempts, done.held)
        seen.add(len(done.late_acks), {}, None)
        for trees, failure in done.of_trees:
            seen.add(trees, dict.fromkeys(range(trees), failure), None)

    def by_bolt(self, task_owner: Callable[[int], tuple[str, int]]) -> dict[str, Health]:
        """The health of each bolt: the sum of its tasks'."""
        healths: dict[str, Health] = {}
        for number, seen in self.seen.items():
            add_healths(healths, {task_owner(number)[0]: seen.health()})
        return healths


class WorkListeners:
    """Passes emissions to ``capture`` and ``debug`` of the environment."""

    def __init__(self, environment: WorkerEnvironment) -> None:
        """Begin without any emission."""
        self._environment = environment
        self._captured: list[tuple[str, int, str, Sequence[Column]]] = []

    def worked(self, work: Work) -> None:
        """See ``Subscriber``."""
        for sent in work.sent:
            block, debug = sent.whole, self._environment.debug
            stream = block.stream
            if debug is not None and self._environment.lane.topology.components[stream.component].config.debug:
                for values in zip(*map(python_values, block.columns), strict=True):
                    debug(f"{stream.component} emits on {stream.name}: {printed(list(values))}")
            if self._environment.capture is not None:
                self._captured.append((stream.component, work.index, stream.name, block.columns))

    def end(self) -> None:
        """Pass on the captured emissions, now that the stage has finished."""
        if self._environment.capture is not None:
            for emitted in self._captured:
                self._environment.capture(*emitted)


@dataclass
class StageResult:
    """The results of one process for one stage of a micro-batch."""

    moment: Moment
    level: int = 0
    """The level that ran; 0: the source."""
    rows: list[Row] = field(default_factory=list)
    """Frames for later levels, and rows that only pass through."""
    partials: Partials = field(default_factory=Partials)
    feedback: StageFeedback = field(default_factory=StageFeedback)
    """Includes the feedback of earlier stages that this one received."""

    def to_rows(self, lane: Lane) -> list[Row]:
        """All rows that leave the stage: ``rows``, then the partials for each acker task, then one row of feedback.

        Before the last level, partials and feedback go to tasks of the next one, which combine them with their own:
        dests of their own would cost more there than their content. The choice of tasks depends on the lane alone. If
        Spark repeats the stage for some of its readers only, each part is still read once, from one attempt or another.
        """
        rows = list(self.rows)
        ride = lane.riding_dests(self.level + 1)
        if lane.tracked:
            for shard, partials in shards_of(self.partials, len(lane.acker_dests)).items():
                dest = ride[shard % len(ride)] if ride else lane.acker_dests[shard]
                rows.append((dest, wrap(FrameKind.PARTIALS, encode_partials(partials), self.moment)))
        if not self.feedback.empty:
            dest = ride[0] if ride else lane.feedback_dest
            rows.append((dest, encode_control(FrameKind.FEEDBACK, self.feedback, self.moment)))
        return rows
