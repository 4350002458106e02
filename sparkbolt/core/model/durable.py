"""Durable pickles: what an earlier version wrote is read, though its classes have moved since.

Which question it answers: where is that today which a pickle in a checkpoint names?
Rule: whatever reads a pickle that an earlier start may have written reads it with ``loads``, or asks ``home``. A module
that durable values are made of and that moves has a line here.

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
    """Where a module is today.

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
    """Finds classes where they are today."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return super().find_class(home(module_name), global_name)


def loads(data: bytes | bytearray | memoryview) -> Any:
    """As ``pickle.loads``, of this version or an earlier one.

    >>> loads(pickle.dumps({"be": 2}))
    {'be': 2}
    """
    return _Unpickler(io.BytesIO(data)).load()
