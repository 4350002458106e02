"""Sparkbolt: Apache Storm's model on Spark, every tuple tracked to its end.

This is the package that users import. Its import needs neither Spark nor Java, and is fast: the names are loaded when
one of them is first used, since Spark starts processes that need only a small part of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparkbolt.version import __version__ as __version__

if TYPE_CHECKING:
    from sparkbolt import names
    from sparkbolt.names import *  # noqa: F403

    __all__: list[str] = []
    __all__ += names.__all__


def __getattr__(name: str) -> Any:
    """Load all public names, and return the requested one."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loaded = import_module("sparkbolt.names")
    globals().update({"__all__": loaded.__all__, **{each: getattr(loaded, each) for each in loaded.__all__}})
    try:
        return globals()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    """The public names, whether they are loaded or not."""
    return [*import_module("sparkbolt.names").__all__, "__version__"]
