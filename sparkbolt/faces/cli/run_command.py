"""``sparkbolt run``: runs a topology and shows it, in this process or detached."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

from sparkbolt.api.topology import Topology
from sparkbolt.base.tracebacks import is_debugging
from sparkbolt.control.intent import LOG_LEVELS
from sparkbolt.control.logs import LogFormat, TopologyLog, log_path
from sparkbolt.control.parameters import Parameter
from sparkbolt.driver.ledger.origin import CopyRole
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.check import start_with
from sparkbolt.faces.cli.command_arguments import Secs
from sparkbolt.faces.cli.display import choose_display, logged
from sparkbolt.faces.cli.locate import look_in
from sparkbolt.faces.cli.operate.detaching import ready, start_detached
from sparkbolt.faces.cli.operate.serving import serve_beside
from sparkbolt.faces.cli.program import DRAIN_SECS, Limits, log_to, perform
from sparkbolt.faces.cli.reloading import Reloader
from sparkbolt.faces.cli.resolver import topology_of


def run(
    topology: str,
    *,
    master: str | None = None,
    checkpoint: str | None = None,
    apply: bool = False,
    from_: Annotated[str | None, Parameter(metavar="SAVEPOINT")] = None,
    instead: bool = False,
    beside: bool = False,
    for_: Secs = None,
    drain: Annotated[float, Parameter(lowest=0.001)] = DRAIN_SECS,
    json: bool = False,
    conf: dict[str, str] | None = None,
    py_files: str = "",
    log_level: Annotated[str, Parameter(choices=LOG_LEVELS)] = "warning",
    log_dir: str | None = None,
    log_format: Annotated[str, Parameter(choices=("text", "json"))] = "text",
    spark_log: bool = False,
    detach: bool = False,
    reload: bool = False,
    ui: bool = False,
    given: Sequence[str],
    debug: bool,
) -> int:
    """Run a topology until it finishes or you press Ctrl-C.

    Args:
        topology: its code, such as word_count:topology or word_count.py; or the name of a topology
            that run has started.
        master: the master of Spark, as for spark-submit (default: local[*]).
        checkpoint: store state in this directory and resume from it (default: no state is stored).
        apply: if the topology has changed since the checkpoint was last used, accept the changes that move or drop
            state (without it, run asks on a terminal and otherwise refuses; check --checkpoint lists the changes).
        from_: begin a new --checkpoint as a copy of this savepoint, or of a checkpoint that is not in use.
        instead: with --from: the copy replaces the checkpoint that was copied, which can never be started again.
        beside: with --from: the checkpoint that was copied stays in use, and both use the same servers, queues and
            tables.
        for_: stop after this time, such as 30s, 5m or 1h, counted from the start of Spark.
        drain: the time that a running micro-batch has to finish after Ctrl-C or --for, before it is cancelled and left
            for replay (default: 4s).
        json: print one JSON object per line.
        conf: a setting of Spark (repeatable).
        py_files: modules for the executors of a cluster: .py, .zip, .egg, or folders of packages, separated by commas.
        log_level: the level of the log (default: warning).
        log_dir: also write the log and the output of print to rotated files in this directory.
        log_format: the format of these files (default: text).
        spark_log: also write Spark's log to this directory.
        detach: run in the background: return when the topology is up or has failed, and write its log to files.
        reload: when a file of the code changes, begin again from --checkpoint with the changed code, in the same
            Spark; code with a mistake, or that needs --apply, is reported, and the topology goes on.
        ui: also serve the user interface until the run ends, and print its login link.
        given: the arguments of the command.
        debug: show the traceback of an error.
    """
    files = [path for path in py_files.split(",") if path]
    look_in(files)
    reloader = None
    if reload:
        if checkpoint is None:
            raise WrongUseError("--reload begins again from the checkpoint: add --checkpoint DIR")
        if master is not None and not master.startswith("local"):
            raise WrongUseError(f"--reload needs a local master, such as local[*], and not {master}")
        reloader = Reloader(topology, checkpoint)
    loaded = topology_of(topology) if reloader is None else reloader.load()
    if detach and ui:
        raise WrongUseError("--ui ends with the command: start `sparkbolt ui` beside a topology that is detached")
    if detach:
        return start_detached(loaded, given, log_dir, LogFormat.of(log_format))
    if checkpoint is not None and not apply and sys.stdin.isatty() and sys.stderr.isatty():
        apply = is_decided(loaded, checkpoint)
    if ui:
        serve_beside(lambda text: print(text, file=sys.stderr))
    display = choose_display(as_json=json)
    with logged(log_level), log_to(log_dir, loaded, log_format) as log:
        if spark_log:
            write_spark_log(log)
        with ready(display) as shown:
            outcome = perform(
                loaded,
                shown,
                Limits(for_, drain),
                None if reloader is None else reloader.changed,
                checkpoint=checkpoint,
                master=master,
                settings=conf or {},
                py_files=files,
                apply=apply,
                savepoint=from_,
                copy=role_of(instead=instead, beside=beside),
            )
    if outcome.error is not None and isinstance(outcome.error, Exception):
        if debug or is_debugging():
            traceback.print_exception(outcome.error)
        elif json:
            print(f"sparkbolt: {outcome.failure}", file=sys.stderr)
    return outcome.exit_code


def role_of(*, instead: bool, beside: bool) -> CopyRole | None:
    """What a copy of a checkpoint is for.

    Raises:
        WrongUseError: it cannot be for both.
    """
    if instead and beside:
        raise WrongUseError("a copy goes on instead of the other checkpoint or beside it: give one of the two")
    return CopyRole.INSTEAD if instead else CopyRole.BESIDE if beside else None


def is_decided(topology: Topology, checkpoint: str) -> bool:
    """Ask on the terminal whether to do what needs a decision; False if nothing needs one."""
    if not os.path.isdir(checkpoint):
        return False
    start = start_with(topology, checkpoint, os.cpu_count() or 1)
    if start.is_refused or not any(step.needs_decision for step in start.steps):
        return False
    print(*start.lines(), sep="\n", file=sys.stderr)
    print("start it like this? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def write_spark_log(log: TopologyLog | None) -> None:
    """Let Spark write its own log beside the topology's.

    Raises:
        WrongUseError: the topology's log does not go to files.
    """
    if log is None:
        raise WrongUseError("--spark-log needs --log-dir: add --log-dir DIR")
    os.environ["SPARKBOLT_SPARK_LOG"] = log_path(log.directory, f"{log.topology}.spark")
