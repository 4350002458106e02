"""Parser of the commands for topologies that run elsewhere.

Rule: every command takes ``--home`` and ``--debug``; a topology is named by its name or id, as ``list`` shows it.
"""

from __future__ import annotations

import argparse
from typing import Any

from sparkbolt.cli.arguments import count, port, seconds, seconds_or_zero, setting
from sparkbolt.cli.operate import actions
from sparkbolt.operate.documents import WINDOWS_SECS


def add_operating(commands: Any) -> None:
    """Add the commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--home",
        metavar="DIR",
        help="where topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt)",
    )
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    named = argparse.ArgumentParser(add_help=False, parents=[common])
    named.add_argument("topology", metavar="NAME", help="the topology's name or id, as list shows it")
    _add_looking(commands, common, named)
    _add_changing(commands, named)
    _add_ui(commands, common)


def _add_looking(commands: Any, common: argparse.ArgumentParser, named: argparse.ArgumentParser) -> None:
    list_ = commands.add_parser("list", parents=[common], help="list the topologies that run")
    list_.add_argument("--all", action="store_true", help="also those that have ended, and why")
    list_.add_argument("--json", action="store_true", help="as one JSON object a line")
    list_.set_defaults(act=actions.list_)

    top = commands.add_parser("top", parents=[common], help="show all topologies, live")
    _add_every(top)
    top.set_defaults(act=actions.top)

    stats = commands.add_parser("stats", parents=[named], help="show what a topology, or a component, does")
    stats.add_argument("component", nargs="?", metavar="COMPONENT", help="a spout or bolt, with its tasks and streams")
    stats.add_argument(
        "--window",
        choices=[*WINDOWS_SECS, "all"],
        help="sums over the last so many seconds, or since the first start (default: 600 if there are such sums)",
    )
    stats.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C")
    _add_every(stats)
    stats.add_argument("--json", action="store_true", help="as one JSON object")
    stats.set_defaults(act=actions.stats)
    stats.mixed = True

    tail = commands.add_parser("tail", parents=[named], help="show the log of a topology, or of a component")
    tail.add_argument("component", nargs="?", metavar="COMPONENT", help="only lines about this spout or bolt")
    tail.add_argument("-f", "--follow", action="store_true", help="go on with the lines that come, until Ctrl-C")
    tail.add_argument("--last", type=count, default=20, metavar="N", help="how many lines at first (default: 20)")
    tail.add_argument("--search", default="", metavar="TEXT", help="only lines that contain this text")
    tail.add_argument("--json", action="store_true", help="as one JSON object a line")
    tail.set_defaults(act=actions.tail)
    tail.mixed = True


def _add_every(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--every",
        dest="every_secs",
        type=seconds,
        metavar="TIME",
        help="how often it is looked (default: 2s on a terminal, otherwise 5s)",
    )


def _add_changing(commands: Any, named: argparse.ArgumentParser) -> None:
    activate = commands.add_parser("activate", parents=[named], help="let spouts emit again")
    activate.set_defaults(act=actions.activate)
    deactivate = commands.add_parser("deactivate", parents=[named], help="stop spouts from emitting, until activate")
    deactivate.set_defaults(act=actions.deactivate)

    kill = commands.add_parser("kill", parents=[named], help="stop spouts, let open trees finish, and end a topology")
    kill.add_argument(
        "-w",
        "--wait",
        dest="wait_secs",
        type=seconds_or_zero,
        metavar="SECS",
        help="let open trees finish for at most so long (default: the message timeout), and wait for the end: exit "
        "code 0 if nothing is left, 4 if something is left for replay",
    )
    kill.set_defaults(act=actions.kill)

    restart = commands.add_parser("restart", parents=[named], help="end the query, and begin again from the checkpoint")
    restart.set_defaults(act=actions.restart)

    set_ = commands.add_parser("set", parents=[named], help="change a setting of a topology that runs")
    set_.add_argument("key", metavar="KEY", help="log-level, max-spout-pending, micro-batch-target ...")
    set_.add_argument("value", metavar="VALUE", help="its new value, which outlives a restart")
    set_.add_argument("--component", metavar="C", help="for this spout or bolt only")
    set_.set_defaults(act=actions.set_)

    rebalance = commands.add_parser("rebalance", parents=[named], help="ask for another layout, as Storm's does")
    rebalance.add_argument("-w", "--wait", dest="wait_secs", type=seconds_or_zero, metavar="SECS")
    rebalance.add_argument("-n", "--num-workers", dest="workers", type=count, metavar="N")
    rebalance.add_argument(
        "-e", "--executor", metavar="COMPONENT=N", type=counted, action="append", default=[], help="repeatable"
    )
    rebalance.set_defaults(act=actions.rebalance)

    trace = commands.add_parser("trace", parents=[named], help="record the way of a message from now on")
    trace.add_argument(
        "--message-id", required=True, metavar="ID", help="the message's id; or SOURCE@POSITION, such as topic-0@42"
    )
    trace.add_argument("--spout", metavar="S", help="messages of this spout only")
    trace.set_defaults(act=actions.trace)


def counted(text: str) -> tuple[str, str]:
    """``COMPONENT=N``."""
    component, number = setting(text)
    count(number)
    return component, number


def _add_ui(commands: Any, common: argparse.ArgumentParser) -> None:
    ui = commands.add_parser("ui", parents=[common], help="serve the user interface and REST")
    ui.add_argument("--port", type=port, default=8088, metavar="N", help="where to listen (default: 8088; 0: any)")
    ui.add_argument("--host", default="127.0.0.1", metavar="HOST", help="at which address (default: 127.0.0.1)")
    ui.add_argument(
        "--checkpoint",
        metavar="DIR",
        action="append",
        default=[],
        help="also show the topology of this checkpoint, which may have ended (repeatable)",
    )
    ui.add_argument("--private", action="store_true", help="show nothing without the token")
    ui.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="a name by which browsers reach this server, beside --host (repeatable)",
    )
    ui.set_defaults(act=actions.ui)
