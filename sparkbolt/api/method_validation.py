"""Method validation: finds mistakes in the methods of a component before any of them is called.

The arguments of a call are read from the class of Sparkbolt that declares the method. A coroutine that is hidden in a
wrapper is found after the call (``returned_values``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from sparkbolt.api.components import AsyncBolt, BoltBase, ColumnBolt, Component
from sparkbolt.api.function_bolts import FunctionBolt
from sparkbolt.api.function_calls import FunctionCall

_OF_ALL = ("prepare", "cleanup", "open", "close", "dead_letter_sink", "init_state", "migrate", "rescale")
_OF_BOLTS = ("execute", "flush", "row", "begin", "commit", "end")
_OF_SPOUTS = ("next_tuple", "ack", "fail", "activate", "deactivate", "receive", "confirm", "release")
_OF_DRIVER = (
    "next_ranges",
    "finished",
    "on_committed",
    "on_sources_changed",
    "on_read",
    "unread",
    "lag",
    "take_skipped",
)
_OF_RANGES = (*_OF_DRIVER, "read", "read_columns")
_METHODS = (*_OF_ALL, *_OF_BOLTS, *_OF_SPOUTS, *_OF_RANGES, "read_bytes", "raw")
"""The methods that the engine calls, if the component has them."""
_FLUSH = [[], [inspect.Parameter("collector", inspect.Parameter.POSITIONAL_ONLY)]]
"""The forms of ``flush``: its parameters after ``self``."""
_MAY_YIELD = frozenset({"execute", "flush", "read", "read_columns", "receive"})


def method_mistakes(component: Component) -> list[str]:
    """Return one sentence for each method that cannot be called, or would do nothing."""
    if isinstance(component, FunctionBolt):
        return list(_of_function(component))
    call = getattr(component, "call", None)
    if isinstance(call, FunctionCall) and (wrong := call.mistake()):
        return [wrong]
    mistakes = []
    for name in _METHODS:
        declared = _declared(component, name)
        method = getattr(component, name, None)
        if declared is None or not _is_own(component, name):
            continue
        if not callable(method):
            mistakes.append(f"its {name} is {method!r:.60}, expected a method")
            continue
        wrong = _laziness(component, name, method) or _wrong_signature(name, method, declared)
        if wrong:
            mistakes.append(wrong)
    version = getattr(component, "state_version", 1)
    if isinstance(version, int) and version > 1 and not _is_own(component, "migrate"):
        mistakes.append(
            f"its class has state_version = {version} and no migrate: define migrate(self, version, attributes), "
            "which returns the attributes of this version"
        )
    if inspect.isfunction(inspect.getattr_static(component, "exhausted", None)):
        mistakes.append(
            "its exhausted is a method, expected a property, since a method is always true: put @property above it"
        )
    return mistakes


def is_ours(cls: type) -> bool:
    """Whether a class belongs to Sparkbolt."""
    return cls.__module__.startswith("sparkbolt.")


def _is_own(component: Component, name: str) -> bool:
    """Whether the user has defined the method, not Sparkbolt."""
    if name in getattr(component, "__dict__", {}):
        return True
    return any(name in vars(cls) and not is_ours(cls) for cls in type(component).__mro__)


def _declared(component: Component, name: str) -> Any:
    """Return the method as the nearest class of Sparkbolt declares it; None if no class does."""
    if name in _OPTIONAL:
        return _OPTIONAL[name] if isinstance(component, BoltBase) else None
    return next((vars(cls)[name] for cls in type(component).__mro__ if is_ours(cls) and name in vars(cls)), None)


def _init_state(self: Any, state: Any) -> None:
    """Has the arguments with which ``init_state`` is called."""


def _rescale(self: Any, states: Any, part: Any, parts: Any) -> Any:
    """Has the arguments with which ``rescale`` is called."""


_OPTIONAL = {"init_state": _init_state, "rescale": _rescale}
"""The methods that any bolt may have, and that no class of Sparkbolt declares for all."""


def _laziness(component: Component, name: str, method: Any) -> str | None:
    """Explain why a call would do nothing; None if it does something."""
    kind = type(component).__mro__[_depth(component)].__name__
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        if not isinstance(component, AsyncBolt):
            return (
                f"its {name} is a coroutine (async def), which nothing awaits in a {kind}: make it an AsyncBolt"
                if name == "execute"
                else f"its {name} is a coroutine (async def), which nothing awaits: take the async away"
                + (", or make it an AsyncBolt whose execute awaits" if isinstance(component, BoltBase) else "")
            )
        if name != "execute":
            return f"its {name} is a coroutine (async def): of an AsyncBolt only execute may be one"
    elif inspect.isgeneratorfunction(method):
        if isinstance(component, ColumnBolt) and name in _OF_BOLTS:
            return f"its {name} has a yield in it: a ColumnBolt emits columns, with their anchors, by collector.emit"
        if name == "next_tuple":
            return (
                "its next_tuple has a yield in it, so that a call would run nothing: emit with collector.emit(values, "
                "message_id=...), or make a function of it, with @spout"
            )
        if name not in _MAY_YIELD:
            return f"its {name} has a yield in it, so that a call would run nothing: return what it is to give"
    return None


def _depth(component: Component) -> int:
    """Return the place of the first class of Sparkbolt in the method resolution order."""
    return next(place for place, cls in enumerate(type(component).__mro__) if is_ours(cls))


def _wrong_signature(name: str, method: Any, declared: Any) -> str | None:
    """Explain why the engine cannot call the method; None if it can."""
    forms = _FLUSH if name == "flush" else [list(inspect.signature(declared).parameters.values())[1:]]
    own = _signature(method)
    if own is None or any(_takes(own, wanted) for wanted in forms):
        return None
    calls = " or ".join(f"{name}({', '.join(['self', *_shown(wanted)])})" for wanted in forms)
    return f"its {name}({', '.join(['self', *_names(own)])}) is called as {calls}"


def _signature(method: Any) -> inspect.Signature | None:
    """Return the parameters of a method, without ``self``; None if they cannot be determined."""
    try:
        return inspect.signature(method, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _takes(own: inspect.Signature, wanted: list[inspect.Parameter]) -> bool:
    named = {parameter.name: None for parameter in wanted if parameter.kind is parameter.KEYWORD_ONLY}
    try:
        own.bind(*[None] * (len(wanted) - len(named)), **named)
    except TypeError:
        return False
    return True


def _names(own: inspect.Signature) -> list[str]:
    bare = [parameter.replace(annotation=parameter.empty) for parameter in own.parameters.values()]
    text = str(own.replace(parameters=bare, return_annotation=own.empty))[1:-1]
    return [text] if text else []


def _shown(wanted: list[inspect.Parameter]) -> list[str]:
    return [
        f"{parameter.name}=..." if parameter.kind is parameter.KEYWORD_ONLY else parameter.name for parameter in wanted
    ]


def _of_function(component: FunctionBolt) -> Iterator[str]:
    function: Any = component.function
    name = getattr(function, "__name__", type(function).__name__)
    if not callable(function):
        yield f"@bolt was given {function!r:.60}, expected a function of a tuple"
    elif inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        yield (
            f"its function {name} is a coroutine (async def), which nothing awaits: make it the execute of an AsyncBolt"
        )
    else:
        own = _signature(function)
        if own is not None and not _takes(own, [inspect.Parameter("tup", inspect.Parameter.POSITIONAL_ONLY)]):
            yield f"its function {name}({', '.join(_names(own))}) is called as {name}(tup)"
