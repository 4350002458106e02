"""Meter: measures what the tasks of one stage do, by task and stream, and how long the stage took.

Rule: it gets numbers and origins, no tuple and no tree; what it measures changes no verdict and no route.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.tuples import Origin
from sparkbolt.observe.measurements import ANY, FlowCounts, Measurements, TimeSpan
from sparkbolt.worker.environment import WorkerEnvironment

NOWHERE = Origin("", -1, "", ())
"""The origin of rows that no component sent: of a ``flush``, and of a step of a bolt runtime."""

Inputs: TypeAlias = Sequence[tuple[str, str]]
"""(component, stream) of each stream that a bolt subscribes to."""


class Call(NamedTuple):
    """What one call of a task did."""

    rows: int
    """How many rows it was called with."""
    executed: int
    acked: int
    failed: int
    elapsed_ms: float
    late_acks: Sequence[Origin]
    """For each tuple that the task had kept from earlier rows, and acked: where it came from; also in ``acked``."""
    late_fails: Sequence[Origin]
    """The same for those that it failed; also in ``failed``."""


class Meter:
    """Measures one stage in one process, into ``measured``."""

    def __init__(self, environment: WorkerEnvironment, part: str, measured: Measurements) -> None:
        """Begin to measure; ``part`` is the name of the stage's part of the micro-batch."""
        self._environment = environment
        self._part = part
        self._measured = measured
        self._owner = environment.lane.topology.task_owner
        self._began_ms, self._began_s = environment.wall_ms(), environment.clock()

    def called(self, context: TopologyContext, inputs: Inputs, origin: Origin, call: Call) -> None:
        """Count what one call of a task did, by the streams that its tuples came from.

        Args:
            context: the task.
            inputs: the streams that its component subscribes to.
            origin: where the rows of the call came from.
            call: what was done with them.
        """
        flow = self._input(context, inputs, origin)
        flow.executed += call.executed
        flow.acked += call.acked
        flow.failed += call.failed
        flow.execute_ms += call.elapsed_ms
        if call.rows:
            self._measured.executed(context.component, call.elapsed_ms, call.rows)
            at_once = call.acked - len(call.late_acks)
            flow.process_ms += call.elapsed_ms / call.rows * at_once
            flow.processed += at_once
        if len(inputs) > 1:  # tuples that were kept may have come from another stream
            for came_from in call.late_acks:
                flow.acked -= 1
                self._input(context, inputs, came_from).acked += 1
            for came_from in call.late_fails:
                flow.failed -= 1
                self._input(context, inputs, came_from).failed += 1

    def _input(self, context: TopologyContext, inputs: Inputs, origin: Origin) -> FlowCounts:
        """The flow by which a task got tuples; of its only input if they came from nowhere."""
        sender, stream = origin.component, origin.stream
        if origin is NOWHERE:
            sender, stream = inputs[0] if len(inputs) == 1 else (ANY, ANY)
        return self._measured.flow(context.component, context.index, sender, stream)

    def output(self, number: int, stream: str) -> FlowCounts:
        """The flow of a stream that a task emits on, by the task's number."""
        return self._measured.flow(*self._owner(number), "", stream)

    def end(self, frames: int, frame_bytes: int) -> None:
        """End the stage, which has sent so many frames to other stages."""
        elapsed_ms = (self._environment.clock() - self._began_s) * 1000
        self._measured.frames += frames
        self._measured.frame_bytes += frame_bytes
        span = TimeSpan(self._began_ms, self._began_ms + elapsed_ms, elapsed_ms)
        self._measured.worked(self._part, span, self._environment.process())
