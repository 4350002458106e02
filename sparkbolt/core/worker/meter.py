"""Meter: measures what the tasks of one stage do, by task and stream, and how long the stage took.

Which question it answers: which flow does this count belong to, and which part of the micro-batch does this time?
Rule: it counts calls and frames, never single tuples; what it measures changes no verdict and no route.

Read before: ``measurements``, ``environment``, ``results``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkbolt.core.model.measurements import ANY, FlowCounts, Measurements, Span
from sparkbolt.core.model.tuples import Origin
from sparkbolt.core.worker.environment import WorkerEnvironment
from sparkbolt.core.worker.results import Row, TaskResult
from sparkbolt.core.worker.tasks import BoltTask
from sparkbolt.core.worker.tuple_batch import Rows

NOWHERE = Origin("", -1, "", ())
"""The origin of rows that no component sent: of a ``flush``, and of a step of a bolt runtime."""


class Meter:
    """Measures one stage in one process, into ``measured``."""

    def __init__(self, environment: WorkerEnvironment, part: str, measured: Measurements) -> None:
        """Begin to measure; ``part`` is the name of the stage's part of the micro-batch."""
        self._environment = environment
        self._part = part
        self._measured = measured
        self._owner = environment.lane.topology.task_owner
        self._began_ms, self._began_s = environment.wall_ms(), environment.clock()

    def called(self, task: BoltTask, rows: Rows, result: TaskResult) -> None:
        """Count what a call of a task did with rows, by the streams that its tuples came from."""
        flow = self._input(task, rows.origin)
        flow.executed += result.executed
        flow.acked += result.acked
        flow.failed += result.failed
        flow.execute_ms += result.elapsed_ms
        if rows.count:
            self._measured.executed(task.context.component, result.elapsed_ms, rows.count)
            at_once = result.acked - len(result.late_acks)
            flow.process_ms += result.elapsed_ms / rows.count * at_once
            flow.processed += at_once
        if len(task.inputs) > 1:  # tuples that were kept may have come from another stream
            for tup in result.late_acks:
                flow.acked -= 1
                self._input(task, tup._origin).acked += 1
            for tup in result.late_fails:
                flow.failed -= 1
                self._input(task, tup._origin).failed += 1

    def _input(self, task: BoltTask, origin: Origin) -> FlowCounts:
        """The flow by which a task got tuples; of its only input if they came from nowhere."""
        sender, stream = origin.component, origin.stream
        if origin is NOWHERE:
            sender, stream = task.inputs[0] if len(task.inputs) == 1 else (ANY, ANY)
        return self._measured.flow(task.context.component, task.context.index, sender, stream)

    def output(self, number: int, stream: str) -> FlowCounts:
        """The flow of a stream that a task emits on, by the task's number."""
        return self._measured.flow(*self._owner(number), "", stream)

    def end(self, sent: Sequence[Row]) -> None:
        """End the stage, which has sent these frames."""
        elapsed_ms = (self._environment.clock() - self._began_s) * 1000
        self._measured.frames += len(sent)
        self._measured.frame_bytes += sum(len(data) for _, data in sent)
        span = Span(self._began_ms, self._began_ms + elapsed_ms, elapsed_ms)
        self._measured.worked(self._part, span, self._environment.process())
