"""What may be given to the constructors of spouts and bolts.

Which question it answers: is an argument one that can be meant?
Rule: what cannot be meant is refused where it is given, by the name of the argument, and shown.

Read before: ``tuples``.
"""

from __future__ import annotations

import codecs
import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkbolt.core.base.exceptions import printed
from sparkbolt.core.model.tuples import DEFAULT_STREAM, parse_outputs
from sparkbolt.errors import ConfigError


def is_int(value: object, least: float = -math.inf) -> bool:
    """Whether it is a whole number of at least ``least``; True and False are none.

    >>> is_int(3, 1), is_int(0, 1), is_int(True), is_int("3")
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_positive(value: object) -> bool:
    """Whether it is a number above 0, and not without end.

    >>> is_positive(0.5), is_positive(0), is_positive(float("nan")), is_positive(float("inf")), is_positive("1")
    (True, False, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and math.isfinite(value)


def whole(what: str, value: Any, least: int = 1, most: int | None = None, *, or_none: bool = False) -> Any:
    """The value, if it is a whole number from ``least`` to ``most``, or None where that may be.

    Raises:
        ConfigError: it is not; ``what`` names the argument.
    """
    if (value is None and or_none) or (is_int(value, least) and (most is None or value <= most)):
        return value
    some = f"a whole number above {least - 1}" if most is None else f"{least} to {most}"
    raise _refusal(what, value, some, or_none)


def positive(what: str, value: Any, *, or_none: bool = False) -> Any:
    """The value, if it is a number above 0, or None where that may be.

    Raises:
        ConfigError: it is not; ``what`` names the argument.
    """
    if (value is None and or_none) or is_positive(value):
        return value
    raise _refusal(what, value, "a number above 0", or_none)


def flag(what: str, value: Any) -> Any:
    """The value, if it is True or False.

    Raises:
        ConfigError: it is not; ``what`` names the argument.
    """
    if isinstance(value, bool):
        return value
    raise _refusal(what, value, "True or False")


def text(what: str, value: Any, means: str, *, or_none: bool = False) -> Any:
    """The value, if it is a text that is not blank and can be written, or None where that may be.

    ``means`` says what text is expected.

    Raises:
        ConfigError: it is not; ``what`` names the argument.
    """
    if (value is None and or_none) or (isinstance(value, str) and value.strip() and is_writable(value)):
        return value
    raise _refusal(what, value, means, or_none)


def is_writable(value: str) -> bool:
    r"""Whether every encoding for text can write it: it has no half of a pair (a lone surrogate).

    >>> is_writable("café"), is_writable("\ud800")
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_of(what: str, value: Any, choices: Sequence[str]) -> Any:
    """The value, if it is one of the choices.

    Raises:
        ConfigError: it is not; ``what`` names the argument.
    """
    if isinstance(value, str) and value in choices:
        return value
    raise _refusal(what, value, " or ".join(map(repr, choices)))


def encoding(what: str, value: Any) -> Any:
    """The value, if it is the name of an encoding for text.

    Raises:
        ConfigError: it is not; ``what`` names the argument.
    """
    try:
        codecs.lookup(text(what, value, "the name of an encoding, such as 'utf-8'"))
    except LookupError:
        raise ConfigError(f"{what}={value!r} is not known to Python") from None
    return value


def absolute(what: str, value: Any, means: str) -> str:
    """The path as an absolute one; ``~`` is the home directory, and ``means`` says what is expected.

    Raises:
        ConfigError: it can be no path; ``what`` names the argument.
    """
    if isinstance(value, str | Path) and str(value):
        try:
            os.fsencode(value)
            return os.path.abspath(os.path.expanduser(str(value)))
        except ValueError:  # a half of a pair of characters, or a zero byte
            pass
    raise _refusal(what, value, means)


def fields(what: str, value: Any, example: str = "['customer', 'amount']") -> list[str]:
    """The fields of stream ``default``, for a component that has no other stream.

    Raises:
        ConfigError: they are not a list of distinct names; ``what`` names the argument.
    """
    try:
        streams = parse_outputs(value)
    except ValueError as error:
        raise ConfigError(f"{what}={printed(value)}: {error}") from None
    if len(streams) != 1 or streams[0].name != DEFAULT_STREAM or not streams[0].fields:
        raise _refusal(what, value, f"a list of field names, such as {example}")
    return list(streams[0].fields)


def part_of_tuple(what: str, value: Any) -> Any:
    """The value, if it says what a bolt takes of a tuple: the name of a field, a function of the tuple, or None.

    Raises:
        ConfigError: it does not; ``what`` names the argument.
    """
    means = "the name of a field, a function of the tuple, or None"
    if value is None:
        return value
    return text(what, value, means) if isinstance(value, str) else function(what, value, means)


def properties(what: str, value: Any) -> dict[str, Any]:
    """The value as a dict, if it maps texts, or is None.

    Raises:
        ConfigError: it is not; ``what`` names the argument.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise _refusal(what, value, "a dict from the names of properties to their values", or_none=True)


def function(what: str, value: Any, means: str) -> Callable[..., Any]:
    """The value, if it can be called and gives its result at once; ``means`` says what is expected.

    Raises:
        ConfigError: it is not, or is a coroutine function; ``what`` names the argument.
    """
    if not callable(value):
        raise _refusal(what, value, means)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004
        raise ConfigError(f"{what}={printed(value)}: it is `async def`, and nobody would await it; expected {means}")
    return value  # type: ignore[no-any-return]


def _refusal(what: str, value: object, expected: str, or_none: bool = False) -> ConfigError:
    return ConfigError(f"{what}={printed(value)}: expected {expected}{', or None' if or_none else ''}")
