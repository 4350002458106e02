"""Parameters of verbs and questions, declared once for the command line, REST, forms and the control socket.

Each of them reads a value through its parameter, ``of_text`` or ``of_json``, which checks it.
"""

from __future__ import annotations

import builtins
import inspect
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from sparkbolt.base.codec import MismatchError, coder

REQUIRED: Any = object()
"""The default of a parameter that has none."""
TEXT_CHARACTERS_MAX = 1000
SECS_MAX = 1e9
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_BOOLEANS = {"0": False, "false": False, "1": True, "true": True}


def duration_secs(text: str) -> float | None:
    """A duration such as ``30s``, ``5m`` or ``1.5h``, in seconds; None if the text is not a duration.

    >>> duration_secs("5m"), duration_secs("0"), duration_secs("soon")
    (300.0, 0.0, None)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text, re.ASCII)
    return float(match[1]) * _UNITS[match[2]] if match else None


@dataclass(frozen=True)
class Parameter:
    """A parameter: a phrase about it, which values it allows, and from the signature its name, type and default.

    >>> last = Parameter("the maximum number of entries", lowest=1, name="last", kind=int, default=100)
    >>> last.of_text("7"), last.of_json(8)
    (7, 8)
    >>> last.of_text("0")
    Traceback (most recent call last):
    sparkbolt.base.codec.MismatchError: last must be a whole number of at least 1, got '0'
    """

    about: str = ""
    """A phrase for the help of commands, the REST schema and the label in forms."""
    choices: tuple[str, ...] = ()
    lowest: float | None = None
    highest: float | None = None
    """The limits of a number, or of the number of characters of a text."""
    options: tuple[str, ...] = ()
    """Its options on the command line; without any it is positional."""
    metavar: str | None = None
    is_shown: bool = True
    """Whether forms show it."""
    name: str = ""
    kind: Any = str
    """The type of its values, as the codec reads it."""
    default: Any = REQUIRED

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is REQUIRED

    @property
    def plain_kind(self) -> Any:
        """The type of its values other than None: ``str``, ``int``, ``float``, ``bool``, ``dict`` or ``list``."""
        kind = get_args(self.kind)[0] if get_origin(self.kind) in (Union, types.UnionType) else self.kind
        origin = get_origin(kind) or kind
        return list if origin is Sequence else origin

    @property
    def is_typed(self) -> bool:
        """Whether a person can type it: a text, a number, a choice, or ``NAME=N``."""
        kind = self.plain_kind
        return self.is_shown and kind is not list and (kind is not dict or self._has_counts)

    @property
    def _has_counts(self) -> bool:
        return "int" in str(self.kind)

    @property
    def picks(self) -> tuple[str, ...]:
        """The choices of a form; empty if you may type any text."""
        return ("false", "true") if self.plain_kind is bool else self.choices

    @property
    def expected(self) -> str:
        """The values that it allows, in words."""
        kind = self.plain_kind
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if kind is str:
            return f"a text of {self._lowest:g} to {self._highest:g} characters"
        if kind is bool:
            return "true or false"
        if kind is dict:
            return f"{self.metavar or 'NAME=N'}{' with a whole number of at least 1' if self._has_counts else ''}"
        noun = "a whole number" if kind is int else "a number of seconds (or 5m, 1h)"
        upper = f"from {self._lowest:g} to {self._highest:g}" if self.highest is not None else ""
        return f"{noun} {upper or f'of at least {self._lowest:g}'}"

    @property
    def _lowest(self) -> float:
        return self.lowest or 0

    @property
    def _highest(self) -> float:
        by_kind = TEXT_CHARACTERS_MAX if self.plain_kind is str else SECS_MAX if self.plain_kind is float else 10**18
        return self.highest if self.highest is not None else by_kind

    def of_text(self, text: str) -> Any:
        """The value of a text.

        Raises:
            MismatchError: the text is not an allowed value.
        """
        return self._checked(self._value_of(text), text)

    def _value_of(self, text: str) -> Any:
        kind = self.plain_kind
        if kind is bool:
            return _BOOLEANS.get(text.lower())
        if kind is float:
            return duration_secs(text)
        if kind is dict:
            name, equals, value = text.partition("=")
            inner: Any = _whole(value) if self._has_counts else value if equals else None
            return None if not name or inner is None or inner == 0 else {name: inner}
        return _whole(text) if kind is int else text

    def of_json(self, value: Any) -> Any:
        """A value of JSON.

        Raises:
            MismatchError: it has another type, or is not an allowed value.
        """
        try:
            found = coder(self.kind).decode(value)
        except MismatchError as mismatch:
            raise mismatch.below(self.name) from None
        return found if found is None else self._checked(found, value)

    def _checked(self, value: Any, given: Any) -> Any:
        measured = len(value) if isinstance(value, str) else value
        is_number = isinstance(measured, int | float) and not isinstance(value, bool)
        if (
            value is None
            or (self.choices and value not in self.choices)
            or (is_number and not self._lowest <= measured <= self._highest)
        ):
            raise MismatchError(f"must be {self.expected}, got {given!r:.100}", self.name)
        return value


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


class _Names(dict[str, Any]):
    """The names of a module; a name that it imports only for types means ``Any``."""

    def __missing__(self, name: str) -> Any:
        return Any


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's parameters and of its result."""
    names = _Names(vars(builtins) | function.__globals__)
    return get_type_hints(function, localns=names, include_extras=True)


def parameters_of(function: Callable[..., Any], context: Collection[str] = ()) -> tuple[Parameter, ...]:
    """The parameters that a function's docstring describes, with the ``Parameter`` in their annotations.

    Those in ``context`` are left out.

    Those that are keyword-only are options on the command line.

    >>> def greet(whom: str, *, times: Annotated[int, Parameter(lowest=1)] = 1) -> None:
    ...     '''Greet somebody.
    ...
    ...     Args:
    ...         whom: the name.
    ...         times: how often.
    ...     '''
    >>> [(one.name, one.about, one.options, one.is_required) for one in parameters_of(greet)]
    [('whom', 'the name', (), True), ('times', 'how often', ('--times',), False)]
    """
    phrases = _phrases_in(inspect.getdoc(function) or "")
    hints, found = hints_of(function), []
    for name, one in inspect.signature(function).parameters.items():
        if name in phrases and name not in context:
            kind, *notes = get_args(hints[name]) if get_origin(hints[name]) is Annotated else [hints[name]]
            note = next((note for note in notes if isinstance(note, Parameter)), Parameter())
            default = REQUIRED if one.default is inspect.Parameter.empty else one.default
            options = (f"--{name.strip('_').replace('_', '-')}",) if one.kind is inspect.Parameter.KEYWORD_ONLY else ()
            found.append(
                replace(
                    note,
                    about=note.about or phrases[name],
                    options=note.options or options,
                    name=name,
                    kind=kind,
                    default=default,
                )
            )
    return tuple(found)


def _phrases_in(docstring: str) -> dict[str, str]:
    """By parameter, its description in the section ``Args`` of a docstring."""
    section = re.search(r"^Args:\n((?: {4}.*\n?)+)", docstring, re.MULTILINE)
    pairs = re.findall(r"^ {4}(\w+): ((?:.+\n?)(?: {8}.*\n?)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(phrase.split()).removesuffix(".") for name, phrase in pairs}


@dataclass(frozen=True)
class Row:
    """The base of verbs and questions; it follows from a function."""

    name: str
    about: str
    """A sentence for the help of commands, the REST schema and pages."""
    parameters: tuple[Parameter, ...]
    act: Callable[..., Any]
    CONTEXT: ClassVar[tuple[str, ...]] = ()
    """Parameters of the function that are not arguments."""

    @property
    def help(self) -> str:
        """The description in the help of its command: the docstring, up to its sections."""
        text = re.split(r"^\w+:$", inspect.getdoc(self.act) or "", maxsplit=1, flags=re.MULTILINE)[0]
        return " ".join(text.split())

    @classmethod
    def of(cls, function: Callable[..., Any], **more: Any) -> Self:
        """The row of a function: its name, the first sentence of its docstring, and its parameters."""
        about = (inspect.getdoc(function) or "").partition("\n")[0]
        return cls(cls.named(function.__name__), about, parameters_of(function, cls.CONTEXT), function, **more)

    @staticmethod
    def named(name: str) -> str:
        """The name of the row of a function with this name."""
        return name.rstrip("_")

    def read(self, arguments: object) -> dict[str, Any]:
        """Check arguments from JSON, and add defaults.

        Raises:
            MismatchError: an argument is missing, unknown or wrong.
        """
        if not isinstance(arguments, Mapping):
            raise MismatchError("is not an object")
        names = [one.name for one in self.parameters]
        if unknown := [name for name in arguments if name not in names]:
            raise MismatchError(f"has {unknown[0]!r:.100}, which is not one of {', '.join(names) or 'none'}")
        for one in self.parameters:
            if one.is_required and one.name not in arguments:
                raise MismatchError(f"has no {one.name}")
        return {
            one.name: one.of_json(arguments[one.name]) if one.name in arguments else one.default
            for one in self.parameters
        }
