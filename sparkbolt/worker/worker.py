"""The worker: what a process keeps between micro-batches.

There is one instance of a task in a process: it is prepared once, then its connections stay open. An instance gets
tuples only if its durable attributes are those of the committed snapshot; an instance whose last micro-batch failed is
discarded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from sparkbolt.api.components import BasicBolt, Bolt, TopologyContext
from sparkbolt.api.dead_letters import DeadLetterSink
from sparkbolt.api.function_bolts import FunctionBolt
from sparkbolt.api.metric_handles import MetricsRecorder, TaskMetrics
from sparkbolt.api.pickling import Pickling
from sparkbolt.api.progress import Activity
from sparkbolt.api.reports import ErrorReport
from sparkbolt.api.tuples import Origin
from sparkbolt.base.exceptions import line_of, preparing, user_code
from sparkbolt.base.native import kernels
from sparkbolt.errors import ConfigError, InvariantError, StateError
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.frames import Clock
from sparkbolt.wire.peek import Peek
from sparkbolt.worker.activity import ActivityMonitor
from sparkbolt.worker.bolt_runtime import BoltRuntime, void_roots
from sparkbolt.worker.crash_isolation import Crashes, Unkept, Watch
from sparkbolt.worker.emissions import Output
from sparkbolt.worker.environment import WorkerEnvironment
from sparkbolt.worker.outbox import Outbox
from sparkbolt.worker.routing import StreamRoutes, routes_of
from sparkbolt.worker.state.segments import SegmentStore
from sparkbolt.worker.state.snapshots import DurableAttributes, noting_made
from sparkbolt.worker.state.task_state import TaskState
from sparkbolt.worker.tasks import BoltTask

_BY_ROW = (Bolt, BasicBolt, FunctionBolt)
"""Bolts whose emissions compiled code gathers, unless an observer wants to see each of them."""


class Worker:
    """The data of a process between micro-batches: task instances, open connections, decoded state."""

    def __init__(
        self, environment: WorkerEnvironment, watch: Watch | None = None, monitor: ActivityMonitor | None = None
    ) -> None:
        """Begin without any prepared tasks.

        Args:
            environment: the worker environment.
            watch: set in a process that may die (``crash_isolation``).
            monitor: set if the process's activity is shown.
        """
        self.environment = environment
        self.watch = watch
        self.monitor = monitor
        self.lane = environment.lane
        self.recorder = MetricsRecorder(environment.clock, environment.wall_ms, environment.lock)
        """Records the metrics that components declare."""
        self.peeks: tuple[Peek, ...] = ()
        """What operators want to see of the tuples of the next stages."""
        self._tasks: dict[int, BoltTask] = {}
        self._states: dict[int, TaskState] = {}
        self._durable: dict[int, DurableAttributes] = {}
        self._outboxes: dict[int, Outbox] = {}
        """By number of each task that is in a micro-batch."""
        self._spouts: dict[int, Any] = {}
        self._sinks: dict[int, DeadLetterSink] = {}
        """By number of each spout task: its open dead letter sink."""
        self.refusals: dict[int, tuple[int, int]] = {}
        """By spout task: (the micro-batch in which its last writes of dead letters failed, how many in a row)."""
        self._busy: set[int] = set()
        """Tasks that are in a micro-batch. A task that is still here at the next micro-batch has not ended normally."""
        self._looked_at: set[int] = set()
        """Tasks whose state is checked after each piece of work, since something in it could not be kept."""
        self._routes: dict[int, tuple[StreamRoutes, ...]] = {}
        self._origins: dict[tuple[int, int], Origin] = {}

    def origin(self, source: int, stream: int) -> Origin:
        """The origin of a frame's tuples, by the number of the sending task and the index of the stream."""
        found = self._origins.get((source, stream))
        if found is None:
            component, definition = self.lane.topology.stream_at(stream)
            _, index = self.lane.topology.task_owner(source)
            found = self._origins[source, stream] = Origin(component, index, definition.name, definition.fields)
        return found

    def routes(self, number: int) -> tuple[StreamRoutes, ...]:
        """The streams of a task's component with their consumers."""
        if number not in self._routes:
            component, _ = self.lane.topology.task_owner(number)
            self._routes[number] = routes_of(self.lane.topology, component, frozenset(self.lane.fused_into), number)
        return self._routes[number]

    def context(self, number: int) -> TopologyContext:
        """A new context for a task."""
        environment = self.environment
        directory, checkpoint_id = environment.rehearsal_directory, environment.checkpoint_id
        return context_of(self.lane, number, directory, checkpoint_id, recorder=self.recorder)

    def doing(self, activity: Activity, number: int, block: int = 0) -> AbstractContextManager[None]:
        """To be entered around a call that may kill the process or take long; the watch and the monitor note it."""
        if self.watch is not None:
            return self._watched(self.watch.at(activity, number, block), activity, number)
        return self.monitor.at(activity, number) if self.monitor is not None else nullcontext()

    @contextmanager
    def _watched(self, watched: AbstractContextManager[None], activity: Activity, number: int) -> Iterator[None]:
        with self.monitor.at(activity, number) if self.monitor is not None else nullcontext(), watched:
            yield

    def enter(self, number: int) -> None:
        """Begin a task's part of a micro-batch; if its last part did not end normally, its instance is discarded."""
        if number in self._busy:
            if number in self._tasks:
                self._tasks[number].abandon()
            for known in (self._tasks, self._states, self._durable, self._outboxes, self._spouts):
                known.pop(number, None)
        self._busy.add(number)

    def leave(self, number: int) -> None:
        """End a task's part of a micro-batch normally."""
        self._busy.discard(number)

    def bolt(self, number: int) -> BoltTask:
        """The task's instance, prepared."""
        task = self._tasks.get(number)
        if task is None:
            component, _ = self.lane.topology.task_owner(number)
            spec = self.lane.topology.components[component]
            captured = self.environment.capture is not None or spec.config.debug
            native = kernels() if isinstance(spec.component, _BY_ROW) and self.environment.observer is None else None
            output = Output(component, self.routes(number), captured=captured, native=native)
            if self.environment.observer is not None:
                self.environment.observer.emits(output)
            with self.doing(Activity.PREPARE, number):
                instance = self.environment.unpickle(self.environment.components[component])
                task = BoltTask(instance, self.context(number), output, spec.config.on_error)
                task.inputs = [(subscription.source, subscription.stream) for subscription in spec.subscriptions]
                self._watch_over(task, number)
                task.monitor = self.monitor
                task.prepare()
            self._tasks[number] = task
        return task

    def _watch_over(self, task: BoltTask, number: int) -> None:
        if self.watch is not None:
            task.watch = self.watch.of(number)
            task.watch.look = partial(self._look, number) if number in self._looked_at else None

    def spout(self, number: int) -> Any:
        """The task's ``PartitionedSpout``, prepared."""
        if number not in self._spouts:
            component, _ = self.lane.topology.task_owner(number)
            with self.doing(Activity.PREPARE, number):
                spout = self.environment.unpickle(self.environment.components[component])
                with preparing(f"prepare of {component!r}"):
                    spout.prepare(self.context(number))
            self._spouts[number] = spout
        return self._spouts[number]

    def letter_sink(self, number: int) -> DeadLetterSink:
        """The open dead letter sink of a spout's task.

        Raises:
            ConfigError: the spout no longer has such a sink.
        """
        if number not in self._sinks:
            if self.environment.letter_sink is not None:
                sink = self.environment.letter_sink(number)
            else:
                component, _ = self.lane.topology.task_owner(number)
                given = self.lane.topology.components[component].dead_letters
                if given is None or isinstance(given, str):
                    raise ConfigError(
                        f"spout {component!r} has no sink of dead letters any more (dead_letters={given!r})"
                    )
                sink = copy.deepcopy(given)
            sink.open(self.context(number))
            self._sinks[number] = sink
        return self._sinks[number]

    def drop_letter_sink(self, number: int) -> None:
        """Close a sink that failed to write; the next letters are written by a new copy of it."""
        sink = self._sinks.pop(number, None)
        if sink is not None:
            with suppress(Exception, SystemExit):
                sink.close()

    def load(self, number: int, store: SegmentStore) -> BoltTask:
        """The task, with its committed state restored."""
        state = self._states.get(number)
        if state is None:
            state = self._states[number] = TaskState(self.environment.namespace)
        state.begin(store)
        fresh = number not in self._durable
        task = self.bolt(number)
        if fresh:
            key_value = state.key_value()
            task.use_state(key_value)
            if hasattr(task.bolt, "init_state"):
                with preparing(f"init_state of {task.context.component!r}"), noting_made(task.bolt, task.made):
                    task.bolt.init_state(key_value)
            self._durable[number] = DurableAttributes(
                task.bolt,
                task.context.component,
                index=task.context.index,
                transient=task.bolt.transient,
                made=task.made,
                namespace=self.environment.namespace,
                owned={"key_value_state": key_value, **task.owned},
                warn_bytes=self.lane.topology.config.state_warn_bytes,
            )
        if not state.instance_is_current:
            self._durable[number].restore(state.snapshot(), state)
        return task

    def load_inlet(self, number: int, store: SegmentStore) -> Outbox | None:
        """The outbox of an inlet's task, from its committed state; valid until ``make_inlet_ready``.

        None: nothing is tracked, so nothing is kept.
        """
        if not self.lane.tracked:
            return None
        state = self._states.get(number)
        if state is None:
            state = self._states[number] = TaskState(self.environment.namespace)
        state.begin(store)
        own = self._outboxes[number] = Outbox(state, number, Pickling(self.environment.namespace))
        return own

    def make_inlet_ready(self, number: int) -> None:
        """Prepare the state of an inlet's task for ``save``."""
        self._outboxes.pop(number).save()
        self._states[number].make_ready()

    def outbox(self, number: int) -> Outbox | None:
        """The outbox of a loaded task, valid until ``make_ready``; None if the task starts no trees."""
        component, _ = self.lane.topology.task_owner(number)
        if component not in self.lane.starters:
            return None
        own = self._outboxes[number] = Outbox(self._states[number], number, Pickling(self.environment.namespace))
        return own

    def attach(self, number: int, clock: Clock | None) -> BoltRuntime | None:
        """The task's bolt runtime, attached to the loaded state, without void tuples; None for any other bolt."""
        runtime = self._tasks[number].runtime
        if runtime is not None:
            runtime.attach(self._states[number])
            runtime.has_run = False
            runtime.hear(*((clock.streams, clock.ranges) if clock is not None else ((), None)))
            if clock is not None and clock.void:
                runtime.forget(void_roots(dict(clock.void)))
        return runtime

    def make_ready(self, number: int) -> None:
        """Prepare a task's state for ``save``.

        Raises:
            Unkept: something in it cannot be kept.
        """
        runtime, own = self._tasks[number].runtime, self._outboxes.pop(number, None)
        try:
            if runtime is not None:
                runtime.save()
            if own is not None:
                own.save()
            self._stage(number)
        except InvariantError:
            raise
        except Exception as error:
            raise Unkept(number, line_of(error)) from error

    def _stage(self, number: int) -> None:
        durable, state = self._durable[number], self._states[number]
        data = durable.capture()
        tuples = durable.tuples
        state.set_snapshot(data, durable.prove)
        durable.stage_large(state)
        state.make_ready()
        state.check_held_once(tuples)

    def _look(self, number: int) -> str | None:
        """Why a task's present state cannot be kept; None if it can."""
        try:
            self._stage(number)
        except StateError as error:
            return line_of(error)
        return None

    def save(self, number: int) -> list[ErrorReport]:
        """Commit a task's state, which ``make_ready`` has prepared, with the micro-batch.

        Returns:
            Warnings and notes for the user.
        """
        self._states[number].commit(self.environment.stamps)
        durable = self._durable.get(number)
        if durable is None:  # an inlet's task
            return []
        durable.committed()
        owner, warning = self.lane.topology.task_owner(number), durable.warning()
        notes = [ErrorReport(*owner, text, is_note=True) for text in durable.notes()]
        return [ErrorReport(*owner, warning), *notes] if warning is not None else notes

    def begin_again(self, unkept: Unkept) -> None:
        """Begin uncommitted work again, without the call that left something that cannot be kept.

        If the call is not known, the task's state is checked after each piece of work from now on.

        Raises:
            StateError: no tuple, no window and no flush is to blame.
        """
        watch = (
            self.watch.again() if self.watch is not None else Watch(Crashes(self.lane.topology.task_owner), _nowhere)
        )
        if unkept.place is not None:
            watch.crashes.add_unkept(unkept.place, unkept.reason)
        elif unkept.task in self._looked_at:
            raise StateError(unkept.reason) from unkept
        self._looked_at.add(unkept.task)
        self.watch = watch
        self._throw_away()
        if self.environment.observer is not None:
            self.environment.observer.again()

    def end_again(self, watch: Watch | None) -> None:
        """End the repeated work; ``watch`` is the watch from before it."""
        self.watch = watch
        self._looked_at.clear()
        self._throw_away()

    def repeat(self, numbers: Collection[int]) -> None:
        """Begin the uncommitted work of a stage again, with the same instances; loading restores their attributes.

        Args:
            numbers: the tasks with state that have run in it.
        """
        if self.watch is not None:
            self.watch = self.watch.again()
        for number in numbers:
            self.leave(number)
        for number, task in self._tasks.items():
            if task.watch is not None:
                self._watch_over(task, number)
            if number in numbers:
                task.make_runtime()
        if self.environment.observer is not None:
            self.environment.observer.again()

    def _throw_away(self) -> None:
        """Discard all bolt instances: an instance is watched from its start or not at all."""
        for number, task in self._tasks.items():
            task.abandon()
            self._busy.discard(number)
        for known in (self._tasks, self._states, self._durable, self._outboxes):
            known.clear()

    def abandon(self) -> None:
        """Discard all bolt instances as a crash would, without cleanup."""
        for task in self._tasks.values():
            task.abandon()

    def close(self) -> None:
        """Clean up everything, even if something raises; the last exception is raised in the end."""
        with ExitStack() as last_first:
            for number, sink in self._sinks.items():
                last_first.callback(self._end, "close of the sink of dead letters", number, sink.close)
            for number, spout in self._spouts.items():
                last_first.callback(self._end, "cleanup", number, spout.cleanup)
            for task in reversed(self._tasks.values()):
                last_first.callback(task.cleanup)

    def _end(self, what: str, number: int, call: Callable[[], None]) -> None:
        with user_code(f"{what} of {self.lane.topology.task_owner(number)[0]!r}"):
            call()


def _nowhere(place: bytes) -> None:
    """Do not store the place: no process dies."""


def context_of(
    lane: Lane,
    number: int,
    rehearsal_directory: str | None = None,
    checkpoint_id: str = "",
    *,
    recorder: MetricsRecorder | None = None,
) -> TopologyContext:
    """Make the context of a task; ``recorder`` records the metrics that the task declares."""
    topology = lane.topology
    component, index = topology.task_owner(number)
    spec = topology.components[component]
    return TopologyContext(
        topology=topology.name,
        component=component,
        index=index,
        parallelism=spec.parallelism,
        task=number,
        config=spec.config,
        tasks=dict(topology.all_tasks),
        inputs=tuple((subscription.source, subscription.stream) for subscription in spec.subscriptions),
        version=topology.version,
        rehearsal_directory=rehearsal_directory,
        checkpoint_id=checkpoint_id,
        renamed_from=spec.renamed_from,
        metrics=TaskMetrics(recorder, component, index),
    )
