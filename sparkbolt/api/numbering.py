"""Numbering: the numbers of tasks, streams and subscriptions, as identities that a checkpoint keeps.

What is durable between two micro-batches (held tuples, outboxes, open trees, retries) refers to these numbers. So a
topology that continues from a checkpoint keeps the numbers of what it had, whatever its order or its names are now, and
gets new ones for what is new. No number is used twice: the number of a task that is gone still names its component, in
the texts about its trees.

In a new checkpoint, numbers depend on names alone, never on the order of declaration: task numbers start at 1 and
follow the order of component ids (Storm's ``StormCommon.stormTaskInfo``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

from sparkbolt.errors import UnknownNameError

Key = TypeVar("Key")


class Numbered(Protocol):
    """What is numbered of a component."""

    @property
    def parallelism(self) -> int:
        """How many tasks it has."""

    @property
    def stream_names(self) -> Iterable[str]:
        """Its declared streams."""

    @property
    def inputs(self) -> Iterable[tuple[str, str]]:
        """(component, stream) of each subscription."""


@dataclass(frozen=True)
class Numbering:
    """The numbers of a topology; it also knows those of what the topology had in earlier generations."""

    tasks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By component: the number of each of its tasks, by index."""
    retired: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """By number of a task that is gone: (component, index)."""
    streams: tuple[tuple[str, str], ...] = ()
    """(component, stream) by number, with those that are gone."""
    subscriptions: tuple[tuple[str, str, str], ...] = ()
    """(subscriber, component, stream) by number, with those that are gone."""

    @classmethod
    def of(cls, components: Mapping[str, Numbered], before: Numbering | None = None) -> Numbering:
        """The numbering of some components, by id.

        Args:
            components: the topology's components.
            before: the numbering that goes on; its names are those of today (``renamed``).
        """
        before = before or cls()
        retired = dict(before.retired)
        tasks, next_task = {}, before.next_task
        for id_ in sorted({*components, *before.tasks}):
            had = before.tasks.get(id_, ())
            wanted = components[id_].parallelism if id_ in components else 0
            retired.update((number, (id_, index)) for index, number in enumerate(had) if index >= wanted)
            new = range(next_task, next_task + max(0, wanted - len(had)))
            next_task += len(new)
            if wanted:
                tasks[id_] = (*had[:wanted], *new)
        streams = sorted((id_, stream) for id_, one in components.items() for stream in one.stream_names)
        inputs = sorted((id_, *source) for id_, one in components.items() for source in one.inputs)
        return cls(tasks, retired, _with_new(before.streams, streams), _with_new(before.subscriptions, inputs))

    def renamed(self, names: Mapping[str, str]) -> Numbering:
        """The same numbers after some components got other ids: from the id before to the one today."""

        def now(id_: str) -> str:
            return names.get(id_, id_)

        return Numbering(
            {now(id_): numbers for id_, numbers in self.tasks.items()},
            {number: (now(id_), index) for number, (id_, index) in self.retired.items()},
            tuple((now(id_), stream) for id_, stream in self.streams),
            tuple((now(id_), now(source), stream) for id_, source, stream in self.subscriptions),
        )

    @cached_property
    def next_task(self) -> int:
        """The lowest number that no task has ever had."""
        return max((*self.retired, *(number for numbers in self.tasks.values() for number in numbers)), default=0) + 1

    def ever(self, id_: str) -> tuple[int, ...]:
        """The numbers of a component's tasks, and behind them those of its tasks that are gone."""
        return (*self.tasks.get(id_, ()), *(number for number, owner in self.retired.items() if owner[0] == id_))

    @cached_property
    def owners(self) -> Mapping[int, tuple[str, int]]:
        """(component, index) of each task number, also of tasks that are gone."""
        living = {number: (id_, index) for id_, own in self.tasks.items() for index, number in enumerate(own)}
        return {**self.retired, **living}

    def owner(self, number: int) -> tuple[str, int]:
        """(component, index) of a task number, also of a task that is gone.

        Raises:
            UnknownNameError: no task has or had this number.
        """
        found = self.owners.get(number)
        if found is None:
            raise UnknownNameError(f"there is no task {number}")
        return found

    @cached_property
    def stream_numbers(self) -> Mapping[tuple[str, str], int]:
        """(component, stream) to number."""
        return {key: number for number, key in enumerate(self.streams)}

    @cached_property
    def subscription_numbers(self) -> Mapping[tuple[str, str, str], int]:
        """(subscriber, component, stream) to number."""
        return {key: number for number, key in enumerate(self.subscriptions)}

    def to_json(self) -> dict[str, Any]:
        """A JSON object, which ``from_json`` reads.

        >>> one = Numbering({"a": (1, 4)}, {2: ("b", 0)}, (("a", "default"),), (("b", "a", "default"),))
        >>> Numbering.from_json(one.to_json()) == one
        True
        """
        return {
            "tasks": {id_: list(numbers) for id_, numbers in self.tasks.items()},
            "retired": {str(number): list(owner) for number, owner in self.retired.items()},
            "streams": [list(key) for key in self.streams],
            "subscriptions": [list(key) for key in self.subscriptions],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Numbering:
        """The inverse of ``to_json``."""
        return cls(
            {id_: tuple(numbers) for id_, numbers in body["tasks"].items()},
            {int(number): (id_, index) for number, (id_, index) in body["retired"].items()},
            tuple((id_, stream) for id_, stream in body["streams"]),
            tuple((id_, source, stream) for id_, source, stream in body["subscriptions"]),
        )


def _with_new(known: tuple[Key, ...], wanted: Iterable[Key]) -> tuple[Key, ...]:
    """The known keys in their places, and behind them those that are wanted and new."""
    return (*known, *(key for key in wanted if key not in known))
