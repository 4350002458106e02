"""Parser: all commands of ``sparkbolt``; their options are the parameters of their functions."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sparkbolt.control.parameters import Row, parameters_of
from sparkbolt.control.verbs import VERBS
from sparkbolt.faces.cli import checkpoints, run_command, simulate_command, stories
from sparkbolt.faces.cli.check import check
from sparkbolt.faces.cli.command_arguments import Parser, command_of
from sparkbolt.faces.cli.dlq import commands as dlq
from sparkbolt.faces.cli.graph import graph
from sparkbolt.faces.cli.lag import lag
from sparkbolt.faces.cli.operate import tailing, watching
from sparkbolt.faces.cli.operate.serving import ui
from sparkbolt.faces.cli.operate.verb_commands import change
from sparkbolt.version import __version__

_EPILOG = """\
TOPOLOGY is module:attribute, such as word_count:topology. The attribute is a
Topology, a TopologyBuilder, or a function that returns one. Sparkbolt looks for
the module in the working directory first. NAME is the name or id of a topology,
as `sparkbolt list` shows it.

exit codes:
  0    the topology finished or stopped with nothing left; the command succeeded
  3    the same, and messages were set aside
  1    the topology failed, or the request was refused
  2    wrong use, such as an unknown NAME
  4    trees or failed records are left for replay after the time of --for, or
       after `sparkbolt kill` (`kill --wait` returns the same code)
  130  trees or failed records are left for replay after Ctrl-C

environment:
  SPARKBOLT_HOME=DIR        the directory in which topologies are registered
  SPARKBOLT_SPARK_LOG=FILE  write Spark's log to this file (- for the terminal)
  SPARKBOLT_DEBUG=1         the same as --debug
"""
GROUPS = {"checkpoint": "verify or repair a checkpoint", "dlq": "list, show and replay dead letters"}
COMMANDS: Mapping[str, Callable[..., int]] = {
    "run": run_command.run,
    "check": check,
    "errors": stories.errors,
    "explain": stories.explain,
    "checkpoint verify": checkpoints.verify,
    "checkpoint repair": checkpoints.repair,
    "graph": graph,
    "dlq list": dlq.list_letters,
    "dlq show": dlq.show_letters,
    "dlq replay": dlq.replay,
    "lag": lag,
    "simulate": simulate_command.command,
    "list": watching.list_,
    "top": watching.top,
    "stats": watching.stats,
    "tail": tailing.tail,
    "ui": ui,
}
WAITS = "With --wait, the command waits for the end: exit code 0 if nothing is left, 4 if something is left for replay."


def parser() -> argparse.ArgumentParser:
    """The parser of all commands and options."""
    top = Parser(
        prog="sparkbolt",
        description="Run topologies of spouts and bolts on Spark, and track every tuple.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"sparkbolt {__version__}")
    commands: Any = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    groups: dict[str, Any] = {"": commands}
    for name, function in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in groups:
            grouped = commands.add_parser(group, help=GROUPS[group])
            groups[group] = grouped.add_subparsers(dest="what", metavar="COMMAND", required=True)
        _add(groups[group], last, Row.of(function))
    for verb in VERBS.values():
        if verb.has_command:
            row = replace(
                verb, parameters=(*parameters_of(change, ("verb", "arguments")), *verb.parameters), act=change
            )
            _add(commands, verb.name, row, epilog=WAITS if verb.ends else None, verb=verb)
    return top


def _add(commands: Any, name: str, row: Row, epilog: str | None = None, **given: Any) -> None:
    about = row.about[0].lower() + row.about[1:].rstrip(".")
    command_of(row, commands.add_parser(name, help=about, epilog=epilog), given)
