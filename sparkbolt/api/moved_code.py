"""Moved code: finds the classes and functions that a stored pickle names as they were called before.

A name is looked up as it is stored first, so a class that has the old name now is preferred.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from functools import reduce
from importlib import import_module
from io import BytesIO
from typing import Any, TypeVar

from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError

Code = TypeVar("Code", bound=Callable[..., Any])
MAIN = "__main__"
MOVED_FROM = "__moved_from__"
"""The attribute of a class, function or module with its earlier names: a str, or a tuple of them."""
_MOVED: dict[str, Any] = {}
"""Code by its earlier names: all that ``moved_from`` has decorated in this process."""


def moved_from(*names: str) -> Callable[[Code], Code]:
    """Decorate a class or function that stored state names by an earlier module or name.

    State in a checkpoint names the classes of its values. After you rename or move such a class, say what it was
    called, and values that were stored before can be read. New values are stored with the new name.

    For a module or package that is renamed as a whole, write ``__moved_from__ = "old_shop"`` at its top instead.

    Args:
        names: The earlier names, each with its module; that of the main program is ``__main__``.

    Raises:
        ConfigError: A name has no module.

    >>> @moved_from("shop.Order")
    ... class Purchase:
    ...     pass
    >>> moved_from("Order")
    Traceback (most recent call last):
    sparkbolt.errors.ConfigError: moved_from('Order'): expected earlier names with their module, such as 'shop.Order'
    """
    given: tuple[Any, ...] = names
    if not names or not all(isinstance(name, str) and all(name.partition(".")) for name in given):
        shown = ", ".join(map(printed, names))
        raise ConfigError(f"moved_from({shown}): expected earlier names with their module, such as 'shop.Order'")

    def mark(code: Code) -> Code:
        setattr(code, MOVED_FROM, names)
        _MOVED.update(dict.fromkeys(names, code))
        return code

    return mark


def find_moved(module: str, qualname: str, namespace: Mapping[str, Any]) -> Any:
    """Return the class or function that had this name; None if no code says so.

    Args:
        module: the stored module.
        qualname: the stored name in it.
        namespace: the definitions of the main program.
    """
    name = f"{module}.{qualname}"
    if name in _MOVED:
        return _MOVED[name]
    for code in namespace.values():  # those of the main program reach an executor without their decorators
        if name in _names(getattr(code, "__dict__", {})):
            return code
    for there in (namespace, *(getattr(one, "__dict__", {}) for one in list(sys.modules.values()))):
        for before in _names(there):
            if module == before or module.startswith(f"{before}."):
                try:
                    inner = module[len(before) :]
                    found = vars(import_module(f"{there['__name__']}{inner}")) if inner else there
                    first, *rest = qualname.split(".")
                    return reduce(getattr, rest, found[first])
                except (ImportError, AttributeError, KeyError):
                    continue
    return None


def _names(there: Mapping[str, Any]) -> tuple[str, ...]:
    names = there.get(MOVED_FROM, ())
    return (names,) if isinstance(names, str) else names if isinstance(names, tuple) else ()


class MovedUnpickler(pickle.Unpickler):
    """Finds moved code; ``missing`` is the name of the code that was not found, if any."""

    namespace: Mapping[str, Any]
    missing: str | None = None

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Return the code of this name, or that which had it."""
        try:
            return super().find_class(module_name, global_name)
        except (ImportError, AttributeError):
            found = find_moved(module_name, global_name, self.namespace)
            if found is None:
                self.missing = f"{module_name}.{global_name}"
                raise
            return found


def loads(data: bytes) -> Any:
    """Like ``pickle.loads``, and finds moved code."""
    unpickler = MovedUnpickler(BytesIO(data))
    unpickler.namespace = vars(sys.modules[MAIN]) if MAIN in sys.modules else {}
    return unpickler.load()
