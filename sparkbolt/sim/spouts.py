"""LocalSpout: runs spout tasks without threads: each has a turn before every plan and after every promotion."""

from __future__ import annotations

from collections.abc import Mapping

from sparkbolt.api.components import PartitionedSpout, Spout, TopologyContext
from sparkbolt.api.metric_handles import MetricsRecorder
from sparkbolt.api.reports import ErrorReport
from sparkbolt.base.exceptions import line_of, pass_on, text_of, user_code
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.spout_buffer import SpoutBuffer
from sparkbolt.layout.lane import Lane
from sparkbolt.worker.emissions import Output
from sparkbolt.worker.environment import WorkerEnvironment
from sparkbolt.worker.routing import routes_of
from sparkbolt.worker.spout_task import SpoutTask
from sparkbolt.worker.worker import context_of

CALLS_PER_TURN_MAX = 1000
"""How many times ``next_tuple`` is called at most before other tasks have their turn."""


class LocalSpout(SpoutTask):
    """One task of a ``Spout``."""

    def __init__(
        self, spout: Spout, context: TopologyContext, output: Output, buffer: SpoutBuffer, *, tracked: bool
    ) -> None:
        """Store the arguments; nothing is opened yet."""
        super().__init__(spout, context, output, buffer, tracked=tracked)
        self.reports: list[ErrorReport] = []
        """The exceptions of the spout's methods, and the errors that the spout reported."""

    def raised(self, method: str, error: BaseException) -> None:
        """Keep a report."""
        pass_on(error)
        text = f"{method} raised {line_of(error)}"
        self.reports.append(ErrorReport(self.context.component, self.context.index, text, text_of(error)))

    def reported(self, report: ErrorReport) -> None:
        """Keep a report."""
        self.reports.append(report)

    def emitted(self) -> None:
        """Do nothing: nothing waits for it."""

    def turn(self, emits: bool) -> None:
        """Open the spout, notify it of its verdicts, and let it emit until it has nothing more or may not."""
        if self.open():
            for _ in range(CALLS_PER_TURN_MAX):
                if not self.take_turn(emits):
                    break
            self._buffer.exhausted = self._is_exhausted()


def open_ranged(
    lane: Lane, environment: WorkerEnvironment, recorder: MetricsRecorder | None = None
) -> dict[str, PartitionedSpout]:
    """Open the driver's copy of each ``PartitionedSpout``, and return them by component."""
    spouts = {}
    for spec in lane.topology.spouts:
        if isinstance(spec.component, PartitionedSpout):
            spout: PartitionedSpout = environment.unpickle(environment.components[spec.id])
            with user_code(f"open of {spec.id!r}"):
                number, directory = lane.topology.tasks(spec.id)[0], environment.rehearsal_directory
                spout.open(context_of(lane, number, directory, recorder=recorder))
            spouts[spec.id] = spout
    return spouts


def close_ranged(spouts: Mapping[str, PartitionedSpout]) -> None:
    """Close the spouts that ``open_ranged`` returned."""
    for component, spout in spouts.items():
        with user_code(f"close of {component!r}"):
            spout.close()


def open_tasks(
    lane: Lane, environment: WorkerEnvironment, coordinator: Coordinator, recorder: MetricsRecorder | None = None
) -> dict[int, LocalSpout]:
    """Return the tasks of each ``Spout``, by their numbers; each opens itself in its first turn."""
    spouts = {}
    for number, buffer in coordinator.buffers.items():
        component, _ = lane.topology.task_owner(number)
        spout: Spout = environment.unpickle(environment.components[component])
        output = Output(component, routes_of(lane.topology, component, frozenset(), number))
        context = context_of(lane, number, environment.rehearsal_directory, recorder=recorder)
        spouts[number] = LocalSpout(spout, context, output, buffer, tracked=lane.tracked)
    return spouts
