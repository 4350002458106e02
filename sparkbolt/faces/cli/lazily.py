"""Commands whose module is imported when the command is given, so that each command starts as fast as it can."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module


def lazily(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """A command: a function of a module below ``sparkbolt.faces.cli``."""

    def act(options: argparse.Namespace) -> int:
        command: Callable[[argparse.Namespace], int] = getattr(import_module(f"sparkbolt.faces.cli.{module}"), function)
        return command(options)

    return act
