"""Kept state: how operators read what the tasks of a topology keep.

Rule 1: an answer is bounded, however much the tasks keep.
Rule 2: no code that the state names runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Protocol, TypeAlias

from sparkbolt.control.documents import ComponentStateDocument, StateDocument
from sparkbolt.control.parameters import Parameter

FIRST_MAX = 1000
LISTED_CHARACTERS_MAX = 2_000
"""How much of a value is in an answer with several."""
VALUE_CHARACTERS_MAX = 100_000
"""How much of a value is in the answer with one."""
READ_SECS = 25.0
"""How long the topology has to answer: Spark reads the state as it does its other work."""
WAIT_SECS = 30.0
"""How long who asks waits: the first question about a topology that does not run may start a Spark to read it."""

First = Annotated[int, Parameter(lowest=1, highest=FIRST_MAX)]
AsOf = Annotated[int | None, Parameter(lowest=0)]


class KeptState(Protocol):
    """What the tasks of a topology keep after one micro-batch."""

    def sizes(self) -> StateDocument:
        """How much each task keeps.

        Raises:
            StateError: it cannot be read; the message says what to do.
        """

    def first(self, component: str, first: int, characters_max: int | None = None) -> ComponentStateDocument:
        """At most ``first`` attributes and keys, with values of at most ``characters_max`` characters.

        Raises:
            WrongUseError: there is no such component, or it keeps nothing.
            StateError: as in ``sizes``.
        """

    def named(self, component: str, text: str, characters_max: int | None = None) -> ComponentStateDocument:
        """The entries of the keys that a text names.

        Raises:
            WrongUseError: there is no such component or key.
            StateError: as in ``sizes``.
        """


ReadState: TypeAlias = Callable[[str, int | None], KeptState]
"""Reads the state in a checkpoint, after a micro-batch or after the last one; raises as ``KeptState`` does."""


def component_state_of(kept: KeptState, component: str, key: str | None, first: int) -> ComponentStateDocument:
    """The answer to the question ``component_state``; it raises as the methods of ``KeptState``."""
    if key is None:
        return kept.first(component, first, LISTED_CHARACTERS_MAX)
    return kept.named(component, key, VALUE_CHARACTERS_MAX)
