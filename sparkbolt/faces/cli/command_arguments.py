"""Arguments: parses and checks the arguments of commands.

An error message names the expected value, and the most similar name that exists.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Annotated, Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.base.codec import MismatchError
from sparkbolt.control.parameters import Parameter, Row


class Parser(argparse.ArgumentParser):
    """A parser that refuses unknown arguments itself: it shows its own usage and the most similar known name."""

    mixed = False
    """Whether options may be between the arguments of this parser, as in ``tail NAME -f COMPONENT``."""
    _mixing = False
    fill: Callable[[Parser], None] | None = None
    """Adds the arguments of this parser before its first use."""

    def parse_known_args(self, *arguments: Any) -> tuple[Any, list[str]]:  # type: ignore[override]
        """Parse as the parent class does; unknown arguments are an error."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        if self._mixing:  # the parent class calls this method to do so
            return super().parse_known_args(*arguments)
        if self.mixed:
            self._mixing = True
            try:
                found, unknown = self.parse_known_intermixed_args(*arguments)
            finally:
                self._mixing = False
        else:
            found, unknown = super().parse_known_args(*arguments)
        if unknown:
            option = unknown[0].partition("=")[0]
            bare = {name.lstrip("-"): name for name in self._option_string_actions}
            near = get_close_matches(option.lstrip("-"), bare, n=1) if option.startswith("-") else []
            hint = f": did you mean {bare[near[0]]!r}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an invalid choice like the parent class, but name the most similar one (argparse, from 3.14 on)."""
        near = did_you_mean(value, action.choices or ())
        if near and value not in (action.choices or ()):
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near}")
        super()._check_value(action, value)


AnyTopology = Annotated[str, Parameter(metavar="TOPOLOGY")]
"""A topology in any form of ``faces.cli.resolver``, for a parameter with another name."""
Count = Annotated[int, Parameter(lowest=1)]
CountOrNone = Annotated[int | None, Parameter(lowest=1)]
Secs = Annotated[float | None, Parameter(lowest=0.001)]
METAVARS = {float: "TIME", int: "N", dict: "NAME=VALUE"}


def command_of(row: Row, command: Parser, **given: Any) -> None:
    """Make the command of a row: its help, its arguments and its function; ``given`` are arguments of the function."""
    command.description = row.help
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parameters = [one for one in row.parameters if one.name not in ("given", "debug")]
    for one in parameters:
        _add(command, one)
    command.mixed = any(not one.options and not one.is_required for one in parameters)
    names = [one.name for one in parameters]
    more = [name for name in ("given", "debug") if name in inspect.signature(row.act).parameters]

    def act(options: argparse.Namespace) -> int:
        done: int = row.act(**{name: getattr(options, name) for name in [*names, *more]}, **given)
        return done

    command.set_defaults(act=act)


def _add(command: argparse.ArgumentParser, one: Parameter) -> None:
    kind, more = one.plain_kind, dict[str, Any]()
    is_any = kind is list or (kind is str and one.lowest is None)
    if one.options:
        more = {"dest": one.name, "default": None if one.is_required else one.default, "required": one.is_required}
    if kind is bool:
        more["action"] = "store_true"
    elif one.choices:
        more["choices"] = one.choices
    else:
        more |= {
            "metavar": one.metavar or METAVARS.get(kind, one.name.upper().replace("_", "-")),
            "type": str if is_any else _reader_of(one),
        }
    if kind is dict:
        more["action"] = _Merge
    elif kind is list and one.options:
        more |= {"action": "append", "default": list(one.default)}
    elif not one.options and not (one.is_required and kind is not list):
        more["nargs"] = "+" if one.is_required else "*" if kind is list else "?"
    command.add_argument(*one.options or (one.name,), help=one.about or None, **more)


def _reader_of(parameter: Parameter) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return parameter.of_text(text)
        except MismatchError as mismatch:
            raise argparse.ArgumentTypeError(mismatch.text) from None

    return read


class _Merge(argparse.Action):
    """Merges the objects of a repeated option."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), **value})
