"""Groupings: decides which task gets which row.

Rule 1: a grouping chooses tasks. It never drops or delays a tuple, and copies tuples only for ``all`` (or if a custom
grouping names several tasks).
Rule 2: the same rows, sender and micro-batch give the same deliveries, in every process; Python's ``hash`` is
never used.
Rule 3: a grouping is a value: frozen, comparable, picklable. It keeps no counts from one call to the next.

The groupings and their meaning are Storm's (``GrouperFactory``, ``PartialKeyGrouping``).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.config import Config
from sparkbolt.base.exceptions import line_of, pass_on, printed
from sparkbolt.base.hashing import Column, UnroutableError, combine, hash_column, hash_distinct
from sparkbolt.base.ids import U64, mix64, mix64_array
from sparkbolt.errors import InvariantError, check

Rows = npt.NDArray[np.intp]

_SECOND_CHOICE = np.uint64(mix64(101))
_FEW_TASKS = 4


@dataclass
class Emitted:
    """The rows that one task emitted on one stream, in the order of emission."""

    sender: int
    """The sender's task number."""
    micro_batch_id: int
    first: int
    """How many rows this task had already emitted on this stream in this micro-batch."""
    count: int
    """How many rows there are."""
    fields: tuple[str, ...]
    """The fields of the stream."""
    columns: Sequence[Column]
    """One column of ``count`` values for each field."""

    def column(self, field: str) -> Column:
        """The column of a field."""
        return self.columns[self.fields.index(field)]


class Delivery(NamedTuple):
    """Some rows that go to one task."""

    slot: int
    """Distinguishes the deliveries of one row under one grouping; from 0."""
    target: int
    """An index into the consumer's tasks, from 0."""
    rows: Rows | None
    """Row indices, intp[rows], ascending; None means all rows."""


@dataclass(frozen=True)
class GroupingContext:
    """The information that a custom grouping gets when it is prepared."""

    topology: str
    source: str
    """The component that emits."""
    consumer: str
    """The component that subscribes."""
    task: int
    """The task number of the sender; each sender prepares a copy of its own."""
    config: Config


class Grouping(ABC):
    """Distributes the rows of a stream over the tasks of a consumer; the base of custom groupings.

    A custom grouping (Storm's custom stream grouping) defines ``choose_tasks``, and ``prepare`` if it needs to know
    the targets in advance. Its choice must depend only on its arguments, because a micro-batch that runs again is
    routed again.

    >>> class ByLength(Grouping):
    ...     def prepare(self, context, stream, targets):
    ...         self.targets = targets
    ...     def choose_tasks(self, sender_task, values):
    ...         return [self.targets[len(values[0]) % len(self.targets)]]
    >>> by_length = prepared(ByLength(), GroupingContext("t", "a", "b", 1, Config()), "default", [7, 8])
    >>> [d.target for d in by_length.deliveries(Emitted(1, 0, 0, 2, ("w",), [["to", "not"]]), [7, 8])]
    [0, 1]
    """

    fields: tuple[str, ...] = ()
    """The fields that the grouping uses; the topology checks that the stream declares them."""

    def prepare(self, context: GroupingContext, stream: str, targets: Sequence[int]) -> None:  # noqa: B027
        """Called on the sender's own copy, once, before the first rows.

        Args:
            context: the sender, the emitting component and the subscribing one.
            stream: the name of the stream.
            targets: the consumer's task numbers, ascending.
        """

    @abstractmethod
    def choose_tasks(self, sender_task: int, values: list[Any]) -> Sequence[int]:
        """Return the task numbers, out of the targets, that get a row; called for each row, in order of emission.

        A task that is named twice gets the tuple twice; an empty list delivers it to no task. An exception fails the
        emitted row.

        Args:
            sender_task: the sender's task number.
            values: the values in the order of the stream's fields.
        """

    def deliveries(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        """Return all deliveries of the rows, ordered by slot and target; each has at least one row.

        Args:
            emitted: the rows.
            targets: the consumer's task numbers, ascending.

        Raises:
            UnroutableError: ``choose_tasks`` raised, or did not return a sequence of targets.
        """
        index_of = {task: index for index, task in enumerate(targets)}
        chosen: dict[tuple[int, int], list[int]] = {}
        for row, values in enumerate(_rows_of(emitted)):
            for slot, task in enumerate(self._tasks_for(emitted.sender, values, row, index_of)):
                chosen.setdefault((slot, index_of[task]), []).append(row)
        return [
            _delivery(slot, target, np.array(rows, dtype=np.intp), emitted.count)
            for (slot, target), rows in sorted(chosen.items())
        ]

    def _tasks_for(self, sender: int, values: list[Any], row: int, index_of: dict[int, int]) -> Sequence[int]:
        try:
            tasks: Any = self.choose_tasks(sender, values)
        except BaseException as error:
            pass_on(error)
            raise UnroutableError(f"grouping {self.describe()}: choose_tasks raised {line_of(error)}", row) from error
        if isinstance(tasks, str | bytes) or not isinstance(tasks, Sequence | np.ndarray):
            raise UnroutableError(
                f"grouping {self.describe()}: choose_tasks returned {printed(tasks)}, expected a list of task "
                "numbers: did you return a task instead of a list?",
                row,
            )
        for task in tasks:
            if not isinstance(task, int | np.integer) or isinstance(task, bool) or task not in index_of:
                raise UnroutableError(
                    f"grouping {self.describe()}: choose_tasks named task {printed(task)}, expected task numbers "
                    f"out of {list(index_of)}: did you return an index instead of one of the targets?",
                    row,
                )
        return list(tasks)

    def describe(self) -> str:
        """Return a short description, the same in every process; for drawings and fingerprints."""
        return f"custom({type(self).__qualname__})"

    def __eq__(self, other: object) -> bool:
        """Whether both have the same class and equal attributes."""
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """Return the same number for equal groupings, for sets and dicts of one process."""
        return hash(self.describe())


def prepared(grouping: Grouping, context: GroupingContext, stream: str, targets: Sequence[int]) -> Grouping:
    """Return the sender's own copy, on which ``prepare`` was called; the original does not change."""
    if isinstance(grouping, _BuiltIn):
        return grouping  # a frozen value that prepares nothing
    own = copy.deepcopy(grouping)
    own.prepare(context, stream, tuple(targets))
    return own


class _BuiltIn(Grouping):
    """The base of the groupings of this module: they route many rows at once, never row by row."""

    def choose_tasks(self, sender_task: int, values: list[Any]) -> Sequence[int]:
        """Never called by the engine: a built-in grouping does not route single rows."""
        raise InvariantError(f"grouping {self.describe()} was asked for one row: deliveries() routes its rows")

    def deliveries(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        """See ``Grouping.deliveries``."""
        check(len(targets) > 0, f"grouping {self.describe()} got no targets")
        if emitted.count == 0:
            return []
        return self._route(emitted, targets)

    @abstractmethod
    def _route(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        """Return the deliveries of at least one row to at least one target."""


@dataclass(frozen=True)
class ShuffleGrouping(_BuiltIn):
    """Round robin: any n consecutive rows of one sender go to n tasks, one each.

    The first task is a hash of the sender and the micro-batch, so that senders of few rows do not all send to the same
    task. The round starts again in each micro-batch: over several micro-batches each task gets its share on average,
    not exactly. It is Storm's shuffle grouping without load awareness.
    """

    def _route(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        size = len(targets)
        begin = _start(emitted) + emitted.first
        deliveries = []
        for target in range(size):
            rows = np.arange((target - begin) % size, emitted.count, size, dtype=np.intp)
            if len(rows):
                deliveries.append(_delivery(0, target, rows, emitted.count))
        return deliveries

    def describe(self) -> str:
        """``shuffle``."""
        return "shuffle"


@dataclass(frozen=True)
class LocalOrShuffleGrouping(ShuffleGrouping):
    """Like ``ShuffleGrouping``; fusion, not the grouping, keeps tuples in the producer's process."""

    def describe(self) -> str:
        """``local_or_shuffle``."""
        return "local_or_shuffle"


@dataclass(frozen=True)
class NoneGrouping(_BuiltIn):
    """Any task, as if at random: it depends on a hash of the row's number, so a repeated row goes to the same task."""

    def _route(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        if len(targets) == 1:
            return [Delivery(0, 0, None)]
        numbers = np.arange(emitted.first, emitted.first + emitted.count, dtype=np.uint64)
        numbers += np.uint64(_start(emitted))
        return split_rows(_scale(mix64_array(numbers), len(targets)), len(targets))

    def describe(self) -> str:
        """``none``."""
        return "none"


@dataclass(frozen=True)
class AllGrouping(_BuiltIn):
    """Every task gets a copy of every row; the slot is the target."""

    def _route(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        return [Delivery(target, target, None) for target in range(len(targets))]

    def describe(self) -> str:
        """``all``."""
        return "all"


@dataclass(frozen=True)
class GlobalGrouping(_BuiltIn):
    """The task with the lowest number gets every row."""

    def _route(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        return [Delivery(0, min(range(len(targets)), key=targets.__getitem__), None)]

    def describe(self) -> str:
        """``global``."""
        return "global"


@dataclass(frozen=True)
class DirectGrouping(_BuiltIn):
    """The sender names the task of each tuple with ``emit_direct``; the collector stores these deliveries."""

    def _route(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        raise InvariantError("a direct grouping chooses no tasks: the collector knows what emit_direct named")

    def describe(self) -> str:
        """``direct``."""
        return "direct"


@dataclass(frozen=True)
class FieldsGrouping(_BuiltIn):
    """Rows whose values of ``fields`` are equal go to the same task."""

    fields: tuple[str, ...]

    def __init__(self, fields: Sequence[str]) -> None:
        """Store the names of the fields; ValueError if they are not a list of at least one name."""
        object.__setattr__(self, "fields", _names(fields, "fields_grouping"))

    def _route(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        if len(targets) == 1:
            return [Delivery(0, 0, None)]
        columns = [emitted.column(field) for field in self.fields]
        return split_rows(fields_targets(columns, len(targets), self.fields), len(targets))

    def describe(self) -> str:
        """``fields(word)``."""
        return f"fields({', '.join(self.fields)})"


@dataclass(frozen=True)
class PartialKeyGrouping(_BuiltIn):
    """Each key has two tasks; a row goes to the task that has received fewer rows so far, of all keys.

    The pair of tasks depends only on the key. Counts start at 0 with each call, because a grouping is a value. If
    both counts are equal, one of the two is chosen as ``ShuffleGrouping`` does it: by a hash of the sender and the
    micro-batch, and the other one if an odd number of rows was emitted before the call. So over some micro-batches both
    tasks of a key get half of its rows, even if each micro-batch has only one row.
    """

    fields: tuple[str, ...]

    def __init__(self, fields: Sequence[str]) -> None:
        """Store the names of the fields; ValueError if they are not a list of at least one name."""
        object.__setattr__(self, "fields", _names(fields, "partial_key_grouping"))

    def _route(self, emitted: Emitted, targets: Sequence[int]) -> list[Delivery]:
        size = len(targets)
        if size == 1:
            return [Delivery(0, 0, None)]
        keys = _hash_fields([emitted.column(field) for field in self.fields], self.fields)
        firsts, seconds = candidates(keys, size)
        if (_start(emitted) + emitted.first) % 2:
            firsts, seconds = seconds, firsts
        used = [0] * size
        chosen = firsts.tolist()
        # Each choice depends on the choices before it, so only this grouping loops over rows.
        for row, (one, other) in enumerate(zip(chosen, seconds.tolist(), strict=True)):
            if used[other] < used[one]:
                chosen[row] = one = other
            used[one] += 1
        return split_rows(np.array(chosen, dtype=_target_type(size)), size)

    def describe(self) -> str:
        """``partial_key(word)``."""
        return f"partial_key({', '.join(self.fields)})"


def fields_targets(columns: Sequence[Column], n: int, fields: Sequence[str] = ()) -> npt.NDArray[np.unsignedinteger]:
    """Return the task, 0 to n - 1, of each row: rows with equal values get the same task, in every process.

    Args:
        columns: the columns of the grouping fields, at least one, all of one length.
        n: the number of tasks.
        fields: the names of the fields, for errors.

    Returns:
        uint8[rows] or uint16[rows].

    Raises:
        UnroutableError: a value has no number that is the same in every process.

    >>> words = ["to", "be", "to"]
    >>> bool((fields_targets([words], 4) == fields_targets([pa.array(words)], 4)).all())
    True
    """
    column = columns[0]
    if len(columns) == 1 and isinstance(column, pa.DictionaryArray):
        distinct, codes = hash_distinct(column, fields[0] if fields else "")
        return _scale(distinct, n).take(codes)
    return _scale(_hash_fields(columns, fields), n)


def _hash_fields(columns: Sequence[Column], fields: Sequence[str]) -> U64:
    names = [*fields, *("" for _ in columns[len(fields) :])]
    numbers = hash_column(columns[0], names[0])
    for column, name in zip(columns[1:], names[1:], strict=True):
        numbers = combine(numbers, hash_column(column, name))
    return numbers


def candidates(keys: U64, size: int) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    """Return the two tasks of each key, which differ if there is more than one task.

    Args:
        keys: uint64[rows].
        size: the number of tasks.

    Returns:
        int64[rows], int64[rows].
    """
    firsts = _scale(keys, size).astype(np.int64)
    seconds = _scale(mix64_array(keys ^ _SECOND_CHOICE), size).astype(np.int64)
    return firsts, np.where(firsts == seconds, (seconds + 1) % size, seconds)


def split_rows(targets: npt.NDArray[np.unsignedinteger], size: int) -> list[Delivery]:
    """Return the deliveries of slot 0: the rows of each target, ascending; no delivery for a target without rows.

    Args:
        targets: unsigned integers[rows], the target of each row.
        size: the number of targets.
    """
    count = len(targets)
    if size <= _FEW_TASKS:
        parts = [np.flatnonzero(targets == target) for target in range(size)]
    else:
        order = np.argsort(targets, kind="stable")
        bounds = np.cumsum(np.bincount(targets, minlength=size))
        parts = np.split(order, bounds[:-1])
    return [_delivery(0, target, rows, count) for target, rows in enumerate(parts) if len(rows)]


def _delivery(slot: int, target: int, rows: Rows, count: int) -> Delivery:
    return Delivery(slot, target, None if len(rows) == count else rows)


def _start(emitted: Emitted) -> int:
    return mix64(mix64(emitted.sender) ^ (emitted.micro_batch_id + 1)) >> 1


def _target_type(size: int) -> type[np.unsignedinteger]:
    return np.uint8 if size <= 1 << 8 else np.uint16


def _scale(numbers: U64, size: int) -> npt.NDArray[np.unsignedinteger]:
    """Map uint64[rows] evenly to 0 .. size - 1, by the numbers' upper halves."""
    scaled = numbers >> np.uint64(32)
    scaled *= np.uint64(size)
    scaled >>= np.uint64(32)
    return scaled.astype(_target_type(size))


def _rows_of(emitted: Emitted) -> list[list[Any]]:
    if not emitted.columns:
        return [[] for _ in range(emitted.count)]
    lists = [column.to_pylist() if isinstance(column, pa.Array) else column for column in emitted.columns]
    return [list(row) for row in zip(*lists, strict=True)]


def _names(fields: object, method: str) -> tuple[str, ...]:
    """Return the names of grouping fields; raise a ValueError that names the mistake in them."""
    if isinstance(fields, str):
        raise ValueError(f"{method} got the str {fields!r}, expected a list of fields: did you mean [{fields!r}]?")
    if not isinstance(fields, Sequence) or not all(isinstance(field, str) for field in fields):
        raise ValueError(f"{method} got {fields!r}, expected a list of fields")
    if not fields:
        raise ValueError(f"{method} got no fields, expected at least one: did you mean global_grouping?")
    return tuple(fields)
