"""Parser: all commands and options of ``sparkbolt``.

Rule: every option says its default and its unit; ``actions`` and ``operate.commands`` do what is asked.
"""

from __future__ import annotations

import argparse
from typing import Any

from sparkbolt.api.tree_life import TreeState
from sparkbolt.control.logs import LogFormat
from sparkbolt.faces.cli import actions
from sparkbolt.faces.cli.arguments import Parser, count, seconds, seed, setting
from sparkbolt.faces.cli.operate.parser import add_operating
from sparkbolt.faces.cli.program import DRAIN_SECS
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
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("topology", metavar="TOPOLOGY", help="module:attribute, such as word_count:topology")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")

    _add_run(commands, common)
    check = commands.add_parser("check", parents=[common], help="show mistakes, levels, stages and fusion")
    check.add_argument("--cores", type=count, metavar="N", help="plan for N cores (default: the cores of this machine)")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(act=actions.check)

    debug = argparse.ArgumentParser(add_help=False)
    debug.add_argument("--debug", action="store_true", help="show the traceback of an error")
    errors = commands.add_parser("errors", parents=[debug], help="list failed trees, also after the topology has ended")
    errors.add_argument("checkpoint", metavar="CHECKPOINT", help="the directory of the --checkpoint option of run")
    states = [TreeState.FAILED, TreeState.OPEN, TreeState.ACKED]
    errors.add_argument(
        "--state",
        choices=states,
        default=TreeState.FAILED,
        help="list failed trees, open trees, or acked trees that were traced",
    )
    errors.add_argument(
        "--last", type=count, default=20, metavar="N", help="the maximum number of entries (default: 20)"
    )
    errors.add_argument("--json", action="store_true", help="print one JSON object per line")
    errors.set_defaults(act=actions.errors)

    explain = commands.add_parser("explain", parents=[debug], help="show the path of one tree, and why it failed")
    explain.add_argument(
        "root",
        metavar="ROOT",
        help="16 hexadecimal digits; or task and sequence (lines[0]:40); or SOURCE@POSITION, where you can shorten "
        "SOURCE to the end of its path",
    )
    explain.add_argument("--checkpoint", metavar="DIR", required=True, help="the checkpoint of the topology")
    explain.add_argument("--json", action="store_true", help="print one JSON object per line")
    explain.set_defaults(act=actions.explain)

    _add_checkpoint(commands, debug)
    graph = commands.add_parser("graph", parents=[common], help="draw a topology")
    graph.add_argument("--svg", metavar="FILE", help="write a picture to this file (- for standard output)")
    graph.set_defaults(act=actions.graph)

    _add_dlq(commands, debug)
    _add_lag(commands, common)
    _add_simulate(commands, common)
    add_operating(commands)
    return top


def _add_run(commands: Any, common: argparse.ArgumentParser) -> None:
    run = commands.add_parser("run", parents=[common], help="run a topology until it finishes or you press Ctrl-C")
    run.add_argument("--master", metavar="M", help="the master of Spark, as for spark-submit (default: local[*])")
    run.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="store state in this directory and resume from it (default: no state is stored)",
    )
    run.add_argument(
        "--for",
        dest="for_secs",
        metavar="TIME",
        type=seconds,
        help="stop after this time, such as 30s, 5m or 1h, counted from the start of Spark",
    )
    run.add_argument(
        "--drain",
        dest="drain_secs",
        metavar="TIME",
        type=seconds,
        default=DRAIN_SECS,
        help="the time that a running micro-batch has to finish after Ctrl-C or --for, before it is cancelled and left "
        f"for replay (default: {DRAIN_SECS:g}s)",
    )
    run.add_argument("--json", action="store_true", help="print one JSON object per line")
    run.add_argument(
        "--conf", metavar="KEY=VALUE", type=setting, action="append", default=[], help="a setting of Spark (repeatable)"
    )
    run.add_argument(
        "--py-files",
        metavar="FILES",
        type=lambda text: [path for path in text.split(",") if path],
        default=[],
        help="modules for the executors of a cluster: .py, .zip, .egg, or folders of packages, separated by commas",
    )
    levels = ["debug", "info", "warning", "error"]
    run.add_argument("--log-level", choices=levels, default="warning", help="the level of the log (default: warning)")
    run.add_argument(
        "--log-dir", metavar="DIR", help="also write the log and the output of print to rotated files in this directory"
    )
    run.add_argument(
        "--log-format",
        choices=[LogFormat.TEXT, LogFormat.JSON],
        default=LogFormat.TEXT,
        help="the format of these files (default: text)",
    )
    run.add_argument("--spark-log", action="store_true", help="also write Spark's log to this directory")
    run.add_argument(
        "--detach",
        action="store_true",
        help="run in the background: return when the topology is up or has failed, and write its log to files",
    )
    run.set_defaults(act=actions.run)


def _add_checkpoint(commands: Any, debug: argparse.ArgumentParser) -> None:
    checkpoint = commands.add_parser("checkpoint", help="verify or repair a checkpoint")
    what = checkpoint.add_subparsers(dest="what", metavar="COMMAND", required=True)
    verify = what.add_parser("verify", parents=[debug], help="check whether Spark's files and the ledger agree")
    verify.add_argument("directory", metavar="DIR", help="the directory of the --checkpoint option of run")
    verify.set_defaults(act=actions.checkpoint_verify)
    repair = what.add_parser("repair", parents=[debug], help="go back to the last micro-batch on which they agree")
    repair.add_argument("directory", metavar="DIR", help="the checkpoint; no driver may be using it")
    repair.add_argument("--dry-run", action="store_true", help="only show the changes, as verify does")
    repair.set_defaults(act=actions.checkpoint_repair)


def _add_dlq(commands: Any, debug: argparse.ArgumentParser) -> None:
    dlq = commands.add_parser("dlq", help="list, show and replay dead letters")
    what = dlq.add_subparsers(dest="what", metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    where = (
        "the location of the dead letters: the checkpoint of the topology; file:PATH or PATH; or kafka:HOST:PORT/TOPIC"
    )
    common.add_argument("where", metavar="WHERE", help=where)
    secure = "a file with properties of the Kafka client, such as SASL and TLS, one key=value per line; never printed"
    common.add_argument("--client-config", metavar="FILE", help=secure)

    listing = what.add_parser("list", parents=[debug, common], help="list dead letters, the newest last")
    listing.add_argument(
        "--last", type=count, default=20, metavar="N", help="the maximum number of entries (default: 20)"
    )
    listing.add_argument("--spout", metavar="ID", help="only letters of this spout")
    listing.add_argument("--json", action="store_true", help="print one JSON object per line")
    listing.set_defaults(act=actions.dlq_list)

    show = what.add_parser("show", parents=[debug, common], help="show the attempts and the record of dead letters")
    show.add_argument("ids", nargs="+", metavar="ID", help="the id of a letter, or its beginning")
    show.add_argument("--json", action="store_true", help="print one JSON object per line")
    show.set_defaults(act=actions.dlq_show)

    replay = what.add_parser("replay", parents=[debug, common], help="replay dead letters")
    replay.add_argument(
        "ids", nargs="*", metavar="ID", help="only these letters (default: all letters that were not replayed)"
    )
    into = (
        "the destination: FILE, to which the tuples are appended as JSON; kafka:HOST:PORT[/TOPIC] for messages of "
        "Kafka in a checkpoint; or another topic of the same brokers for letters in a topic"
    )
    replay.add_argument("--into", metavar="PLACE", help=into)
    replay.add_argument("--spout", metavar="ID", help="only letters of this spout")
    replay.add_argument("--again", action="store_true", help="also replay letters that were replayed before")
    replay.set_defaults(act=actions.dlq_replay)


def _add_lag(commands: Any, common: argparse.ArgumentParser) -> None:
    lag = commands.add_parser("lag", parents=[common], help="show the lag of Kafka spouts")
    lag.add_argument("--json", action="store_true", help="print one JSON object per line for each spout")
    lag.set_defaults(act=actions.lag)


def _add_simulate(commands: Any, common: argparse.ArgumentParser) -> None:
    simulate = commands.add_parser("simulate", parents=[common], help="run a topology without Spark and inject faults")
    simulate.add_argument(
        "--seeds", type=count, default=1000, metavar="N", help="run the seeds 0 to N - 1 (default: 1000)"
    )
    simulate.add_argument(
        "--workers", type=count, metavar="N", help="the number of processes (default: the cores of this machine)"
    )
    simulate.add_argument("--seed", type=seed, metavar="N", help="run only this seed, and show what happened")
    simulate.add_argument(
        "--history", metavar="FAULTS", help="with --seed: the faults to inject, as printed by a failure"
    )
    simulate.add_argument(
        "--feed",
        metavar="SPOUT=FILE",
        type=setting,
        action="append",
        default=[],
        help="replace the messages of a spout by this file, one JSON list or object per line (repeatable)",
    )
    simulate.add_argument(
        "--messages",
        type=count,
        default=200,
        metavar="N",
        help="the number of messages that each spout reads (default: 200)",
    )
    simulate.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 also for mistakes of the topology itself, such as tuples that are never acked",
    )
    simulate.add_argument("--json", action="store_true", help="print one JSON object per line")
    simulate.set_defaults(act=actions.simulate)
