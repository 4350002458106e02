"""The engine door: how a topology calls the packages that run it, which it may not import.

``sparkbolt.launch`` sets the door, and loading any public name of Sparkbolt loads ``sparkbolt.launch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sparkbolt.errors import EngineError, WrongUseError

_door: Callable[[str], Any] | None = None
_imported: ContextVar[str | None] = ContextVar("imported", default=None)
"""The module in which a command looks for a topology."""


def set_engine_door(load: Callable[[str], Any]) -> None:
    """Set the function that looks up a name; it replaces an earlier one."""
    global _door
    _door = load


def engine(name: str) -> Any:
    """Return the function or class of ``name`` in ``sparkbolt.launch.PLACES``.

    Raises:
        EngineError: the door has not been set.
    """
    if _door is None:
        raise EngineError("nothing that runs a topology is loaded: import sparkbolt.launch")
    return _door(name)


@contextmanager
def importing(module: str) -> Iterator[None]:
    """Within the block, a topology that the module starts during its import is refused."""
    token = _imported.set(module)
    try:
        yield
    finally:
        _imported.reset(token)


def check_not_imported(topology: str) -> None:
    """Check that no command imports the module that starts this topology only to find it.

    Raises:
        WrongUseError: a command imports it.
    """
    module = _imported.get()
    if module is not None:
        raise WrongUseError(
            f"module {module!r} starts topology {topology!r} while it is imported, and a command that imports it "
            'only looks for the topology: put what starts it under `if __name__ == "__main__":`'
        )
