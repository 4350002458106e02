"""Keeping: does a bolt have anything to keep from one micro-batch to the next?

Which question it answers: which bolts need state, and which may run anywhere?
Rule: a bolt is taken to keep nothing only where it cannot: what its code might store is not run but read.

Read before: ``components``.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from sparkbolt.core.components import BoltBase, Component, FunctionBolt
from sparkbolt.core.hosted import HostedBolt

_STORES = {"STORE_ATTR", "DELETE_ATTR"}
_ATTRIBUTE_WRITERS = {"setattr", "delattr", "__dict__", "vars", "exec", "eval", "__setattr__", "object"}


def keeps_state(component: Component) -> bool:
    """Whether a bolt has anything to keep from one micro-batch to the next.

    A function bolt and a class with ``stateless = True`` keep nothing. Neither does an instance without
    attributes whose class never stores one: there is nothing that could be kept. What starts trees keeps what it emits.
    """
    if isinstance(component, FunctionBolt) or not isinstance(component, BoltBase):
        return False
    if component.starts_trees or isinstance(component, HostedBolt):
        return True
    if component.stateless:
        return False
    if vars(component) or hasattr(component, "init_state"):
        return True
    return _may_keep(type(component))


@lru_cache(maxsize=1024)  # it is asked in every micro-batch, and reading byte code takes a millisecond
def _may_keep(cls: type) -> bool:
    return any(_may_store_attributes(code) for _, code in _methods(cls))


def storing_methods(cls: type) -> list[str]:
    """The methods of a bolt's class that may store an attribute, without ``__init__``."""
    found = [name for name, code in _methods(cls) if name != "__init__" and _may_store_attributes(code)]
    return list(dict.fromkeys(found))


def _methods(cls: type) -> Iterator[tuple[str, types.CodeType]]:
    """(name, code) of all methods that a class has from below Sparkbolt's own base classes, with what is nested."""
    for base in cls.__mro__:
        if base.__module__.startswith("sparkbolt.core.") or base is object:
            continue
        for name, member in vars(base).items():
            function: Any = getattr(member, "fget", None) or getattr(member, "__func__", member)
            code = getattr(function, "__code__", None)
            if code is not None:
                yield from ((name, nested) for nested in _nested(code))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _may_store_attributes(code: types.CodeType) -> bool:
    """Whether the code stores an attribute of anything, or passes ``self`` where that might happen unseen."""
    if _ATTRIBUTE_WRITERS.intersection(code.co_names):
        return True
    return any(step.opname in _STORES for step in dis.get_instructions(code))
