"""Parser of the commands for topologies that run elsewhere.

Rule: every command takes ``--home`` and ``--debug``; a topology is named by its name or id, as ``list`` shows it.
"""

from __future__ import annotations

import argparse
from typing import Any

from sparkbolt.control.documents import WINDOWS_SECS
from sparkbolt.control.verbs import VERBS
from sparkbolt.faces.cli.arguments import add_parameter, count, port, seconds
from sparkbolt.faces.cli.lazily import lazily

WAITS = "With --wait, the command waits for the end: exit code 0 if nothing is left, 4 if something is left for replay."


def add_operating(commands: Any) -> None:
    """Add the commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--home",
        metavar="DIR",
        help="the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt)",
    )
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    named = argparse.ArgumentParser(add_help=False, parents=[common])
    named.add_argument("topology", metavar="NAME", help="the name or id of the topology, as list shows it")
    _add_looking(commands, common, named)
    _add_changing(commands, named)
    _add_ui(commands, common)


def _add_looking(commands: Any, common: argparse.ArgumentParser, named: argparse.ArgumentParser) -> None:
    list_ = commands.add_parser("list", parents=[common], help="list running topologies")
    list_.add_argument("--all", action="store_true", help="also list topologies that have ended, with the reason")
    list_.add_argument("--json", action="store_true", help="print one JSON object per line")
    list_.set_defaults(act=lazily("operate.watching", "list_"))

    top = commands.add_parser("top", parents=[common], help="show all topologies live")
    _add_every(top)
    top.set_defaults(act=lazily("operate.watching", "top"))

    stats = commands.add_parser("stats", parents=[named], help="show the numbers of a topology or a component")
    stats.add_argument("component", nargs="?", metavar="COMPONENT", help="a spout or bolt, with its tasks and streams")
    stats.add_argument(
        "--window",
        choices=[*WINDOWS_SECS, "all"],
        help="show the sums of the last seconds, or since the first start (default: 600 if available)",
    )
    stats.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    _add_every(stats)
    stats.add_argument("--json", action="store_true", help="print one JSON object")
    stats.set_defaults(act=lazily("operate.watching", "stats"))
    stats.mixed = True

    tail = commands.add_parser("tail", parents=[named], help="show the log of a topology or a component")
    tail.add_argument("component", nargs="?", metavar="COMPONENT", help="only show lines of this spout or bolt")
    tail.add_argument("-f", "--follow", action="store_true", help="print new lines until Ctrl-C")
    tail.add_argument(
        "--last", type=count, default=20, metavar="N", help="the number of lines at the start (default: 20)"
    )
    tail.add_argument("--search", default="", metavar="TEXT", help="only show lines that contain this text")
    tail.add_argument("--json", action="store_true", help="print one JSON object per line")
    tail.set_defaults(act=lazily("operate.tailing", "tail"))
    tail.mixed = True


def _add_every(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--every",
        dest="every_secs",
        type=seconds,
        metavar="TIME",
        help="the time between refreshes (default: 2s on a terminal, otherwise 5s)",
    )


def _add_changing(commands: Any, named: argparse.ArgumentParser) -> None:
    """Add a command for each verb."""
    for verb in VERBS.values():
        if verb.has_command:
            help_ = verb.about[0].lower() + verb.about[1:].rstrip(".")
            more = WAITS if verb.ends else None
            command = commands.add_parser(verb.name, parents=[named], help=help_, epilog=more)
            for parameter in verb.parameters:
                add_parameter(command, parameter)
            command.set_defaults(act=lazily("operate.changes", "change"))


def _add_ui(commands: Any, common: argparse.ArgumentParser) -> None:
    ui = commands.add_parser("ui", parents=[common], help="serve the user interface and the REST interface")
    ui.add_argument("--port", type=port, default=8088, metavar="N", help="the port (default: 8088; 0: any free port)")
    ui.add_argument("--host", default="127.0.0.1", metavar="HOST", help="the address to listen at (default: 127.0.0.1)")
    ui.add_argument(
        "--checkpoint",
        metavar="DIR",
        action="append",
        default=[],
        help="also show the topology of this checkpoint, which may have ended (repeatable)",
    )
    ui.add_argument("--private", action="store_true", help="require the token for every page")
    ui.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another host name that browsers may use for this server (repeatable)",
    )
    ui.set_defaults(act=lazily("operate.serving", "ui"))
