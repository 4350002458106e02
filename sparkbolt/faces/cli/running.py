"""``sparkbolt run``: runs a topology and shows it, in this process or detached."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

from sparkbolt.base.tracebacks import is_debugging
from sparkbolt.control.intent import LOG_LEVELS
from sparkbolt.control.logs import LogFormat, TopologyLog, log_path
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.arguments import SECS_MIN, JsonLines, Reference, option
from sparkbolt.faces.cli.display import choose_display, logged
from sparkbolt.faces.cli.locate import load_topology, look_in
from sparkbolt.faces.cli.operate.detaching import detach, ready
from sparkbolt.faces.cli.program import DRAIN_SECS, Limits, log_to, perform


def run(
    topology: Reference,
    master: Annotated[
        str | None, option("the master of Spark, as for spark-submit (default: local[*])", "--master", metavar="M")
    ] = None,
    checkpoint: Annotated[
        str | None,
        option(
            "store state in this directory and resume from it (default: no state is stored)",
            "--checkpoint",
            metavar="DIR",
        ),
    ] = None,
    for_secs: Annotated[
        float | None,
        option(
            "stop after this time, such as 30s, 5m or 1h, counted from the start of Spark",
            "--for",
            metavar="TIME",
            lowest=SECS_MIN,
        ),
    ] = None,
    drain_secs: Annotated[
        float,
        option(
            "the time that a running micro-batch has to finish after Ctrl-C or --for, before it is cancelled and left "
            f"for replay (default: {DRAIN_SECS:g}s)",
            "--drain",
            metavar="TIME",
            lowest=SECS_MIN,
        ),
    ] = DRAIN_SECS,
    json: JsonLines = False,
    conf: Annotated[
        dict[str, str] | None, option("a setting of Spark (repeatable)", "--conf", metavar="KEY=VALUE")
    ] = None,
    py_files: Annotated[
        str,
        option(
            "modules for the executors of a cluster: .py, .zip, .egg, or folders of packages, separated by commas",
            "--py-files",
            metavar="FILES",
        ),
    ] = "",
    log_level: Annotated[
        str, option("the level of the log (default: warning)", "--log-level", choices=LOG_LEVELS)
    ] = "warning",
    log_dir: Annotated[
        str | None,
        option(
            "also write the log and the output of print to rotated files in this directory", "--log-dir", metavar="DIR"
        ),
    ] = None,
    log_format: Annotated[
        str, option("the format of these files (default: text)", "--log-format", choices=("text", "json"))
    ] = "text",
    spark_log: Annotated[bool, option("also write Spark's log to this directory", "--spark-log")] = False,
    in_background: Annotated[
        bool,
        option(
            "run in the background: return when the topology is up or has failed, and write its log to files",
            "--detach",
        ),
    ] = False,
    given: Sequence[str] = (),
    debug: bool = False,
) -> int:
    """Run a topology until it finishes or you press Ctrl-C."""
    files = [path for path in py_files.split(",") if path]
    look_in(files)
    loaded = load_topology(topology)
    if in_background:
        return detach(loaded, given, log_dir, LogFormat.of(log_format))
    display = choose_display(as_json=json)
    with logged(log_level), log_to(log_dir, loaded, log_format) as log:
        if spark_log:
            write_spark_log(log)
        with ready(display) as shown:
            outcome = perform(
                loaded,
                shown,
                Limits(for_secs, drain_secs),
                checkpoint=checkpoint,
                master=master,
                settings=conf or {},
                py_files=files,
            )
    if outcome.error is not None and isinstance(outcome.error, Exception):
        if debug or is_debugging():
            traceback.print_exception(outcome.error)
        elif json:
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
