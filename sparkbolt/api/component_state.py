"""Component state: what the tasks of a bolt keep, as it is read from outside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any


class ComponentState(ABC):
    """What the tasks of a bolt kept after one committed micro-batch; ``running.state("count")`` returns it.

    It does not change when the topology goes on: ask ``running.state`` again for newer values. A task is read when you
    first need it.

    All methods may raise ``StateError``: Spark does not keep the state of that micro-batch any more, or it is damaged.
    """

    micro_batch: int
    """The micro-batch after which it was."""

    @abstractmethod
    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key of the ``KeyValueState``, or ``default`` if no task has the key."""

    @abstractmethod
    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return all keys and values of the ``KeyValueState`` of all tasks, in any order."""

    def keys(self) -> Iterator[Any]:
        """Return the keys of all tasks, in any order."""
        return (key for key, _ in self.items())

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of keys."""

    @abstractmethod
    def attributes(self) -> Sequence[dict[str, Any]]:
        """Return the durable attributes of each task, by name.

        Raises:
            StateError: An attribute cannot be read.
        """

    @abstractmethod
    def to_df(self, *, key: str | None = None, value: str | None = None) -> Any:
        """Return a DataFrame of Spark's with a row for each attribute and each key of all tasks.

        Its columns are ``component``, ``task`` (the index), ``attribute`` (null: it is a key), ``key`` (null: it is an
        attribute) and ``value``. Keys and values are JSON; objects of your classes are texts in it, because no code of
        the topology runs. The executors read the state when you use the DataFrame, not before.

        Args:
            key: Spark's type of the keys, such as ``string``; keys of other types are null then. None: JSON.
            value: Spark's type of the values, such as ``bigint`` or ``array<string>``, likewise.

        Raises:
            WrongUseError: The topology does not run on Spark.
        """
