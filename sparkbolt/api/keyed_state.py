"""Keyed state: whether the state of a bolt belongs to the keys of its fields groupings, and can be divided anew.

A fields grouping chooses the task of a tuple by the values of its fields. A bolt that keeps what it knows of a key
under that key, in a ``KeyValueState``, a dict or a set, has keyed state: if it gets another number of tasks, each key
moves to the task that gets its tuples then. It is proved on every key before anything moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.api.components import BoltBase
from sparkbolt.api.groupings import (
    AllGrouping,
    FieldsGrouping,
    GlobalGrouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    ShuffleGrouping,
    fields_targets,
)
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.topology import ComponentSpec
from sparkbolt.base.hashing import UnroutableError

_ANY_TASK = (ShuffleGrouping, NoneGrouping, LocalOrShuffleGrouping, GlobalGrouping)
_RESCALE = (
    "define rescale(self, states, part, parts) in its class, which gets the attributes of all tasks that it had, and "
    "returns those of task number part of parts"
)


def is_divided_by_code(bolt: object) -> bool:
    """Whether a bolt divides its attributes itself: it defines ``rescale``."""
    return callable(getattr(bolt, "rescale", None))


def key_fields(spec: ComponentSpec) -> int | None:
    """By how many fields the tuples of a bolt are grouped; None if not all its groupings are such fields groupings.

    Streams of which each task gets all tuples are left out.
    """
    groupings = [sub.grouping for sub in spec.subscriptions if type(sub.grouping) is not AllGrouping]
    counts = {len(grouping.fields) if type(grouping) is FieldsGrouping else None for grouping in groupings}
    return counts.pop() if len(counts) == 1 else None


def is_broadcast(spec: ComponentSpec) -> bool:
    """Whether each task of a bolt gets all tuples of some stream, from which all may know the same."""
    return any(type(sub.grouping) is AllGrouping for sub in spec.subscriptions)


def is_same_in_all(spec: ComponentSpec) -> bool:
    """Whether each task of a bolt gets all of its tuples, from which all know the same."""
    return bool(spec.subscriptions) and all(type(sub.grouping) is AllGrouping for sub in spec.subscriptions)


def stays(spec: ComponentSpec) -> bool:
    """Whether any task may get any tuple of a bolt, so that the state of each stays where it is."""
    return all(type(sub.grouping) in _ANY_TASK for sub in spec.subscriptions)


def refusal(spec: ComponentSpec, before: int, after: int) -> str | None:
    """Why the state of a bolt cannot be divided among another number of tasks, with what to do; None if it may.

    Args:
        spec: the bolt, as it is now.
        before: how many tasks had its state.
        after: how many tasks it has now.
    """
    if isinstance(spec.component, RuntimeBolt) and not (stays(spec) and after > before):
        return spec.component.divides(_grouped_by(spec))
    if is_divided_by_code(spec.component) or key_fields(spec) is not None:
        return None
    if stays(spec):
        if after > before:
            return None
        return f"nothing says which task takes over the state of those that go: {_RESCALE}"
    if is_same_in_all(spec) and before > 1:
        return None
    hint = "" if is_broadcast(spec) else ", or use fields groupings"
    return f"its tasks do not get their tuples by the keys of its state: {_RESCALE}{hint}"


def _grouped_by(spec: ComponentSpec) -> tuple[str, ...] | None:
    """The fields by which all streams are grouped that a bolt gets."""
    groupings = {sub.grouping for sub in spec.subscriptions}
    fields = {one.fields if type(one) is FieldsGrouping else None for one in groupings}
    return fields.pop() if len(fields) == 1 else None


class NotKeyedError(Exception):
    """Some keys are no keys of the fields grouping."""


def is_declared_keyed(bolt: BoltBase, attribute: str | None) -> bool:
    """Whether the class of a bolt says that an attribute (None: its ``KeyValueState``) is keyed."""
    declared = bolt.keyed
    return declared is True or (attribute is not None and declared is not False and attribute in declared)


def targets(keys: Sequence[Any], fields: int, tasks: int) -> npt.NDArray[np.unsignedinteger]:
    """The index of the task that gets the tuples of each key: uint8[keys] or uint16[keys].

    Args:
        keys: values of the grouping's field, as an Arrow array or a list, or tuples of the values of its fields in
            their order.
        fields: how many fields the grouping has.
        tasks: how many tasks there are.

    Raises:
        NotKeyedError: a key has another form, or a value by which nothing can be grouped.
    """
    columns: list[Any] = [keys]
    if fields > 1:
        if not all(type(key) is tuple and len(key) == fields for key in keys):
            raise NotKeyedError(f"they are not all tuples of {fields} values")
        columns = [list(column) for column in zip(*keys, strict=True)]
    try:
        return fields_targets(columns, tasks)
    except UnroutableError as error:
        raise NotKeyedError(str(error)) from None


def likely_tasks(keys: Sequence[Any], tasks: int) -> list[int]:
    """The tasks that a fields grouping would have chosen for keys, whatever its fields; others may have them, too.

    >>> likely_tasks(["be"], 4), likely_tasks([("be", 7)], 4), likely_tasks([object()], 4)
    ([0], [2], [])
    """
    found = set()
    for key in keys:
        for fields in {1, len(key)} - {0} if type(key) is tuple else {1}:
            with suppress(NotKeyedError, TypeError):
                found.add(int(targets([key], fields, tasks)[0]))
    return sorted(found)
