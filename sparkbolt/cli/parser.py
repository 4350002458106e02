"""Parser: all commands and options of ``sparkbolt``.

Rule: every option says its default and its unit; ``actions`` and ``operate.commands`` do what is asked.
"""

from __future__ import annotations

import argparse
from typing import Any

from sparkbolt.cli import actions
from sparkbolt.cli.arguments import Parser, count, seconds, seed, setting
from sparkbolt.cli.operate.parser import add_operating
from sparkbolt.cli.program import DRAIN_SECS
from sparkbolt.core.model.tree_life import TreeState
from sparkbolt.operate.logs import LogFormat
from sparkbolt.version import __version__

_EPILOG = """\
TOPOLOGY is module:attribute, such as word_count:topology: a Topology, a
TopologyBuilder, or a function that returns one. The module is looked for in the
working directory first. NAME is a topology that runs, or has run: its name or
id, as `sparkbolt list` shows it.

exit codes: 0 finished, done, or stopped with nothing left; 3 the same, with
messages set aside; 1 failed, or refused; 2 wrong use, such as an unknown NAME;
and with trees, or records that failed, left for replay: 4 if the time of --for
was over, or if it was killed by kill (whose --wait ends with the same code);
130 if it was stopped by Ctrl-C.

environment: SPARKBOLT_HOME=DIR is where running topologies are registered;
SPARKBOLT_SPARK_LOG=FILE (or - for the terminal) takes Spark's own log;
SPARKBOLT_DEBUG=1 is --debug.
"""


def parser() -> argparse.ArgumentParser:
    """The parser of all commands and options."""
    top = Parser(
        prog="sparkbolt",
        description="Runs topologies of spouts and bolts on Spark, every tuple tracked to its end.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"sparkbolt {__version__}")
    commands: Any = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("topology", metavar="TOPOLOGY", help="module:attribute, such as word_count:topology")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")

    _add_run(commands, common)
    check = commands.add_parser("check", parents=[common], help="show mistakes, levels, stages and fusion")
    check.add_argument("--cores", type=count, metavar="N", help="lay out for N cores (default: this machine's)")
    check.add_argument("--json", action="store_true", help="as one JSON object")
    check.set_defaults(act=actions.check)

    debug = argparse.ArgumentParser(add_help=False)
    debug.add_argument("--debug", action="store_true", help="show the traceback of an error")
    errors = commands.add_parser("errors", parents=[debug], help="list the trees that failed, also after the end")
    errors.add_argument("checkpoint", metavar="CHECKPOINT", help="the directory that run was given as --checkpoint")
    states = [TreeState.FAILED, TreeState.OPEN, TreeState.ACKED]
    errors.add_argument(
        "--state",
        choices=states,
        default=TreeState.FAILED,
        help="failed trees, open ones, or traced ones that were acked",
    )
    errors.add_argument("--last", type=count, default=20, metavar="N", help="how many at most (default: 20)")
    errors.add_argument("--json", action="store_true", help="as one JSON object a line")
    errors.set_defaults(act=actions.errors)

    explain = commands.add_parser("explain", parents=[debug], help="tell the way of one tree, and why it failed")
    explain.add_argument(
        "root",
        metavar="ROOT",
        help="16 hexadecimal digits; or task and sequence (lines[0]:40); or SOURCE@POSITION, where the end of a "
        "source's path is enough",
    )
    explain.add_argument("--checkpoint", metavar="DIR", required=True, help="the directory that run was given")
    explain.add_argument("--json", action="store_true", help="as one JSON object a line")
    explain.set_defaults(act=actions.explain)

    _add_checkpoint(commands, debug)
    graph = commands.add_parser("graph", parents=[common], help="draw a topology")
    graph.add_argument("--svg", metavar="FILE", help="as a picture, into a file (- for standard output)")
    graph.set_defaults(act=actions.graph)

    _add_dlq(commands, debug)
    _add_lag(commands, common)
    _add_simulate(commands, common)
    add_operating(commands)
    return top


def _add_run(commands: Any, common: argparse.ArgumentParser) -> None:
    run = commands.add_parser("run", parents=[common], help="run a topology until it ends, or until Ctrl-C")
    run.add_argument("--master", metavar="M", help="where to run, as of spark-submit (default: local[*])")
    run.add_argument(
        "--checkpoint", metavar="DIR", help="keep durable state there and resume from it (default: none is kept)"
    )
    run.add_argument(
        "--for",
        dest="for_secs",
        metavar="TIME",
        type=seconds,
        help="stop after 30s, 5m, 1h ..., counted from when Spark is up",
    )
    run.add_argument(
        "--drain",
        dest="drain_secs",
        metavar="TIME",
        type=seconds,
        default=DRAIN_SECS,
        help="how long a micro-batch may run on after Ctrl-C or --for, before it is broken off and left for replay "
        f"(default: {DRAIN_SECS:g}s)",
    )
    run.add_argument("--json", action="store_true", help="one JSON object a line on standard output")
    run.add_argument(
        "--conf", metavar="KEY=VALUE", type=setting, action="append", default=[], help="a setting of Spark (repeatable)"
    )
    run.add_argument(
        "--py-files",
        metavar="FILES",
        type=lambda text: [path for path in text.split(",") if path],
        default=[],
        help="modules for the executors of a cluster: .py, .zip, .egg, folders of packages, with commas between",
    )
    levels = ["debug", "info", "warning", "error"]
    run.add_argument("--log-level", choices=levels, default="warning", help="what is logged (default: warning)")
    run.add_argument(
        "--log-dir", metavar="DIR", help="also write the log, and what is printed, to files there, with rotation"
    )
    run.add_argument(
        "--log-format",
        choices=[LogFormat.TEXT, LogFormat.JSON],
        default=LogFormat.TEXT,
        help="how lines are written to these files (default: text)",
    )
    run.add_argument("--spark-log", action="store_true", help="also write Spark's own log there")
    run.add_argument(
        "--detach",
        action="store_true",
        help="leave the terminal: return when the topology is up, or has failed; its log goes to files in any case",
    )
    run.set_defaults(act=actions.run)


def _add_checkpoint(commands: Any, debug: argparse.ArgumentParser) -> None:
    checkpoint = commands.add_parser("checkpoint", help="look whether a checkpoint is whole, and mend it")
    what = checkpoint.add_subparsers(dest="what", metavar="COMMAND", required=True)
    verify = what.add_parser("verify", parents=[debug], help="say whether Spark's files and the ledger agree")
    verify.add_argument("directory", metavar="DIR", help="the directory that run was given as --checkpoint")
    verify.set_defaults(act=actions.checkpoint_verify)
    repair = what.add_parser("repair", parents=[debug], help="go back to the last micro-batch on which they agree")
    repair.add_argument("directory", metavar="DIR", help="the directory that run was given; no driver may have it")
    repair.add_argument("--dry-run", action="store_true", help="only say what would be done, as verify does")
    repair.set_defaults(act=actions.checkpoint_repair)


def _add_dlq(commands: Any, debug: argparse.ArgumentParser) -> None:
    dlq = commands.add_parser("dlq", help="list, show and replay dead letters")
    what = dlq.add_subparsers(dest="what", metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    where = "where the dead letters are: the checkpoint of the topology; file:PATH, or PATH; or kafka:HOST:PORT/TOPIC"
    common.add_argument("where", metavar="WHERE", help=where)
    secure = "properties of Kafka's client, such as SASL's and TLS's: a file of lines key=value, never printed"
    common.add_argument("--client-config", metavar="FILE", help=secure)

    listing = what.add_parser("list", parents=[debug, common], help="list what was given up, the newest last")
    listing.add_argument("--last", type=count, default=20, metavar="N", help="how many at most (default: 20)")
    listing.add_argument("--spout", metavar="ID", help="those of one spout")
    listing.add_argument("--json", action="store_true", help="as one JSON object a line")
    listing.set_defaults(act=actions.dlq_list)

    show = what.add_parser("show", parents=[debug, common], help="tell the story of dead letters")
    show.add_argument("ids", nargs="+", metavar="ID", help="the beginning of a letter's id")
    show.add_argument("--json", action="store_true", help="as one JSON object a line")
    show.set_defaults(act=actions.dlq_show)

    replay = what.add_parser("replay", parents=[debug, common], help="give dead letters to a topology again")
    replay.add_argument("ids", nargs="*", metavar="ID", help="these only (default: all that were not replayed)")
    into = (
        "FILE: append the tuples there, as JSON; for messages of Kafka in a checkpoint kafka:HOST:PORT[/TOPIC]; for "
        "letters in a topic another topic of the same brokers"
    )
    replay.add_argument("--into", metavar="PLACE", help=into)
    replay.add_argument("--spout", metavar="ID", help="letters of one spout")
    replay.add_argument("--again", action="store_true", help="also letters that were replayed before")
    replay.set_defaults(act=actions.dlq_replay)


def _add_lag(commands: Any, common: argparse.ArgumentParser) -> None:
    lag = commands.add_parser("lag", parents=[common], help="tell how far behind Kafka spouts are")
    lag.add_argument("--json", action="store_true", help="one JSON object a line, one for each spout")
    lag.set_defaults(act=actions.lag)


def _add_simulate(commands: Any, common: argparse.ArgumentParser) -> None:
    simulate = commands.add_parser(
        "simulate", parents=[common], help="run a topology without Spark while everything around it goes wrong"
    )
    simulate.add_argument("--seeds", type=count, default=1000, metavar="N", help="seeds 0 to N - 1 (default: 1000)")
    simulate.add_argument(
        "--workers", type=count, metavar="N", help="so many processes share the seeds (default: this machine's cores)"
    )
    simulate.add_argument("--seed", type=seed, metavar="N", help="run this seed only, and tell what happened")
    simulate.add_argument("--history", metavar="FAULTS", help="with --seed: what goes wrong, as a failure printed it")
    simulate.add_argument(
        "--feed",
        metavar="SPOUT=FILE",
        type=setting,
        action="append",
        default=[],
        help="messages in the place of a spout's own, one JSON list or object a line (repeatable)",
    )
    simulate.add_argument(
        "--messages", type=count, default=200, metavar="N", help="how many messages of a spout are read (default: 200)"
    )
    simulate.add_argument(
        "--strict",
        action="store_true",
        help="end with 1 also for what the topology does wrong by itself, such as tuples that are never acked",
    )
    simulate.add_argument("--json", action="store_true", help="one JSON object a line on standard output")
    simulate.set_defaults(act=actions.simulate)
