"""Command line: the command ``sparkbolt``.

Which question it answers: which commands are there, and what do their exit codes mean?
Rule: a user's mistake is reported as one sentence on standard error, without a traceback; ``--debug`` or
``SPARKBOLT_DEBUG=1`` shows the traceback.

Exit codes: 0 finished, or stopped with nothing left; 3 the same, but messages were set aside; 1 failed; 2 wrong use;
4 the time of ``--for`` expired or it was killed, and 130 stopped by Ctrl-C. With 4 and 130 open trees, or records that
failed, are left for replay.

Read before: ``program`` for what a run is, then ``check``, ``graph`` and ``stories``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkbolt.cli.locate import load_topology, look_in
from sparkbolt.cli.program import DRAIN_SECS, EXIT_FAILED, EXIT_FINISHED, EXIT_LEFT, EXIT_WRONG_USE
from sparkbolt.core.model.config import did_you_mean
from sparkbolt.core.model.tree_life import TreeState
from sparkbolt.errors import InvalidTopology, SparkboltError, WrongUseError
from sparkbolt.version import __version__

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_EPILOG = """\
TOPOLOGY is module:attribute, such as word_count:topology: a Topology, a
TopologyBuilder, or a function that returns one. The module is looked for in the
working directory first.

exit codes: 0 finished, or stopped with nothing left; 3 the same, with messages
set aside; 1 failed; 2 wrong use; and with trees, or records that failed, left
for replay: 4 if the time of --for was over, or if it was killed from outside,
130 if it was stopped by Ctrl-C.

environment: SPARKBOLT_SPARK_LOG=FILE (or - for the terminal) takes Spark's own
log; SPARKBOLT_DEBUG=1 is --debug.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that refuses unknown arguments itself: it shows its own usage and the most similar known name."""

    def parse_known_args(self, *arguments: Any) -> tuple[Any, list[str]]:  # type: ignore[override]
        """Parse as the parent class does; unknown arguments are an error."""
        found, unknown = super().parse_known_args(*arguments)
        if unknown:
            option = unknown[0].partition("=")[0]
            hint = did_you_mean(option, self._option_string_actions) if option.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown


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


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands and options."""
    top = _Parser(
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
    check.add_argument("--cores", type=_count, metavar="N", help="lay out for N cores (default: this machine's)")
    check.add_argument("--json", action="store_true", help="as one JSON object")
    check.set_defaults(act=_check)

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
    errors.add_argument("--last", type=_count, default=20, metavar="N", help="how many at most (default: 20)")
    errors.add_argument("--json", action="store_true", help="as one JSON object a line")
    errors.set_defaults(act=_errors)

    explain = commands.add_parser("explain", parents=[debug], help="tell the way of one tree, and why it failed")
    explain.add_argument(
        "root",
        metavar="ROOT",
        help="16 hexadecimal digits; or task and sequence (lines[0]:40); or SOURCE@POSITION, where the end of a "
        "source's path is enough",
    )
    explain.add_argument("--checkpoint", metavar="DIR", required=True, help="the directory that run was given")
    explain.add_argument("--json", action="store_true", help="as one JSON object a line")
    explain.set_defaults(act=_explain)

    _add_checkpoint(commands, debug)
    graph = commands.add_parser("graph", parents=[common], help="draw a topology")
    graph.add_argument("--svg", metavar="FILE", help="as a picture, into a file (- for standard output)")
    graph.set_defaults(act=_graph)

    _add_dlq(commands, debug)
    _add_lag(commands, common)
    _add_windows(commands, debug)
    _add_simulate(commands, common)
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
    run.set_defaults(act=_run)


def _add_checkpoint(commands: Any, debug: argparse.ArgumentParser) -> None:
    checkpoint = commands.add_parser("checkpoint", help="look whether a checkpoint is whole, and mend it")
    what = checkpoint.add_subparsers(dest="what", metavar="COMMAND", required=True)
    verify = what.add_parser("verify", parents=[debug], help="say whether Spark's files and the ledger agree")
    verify.add_argument("directory", metavar="DIR", help="the directory that run was given as --checkpoint")
    verify.set_defaults(act=_checkpoint_verify)
    repair = what.add_parser("repair", parents=[debug], help="go back to the last micro-batch on which they agree")
    repair.add_argument("directory", metavar="DIR", help="the directory that run was given; no driver may have it")
    repair.add_argument("--dry-run", action="store_true", help="only say what would be done, as verify does")
    repair.set_defaults(act=_checkpoint_repair)


def _add_dlq(commands: Any, debug: argparse.ArgumentParser) -> None:
    dlq = commands.add_parser("dlq", help="list, show and replay dead letters")
    what = dlq.add_subparsers(dest="what", metavar="COMMAND", required=True)
    common = argparse.ArgumentParser(add_help=False)
    where = "where the dead letters are: the checkpoint of the topology; file:PATH, or PATH; or kafka:HOST:PORT/TOPIC"
    common.add_argument("where", metavar="WHERE", help=where)
    secure = "properties of Kafka's client, such as SASL's and TLS's: a file of lines key=value, never printed"
    common.add_argument("--client-config", metavar="FILE", help=secure)

    listing = what.add_parser("list", parents=[debug, common], help="list what was given up, the newest last")
    listing.add_argument("--last", type=_count, default=20, metavar="N", help="how many at most (default: 20)")
    listing.add_argument("--spout", metavar="ID", help="those of one spout")
    listing.add_argument("--json", action="store_true", help="as one JSON object a line")
    listing.set_defaults(act=_dlq_list)

    show = what.add_parser("show", parents=[debug, common], help="tell the story of dead letters")
    show.add_argument("ids", nargs="+", metavar="ID", help="the beginning of a letter's id")
    show.add_argument("--json", action="store_true", help="as one JSON object a line")
    show.set_defaults(act=_dlq_show)

    replay = what.add_parser("replay", parents=[debug, common], help="give dead letters to a topology again")
    replay.add_argument("ids", nargs="*", metavar="ID", help="these only (default: all that were not replayed)")
    into = (
        "FILE: append the tuples there, as JSON; for messages of Kafka in a checkpoint kafka:HOST:PORT[/TOPIC]; for "
        "letters in a topic another topic of the same brokers"
    )
    replay.add_argument("--into", metavar="PLACE", help=into)
    replay.add_argument("--spout", metavar="ID", help="letters of one spout")
    replay.add_argument("--again", action="store_true", help="also letters that were replayed before")
    replay.set_defaults(act=_dlq_replay)


def _add_lag(commands: Any, common: argparse.ArgumentParser) -> None:
    lag = commands.add_parser("lag", parents=[common], help="tell how far behind Kafka spouts are")
    lag.add_argument("--json", action="store_true", help="one JSON object a line, one for each spout")
    lag.set_defaults(act=_lag)


def _add_windows(commands: Any, debug: argparse.ArgumentParser) -> None:
    windows = commands.add_parser("windows", help="pictures of windows")
    drawing = windows.add_subparsers(dest="what", metavar="COMMAND", required=True)
    draw = drawing.add_parser("draw", parents=[debug], help="draw every kind of window, as SVG files")
    draw.add_argument("kinds", nargs="*", metavar="KIND", help="these kinds only (default: all)")
    draw.add_argument("--dir", default=".", help="where the files go (default: here)")
    draw.set_defaults(act=_draw_windows)


def _add_simulate(commands: Any, common: argparse.ArgumentParser) -> None:
    simulate = commands.add_parser(
        "simulate", parents=[common], help="run a topology without Spark while everything around it goes wrong"
    )
    simulate.add_argument("--seeds", type=_count, default=1000, metavar="N", help="seeds 0 to N - 1 (default: 1000)")
    simulate.add_argument(
        "--workers", type=_count, metavar="N", help="so many processes share the seeds (default: this machine's cores)"
    )
    simulate.add_argument("--seed", type=_seed, metavar="N", help="run this seed only, and tell what happened")
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
        "--messages", type=_count, default=200, metavar="N", help="how many messages of a spout are read (default: 200)"
    )
    simulate.add_argument(
        "--strict",
        action="store_true",
        help="end with 1 also for what the topology does wrong by itself, such as tuples that are never acked",
    )
    simulate.add_argument("--json", action="store_true", help="one JSON object a line on standard output")
    simulate.set_defaults(act=_simulate)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as exit_:  # argparse has printed what is wrong
        return exit_.code if isinstance(exit_.code, int) else EXIT_WRONG_USE
    try:
        code: int = options.act(options)
        sys.stdout.flush()
        return code
    except SparkboltError as error:
        return _complain(error, EXIT_WRONG_USE if isinstance(error, WrongUseError) else EXIT_FAILED, options.debug)
    except KeyboardInterrupt:
        return EXIT_LEFT
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FINISHED
    except Exception as error:  # noqa: BLE001  any other error: a sentence, and how to see the traceback
        return _complain(error, EXIT_FAILED, options.debug)


def _complain(error: Exception, code: int, debug: bool) -> int:
    if debug or os.environ.get("SPARKBOLT_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
        return code
    text = str(error) if isinstance(error, SparkboltError) else f"{type(error).__name__}: {error}"
    more = "" if isinstance(error, SparkboltError) else " (--debug shows the traceback)"
    print(f"sparkbolt: {text}{more}", file=sys.stderr)
    return code


def _run(options: argparse.Namespace) -> int:
    from sparkbolt.cli.display import choose_display, logged
    from sparkbolt.cli.program import Limits, perform

    look_in(options.py_files)
    topology = load_topology(options.topology)
    with logged(options.log_level):
        outcome = perform(
            topology,
            choose_display(as_json=options.json),
            Limits(options.for_secs, options.drain_secs),
            checkpoint=options.checkpoint,
            master=options.master,
            settings=dict(options.conf),
            py_files=options.py_files,
        )
    if outcome.error is not None and isinstance(outcome.error, Exception):
        debug = options.debug or os.environ.get("SPARKBOLT_DEBUG", "0") not in ("", "0")
        if debug:
            traceback.print_exception(outcome.error)
        elif options.json:
            print(f"sparkbolt: {outcome.failure}", file=sys.stderr)
    return outcome.exit_code


def _check(options: argparse.Namespace) -> int:
    from sparkbolt.cli.check import examine, report_lines

    cores = options.cores or os.cpu_count() or 1
    try:
        topology = load_topology(options.topology)
    except InvalidTopology as error:
        if options.json:
            print(json.dumps({"name": error.name, "mistakes": error.mistakes}, indent=2))
        else:
            print(error)
        return EXIT_FAILED
    examination = examine(topology, cores)
    if options.json:
        print(json.dumps(examination.to_json(), indent=2))
    else:
        print("\n".join(report_lines(examination)))
    return EXIT_FINISHED


def _errors(options: argparse.Namespace) -> int:
    from sparkbolt.cli.stories import list_trees

    print("\n".join(list_trees(options.checkpoint, options.state, options.last, as_json=options.json)))
    return EXIT_FINISHED


def _explain(options: argparse.Namespace) -> int:
    from sparkbolt.cli.stories import explain_tree

    print("\n".join(explain_tree(options.checkpoint, options.root, as_json=options.json)))
    return EXIT_FINISHED


def _checkpoint_verify(options: argparse.Namespace) -> int:
    from sparkbolt.cli.checkpoints import verify

    agrees, lines = verify(options.directory)
    print("\n".join(lines))
    return EXIT_FINISHED if agrees else EXIT_FAILED


def _checkpoint_repair(options: argparse.Namespace) -> int:
    from sparkbolt.cli.checkpoints import repair

    agrees, lines = repair(options.directory, dry_run=options.dry_run)
    print("\n".join(lines))
    return EXIT_FINISHED if agrees else EXIT_FAILED


def _dlq_list(options: argparse.Namespace) -> int:
    from sparkbolt.cli.dlq.commands import list_letters
    from sparkbolt.operate.letters.stores import LetterLocation

    place = LetterLocation(options.where, options.client_config)
    print("\n".join(list_letters(place, options.last, options.spout, as_json=options.json)))
    return EXIT_FINISHED


def _dlq_show(options: argparse.Namespace) -> int:
    from sparkbolt.cli.dlq.commands import show_letters
    from sparkbolt.operate.letters.stores import LetterLocation

    place = LetterLocation(options.where, options.client_config)
    print("\n".join(show_letters(place, options.ids, as_json=options.json)))
    return EXIT_FINISHED


def _dlq_replay(options: argparse.Namespace) -> int:
    from sparkbolt.cli.dlq.commands import ReplayOrder, replay
    from sparkbolt.operate.letters.stores import LetterLocation

    place = LetterLocation(options.where, options.client_config)
    order = ReplayOrder(place, options.ids, options.spout, options.into, options.again)
    print("\n".join(replay(order)))
    return EXIT_FINISHED


def _lag(options: argparse.Namespace) -> int:
    from sparkbolt.cli.lag import report

    print("\n".join(report(load_topology(options.topology), as_json=options.json)))
    return EXIT_FINISHED


def _draw_windows(options: argparse.Namespace) -> int:
    from sparkbolt.windows.draw import KINDS, draw

    for kind in options.kinds:
        if kind not in KINDS:
            hint = did_you_mean(kind, KINDS) or f": there is {', '.join(KINDS)}"
            raise WrongUseError(f"there is no kind of window {kind!r}{hint}")
    for kind in options.kinds or KINDS:
        path = Path(options.dir, f"window-{kind}.svg")
        path.write_text(draw(kind), encoding="utf-8")
        print(path)
    return EXIT_FINISHED


def _graph(options: argparse.Namespace) -> int:
    from sparkbolt.cli.graph import text_drawing
    from sparkbolt.cli.svg import svg_drawing

    topology = load_topology(options.topology)
    if options.svg is None:
        print(text_drawing(topology))
    elif options.svg == "-":
        print(svg_drawing(topology), end="")
    else:
        try:
            Path(options.svg).write_text(svg_drawing(topology), encoding="utf-8")
        except OSError as error:
            raise WrongUseError(f"{options.svg} cannot be written: {error.strerror}") from error
    return EXIT_FINISHED


def _simulate(options: argparse.Namespace) -> int:
    from sparkbolt.cli.simulate import SimulationOrder, perform

    if options.history is not None and options.seed is None:
        raise WrongUseError("--history says what goes wrong for one seed: give --seed, too")
    return perform(
        SimulationOrder(
            reference=options.topology,
            topology=load_topology(options.topology),
            seeds=options.seeds,
            workers=options.workers or os.cpu_count() or 1,
            seed=options.seed,
            history=options.history,
            feed=dict(options.feed),
            messages_max=options.messages,
            as_json=options.json,
            strict=options.strict,
        )
    )
