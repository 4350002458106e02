"""Returned values: emits the values that calls of user code return or yield.

Each yielded list of values is emitted as a tuple, and so is each list within a returned list. None emits nothing.
Anything else fails the call: for example, a coroutine that is not awaited has not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import GeneratorType
from typing import Any, Final

from sparkbolt.api.story import short
from sparkbolt.api.tuples import Tuple
from sparkbolt.errors import EmitError

NO_LISTS: Final = (str, bytes, bytearray, memoryview, Mapping, Set)
"""Types that have a length and can be iterated over, but are neither a list of values nor a column."""


def emit_all(returned: Any, emit: Callable[[Any], None], who: str) -> None:
    """Emit the values that a call has returned.

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
    """Refuse the result of a call that must return None.

    Args:
        returned: the returned object; None is fine.
        who: see ``emit_all``.
        instead: advice on the alternative.

    Raises:
        EmitError: the returned object is not None.
    """
    if returned is not None:
        _forget(returned)
        raise EmitError(f"{who} returned {named(returned)}: {lazy_advice(returned) or instead}")


def refuse_of_spout(returned: Any, method: str, component: str) -> None:
    """Refuse the result of a method of a ``Spout``, if it is probably a mistake.

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
    """Close a coroutine, so that Python does not warn that it never ran: the error reports it."""
    close = getattr(returned, "close", None)
    if hasattr(returned, "__await__") and callable(close):
        close()


def misfit(values: Any, component: str, stream: str, fields: Sequence[str]) -> str:
    """The mistake in values that do not fit a stream: the emitted values, and the expected ones."""
    width = len(fields)
    declared = f"stream {stream!r}, which declares {width} field(s) {tuple(fields)}"
    if not isinstance(values, list | tuple):
        return f"{component!r} emitted {named(values)} on {declared}: {_mend(values, fields)}"
    hint = ": one value that is itself a list is emitted as [the_list]" if width == 1 and len(values) > 1 else ""
    return f"{component!r} emitted {len(values)} values on {declared}{hint}"


def _mend(values: Any, fields: Sequence[str]) -> str:
    if isinstance(values, Tuple):
        return "did you mean tup.values?"
    if isinstance(values, Mapping):
        return f"emit its values as a list, in the order of the fields: [{_wanted(values, fields)}]"
    if isinstance(values, Set):
        return "a set has no order: emit a list"
    lazy = lazy_advice(values)
    if lazy:
        return lazy
    if isinstance(values, str | bytes) or (len(fields) == 1 and values is not None):
        return f"did you mean [{short(values)}]?"
    return "emit a list of values"


def named(values: Any) -> str:
    """A name for the emitted object, for error messages: ``the str 'abc'``, ``a Tuple``, ``None``."""
    if values is None:
        return "None"
    if isinstance(values, str | bytes | bool | int | float):
        return f"the {type(values).__name__} {short(values)}"
    name = type(values).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _wanted(values: Mapping[Any, Any], fields: Sequence[str]) -> str:
    return ", ".join(f"row[{field!r}]" for field in fields) or f"{len(values)} values"


def lazy_advice(value: Any) -> str:
    """Advice for a value that does nothing until it is awaited or iterated over; empty for any other value."""
    if hasattr(value, "__await__"):
        return "nothing awaits it here: only an AsyncBolt runs coroutines"
    if hasattr(value, "__aiter__"):
        return "nothing goes through it here: only an AsyncBolt runs asynchronous generators"
    if isinstance(value, Iterator):
        return "emit each list that it gives"
    return ""
