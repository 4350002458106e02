"""Driver results: the lists that a ``TopologyTestDriver`` returns, which can tell what happened to the messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, TypeVar

Item = TypeVar("Item")


class DriverResult(list[Item]):
    """A list that a ``TopologyTestDriver`` returns; a copy of it is a plain list.

    The pytest plugin adds ``account`` to the report of an assertion that compares it.
    """

    __slots__ = ("account",)

    account: Callable[[], list[str]]
    """Return what happened to the messages of the list's spouts, in lines; failed messages come first."""

    def __init__(self, items: Iterable[Item], account: Callable[[], list[str]]) -> None:
        """Store the items, and the function for ``account``."""
        super().__init__(items)
        self.account = account

    def __reduce__(self) -> Any:
        """A pickle or a copy has the items alone."""
        return list, (list(self),)


@dataclass(frozen=True, eq=False)
class FailedMessage:
    """A message whose tree failed.

    It is equal to another one with the same fields, and to ``...``. So a test can check how many messages failed, or
    how one of several messages failed, without writing down every field of each.
    """

    message_id: Any
    cause: str
    """``exception``, ``fail`` (a bolt failed the tuple), ``timeout``, or ``emit`` (emitted values cannot be sent)."""
    story: str
    """The tree in one line: its root, its spout task, the task that failed it, when and why."""
    component: str
    """The component that failed it; for a timeout, the last known one with a tuple that it neither acked nor failed."""
    task: int
    """The task's index within that component."""
    reason: str
    """The reason that the bolt gave, or the text of the exception."""
    traceback: str | None = None
    attempt: int = 1
    """The number of the attempt that failed."""

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` is ``...`` or has the same fields."""
        if isinstance(other, EllipsisType):
            return True
        return isinstance(other, FailedMessage) and dataclasses.astuple(self) == dataclasses.astuple(other)

    __hash__ = None  # type: ignore[assignment]

    def lines(self, kind: str) -> list[str]:
        """Return how it failed, in a component of this kind, and the line of code that raised.

        >>> lost = FailedMessage(1, "exception", "root ...", "count", 0, "ValueError: no price")
        >>> lost.lines("bolt")
        ["message 1 failed in bolt 'count' attempt 1: ValueError: no price"]
        """
        where = [line.strip() for line in (self.traceback or "").splitlines() if line.startswith('  File "')]
        what = f"message {self.message_id!r} failed in {kind} {self.component!r} attempt {self.attempt}: {self.reason}"
        return [what, *(f"  {place}" for place in where[-1:])]
