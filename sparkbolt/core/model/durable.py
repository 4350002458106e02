"""Durable pickles: reads pickles of earlier versions, whose classes have moved to other modules since.

Which question it answers: in which module is the class that a pickle in a checkpoint names?
Rule 1: a pickle that an earlier start may have written is read with ``loads``, or by another ``DurableUnpickler``.
Rule 2: what users can import is found at the door of its package, wherever in the package it has moved. Only what has
no door needs a line here when it moves.

Read before: nothing.
"""

from __future__ import annotations

import io
import pickle
from importlib import import_module
from typing import Any

_HOMES = {
    "sparkbolt.core.components": "sparkbolt.core.model.components",
    "sparkbolt.core.config": "sparkbolt.core.model.config",
    "sparkbolt.core.dead_letters": "sparkbolt.core.model.dead_letters",
    "sparkbolt.core.fates": "sparkbolt.core.model.reports",
    "sparkbolt.core.function_bolts": "sparkbolt.core.model.function_bolts",
    "sparkbolt.core.groupings": "sparkbolt.core.model.groupings",
    "sparkbolt.core.metrics": "sparkbolt.core.model.metrics",
    "sparkbolt.core.retry": "sparkbolt.core.model.retry",
    "sparkbolt.core.snapshots": "sparkbolt.core.model.pickling",
    "sparkbolt.core.story": "sparkbolt.core.model.story",
    "sparkbolt.core.tuples": "sparkbolt.core.model.tuples",
}


def home(module: str) -> str:
    """Return the name that a module has in this version.

    >>> home("sparkbolt.core.tuples"), home("json")
    ('sparkbolt.core.model.tuples', 'json')
    """
    return _HOMES.get(module, module)


def moved_here(now: str, *before: str) -> None:
    """A module of a room above says where it was; called where it is imported, before anything of it is read.

    Args:
        now: its ``__name__``.
        before: where it was.
    """
    _HOMES.update(dict.fromkeys(before, now))


class DurableUnpickler(pickle.Unpickler):
    """An unpickler that looks for classes in the modules of this version."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Find a class or function by the module where it was, or by the door where users import it."""
        try:
            return super().find_class(home(module_name), global_name)
        except (ModuleNotFoundError, AttributeError):
            found = _at_a_door(module_name, global_name)
            if found is None:
                raise
            return found


def _at_a_door(module_name: str, name: str) -> Any:
    """What the nearest package above one of Sparkbolt's modules offers under this name; None if none offers it."""
    parts = module_name.split(".")
    if parts[0] != __name__.partition(".")[0]:
        return None
    for end in range(len(parts) - 1, 0, -1):
        try:
            door = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:  # the package has moved, too
            continue
        if name in getattr(door, "__all__", ()):
            return getattr(door, name)
    return None


def loads(data: bytes | bytearray | memoryview) -> Any:
    """``pickle.loads`` for a pickle of this version or an earlier one.

    >>> loads(pickle.dumps({"be": 2}))
    {'be': 2}
    """
    return DurableUnpickler(io.BytesIO(data)).load()
