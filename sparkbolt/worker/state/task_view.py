"""Task view: what one task keeps, read from its segments without a bolt, and without changing anything.

By default no code that the checkpoint names runs (``plain_reading``), since anybody may have written it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparkbolt.api.component_state import ComponentState
from sparkbolt.api.pickling import Pickling
from sparkbolt.base.exceptions import line_of
from sparkbolt.errors import StateError
from sparkbolt.worker.state.keyvalue import KeyValueTable
from sparkbolt.worker.state.large_dicts import PREFIX as LARGE_DICTS
from sparkbolt.worker.state.large_dicts import DictReference, LargeDicts
from sparkbolt.worker.state.plain_reading import PlainPickling, UnknownObject, kind_of
from sparkbolt.worker.state.snapshots import DELETED, UNCHANGED, VERSION
from sparkbolt.worker.state.task_state import DictStore, TaskState

_OWNED = f"{Pickling.__module__}._owned"
_TOKENS = ("context", "collector", "key_value_state", "self")
_REFERENCE = "sparkbolt.worker.state.large_dicts.DictReference"
_TABLE = "__key_values"
_MISSING: Any = object()


class TaskView:
    """What one task keeps, after one micro-batch.

    Args:
        segments: the whole store of the task.
        pickling: reads keys and values; None: one that runs no code that the segments name.

    Raises:
        StateError: the segments are damaged.
    """

    def __init__(self, segments: Mapping[str, bytes], pickling: Pickling | None = None) -> None:
        self._pickling = pickling or PlainPickling()
        self._state = TaskState()
        try:
            self._state.begin(DictStore(segments))
            self._table = KeyValueTable(self._pickling)
            self._table._attach(DictStore(segments), self._state.read(_TABLE))
        except (TypeError, ValueError, AttributeError) as error:
            raise StateError(f"the state of a task is damaged: {line_of(error)}") from error

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key of its ``KeyValueState``, or ``default``; it reads the bucket of the key alone."""
        return self._table.get(key, default)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All (key, value) pairs of its ``KeyValueState``, in any order."""
        return iter(self._table)

    def __len__(self) -> int:
        """The number of keys of its ``KeyValueState``."""
        return len(self._table)

    def attributes(self) -> dict[str, Any]:
        """The attributes of the bolt that are durable, by name.

        Raises:
            StateError: one of them cannot be read.
        """
        data = self._state.snapshot()
        if data is None:
            return {}
        try:
            stored = self._pickling.load_attributes(data)
            large = {name: _reference(value) for name, value in stored.items()}
            LargeDicts().restore(large, self._state)
        except Exception as error:
            name = self._pickling.unreadable
            raise StateError(f"attribute {name!r} cannot be read: {line_of(error)}") from error
        engines = (DELETED, UNCHANGED, VERSION)
        return {name: value for name, value in large.items() if name not in engines and not _is_owned(value)}

    def others(self) -> dict[str, int]:
        """The bytes of all other segments by what they belong to: ``__window``, ``__trees`` (the outbox) and so on."""
        sizes: dict[str, int] = {}
        for name in [*self._state.own_names("__"), *self._state.names()]:
            if not name.startswith(("__snapshot", _TABLE, LARGE_DICTS)):
                kind = name.partition("/")[0]
                sizes[kind] = sizes.get(kind, 0) + len(self._state.read(name) or b"")
        return sizes


class StateOfTasks(ComponentState):
    """The state of a bolt, task by task."""

    def __init__(self, micro_batch: int, tasks: Sequence[TaskView]) -> None:
        """Look into the ``tasks`` of the bolt, by index."""
        self.micro_batch = micro_batch
        self._tasks = tasks

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key in the task that has it, or ``default``."""
        values = (view.get(key, _MISSING) for view in self._tasks)
        return next((value for value in values if value is not _MISSING), default)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The keys and values of all tasks."""
        return (pair for view in self._tasks for pair in view.items())

    def __len__(self) -> int:
        return sum(map(len, self._tasks))

    def attributes(self) -> list[dict[str, Any]]:
        """By index of the task."""
        return [view.attributes() for view in self._tasks]


def with_classes(namespace: Mapping[str, Any]) -> Pickling:
    """Reads values with the classes of the user, which may run code.

    Args:
        namespace: as in ``Pickling``.
    """
    return Pickling(namespace, {token: kind_of(token)() for token in _TOKENS})


def _is_owned(value: Any) -> bool:
    """Whether an object of the engine was in an attribute, such as the bolt's ``KeyValueState``: it keeps nothing."""
    return isinstance(value, UnknownObject) and (value.name == _OWNED or value.name in _TOKENS)


def _reference(value: Any) -> Any:
    """The reference to a large dict in the place of the object that stands for one."""
    if isinstance(value, UnknownObject) and value.name == _REFERENCE:
        return DictReference(dict)
    return value


def plain_json(value: Any) -> Any:
    """A value as JSON can have it: what JSON does not know is its ``repr``.

    >>> plain_json({"a": (1, {2.5}), "b": b"x"}), plain_json({1: 2})
    ({'a': [1, [2.5]], 'b': "b'x'"}, {'1': 2})
    """
    if value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        return {name if type(name) is str else repr(name): plain_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [plain_json(one) for one in value]
    return repr(value)
