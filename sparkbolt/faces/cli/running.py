"""``sparkbolt run``: runs a topology and shows it, in this process or detached."""

from __future__ import annotations

import argparse
import os
import sys
import traceback

from sparkbolt.base.tracebacks import is_debugging
from sparkbolt.control.logs import TopologyLog, log_path
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.display import choose_display, logged
from sparkbolt.faces.cli.locate import load_topology, look_in
from sparkbolt.faces.cli.operate.detaching import detach, ready
from sparkbolt.faces.cli.program import Limits, log_to, perform


def run(options: argparse.Namespace) -> int:
    """Run a topology."""
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
