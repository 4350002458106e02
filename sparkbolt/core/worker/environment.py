"""The worker environment: what a process that runs tasks is given, once.

Which question it answers: how do the topology's components reach the process in which their tasks run?
Rule: classes travel by module and name where the module can be imported there; what the main program defines
travels by value, and is found again by its name when state is unpickled.

Read before: ``tasks``, ``routing``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Protocol, TypeAlias

import cloudpickle

from sparkbolt.core.base.ids import U64
from sparkbolt.core.model.dead_letters import DeadLetterSink
from sparkbolt.core.model.lane import Lane
from sparkbolt.core.model.reports import Fail
from sparkbolt.core.protocol.frames import Column
from sparkbolt.core.worker.routing import RoutedRows
from sparkbolt.core.worker.tasks import BoltTask
from sparkbolt.core.worker.tuple_batch import Output, Rows

MAIN = "__main__"


def pickled_components(lane: Lane) -> dict[str, bytes]:
    """Every component of a topology, pickled by itself: a task unpickles one of its own."""
    return {name: cloudpickle.dumps(spec.component) for name, spec in lane.topology.components.items()}


def main_definitions() -> dict[str, Any]:
    """Classes and functions that the main program defines, by name."""
    main = sys.modules.get(MAIN)
    if main is None:
        return {}
    return {
        name: value
        for name, value in vars(main).items()
        if isinstance(value, type | FunctionType) and value.__module__ == MAIN
    }


def pickled_definitions(definitions: Mapping[str, Any]) -> bytes:
    """The definitions as a pickled dict, without those that cannot travel.

    A function of the main program may well use the Spark session or an open file; no task needs it then.
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


def environment_of(
    lane: Lane,
    *,
    stamps: Callable[[], int],
    clock: Callable[[], float],
    components: Mapping[str, bytes] | None = None,
    namespace: Mapping[str, Any] | None = None,
    capture: Capture | None = None,
    debug: Callable[[str], None] | None = None,
) -> WorkerEnvironment:
    """What a process needs to run the tasks of a lane; see ``WorkerEnvironment`` for the arguments."""
    return WorkerEnvironment(
        lane=lane,
        components=components if components is not None else pickled_components(lane),
        unpickle=cloudpickle.loads,
        clock=clock,
        stamps=stamps,
        capture=capture,
        debug=debug,
        namespace=namespace if namespace is not None else main_definitions(),
    )


Capture: TypeAlias = Callable[[str, int, str, Sequence[Column]], None]
"""Told of everything that is emitted: component, task index, stream, columns."""


class Observer(Protocol):
    """Whoever sees what stages do, delivery by delivery: the simulator's observer. It changes nothing."""

    def emits(self, output: Output) -> None:
        """A task is made, and emits into this."""

    def starting(self, task: BoltTask, rows: Rows) -> Rows:
        """A task is about to run on these rows; what is returned is what it runs on."""

    def sending(self, task: BoltTask) -> None:
        """What a task has emitted is sent next."""

    def giving(self, rows: Rows) -> AbstractContextManager[None]:
        """A fused task works on rows meanwhile, whose values are the very objects that were emitted."""

    def started(self, keys: U64) -> None:
        """Trees of these keys begin."""

    def sent(self, sender: int, stream: int, routed: RoutedRows) -> None:
        """A task has sent rows to another task."""

    def settled(self, roots: U64, edges: U64) -> None:
        """Deliveries were acked: one pair for each tree that each of them belongs to."""

    def failed(self, fail: Fail) -> None:
        """Somebody failed a tree."""

    def again(self) -> None:
        """What was seen of this attempt does not count: it begins again."""


@dataclass
class WorkerEnvironment:
    """What a process is given to work with, made once in the driver."""

    lane: Lane
    components: Mapping[str, bytes]
    """Each component, pickled: a task unpickles one of its own."""
    unpickle: Callable[[bytes], Any]
    clock: Callable[[], float]
    """Seconds, for measuring how long user code takes; no rule depends on it."""
    stamps: Callable[[], int]
    """Random 64-bit numbers for segments of state."""
    capture: Capture | None = None
    debug: Callable[[str], None] | None = None
    """Told each emission of components whose ``debug`` is on."""
    observer: Observer | None = None
    """Sees every delivery; None everywhere but in the simulator."""
    namespace: Mapping[str, Any] = field(default_factory=dict)
    """What the topology's main module defines, for unpickling state."""
    letter_sink: Callable[[int], DeadLetterSink] | None = None
    """Where the dead letters of a spout's task go instead of where its spout says: in tests and in the simulator."""
    rehearsal_directory: str | None = None
    """As of ``TopologyContext``."""
