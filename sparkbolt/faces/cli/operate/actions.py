"""Actions: what the commands for topologies that run elsewhere do.

Rule: nothing is imported before its command is given, so that each command starts as fast as it can.
"""

from __future__ import annotations

import argparse


def list_(options: argparse.Namespace) -> int:
    """List topologies."""
    from sparkbolt.faces.cli.operate import watching

    return watching.list_(options)


def top(options: argparse.Namespace) -> int:
    """Show all topologies, live."""
    from sparkbolt.faces.cli.operate import watching

    return watching.top(options)


def stats(options: argparse.Namespace) -> int:
    """Show the numbers of a topology, or of a component."""
    from sparkbolt.faces.cli.operate import watching

    return watching.stats(options)


def tail(options: argparse.Namespace) -> int:
    """Show the log of a topology."""
    from sparkbolt.faces.cli.operate import tailing

    return tailing.tail(options)


def activate(options: argparse.Namespace) -> int:
    """Let spouts emit again."""
    from sparkbolt.faces.cli.operate import changes

    return changes.activate(options)


def deactivate(options: argparse.Namespace) -> int:
    """Stop spouts from emitting."""
    from sparkbolt.faces.cli.operate import changes

    return changes.deactivate(options)


def kill(options: argparse.Namespace) -> int:
    """End a topology."""
    from sparkbolt.faces.cli.operate import changes

    return changes.kill(options)


def restart(options: argparse.Namespace) -> int:
    """End the query of a topology and begin again."""
    from sparkbolt.faces.cli.operate import changes

    return changes.restart(options)


def set_(options: argparse.Namespace) -> int:
    """Change a setting."""
    from sparkbolt.faces.cli.operate import changes

    return changes.set_(options)


def rebalance(options: argparse.Namespace) -> int:
    """Ask for another layout."""
    from sparkbolt.faces.cli.operate import changes

    return changes.rebalance(options)


def trace(options: argparse.Namespace) -> int:
    """Record the way of a message."""
    from sparkbolt.faces.cli.operate import changes

    return changes.trace(options)


def ui(options: argparse.Namespace) -> int:
    """Serve the user interface."""
    from sparkbolt.faces.cli.operate import serving

    return serving.ui(options)
