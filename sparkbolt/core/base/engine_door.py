"""The rooms above: what a topology asks of those who start it and know files.

Which question it answers: how does a model reach what runs it without knowing it?
Rule: ``sparkbolt.launch`` sets it, and whoever loads a public name of Sparkbolt has loaded that.

Read before: nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from sparkbolt.errors import EngineError


class EngineDoor(Protocol):
    """What is asked; the results are those of ``Topology.run`` and ``start``, and a ``DeadLetterSink``."""

    def run(self, topology: Any, options: dict[str, Any]) -> Any:
        """Run a topology to its end."""

    def start(self, topology: Any, options: dict[str, Any]) -> Any:
        """Start a topology and return at once."""

    def file_sink(self, path: str) -> Any:
        """The sink that writes dead letters into a file."""


_door: EngineDoor | None = None


def set_engine_door(given: EngineDoor) -> None:
    """From now on this one is asked."""
    global _door
    _door = given


def engine_door() -> EngineDoor:
    """Whom to ask.

    Raises:
        EngineError: nobody has set it.
    """
    if _door is None:
        raise EngineError("nothing that runs a topology is loaded: import sparkbolt.launch")
    return _door
