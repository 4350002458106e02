"""LocalSpout: runs spout tasks without threads: each has a turn before every plan and after every promotion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparkbolt.api.components import PartitionedSpout, Spout, TopologyContext
from sparkbolt.api.reports import ErrorReport
from sparkbolt.base.exceptions import line_of, pass_on, reason_of, text_of, user_code
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.spout_buffer import Emitted, SpoutBuffer
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.plan import Record
from sparkbolt.worker.collectors import SpoutRecordCollector
from sparkbolt.worker.emissions import Output
from sparkbolt.worker.environment import WorkerEnvironment
from sparkbolt.worker.returned_values import refuse_of_spout
from sparkbolt.worker.routing import routes_of
from sparkbolt.worker.worker import context_of

CALLS_PER_TURN_MAX = 1000
"""How many times ``next_tuple`` is called at most before other tasks have their turn."""


class LocalSpout:
    """One task of a ``Spout``."""

    def __init__(
        self, spout: Spout, context: TopologyContext, output: Output, buffer: SpoutBuffer, *, tracked: bool
    ) -> None:
        """Store the arguments; nothing is opened yet. What the spout emits is put into ``buffer``."""
        self.spout = spout
        self.reports: list[ErrorReport] = []
        """What the spout's methods raised, and the errors that the spout reported."""
        self._context = context
        self._output = output
        self._collector = SpoutRecordCollector(output)
        self._buffer = buffer
        self._tracked = tracked
        self._opened = False
        self._was_active = False

    def turn(self, active: bool) -> None:
        """Notify the spout of its verdicts, then let it emit until it has nothing more or may not.

        Args:
            active: Whether the topology is active; a change calls ``activate`` or ``deactivate``.
        """
        if not self._opened:
            self._opened = self._call(self.spout.open, self._context)
            if not self._opened:
                return
        self.hear()
        if active != self._was_active:
            self._was_active = active
            self._call(self.spout.activate if active else self.spout.deactivate)
        for _ in range(CALLS_PER_TURN_MAX):
            self._buffer.exhausted = self._is_exhausted()
            if not active or self._buffer.exhausted or not self._buffer.open_for_more:
                return
            before, self._collector.room = len(self._buffer.waiting), self._buffer.room
            if not self._call(self.spout.next_tuple, self._collector) or len(self._buffer.waiting) == before:
                break
        self._buffer.exhausted = self._is_exhausted()

    def go_on_with(self, buffer: SpoutBuffer) -> None:
        """Use the buffer of a new life in the same driver, which has taken over the content of the old one."""
        self._buffer = buffer

    def hear(self) -> None:
        """Call ``ack`` and ``fail`` for all promoted verdicts, once for each."""
        while self._buffer.acks:
            self._call(self.spout.ack, self._buffer.acks.popleft())
        while self._buffer.fails:
            self._call(self.spout.fail, self._buffer.fails.popleft())

    def close(self) -> None:
        """Close the spout, if it was opened."""
        if self._opened:
            self.hear()
            self._call(self.spout.close)

    def _is_exhausted(self) -> bool:
        """Whether the spout will never emit again; False if ``exhausted`` raises."""
        try:
            return bool(self.spout.exhausted)
        except BaseException as error:  # noqa: BLE001  as in ``_call``
            pass_on(error)
            self._raised("exhausted", error)
            return False

    def _call(self, call: Callable[..., Any], *arguments: Any) -> bool:
        try:
            refuse_of_spout(call(*arguments), getattr(call, "__name__", ""), self._context.component)
        except BaseException as error:  # noqa: BLE001  user code may raise anything: only its task is affected
            pass_on(error)
            self._raised(getattr(call, "__name__", ""), error)
            return False
        finally:
            self._hand_over()
        return True

    def _raised(self, what: str, error: BaseException) -> None:
        text = f"{what} raised {line_of(error)}"
        self.reports.append(ErrorReport(self._context.component, self._context.index, text, text_of(error)))

    def _hand_over(self) -> None:
        bytes_max = self._context.config.tuple_bytes_max
        for stream, values, message_id, task in self._collector.records:
            tracked = self._tracked and message_id is not None
            self._buffer.waiting.append(Emitted(Record.of(stream, values, tracked, task, bytes_max), message_id))
        self._collector.records = []
        for error in self._output.errors:
            self.reports.append(ErrorReport(self._context.component, self._context.index, *reason_of(error)))
        self._output.errors.clear()


def open_ranged(lane: Lane, environment: WorkerEnvironment) -> dict[str, PartitionedSpout]:
    """Open the driver's copy of each ``PartitionedSpout``, and return them by component."""
    spouts = {}
    for spec in lane.topology.spouts:
        if isinstance(spec.component, PartitionedSpout):
            spout: PartitionedSpout = environment.unpickle(environment.components[spec.id])
            with user_code(f"open of {spec.id!r}"):
                spout.open(context_of(lane, lane.topology.tasks(spec.id)[0], environment.rehearsal_directory))
            spouts[spec.id] = spout
    return spouts


def close_ranged(spouts: Mapping[str, PartitionedSpout]) -> None:
    """Close the spouts that ``open_ranged`` returned."""
    for component, spout in spouts.items():
        with user_code(f"close of {component!r}"):
            spout.close()


def open_tasks(lane: Lane, environment: WorkerEnvironment, coordinator: Coordinator) -> dict[int, LocalSpout]:
    """Return the tasks of each ``Spout``, by their numbers; each opens itself in its first turn."""
    spouts = {}
    for number, buffer in coordinator.buffers.items():
        component, _ = lane.topology.task_owner(number)
        spout: Spout = environment.unpickle(environment.components[component])
        output = Output(component, routes_of(lane.topology, component, frozenset(), number))
        context = context_of(lane, number, environment.rehearsal_directory)
        spouts[number] = LocalSpout(spout, context, output, buffer, tracked=lane.tracked)
    return spouts
