"""Parser: all commands of ``sparkbolt`` in the groups of its help; their options are the parameters of their functions.

The module of a command is loaded when that command, or the help, is asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from sparkbolt.control.parameters import Row, parameters_of
from sparkbolt.faces.cli.command_arguments import Parser, command_of
from sparkbolt.version import __version__

_EPILOG = """\
`sparkbolt COMMAND --help` shows the options of a command. A TOPOLOGY is one of:
  its name or id, as `sparkbolt list` shows it
  the directory or URL of its checkpoint (./shop, if a topology is named shop)
  its code: module:attribute, such as word_count:topology; or a file, such as
    word_count.py or word_count.py:topology. The attribute is a Topology, a
    TopologyBuilder, or a function that returns one. Sparkbolt looks for a
    module in the working directory first.

terms:
  tree         a tuple of a spout, with all tuples that bolts emit for it
  dead letter  a message that was given up after its last attempt
  replay       deliver again: unfinished messages at the next start with the
               checkpoint, dead letters when you request it

exit codes:
  0    the topology finished or stopped with nothing left; the command succeeded
  3    as 0, but messages were given up: dead letters wait
  1    the topology failed, or the request was refused
  2    wrong use, such as an unknown TOPOLOGY
  4    trees or failed records are left for replay after the time of --for, or
       after `sparkbolt kill` (`kill --wait` returns the same code)
  130  trees or failed records are left for replay after Ctrl-C

environment:
  SPARKBOLT_HOME=DIR        the directory in which topologies are registered
  SPARKBOLT_SPARK_LOG=FILE  write Spark's log to this file (- for the terminal)
  SPARKBOLT_DEBUG=1         the same as --debug
"""
_DESCRIPTION = "Run topologies of spouts and bolts on Spark, and track every tuple."
WAITS = "With --wait, the command waits for the end: exit code 0 if nothing is left, 4 if something is left for replay."


@dataclass(frozen=True)
class Group:
    """Commands that serve one purpose."""

    title: str
    example: str
    commands: Mapping[str, str] = field(default_factory=dict)
    """By name, the function in the form ``module:function``; a command with two words is below the first of them."""
    has_verbs: bool = False
    """Whether it has the commands of ``VERBS``."""


GROUPS = (
    Group(
        "build a topology",
        "sparkbolt new word-count",
        {
            "new": "new_project:new",
            "check": "check:check",
            "graph": "graph:graph",
            "simulate": "simulate_command:command",
        },
    ),
    Group("run it", "sparkbolt run word_count.py --checkpoint state --detach", {"run": "run_command:run"}),
    Group(
        "watch it",
        "sparkbolt stats word-count",
        {
            "list": "operate.watching:list_",
            "top": "operate.watching:top",
            "stats": "operate.watching:stats",
            "tail": "operate.tailing:tail",
            "peek": "operate.peeking:peek",
            "lag": "lag:lag",
            "state": "stored_state:state",
            "ui": "operate.serving:ui",
        },
    ),
    Group("operate it", "sparkbolt kill word-count --wait 30s", has_verbs=True),
    Group(
        "repair it",
        "sparkbolt errors word-count",
        {
            "errors": "stories:errors",
            "explain": "stories:explain",
            "dlq list": "dlq.commands:list_letters",
            "dlq show": "dlq.commands:show_letters",
            "dlq replay": "dlq.commands:replay",
            "checkpoint verify": "checkpoints:verify",
            "checkpoint repair": "checkpoints:repair",
            "checkpoint copy": "checkpoints:copy",
        },
    ),
)
SHARED_WORDS = {"checkpoint": "verify, repair or copy a checkpoint", "dlq": "list, show and replay dead letters"}
"""By the first of two words, what the commands below it do."""


class _Top(Parser):
    """The parser of ``sparkbolt``; its help shows the commands by their groups."""

    def format_help(self) -> str:
        """The commands by their groups, and what holds for all of them."""
        lines = ["usage: sparkbolt [--version] COMMAND ...", "", _DESCRIPTION]
        for group in GROUPS:
            lines += ["", f"{group.title}, for example: {group.example}"]
            lines += [f"  {name:<12}{about}" for name, about in _abouts(group)]
        return "\n".join([*lines, "", _EPILOG])


def parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser for a command line; with no arguments, for any."""
    top = _Top(prog="sparkbolt")
    top.add_argument("--version", action="version", version=f"sparkbolt {__version__}")
    commands: Any = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    names = {name: place for group in GROUPS for name, place in group.commands.items()}
    below: dict[str, dict[str, str]] = {}
    for name, place in names.items():
        first, _, last = name.partition(" ")
        if last:
            below.setdefault(first, {})[last] = place
        else:
            commands.add_parser(name).fill = lambda command, place=place: command_of(_row_at(place), command)
    for first, places in below.items():
        words = SHARED_WORDS[first].capitalize() + "."
        commands.add_parser(first, description=words).fill = lambda one, places=places: _add_below(one, places)
    if not arguments or arguments[0] not in commands.choices:  # the verbs are loaded only if one of them may be meant
        for name, verb, row in _verbs():
            epilog = WAITS if verb.ends else None
            command_of(row, commands.add_parser(name, epilog=epilog), verb=verb)
    return top


def _add_below(command: Parser, places: Mapping[str, str]) -> None:
    commands: Any = command.add_subparsers(dest="what", metavar="COMMAND", required=True)
    for name, place in places.items():
        row = _row_at(place)
        command_of(row, commands.add_parser(name, help=_phrase(row)))


def _row_at(place: str) -> Row:
    module, _, function = place.partition(":")
    return Row.of(getattr(import_module(f"sparkbolt.faces.cli.{module}"), function))


def _verbs() -> Iterator[tuple[str, Any, Row]]:
    """The name, the verb and the row of each command for a verb."""
    from sparkbolt.control.verbs import VERBS
    from sparkbolt.faces.cli.operate.verb_commands import change

    own = parameters_of(change, ("verb", "arguments"))
    for verb in VERBS.values():
        if verb.has_command:
            yield verb.name, verb, replace(verb, parameters=(*own, *verb.parameters), act=change)


def _abouts(group: Group) -> Iterator[tuple[str, str]]:
    """Each command of a group, and what it does."""
    known: dict[str, str] = {}
    for name, place in group.commands.items():
        first = name.partition(" ")[0]
        if first not in known:
            known[first] = SHARED_WORDS.get(first) or _phrase(_row_at(place))
    yield from known.items()
    if group.has_verbs:
        yield from ((name, _phrase(row)) for name, _, row in _verbs())


def _phrase(row: Row) -> str:
    return row.about[0].lower() + row.about[1:].rstrip(".")
