"""Kept state: how operators read what the tasks of a topology keep.

Rule 1: an answer is bounded, however much the tasks keep.
Rule 2: no code that the state names runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Protocol, TypeAlias

from sparkbolt.control.documents import ComponentStateDocument, StateDocument
from sparkbolt.control.parameters import Parameter
from sparkbolt.control.questions import question

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


class StateQuestions(ABC):
    """The questions about state."""

    @abstractmethod
    def _kept(
        self, topology: str, name: str, arguments: dict[str, Any], as_of: int | None, act: Callable[[KeptState], Any]
    ) -> Any:
        """The answer to a question: of a topology that runs, or from its checkpoint.

        Args:
            topology: the topology.
            name: the name of the question.
            arguments: those of the question, for the topology that runs.
            as_of: a committed micro-batch; None: the last one.
            act: answers it from the state in the checkpoint.

        Raises:
            WrongUseError: what the question names does not exist.
            StateError: there is no answer; the message says what to do.
        """

    @question("/{topology}/state", wait_secs=WAIT_SECS)
    def state(self, topology: str, as_of: AsOf = None) -> StateDocument:
        """Get how much each task keeps: keys, attributes and bytes.

        Args:
            topology: the topology.
            as_of: a committed micro-batch (default: the last one).

        Raises:
            WrongUseError: there is no such micro-batch.
            StateError: the state cannot be read; the message says what to do.
        """
        answer: StateDocument = self._kept(topology, "state", {"as_of": as_of}, as_of, lambda kept: kept.sizes())
        return answer

    @question("/{topology}/state/{component}", wait_secs=WAIT_SECS)
    def component_state(
        self, topology: str, component: str, *, key: str | None = None, first: First = 50, as_of: AsOf = None
    ) -> ComponentStateDocument:
        """Get the first attributes and keys of a bolt with their values, or one key.

        Args:
            topology: the topology.
            component: the bolt.
            key: only this key, as JSON, where a list stands for a tuple; what is no JSON is a text.
            first: the maximum number of entries.
            as_of: a committed micro-batch (default: the last one).

        Raises:
            WrongUseError: there is no such bolt, key or micro-batch.
            StateError: the state cannot be read; the message says what to do.
        """
        arguments = {"component": component, "key": key, "first": first, "as_of": as_of}
        answer: ComponentStateDocument = self._kept(
            topology, "component_state", arguments, as_of, lambda kept: component_state_of(kept, component, key, first)
        )
        return answer
