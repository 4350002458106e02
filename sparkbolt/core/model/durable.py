"""Durable pickles: reads pickles of earlier versions, whose classes have moved to other modules since.

Which question it answers: in which module is the class that a pickle in a checkpoint names?
Rule: a pickle that an earlier start may have written is read with ``loads``, or by a reader that calls ``home``. If a
module with classes of durable values moves, it gets a line here.

Read before: nothing.
"""

from __future__ import annotations

import io
import pickle
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


class _Unpickler(pickle.Unpickler):
    """An unpickler that looks for classes in the modules of this version."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return super().find_class(home(module_name), global_name)


def loads(data: bytes | bytearray | memoryview) -> Any:
    """``pickle.loads`` for a pickle of this version or an earlier one.

    >>> loads(pickle.dumps({"be": 2}))
    {'be': 2}
    """
    return _Unpickler(io.BytesIO(data)).load()
