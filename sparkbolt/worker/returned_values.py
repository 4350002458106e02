"""Returned values: emits the values that calls of user code return or yield.

Each yielded list of values is emitted as a tuple, and so is each list within a returned list. Values by name (a
mapping, or an instance of a NamedTuple or dataclass) take the place of a list, and a single value does if the stream
has one field. None emits nothing. Anything else fails the call: for example, a coroutine that is not awaited has not
run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import GeneratorType
from typing import Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.named_fields import NO_LISTS, by_name, lazy_advice
from sparkbolt.api.story import short
from sparkbolt.errors import EmitError


def emit_all(returned: Any, emit: Callable[[Any], None], who: str, *, single: bool = False) -> None:
    """Emit the values that a call has returned.

    Args:
        returned: the returned object; not None.
        emit: emits the values of one tuple.
        who: the call, for error messages, such as ``execute of 'split'``.
        single: whether the stream has one field, so that each item of a list may be its value.

    Raises:
        EmitError: the returned object cannot be emitted.

    >>> emit_all(([word] for word in "to be".split()), print, "execute of 'split'")
    ['to']
    ['be']
    >>> emit_all({"word": "to"}, print, "execute of 'split'")
    {'word': 'to'}
    >>> emit_all(["to", "be"], print, "execute of 'split'")
    Traceback (most recent call last):
    sparkbolt.errors.EmitError: execute of 'split' returned ['to', 'be'], expected a list with a list of values for \
each tuple: did you mean [['to', 'be']]?
    """
    if returned.__class__ is not GeneratorType:
        if by_name(returned) is not None:
            emit(returned)
            return
        _check(returned, who, single)
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


def _check(returned: Any, who: str, single: bool) -> None:
    if hasattr(returned, "__await__") or hasattr(returned, "__aiter__"):
        refuse(returned, who, "nothing runs it")
    if isinstance(returned, NO_LISTS) or not isinstance(returned, Iterable):
        refuse(returned, who, "yield a list of values for each tuple, or use collector.emit")
    if isinstance(returned, list | tuple) and not single and not all(map(_is_row, returned)):
        raise EmitError(
            f"{who} returned {short(returned)}, expected a list with a list of values for each tuple: did you mean "
            f"[{short(returned)}]?"
        )


def _is_row(values: Any) -> bool:
    if values.__class__ is list or values.__class__ is tuple or by_name(values) is not None:
        return True
    return hasattr(values, "__len__") and not isinstance(values, NO_LISTS)


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
    given = by_name(values)
    if given is not None:
        return _misnamed(given, fields)
    if isinstance(values, Set):
        return "a set has no order: emit a list"
    lazy = lazy_advice(values)
    if lazy:
        return lazy
    if callable(values):
        return "did you forget to call it?"
    if isinstance(values, str | bytes) or len(fields) == 1:
        return f"did you mean [{short(values)}]?"
    return "emit a list of values"


def _misnamed(given: Mapping[Any, Any], fields: Sequence[str]) -> str:
    """The fields that values by name lack, and the names that are not declared."""
    missing = [repr(name) for name in fields if name not in given]
    unknown = [name for name in given if name not in fields]
    parts = [f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
    parts += [f"there is no field {name!r}{did_you_mean(name, fields)}" for name in unknown]
    if len(fields) == 1 and not any(did_you_mean(name, fields) for name in unknown):
        parts.append("one value that is itself a mapping is emitted as [the_mapping]")
    return "; ".join(parts)


def named(values: Any) -> str:
    """A name for the emitted object, for error messages: ``the str 'abc'``, ``a Tuple``, ``None``."""
    if values is None:
        return "None"
    if isinstance(values, str | bytes | bool | int | float):
        return f"the {type(values).__name__} {short(values)}"
    name = type(values).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
