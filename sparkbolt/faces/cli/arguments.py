"""Arguments: what commands are given, checked where they are given.

Rule: what is wrong is told with what was expected, and with the most similar name that exists.
"""

from __future__ import annotations

import argparse
import re
from difflib import get_close_matches
from typing import Any

from sparkbolt.api.config import did_you_mean

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


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
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"expected a duration such as 30s, 5m or 1h, got {text!r}")
    return float(match[1]) * _UNITS[match[2]]


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


def seconds_or_zero(text: str) -> float:
    """A duration as ``seconds``, or 0: do not wait.

    >>> seconds_or_zero("0"), seconds_or_zero("1m")
    (0.0, 60.0)
    """
    return 0.0 if text in ("0", "0s") else seconds(text)


def port(text: str) -> int:
    """A port: 0 to 65,535."""
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"expected a port, 0 to 65535, got {text!r}")
    return int(text)
