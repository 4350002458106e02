"""Task view: what one task keeps, read from its segments without a bolt, and without changing anything.

By default no code that the checkpoint names runs (``plain_reading``), since anybody may have written it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from sparkbolt.api.component_state import ComponentState
from sparkbolt.api.keyed_state import likely_tasks
from sparkbolt.api.pickling import Pickling
from sparkbolt.base.exceptions import line_of
from sparkbolt.errors import StateError, WrongUseError
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
        self._pickling, self._segments = pickling or PlainPickling(), segments
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

    def keys(self) -> Sequence[Any]:
        """The keys of its ``KeyValueState``, in any order; no value is read."""
        return self._table._keys()

    @property
    def bytes(self) -> int:
        """The size of its whole store."""
        return sum(map(len, self._segments.values()))

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


Reading: TypeAlias = Callable[[Sequence[int]], Sequence[TaskView]]
"""Returns what the tasks with some indices keep."""


class StateOfTasks(ComponentState):
    """The state of a bolt, task by task; a task is read when it is needed.

    Args:
        micro_batch: the micro-batch after which it was.
        tasks: how many tasks the bolt has.
        read: reads some of them; each is read once.
        frame: what ``to_df`` returns; None: there is no Spark.
    """

    def __init__(
        self, micro_batch: int, tasks: int, read: Reading, frame: Callable[[str | None, str | None], Any] | None = None
    ) -> None:
        self.micro_batch = micro_batch
        self._tasks, self._read, self._frame = range(tasks), read, frame
        self._known: dict[int, TaskView] = {}

    def _views(self, tasks: Collection[int]) -> list[TaskView]:
        missing = [task for task in tasks if task not in self._known]
        if missing:
            self._known.update(zip(missing, self._read(missing), strict=True))
        return [self._known[task] for task in tasks]

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key in the task that has it, or ``default``."""
        owners = likely_tasks([key], len(self._tasks))
        for tasks in (owners, [task for task in self._tasks if task not in owners]):
            for view in self._views(tasks):
                value = view.get(key, _MISSING)
                if value is not _MISSING:
                    return value
        return default

    def items(self) -> Iterator[tuple[Any, Any]]:
        """The keys and values of all tasks."""
        return (pair for view in self._views(self._tasks) for pair in view.items())

    def __len__(self) -> int:
        return sum(map(len, self._views(self._tasks)))

    def attributes(self) -> list[dict[str, Any]]:
        """By index of the task."""
        return [view.attributes() for view in self._views(self._tasks)]

    def to_df(self, *, key: str | None = None, value: str | None = None) -> Any:
        """A DataFrame of Spark's."""
        if self._frame is None:
            raise WrongUseError("to_df needs Spark, on which this topology does not run: use items() and attributes()")
        return self._frame(key, value)


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
