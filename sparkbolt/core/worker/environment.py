"""Shipping: what a process that runs tasks is given, once.

Which question it answers: how do the topology's components reach the process in which their tasks run?
Rule: classes travel by module and name where the module can be imported there; what the main program defines
travels by value, and is found again by its name when state is unpickled.

Read before: ``worker``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import cloudpickle

from sparkbolt.core.model.lane import Lane
from sparkbolt.core.worker.worker import Capture, WorkerEnvironment

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
