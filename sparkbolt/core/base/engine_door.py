"""The engine door: how the core calls the packages above it that run topologies, write files and draw.

Which question it answers: how does a topology reach the engine that runs it without importing it?
Rule: ``sparkbolt.launch`` sets the door, and loading any public name of Sparkbolt loads ``sparkbolt.launch``. While a
module is imported to find a topology in it, the door starts none.

Read before: nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from sparkbolt.errors import EngineError, WrongUseError


class EngineDoor(Protocol):
    """What the core needs; ``run`` and ``start`` return what the methods of ``Topology`` return."""

    def run(self, topology: Any, options: dict[str, Any]) -> Any:
        """Run a topology to its end."""

    def start(self, topology: Any, options: dict[str, Any]) -> Any:
        """Start a topology and return at once."""

    def file_sink(self, path: str) -> Any:
        """Return the ``DeadLetterSink`` that writes dead letters into a file."""

    def columns_of(self, spout: Any) -> Any:
        """Return the columns of the DataFrame of a ``SparkSpout``."""

    def topology_html(self, topology: Any) -> str:
        """Return a picture of a topology for a notebook, as HTML."""

    def running_html(self, running: Any) -> str:
        """Return a table about a running topology for a notebook, as HTML."""


_door: EngineDoor | None = None
_imported: ContextVar[str | None] = ContextVar("imported", default=None)
"""The module in which a command looks for a topology."""


def set_engine_door(given: EngineDoor) -> None:
    """Set the engine door; it replaces an earlier one."""
    global _door
    _door = given


def engine_door() -> EngineDoor:
    """Return the engine door.

    Raises:
        EngineError: it has not been set.
    """
    if _door is None:
        raise EngineError("nothing that runs a topology is loaded: import sparkbolt.launch")
    return _door


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Inside of the block: a topology that the module starts while it is imported is refused."""
    token = _imported.set(module)
    try:
        yield
    finally:
        _imported.reset(token)


def check_not_imported(topology: Any) -> None:
    """Check that nobody imports the module that starts this topology only to find it.

    Raises:
        WrongUseError: a command does.
    """
    module = _imported.get()
    if module is not None:
        raise WrongUseError(
            f"module {module!r} starts topology {topology.name!r} while it is imported, and a command that imports it "
            'only looks for the topology: put what starts it under `if __name__ == "__main__":`'
        )
