"""Returned values: what a call of user code gave back.

Which question it answers: what becomes of what ``execute`` or ``flush`` yields or returns?
Rule 1: what is yielded is emitted, one list of values a tuple; so is each list of a list that is returned. None is
nothing.
Rule 2: nothing else is passed over in silence: it fails the call. A coroutine that nobody awaits has done nothing.

Read before: ``tuple_batch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any

from sparkbolt.core.model.story import short
from sparkbolt.core.worker.tuple_batch import NO_LISTS, lazy_advice, named
from sparkbolt.errors import EmitError


def emit_all(returned: Any, emit: Callable[[Any], None], who: str) -> None:
    """Emit what a call has given.

    Args:
        returned: what it returned; not None.
        emit: takes the values of one tuple.
        who: ``execute of 'split'``, for sentences.

    Raises:
        EmitError: it is nothing that can be emitted.

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
    """Refuse what a call returned from which nothing is expected.

    Args:
        returned: what it returned; None is fine.
        who: as in ``emit_all``.
        instead: what is to be done instead.

    Raises:
        EmitError: it is not None.
    """
    if returned is not None:
        _forget(returned)
        raise EmitError(f"{who} returned {named(returned)}: {lazy_advice(returned) or instead}")


def refuse_of_spout(returned: Any, method: str, component: str) -> None:
    """Refuse what a method of a ``Spout`` returned if somebody must have meant something by it.

    Raises:
        EmitError: it is a coroutine or a generator, which has not run; or anything that ``next_tuple`` gave.
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
    """End what has not begun, without the warning that it never ran: the error says so."""
    close = getattr(returned, "close", None)
    if hasattr(returned, "__await__") and callable(close):
        close()
