"""Arguments: what commands are given, checked where they are given.

Rule: what is wrong is told with what was expected, and with the most similar name that exists.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.base.codec import MismatchError
from sparkbolt.control.parameters import Parameter, duration_secs


class Parser(argparse.ArgumentParser):
    """A parser that refuses unknown arguments itself: it shows its own usage and the most similar known name."""

    mixed = False
    """Whether options may stand between the arguments of this parser, as in ``tail NAME -f COMPONENT``."""
    _mixing = False

    def parse_known_args(self, *arguments: Any) -> tuple[Any, list[str]]:  # type: ignore[override]
        """Parse as the parent class does; unknown arguments are an error."""
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
        """Refuse what is no choice as the parent class does, but name the most similar one (argparse, from 3.14 on)."""
        near = did_you_mean(value, action.choices or ())
        if near and value not in (action.choices or ()):
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near}")
        super()._check_value(action, value)


def seconds(text: str) -> float:
    """A duration such as ``30s``, ``5m`` or ``1.5h``, in seconds.

    >>> seconds("5m")
    300.0
    """
    secs = duration_secs(text)
    if not secs:
        raise argparse.ArgumentTypeError(f"expected a duration such as 30s, 5m or 1h, got {text!r}")
    return secs


def setting(text: str) -> tuple[str, str]:
    """Split ``KEY=VALUE`` into the key and the value."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value


def count(text: str) -> int:
    """A number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return int(text)


def seed(text: str) -> int:
    """A number of at least 0."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return int(text)


def add_parameter(command: argparse.ArgumentParser, parameter: Parameter) -> None:
    """Add the argument of a verb's parameter."""
    kind, more = parameter.plain_kind, dict[str, Any]()
    if parameter.options:
        more = {"dest": parameter.name, "default": parameter.default, "required": parameter.is_required}
    if kind is bool:
        more["action"] = "store_true"
    else:
        more |= {"metavar": parameter.metavar or parameter.name.upper(), "type": _reader_of(parameter)}
    if kind is dict:
        more["action"] = _Merge
    command.add_argument(*parameter.options or (parameter.name,), help=parameter.about or None, **more)


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


def port(text: str) -> int:
    """A port: 0 to 65,535."""
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port, 0 to 65535, got {text!r}")
    return int(text)
