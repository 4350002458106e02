"""Checks of the arguments of constructors, and of settings that are declared with their check beside them.

Rule: an invalid value is rejected in the constructor, by an error that names the argument and shows the value.
"""

from __future__ import annotations

import codecs
import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from sparkbolt.api.tuples import DEFAULT_STREAM, parse_outputs
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError


def is_int(value: object, least: float = -math.inf) -> bool:
    """Whether a value is an int of at least ``least``; True and False are not accepted.

    >>> is_int(3, 1), is_int(0, 1), is_int(True), is_int("3")
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_positive(value: object) -> bool:
    """Whether a value is a finite number above 0.

    >>> is_positive(0.5), is_positive(0), is_positive(float("nan")), is_positive(float("inf")), is_positive("1")
    (True, False, False, False, False)
    >>> is_positive(10**400)  # no float is as large
    False
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


@dataclass(frozen=True)
class Check:
    """What a value must be; it stands beside a field: ``size: Annotated[int, at_least(1)]``."""

    expected: str
    """What a value must be, in words."""
    accepts: Callable[[Any], bool]


def at_least(least: int) -> Check:
    """The check of an int."""
    return Check(f"an int of at least {least}", lambda value: is_int(value, least))


def check_of(annotation: Any) -> Check:
    """The check that an annotation declares; that of a bool, of a ``Literal`` and of ``| None`` follows from it.

    >>> check_of(Literal["fail", "stop"]).expected, check_of(bool).accepts(1)
    ("'fail' or 'stop'", False)
    """
    of = get_args(annotation)
    if annotation is bool:
        return Check("True or False", lambda value: isinstance(value, bool))
    if get_origin(annotation) is Literal:
        return Check(" or ".join(map(repr, of)), lambda value: isinstance(value, str) and value in of)
    if hasattr(annotation, "__metadata__"):
        return next(note for note in of if isinstance(note, Check))
    if of and of[-1] is type(None):
        inner = check_of(of[0])
        return Check(f"{inner.expected}, or None", lambda value: value is None or inner.accepts(value))
    raise TypeError(f"{annotation!r} declares no check: write Annotated[TYPE, Check(...)]")


def whole(what: str, value: Any, least: int = 1, most: int | None = None, *, or_none: bool = False) -> Any:
    """Return the value if it is a whole number from ``least`` to ``most``, or None if ``or_none`` allows it.

    Raises:
        ConfigError: it is not; ``what`` is the argument's name.
    """
    if (value is None and or_none) or (is_int(value, least) and (most is None or value <= most)):
        return value
    some = f"a whole number above {least - 1}" if most is None else f"{least} to {most}"
    raise _refusal(what, value, some, or_none)


def positive(what: str, value: Any, *, or_none: bool = False) -> Any:
    """Return the value if it is a number above 0, or None if ``or_none`` allows it.

    Raises:
        ConfigError: it is not; ``what`` is the argument's name.
    """
    if (value is None and or_none) or is_positive(value):
        return value
    raise _refusal(what, value, "a number above 0", or_none)


def flag(what: str, value: Any) -> Any:
    """Return the value if it is True or False.

    Raises:
        ConfigError: it is not; ``what`` is the argument's name.
    """
    if isinstance(value, bool):
        return value
    raise _refusal(what, value, "True or False")


def text(what: str, value: Any, means: str, *, or_none: bool = False) -> Any:
    """Return the value if it is a text that is not blank and can be encoded, or None if ``or_none`` allows it.

    ``means`` describes the expected text.

    Raises:
        ConfigError: it is not; ``what`` is the argument's name.
    """
    if (value is None and or_none) or (isinstance(value, str) and value.strip() and is_writable(value)):
        return value
    raise _refusal(what, value, means, or_none)


def is_writable(value: str) -> bool:
    r"""Whether UTF-8 can encode a text, which is so if it contains no lone surrogate.

    >>> is_writable("café"), is_writable("\ud800")
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_of(what: str, value: Any, choices: Sequence[str]) -> Any:
    """Return the value if it is one of the choices.

    Raises:
        ConfigError: it is not; ``what`` is the argument's name.
    """
    if isinstance(value, str) and value in choices:
        return value
    raise _refusal(what, value, " or ".join(map(repr, choices)))


def encoding(what: str, value: Any) -> Any:
    """Return the value if it is the name of an encoding that Python knows.

    Raises:
        ConfigError: it is not; ``what`` is the argument's name.
    """
    try:
        codecs.lookup(text(what, value, "the name of an encoding, such as 'utf-8'"))
    except LookupError:
        raise ConfigError(f"{what}={value!r} is not known to Python") from None
    return value


def absolute(what: str, value: Any, means: str) -> str:
    """Return a path as an absolute path; ``~`` is the home directory, and ``means`` describes the expected path.

    Raises:
        ConfigError: it cannot be a path; ``what`` is the argument's name.
    """
    if isinstance(value, str | Path) and str(value):
        try:
            os.fsencode(value)
            return os.path.abspath(os.path.expanduser(str(value)))
        except ValueError:  # a lone surrogate, or a zero byte
            pass
    raise _refusal(what, value, means)


def fields(what: str, value: Any, example: str = "['customer', 'amount']") -> list[str]:
    """Return the fields of stream ``default``, for a component that has no other stream.

    Raises:
        ConfigError: they are not a list of distinct names; ``what`` is the argument's name.
    """
    try:
        streams = parse_outputs(value)
    except ValueError as error:
        raise ConfigError(f"{what}={printed(value)}: {error}") from None
    if len(streams) != 1 or streams[0].name != DEFAULT_STREAM or not streams[0].fields:
        raise _refusal(what, value, f"a list of field names, such as {example}")
    return list(streams[0].fields)


def part_of_tuple(what: str, value: Any) -> Any:
    """Return the value if it selects a part of a tuple: the name of a field, a function of the tuple, or None.

    Raises:
        ConfigError: it does not; ``what`` is the argument's name.
    """
    means = "the name of a field, a function of the tuple, or None"
    if value is None:
        return value
    return text(what, value, means) if isinstance(value, str) else function(what, value, means)


def properties(what: str, value: Any) -> dict[str, Any]:
    """Return the value as a dict if it is a mapping whose keys are str, or None, which gives an empty dict.

    Raises:
        ConfigError: it is not; ``what`` is the argument's name.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise _refusal(what, value, "a dict from the names of properties to their values", or_none=True)


def function(what: str, value: Any, means: str) -> Callable[..., Any]:
    """Return the value if it is a function that is not a coroutine function; ``means`` describes the expected function.

    Raises:
        ConfigError: it cannot be called, or is a coroutine function; ``what`` is the argument's name.
    """
    if not callable(value):
        raise _refusal(what, value, means)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004
        raise ConfigError(f"{what}={printed(value)}: it is `async def`, and nobody would await it; expected {means}")
    return value  # type: ignore[no-any-return]


def _refusal(what: str, value: object, expected: str, or_none: bool = False) -> ConfigError:
    return ConfigError(f"{what}={printed(value)}: expected {expected}{', or None' if or_none else ''}")
