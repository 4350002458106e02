"""Statefulness: decides whether a bolt has anything to keep from one micro-batch to the next.

It reads the byte code of the class. Code that cannot be read (a decorator's wrapper hides the function in it), and code
that passes ``self`` to other code, counts as storing something.
"""

from __future__ import annotations

import dis
import inspect
import types
from abc import ABC
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Generic

from sparkbolt.api.components import BoltBase, Component
from sparkbolt.api.function_bolts import FunctionBolt
from sparkbolt.api.inlets import InletSpout
from sparkbolt.api.pickling import attributes_of
from sparkbolt.api.runtime_bolts import RuntimeBolt

_STORES = {"STORE_ATTR", "DELETE_ATTR"}
_READS = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD", "POP_TOP"}
"""The operations that may follow a load of ``self`` without passing ``self`` on."""
_ATTRIBUTE_WRITERS = {"setattr", "delattr", "__dict__", "vars", "exec", "eval", "__setattr__", "object", "locals"}
_DECLARERS = frozenset({"counter", "gauge", "histogram", "timer"})
"""The methods of ``context.metrics``."""
_BASES = ("sparkbolt.api.", "sparkbolt.worker.", "sparkbolt.windows.")
"""The packages of Sparkbolt's own base classes of bolts."""
_DATA = (str, bytes, int, float, bool, type(None), tuple, list, dict, set, frozenset, type)
"""Types of members of a class that are data: they contain no code that gets an instance."""


def keeps_state(component: Component) -> bool:
    """Whether a bolt keeps anything from one micro-batch to the next.

    A function bolt and a class with ``stateless = True`` keep nothing. Neither does an instance without attributes
    whose class never stores one. A bolt that starts trees always keeps state: the tuples that it emitted. So does an
    inlet, the only spout with tasks in a level.
    """
    if isinstance(component, InletSpout):
        return True
    if isinstance(component, FunctionBolt) or not isinstance(component, BoltBase):
        return False
    if component.starts_trees or isinstance(component, RuntimeBolt):
        return True
    if component.stateless:
        return False
    if attributes_of(component) or hasattr(component, "init_state"):
        return True
    return _may_keep(type(component))


@lru_cache(maxsize=1024)  # it is called in every micro-batch, and reading byte code takes a millisecond
def _may_keep(cls: type) -> bool:
    return any(_may_store(member) for _, member in _members(cls))


def storing_methods(cls: type) -> list[str]:
    """Return the methods of a bolt's class that may store an attribute, except ``__init__``."""
    names = [name for name, member in _members(cls) if name != "__init__" and _may_store(member)]
    return list(dict.fromkeys(names))


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield (name, member) for all members of a class that are not data, except those of Sparkbolt's base classes."""
    for base in cls.__mro__:
        if base.__module__.startswith(_BASES) or base in (object, ABC, Generic):
            continue
        for name, member in vars(base).items():
            slot = isinstance(member, types.GetSetDescriptorType | types.MemberDescriptorType)
            if not slot and not isinstance(member, _DATA) and name != "_abc_impl":
                yield name, member


def _may_store(member: Any) -> bool:
    """Whether a member of a class may store an attribute of an instance, judged by its code."""
    if isinstance(member, property):
        return any(_may_store(part) for part in (member.fget, member.fset, member.fdel) if part is not None)
    static = isinstance(member, staticmethod)
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if not isinstance(member, types.FunctionType) or hasattr(member, "__wrapped__"):
        return True
    code = member.__code__
    if not static and code.co_argcount == 0 and code.co_flags & inspect.CO_VARARGS:
        return True  # self is one of its arguments, and has no name of its own
    own = code.co_varnames[0] if code.co_argcount and not static else None
    return _stores(code, own)


def _stores(code: types.CodeType, own: str | None) -> bool:
    """Whether code stores an attribute of any object, or passes on ``self``, whose name in it is ``own``."""
    if _ATTRIBUTE_WRITERS.intersection(code.co_names):
        return True
    steps = list(dis.get_instructions(code))
    for place, step in enumerate(steps):
        if step.opname in _STORES and not _declares_metric(steps, place, code, own):
            return True
    for step, following in pairwise(steps):
        if _loads(step, own) and following.opname not in (*_READS, *_STORES):
            return True
    nested = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return any(_stores(inner, own if own in inner.co_freevars else None) for inner in nested)


def _declares_metric(steps: Sequence[dis.Instruction], place: int, code: types.CodeType, own: str | None) -> bool:
    """Whether a step of ``prepare`` is the store of ``self.NAME = context.metrics.counter(...)``, or of another kind.

    A handle of a metric is no state: ``prepare`` declares it again wherever the task starts.
    """
    stores = steps[place].opname == "STORE_ATTR" and place >= 2 and steps[place - 1].argval == own
    if not stores or code.co_argcount < 2 or not steps[place - 2].opname.startswith("CALL"):
        return False
    depth, start = 0, place - 1
    while depth != 1 and start > 0:
        start -= 1
        depth += dis.stack_effect(steps[start].opcode, steps[start].arg, jump=False)
    context, metrics, kind = steps[start : start + 3]
    is_parameter = context.opname.startswith("LOAD_FAST") and context.argval == code.co_varnames[1]
    return is_parameter and metrics.argval == "metrics" and kind.argval in _DECLARERS


def _loads(step: dis.Instruction, own: str | None) -> bool:
    """Whether a step puts ``self`` on the stack."""
    if own is None or not step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")):
        return False
    return own in step.argval if isinstance(step.argval, tuple) else step.argval == own
