"""Checks of arguments and settings, declared beside each of them: ``port: Annotated[int, whole(1, 65535)]``.

An invalid value is rejected where it is given, by an error that names the argument and shows the value.
"""

from __future__ import annotations

import codecs
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from sparkbolt.api.tuples import DEFAULT_STREAM, parse_outputs
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Check:
    """A check of a value, in the annotation of a field or parameter: ``Annotated[int, whole()]``."""

    expected: str
    """The expected value, in words."""
    accepts: Callable[[Any], bool]

    def mistake(self, name: str, value: object) -> str | None:
        """Return the mistake in a value, as one sentence; None if it is accepted."""
        return None if self.accepts(value) else f"{name}={printed(value)}: expected {self.expected}"


def verify(name: str, value: Any, check: Check) -> Any:
    """Return the value if the check accepts it.

    Raises:
        ConfigError: it does not; the error names the argument and shows the value.

    >>> verify("port", 70_000, whole(1, 65535))
    Traceback (most recent call last):
    sparkbolt.errors.ConfigError: port=70000: expected a whole number from 1 to 65535
    """
    mistake = check.mistake(name, value)
    if mistake is not None:
        raise ConfigError(mistake)
    return value


def checked(act: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function or method so that it verifies its arguments by their annotations before it runs.

    Arguments whose annotation declares no check, and defaults, are not verified.

    Raises:
        ConfigError: arguments are invalid; the error names all of them.

    >>> from typing import Annotated
    >>> @checked
    ... def listen(port: Annotated[int, whole(1, 65535)], retries: Annotated[int, whole()] | None = None) -> None: ...
    >>> listen(0, retries=0)
    Traceback (most recent call last):
    sparkbolt.errors.ConfigError: port=0: expected a whole number from 1 to 65535; retries=0: expected a whole ...
    """
    names = [one.name for one in inspect.signature(act).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]

    @wraps(act)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        checks = checks_of(act)
        arguments_by_name = {**dict(zip(names, arguments, strict=False)), **named}
        mistakes = [checks[name].mistake(name, value) for name, value in arguments_by_name.items() if name in checks]
        _refuse([mistake for mistake in mistakes if mistake])
        return act(*arguments, **named)

    return call


@cache
def checks_of(thing: Any) -> Mapping[str, Check]:
    """Return the checks that the annotations of a class or function declare, by name."""
    hints = get_type_hints(thing, include_extras=True).items()
    return {name: check for name, hint in hints if (check := check_of(hint)) is not None}


def check_of(annotation: Any) -> Check | None:
    """Return the check that an annotation declares; bool, ``Literal`` and ``| None`` declare one, too.

    >>> check_of(Literal["fail", "stop"]).expected, check_of(bool).accepts(1), check_of(str)
    ("'fail' or 'stop'", False, None)
    """
    of = get_args(annotation)
    if annotation is bool:
        return Check("True or False", lambda value: isinstance(value, bool))
    if get_origin(annotation) is ClassVar:
        return check_of(of[0])
    if get_origin(annotation) is Literal:
        return one_of(*of)
    if hasattr(annotation, "__metadata__"):
        return next((note for note in of if isinstance(note, Check)), None)
    if len(of) == 2 and of[1] is type(None) and (inner := check_of(of[0])) is not None:
        return Check(f"{inner.expected}, or None", lambda value: value is None or inner.accepts(value))
    return None


def one_of(*choices: str) -> Check:
    """The check of one of some texts."""
    return Check(" or ".join(map(repr, choices)), lambda value: isinstance(value, str) and value in choices)


def whole(least: int = 1, most: int | None = None) -> Check:
    """The check of an int from ``least`` to ``most``; True and False are not accepted.

    >>> whole().accepts(3), whole().accepts(0), whole().accepts(True), whole().accepts("3")
    (True, False, False, False)
    """
    return Check(
        f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}",
        lambda value: is_number(value, int) and least <= value and (most is None or value <= most),
    )


def is_number(value: object, kind: type = float) -> bool:
    """Whether a value is an int, or of another kind of number; True and False are not."""
    return isinstance(value, int | kind) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return is_number(value) and 0 < value <= sys.float_info.max


POSITIVE = Check("a number above 0", _is_positive)
SHARE = Check("a share from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)


def text(means: str, *, blank: bool = False) -> Check:
    """The check of a str that UTF-8 can encode, and that is not blank unless ``blank`` allows it.

    Args:
        means: describes the text.
        blank: whether it may be blank.
    """
    return Check(means, lambda value: isinstance(value, str) and (blank or bool(value.strip())) and is_writable(value))


def is_writable(value: str) -> bool:
    r"""Whether UTF-8 can encode a text; it cannot encode a lone surrogate.

    >>> is_writable("café"), is_writable("\ud800")
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_encoding(value: Any) -> bool:
    try:
        return bool(codecs.lookup(value))
    except (LookupError, TypeError, ValueError):
        return False


ENCODING = Check("the name of an encoding that Python knows, such as 'utf-8'", _is_encoding)


def function(means: str) -> Check:
    """The check of a function, not a coroutine function, which nothing would await; ``means`` describes it."""
    return Check(f"{means}, without async", _is_function)


def _is_function(value: Any) -> bool:
    called = (value, getattr(value, "__call__", None))  # noqa: B004
    return callable(value) and not any(map(inspect.iscoroutinefunction, called))


_FIELD = text("the name of a field")
PART_OF_TUPLE = Check(
    "the name of a field, or a function of the tuple",
    lambda value: _FIELD.accepts(value) if isinstance(value, str) else _is_function(value),
)
PROPERTIES = Check(
    "a dict from the names of properties to their values",
    lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
)


def absolute_path(name: str, value: Any, means: str) -> str:
    """Return a path as an absolute path; ``~`` is the home directory, and ``means`` describes the expected path.

    Raises:
        ConfigError: it cannot be a path; ``name`` is the argument's name.
    """
    verify(name, str(value) if isinstance(value, Path) else value, text(means))
    return os.path.abspath(os.path.expanduser(str(value)))


def field_names(name: str, value: Any, example: str = "['customer', 'amount']") -> list[str]:
    """Return the fields of stream ``default``, for a component that has no other stream.

    Raises:
        ConfigError: they are not a list of distinct names; ``name`` is the argument's name.
    """
    try:
        streams = parse_outputs(value)
    except ValueError as error:
        raise ConfigError(f"{name}={printed(value)}: {error}") from None
    is_list = len(streams) == 1 and streams[0].name == DEFAULT_STREAM and bool(streams[0].fields)
    verify(name, value, Check(f"a list of field names, such as {example}", lambda _: is_list))
    return list(streams[0].fields)


def field_mistakes(instance: object, declaring: type) -> list[str]:
    """Return the mistakes in the attributes of an instance, by the annotations of the class that declares them."""
    checks = checks_of(declaring).items()
    mistakes = [check.mistake(name, getattr(instance, name, None)) for name, check in checks]
    return [mistake for mistake in mistakes if mistake]


def verify_fields(record: object) -> None:
    """Verify the fields of a dataclass; to be called in its ``__post_init__``.

    Raises:
        ConfigError: fields are invalid; the error names all of them.
    """
    _refuse(field_mistakes(record, type(record)))


def _refuse(mistakes: Sequence[str]) -> None:
    if mistakes:
        raise ConfigError("; ".join(mistakes))
