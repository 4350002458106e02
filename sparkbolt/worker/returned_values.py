"""Returned values: what calls of user code return or yield.

Rule 1: each yielded list of values is emitted as a tuple; so is each list within a returned list. None emits nothing.
Rule 2: anything else fails the call instead of being ignored. For example, a coroutine that is not awaited has not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any

from sparkbolt.api.story import short
from sparkbolt.errors import EmitError
from sparkbolt.worker.emissions import NO_LISTS, lazy_advice, named


def emit_all(returned: Any, emit: Callable[[Any], None], who: str) -> None:
    """Emit what a call has returned.

    Args:
        returned: the returned object; not None.
        emit: emits the values of one tuple.
        who: the call, for error messages, such as ``execute of 'split'``.

    Raises:
        EmitError: the returned object cannot be emitted.

    >>> emit_all(([word] for word in "to be".split()), print, "execute of 'split'")
    ['to']
    ['be']
    >>> emit_all(["to", "be"], print, "execute of 'split'")
    Traceback (most recent call last):
    sparkbolt.errors.EmitError: execute of 'split' returned ['to', 'be'], expected a list with a list of values for \
each tuple: did you mean [['to', 'be']]?
    """
    if returned.__class__ is not GeneratorType:
        _check(returned, who)
    for values in returned:
        emit(values)


def refuse(returned: Any, who: str, instead: str) -> None:
    """Refuse what a call returned that must return None.

    Args:
        returned: the returned object; None is fine.
        who: see ``emit_all``.
        instead: what the user should do instead.

    Raises:
        EmitError: the returned object is not None.
    """
    if returned is not None:
        _forget(returned)
        raise EmitError(f"{who} returned {named(returned)}: {lazy_advice(returned) or instead}")


def refuse_of_spout(returned: Any, method: str, component: str) -> None:
    """Refuse what a method of a ``Spout`` returned, if it is probably a mistake.

    Raises:
        EmitError: a coroutine or a generator was returned, which has not run; or ``next_tuple`` did not return None.
    """
    lazy = hasattr(returned, "__await__") or hasattr(returned, "__aiter__") or isinstance(returned, GeneratorType)
    if lazy or method == "next_tuple":
        refuse(returned, f"{method} of {component!r}", "a Spout emits by collector.emit alone")


def _check(returned: Any, who: str) -> None:
    if hasattr(returned, "__await__") or hasattr(returned, "__aiter__"):
        refuse(returned, who, "nothing runs it")
    if isinstance(returned, NO_LISTS) or not isinstance(returned, Iterable):
        refuse(returned, who, "yield a list of values for each tuple, or use collector.emit")
    if isinstance(returned, list | tuple) and not all(map(_is_row, returned)):
        raise EmitError(
            f"{who} returned {short(returned)}, expected a list with a list of values for each tuple: did you mean "
            f"[{short(returned)}]?"
        )


def _is_row(values: Any) -> bool:
    return values.__class__ is list or (hasattr(values, "__len__") and not isinstance(values, NO_LISTS))


def _forget(returned: Any) -> None:
    """Close a coroutine, so that Python does not warn that it never ran: the error says so."""
    close = getattr(returned, "close", None)
    if hasattr(returned, "__await__") and callable(close):
        close()
