"""Parser of the commands for topologies that run elsewhere.

Rule: every command takes ``--home`` and ``--debug``; a topology is named by its name or id, as ``list`` shows it.
"""

from __future__ import annotations

import argparse
from typing import Any

from sparkbolt.control.documents import WINDOWS_SECS
from sparkbolt.faces.cli.arguments import count, port, seconds, seconds_or_zero, setting
from sparkbolt.faces.cli.operate import actions


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
    list_.set_defaults(act=actions.list_)

    top = commands.add_parser("top", parents=[common], help="show all topologies live")
    _add_every(top)
    top.set_defaults(act=actions.top)

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
    stats.set_defaults(act=actions.stats)
    stats.mixed = True

    tail = commands.add_parser("tail", parents=[named], help="show the log of a topology or a component")
    tail.add_argument("component", nargs="?", metavar="COMPONENT", help="only show lines of this spout or bolt")
    tail.add_argument("-f", "--follow", action="store_true", help="print new lines until Ctrl-C")
    tail.add_argument(
        "--last", type=count, default=20, metavar="N", help="the number of lines at the start (default: 20)"
    )
    tail.add_argument("--search", default="", metavar="TEXT", help="only show lines that contain this text")
    tail.add_argument("--json", action="store_true", help="print one JSON object per line")
    tail.set_defaults(act=actions.tail)
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
    activate = commands.add_parser("activate", parents=[named], help="start the spouts again after deactivate")
    activate.set_defaults(act=actions.activate)
    deactivate = commands.add_parser("deactivate", parents=[named], help="stop the spouts until activate")
    deactivate.set_defaults(act=actions.deactivate)

    kill = commands.add_parser(
        "kill", parents=[named], help="stop the spouts, wait for open trees, and end the topology"
    )
    kill.add_argument(
        "-w",
        "--wait",
        dest="wait_secs",
        type=seconds_or_zero,
        metavar="SECS",
        help="the time that open trees have to finish (default: the message timeout); the command waits for the end: "
        "exit code 0 if nothing is left, 4 if something is left for replay",
    )
    kill.set_defaults(act=actions.kill)

    restart = commands.add_parser("restart", parents=[named], help="restart the query from the checkpoint")
    restart.set_defaults(act=actions.restart)

    set_ = commands.add_parser("set", parents=[named], help="change a setting of a running topology")
    set_.add_argument("key", metavar="KEY", help="log-level, max-spout-pending, micro-batch-target ...")
    set_.add_argument("value", metavar="VALUE", help="the new value; it stays after a restart")
    set_.add_argument("--component", metavar="C", help="only for this spout or bolt")
    set_.set_defaults(act=actions.set_)

    rebalance = commands.add_parser(
        "rebalance", parents=[named], help="ask which changes of the layout a restart can apply"
    )
    rebalance.add_argument("-w", "--wait", dest="wait_secs", type=seconds_or_zero, metavar="SECS")
    rebalance.add_argument("-n", "--num-workers", dest="workers", type=count, metavar="N")
    rebalance.add_argument(
        "-e", "--executor", metavar="COMPONENT=N", type=counted, action="append", default=[], help="repeatable"
    )
    rebalance.set_defaults(act=actions.rebalance)

    trace = commands.add_parser("trace", parents=[named], help="record the path of a message from now on")
    trace.add_argument(
        "--message-id",
        required=True,
        metavar="ID",
        help="the id of the message, or SOURCE@POSITION, such as topic-0@42",
    )
    trace.add_argument("--spout", metavar="S", help="only messages of this spout")
    trace.set_defaults(act=actions.trace)


def counted(text: str) -> tuple[str, str]:
    """``COMPONENT=N``."""
    component, number = setting(text)
    count(number)
    return component, number


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
    ui.set_defaults(act=actions.ui)
