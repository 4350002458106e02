"""The worker environment: the parts that a process needs to run tasks, made once in the driver.

Classes are pickled by module and name if the process can import the module. Definitions of the main program are pickled
by value, and are found by their names when state is unpickled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Protocol, TypeAlias

import cloudpickle

from sparkbolt.api.dead_letters import DeadLetterSink
from sparkbolt.api.moved_code import MAIN, MOVED_FROM
from sparkbolt.layout.lane import Lane
from sparkbolt.observe.measurements import Process
from sparkbolt.wire.frames import Column
from sparkbolt.worker.emissions import Output, Rows
from sparkbolt.worker.results import Work
from sparkbolt.worker.tasks import BoltTask


def pickled_components(lane: Lane) -> dict[str, bytes]:
    """Each component of a topology, pickled separately: each task unpickles its own instance."""
    return {name: cloudpickle.dumps(spec.component) for name, spec in lane.topology.components.items()}


def main_definitions() -> dict[str, Any]:
    """The classes and functions that the main program defines, by name, and its earlier name."""
    main = sys.modules.get(MAIN)
    if main is None:
        return {}
    return {
        name: value
        for name, value in vars(main).items()
        if name == MOVED_FROM or (isinstance(value, type | FunctionType) and value.__module__ == MAIN)
    }


def pickled_definitions(definitions: Mapping[str, Any]) -> bytes:
    """The definitions as a pickled dict, without those that cannot be pickled.

    A function of the main program may use the Spark session or an open file, for example; no task needs such a
    function.
    """
    able = {}
    for name, value in definitions.items():
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001  pickling calls code of the user's, which may raise anything
            continue
        able[name] = value
    data: bytes = cloudpickle.dumps(able)
    return data


def become_main(definitions: Mapping[str, Any]) -> None:
    """Let ``pickle`` find the definitions of the main program in this process, which runs another program.

    Its own main module stays what it is for the functions that run in it.
    """
    main = sys.modules.get(MAIN)
    if any(getattr(main, name, None) is not value for name, value in definitions.items()):
        sys.modules[MAIN] = main = ModuleType(MAIN)
        vars(main).update(definitions)


def environment_of(
    lane: Lane,
    *,
    stamps: Callable[[], int],
    clock: Callable[[], float],
    wall_ms: Callable[[], float] = lambda: 0.0,
    process: Callable[[], Process | None] = lambda: None,
    components: Mapping[str, bytes] | None = None,
    namespace: Mapping[str, Any] | None = None,
    capture: Capture | None = None,
    debug: Callable[[str], None] | None = None,
) -> WorkerEnvironment:
    """Make the environment for the tasks of a lane; see ``WorkerEnvironment`` for the arguments."""
    return WorkerEnvironment(
        lane=lane,
        components=components if components is not None else pickled_components(lane),
        unpickle=cloudpickle.loads,
        clock=clock,
        stamps=stamps,
        wall_ms=wall_ms,
        process=process,
        capture=capture,
        debug=debug,
        namespace=namespace if namespace is not None else main_definitions(),
    )


Capture: TypeAlias = Callable[[str, int, str, Sequence[Column]], None]
"""Called with all emissions: component, task index, stream, columns."""


class Observer(Protocol):
    """Observes stages delivery by delivery, in the simulator. It does not change their work."""

    def emits(self, output: Output) -> None:
        """Called when a task is made, with the ``Output`` into which it emits."""

    def starting(self, task: BoltTask, rows: Rows) -> Rows:
        """Called before a task runs on rows; the task runs on the rows that this returns."""

    def worked(self, work: Work) -> None:
        """See ``Subscriber``; called before any other subscriber."""

    def again(self) -> None:
        """Called when this attempt begins again: earlier observations of it do not count."""


@dataclass
class WorkerEnvironment:
    """The parts that a process needs to run tasks; made once in the driver."""

    lane: Lane
    components: Mapping[str, bytes]
    """Each component, pickled: each task unpickles its own instance."""
    unpickle: Callable[[bytes], Any]
    clock: Callable[[], float]
    """The time in seconds, to measure how long user code takes; no rule depends on it."""
    stamps: Callable[[], int]
    """Returns random 64-bit numbers for segments of state."""
    wall_ms: Callable[[], float] = lambda: 0.0
    """The wall clock, in milliseconds since the epoch, to report when a stage ran; no rule depends on it."""
    process: Callable[[], Process | None] = lambda: None
    """Returns this process and its memory; None if they are not measured."""
    capture: Capture | None = None
    debug: Callable[[str], None] | None = None
    """Called with the text of each emission of components whose ``debug`` is on."""
    observer: Observer | None = None
    """Observes every delivery; None except in the simulator."""
    namespace: Mapping[str, Any] = field(default_factory=dict)
    """The definitions of the topology's main module, for unpickling state."""
    letter_sink: Callable[[int], DeadLetterSink] | None = None
    """In tests and in the simulator: makes the dead letter sink of a spout's task, instead of the one that its spout
    sets."""
    rehearsal_directory: str | None = None
    """See ``TopologyContext``."""
    checkpoint_id: str = ""
    """See ``TopologyContext``."""
    lock: AbstractContextManager[Any] | None = None
    """Guards the values of user metrics, where user code may run threads; see ``MetricsRecorder``."""
