"""Actions: what the commands for topologies in code, and for checkpoints, do.

Rule: nothing is imported before its command is given, so that each command starts as fast as it can.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from pathlib import Path

from sparkbolt.base.tracebacks import is_debugging
from sparkbolt.control.logs import TopologyLog, log_path
from sparkbolt.errors import InvalidTopology, WrongUseError
from sparkbolt.faces.cli.locate import load_topology, look_in
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED
from sparkbolt.faces.cli.texts import plain


def run(options: argparse.Namespace) -> int:
    """Run a topology."""
    from sparkbolt.faces.cli.display import choose_display, logged
    from sparkbolt.faces.cli.operate.detaching import detach, ready
    from sparkbolt.faces.cli.program import Limits, log_to, perform

    look_in(options.py_files)
    topology = load_topology(options.topology)
    if options.detach:
        return detach(topology, options)
    display = choose_display(as_json=options.json)
    with logged(options.log_level), log_to(options.log_dir, topology, options.log_format) as log:
        if options.spark_log:
            write_spark_log(log)
        with ready(display) as shown:
            outcome = perform(
                topology,
                shown,
                Limits(options.for_secs, options.drain_secs),
                checkpoint=options.checkpoint,
                master=options.master,
                settings=dict(options.conf),
                py_files=options.py_files,
            )
    if outcome.error is not None and isinstance(outcome.error, Exception):
        debug = options.debug or is_debugging()
        if debug:
            traceback.print_exception(outcome.error)
        elif options.json:
            print(f"sparkbolt: {outcome.failure}", file=sys.stderr)
    return outcome.exit_code


def write_spark_log(log: TopologyLog | None) -> None:
    """Let Spark write its own log beside the topology's.

    Raises:
        WrongUseError: the topology's log does not go to files.
    """
    if log is None:
        raise WrongUseError("--spark-log needs --log-dir: add --log-dir DIR")
    os.environ["SPARKBOLT_SPARK_LOG"] = log_path(log.directory, f"{log.topology}.spark")


def check(options: argparse.Namespace) -> int:
    """Show mistakes, levels, stages and fusion."""
    from sparkbolt.faces.cli.check import examine, report_lines

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


def errors(options: argparse.Namespace) -> int:
    """List trees."""
    from sparkbolt.faces.cli.stories import list_trees

    print(plain("\n".join(list_trees(options.checkpoint, options.state, options.last, as_json=options.json))))
    return EXIT_FINISHED


def explain(options: argparse.Namespace) -> int:
    """Tell the way of one tree."""
    from sparkbolt.faces.cli.stories import explain_tree

    print(plain("\n".join(explain_tree(options.checkpoint, options.root, as_json=options.json))))
    return EXIT_FINISHED


def checkpoint_verify(options: argparse.Namespace) -> int:
    """Say whether a checkpoint is whole."""
    from sparkbolt.faces.cli.checkpoints import verify

    agrees, lines = verify(options.directory)
    print("\n".join(lines))
    return EXIT_FINISHED if agrees else EXIT_FAILED


def checkpoint_repair(options: argparse.Namespace) -> int:
    """Mend a checkpoint."""
    from sparkbolt.faces.cli.checkpoints import repair

    agrees, lines = repair(options.directory, dry_run=options.dry_run)
    print("\n".join(lines))
    return EXIT_FINISHED if agrees else EXIT_FAILED


def dlq_list(options: argparse.Namespace) -> int:
    """List dead letters."""
    from sparkbolt.control.letters.stores import LetterLocation
    from sparkbolt.faces.cli.dlq.commands import list_letters

    place = LetterLocation(options.where, options.client_config)
    print(plain("\n".join(list_letters(place, options.last, options.spout, as_json=options.json))))
    return EXIT_FINISHED


def dlq_show(options: argparse.Namespace) -> int:
    """Tell the story of dead letters."""
    from sparkbolt.control.letters.stores import LetterLocation
    from sparkbolt.faces.cli.dlq.commands import show_letters

    place = LetterLocation(options.where, options.client_config)
    print(plain("\n".join(show_letters(place, options.ids, as_json=options.json))))
    return EXIT_FINISHED


def dlq_replay(options: argparse.Namespace) -> int:
    """Give dead letters to a topology again."""
    from sparkbolt.control.letters.stores import LetterLocation
    from sparkbolt.faces.cli.dlq.commands import ReplayOrder, replay

    place = LetterLocation(options.where, options.client_config)
    order = ReplayOrder(place, options.ids, options.spout, options.into, options.again)
    print(plain("\n".join(replay(order))))
    return EXIT_FINISHED


def lag(options: argparse.Namespace) -> int:
    """Tell how far behind Kafka spouts are."""
    from sparkbolt.faces.cli.lag import report

    print("\n".join(report(load_topology(options.topology), as_json=options.json)))
    return EXIT_FINISHED


def graph(options: argparse.Namespace) -> int:
    """Draw a topology."""
    from sparkbolt.faces.cli.graph import text_drawing
    from sparkbolt.faces.drawing.svg import svg_drawing

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


def simulate(options: argparse.Namespace) -> int:
    """Run a topology in the simulator."""
    from sparkbolt.faces.cli.simulate import SimulationOrder, perform

    if options.history is not None and options.seed is None:
        raise WrongUseError("--history needs --seed: add --seed N")
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
