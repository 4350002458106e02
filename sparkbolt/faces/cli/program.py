"""Program: a run from start to end, for ``sparkbolt run`` and ``topology.run()``.

The first Ctrl-C (or SIGTERM) stops new tuples and lets open trees finish; the second stops at once and leaves them for
replay. A micro-batch, or a call of user code in the driver, that still runs ``DRAIN_SECS`` after the stop was requested
is cancelled, and its trees are left for replay. Signal handlers only count the signals; the main loop acts on them.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.base.words import Word
from sparkbolt.control.logs import LogFormat, TopologyLog, current_log
from sparkbolt.errors import EngineError, SparkboltError

if TYPE_CHECKING:
    from sparkbolt.api.progress import Progress
    from sparkbolt.api.reports import MicroBatchReport
    from sparkbolt.api.running import RunningTopology
    from sparkbolt.api.topology import Topology
    from sparkbolt.faces.cli.display import Display

POLL_SECS = 0.2
EXIT_FINISHED, EXIT_FAILED, EXIT_WRONG_USE, EXIT_GIVEN_UP, EXIT_LEFT = 0, 1, 2, 3, 130
EXIT_TIME_OVER = 4
"""The exit code if trees or failed records were left for replay when the time of ``--for`` had expired, or when the
topology was killed from outside."""
UNDER_WAY = "an unfinished micro-batch"
"""The work that is left if no tree is open: it was broken off, or its rows wait to be committed."""
UNHEARD = (
    "the reader of its output has closed the pipe, so it was stopped; the next run resumes from the checkpoint, if any"
)
NOT_UP = "before it was up: it has not read anything"
DRAIN_SECS = 4.0
"""How long a micro-batch may run after a stop was requested; then it is cancelled, which takes a second."""
log = logging.getLogger("sparkbolt")


class RunEnd(Word):
    """How a run ended, in one word."""

    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    kind: RunEnd
    elapsed_s: float
    metrics: TopologyMetrics = field(default_factory=TopologyMetrics)
    drained: bool = False
    """Whether no tree was left open."""
    retries: int = 0
    """How many records wait for a retry; the next start with the same checkpoint retries them."""
    failure: str | None = None
    error: BaseException | None = None
    """The error of a failed run, if the run has raised one."""
    broken_off: int | None = None
    """The number of the micro-batch that was cancelled."""
    time_over: bool = False
    """Whether it stopped because its time had expired, and not because of a signal."""
    killed: str | None = None
    """The user who killed it from outside, as in "killed by alice"; None if nobody did."""
    checkpointed: bool = True
    """Whether there is a checkpoint from which the next run can go on."""
    given_up: Mapping[str, int] = field(default_factory=dict)
    """How many messages of each spout this run has given up; only spouts with at least one."""
    committed: int | None = None
    """How many micro-batches this run has committed; None if they were not counted."""
    letters_directory: str = ""
    """The directory of the checkpoint's dead letters."""
    up: bool = True
    """Whether the topology had started; otherwise nothing is known of what its checkpoint holds, nor has it changed."""

    @property
    def exit_code(self) -> int:
        """The exit code of the process.

        0: finished, or stopped with nothing left; 3: the same, but messages were given up; 1: failed. If anything is
        left for replay: 4 if the time of ``--for`` has expired, or if it was killed from outside, otherwise 130. Open
        trees are left for replay, and records that failed and wait for a retry.
        """
        if self.kind == RunEnd.FAILED:
            return EXIT_FAILED
        if self.kind != RunEnd.FINISHED and (not self.drained or self.retries):
            return EXIT_TIME_OVER if self.time_over or self.killed is not None else EXIT_LEFT
        return EXIT_GIVEN_UP if self.given_up else EXIT_FINISHED


class StopRequests:
    """Counts Ctrl-C and SIGTERM inside of ``caught``; in any other thread than the main one it does nothing."""

    def __init__(self) -> None:
        """Begin with no request."""
        self.count = 0
        self.may_interrupt = True
        """Whether a second request raises KeyboardInterrupt: true during the start, which cannot be stopped otherwise.

        If the start takes longer than ``DRAIN_SECS`` after the first request, because a source is unavailable, a second
        request follows by itself.
        """

    def _ask(self, *_: Any) -> None:
        self.count += 1
        if not self.may_interrupt:
            return
        if self.count > 1:
            raise KeyboardInterrupt
        again = threading.Timer(DRAIN_SECS, self._ask_again)
        again.daemon = True
        again.start()

    def _ask_again(self) -> None:
        if self.may_interrupt and self.count == 1:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Handle the signals, and restore the previous handlers at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._ask)
        try:
            yield
        finally:
            self.may_interrupt = False
            for number, handler in before.items():
                signal.signal(number, handler)


class Patience:
    """How long a micro-batch, or a call in the driver, may still run after a stop was requested.

    >>> patience = Patience(4)
    >>> patience.is_over(7, now_s=100), patience.is_over(7, now_s=103), patience.is_over(7, now_s=104)
    (False, False, True)
    >>> patience.is_over(8, now_s=104), patience.is_over(None, now_s=200)
    (False, False)
    """

    def __init__(self, secs: float) -> None:
        """Wait at most ``secs`` for each of them."""
        self._secs = secs
        self._of: object = None
        self._until_s = 0.0

    def is_over(self, runs: object, now_s: float) -> bool:
        """Whether the time of the present work has expired.

        Args:
            runs: identifies the micro-batch or the call that runs; None if none runs.
            now_s: the current time in seconds of the monotonic clock.
        """
        if runs != self._of:
            self._of, self._until_s = runs, now_s + self._secs
        return runs is not None and now_s >= self._until_s


@dataclass(frozen=True)
class Limits:
    """How long a run may take."""

    stop_after_secs: float | None = None
    """Stop after so many seconds, counted from when Spark runs the topology; None for no limit."""
    drain_secs: float = DRAIN_SECS
    """How long a micro-batch may still run after a stop was requested."""


def run(
    topology: Topology,
    *,
    stop_after_secs: float | None = None,
    drain_secs: float = DRAIN_SECS,
    display: Display | None = None,
    log_dir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> TopologyMetrics:
    """Run a topology until its spouts are exhausted and every tree is finished, or until Ctrl-C.

    It shows the same as ``sparkbolt run``: a live table on a terminal, otherwise a line every few seconds, both on
    standard error. The first Ctrl-C (or SIGTERM) stops new tuples and lets open trees finish; the second stops at once.

    Args:
        topology: the topology to run.
        stop_after_secs: stop, as with Ctrl-C, after so many seconds, counted from when Spark is up; None for never.
        drain_secs: how long a micro-batch may still run then; after that it is cancelled and left for replay.
        display: the display to use instead.
    =======
        log_dir: the directory of files to which the log and what is printed are written, too; None for no files.
        options: further arguments of ``sparkbolt.spark.starting.start``.

    Returns:
        The last counters, also of a run that was stopped and drained.

    Raises:
        EngineError: the topology failed.
        CheckpointError: the checkpoint is corrupt, belongs to another topology, or is in use.
        RunStopped: the run was stopped, and open trees, or records that wait for a retry, were left for replay. It is a
            ``KeyboardInterrupt``. A program that does not catch it ends without a traceback, with exit code 4 if
            ``stop_after_secs`` have expired, otherwise with 130.
    """
    from sparkbolt.faces.cli.display import choose_display

    display = display or choose_display()
    with log_to(log_dir, topology):
        outcome = perform(topology, display, Limits(stop_after_secs, drain_secs), **options)
    if outcome.kind == RunEnd.FAILED:
        raise outcome.error if outcome.error is not None else EngineError(outcome.failure)
    if outcome.exit_code in (EXIT_LEFT, EXIT_TIME_OVER):
        raise RunStopped(topology.name, outcome)
    return outcome.metrics


class RunStopped(SystemExit, KeyboardInterrupt):
    """A run was stopped and left something for replay; a program that does not catch it ends as ``sparkbolt run``."""

    def __init__(self, name: str, outcome: RunOutcome) -> None:
        """Make the message about the work that is left. The display has already shown more."""
        left = f"{outcome.retries} records that failed are" if outcome.drained else "open trees are"
        then = "left for replay" if outcome.checkpointed else "lost, because it has no checkpoint"
        why = f", and {left} {then}" if outcome.up else f" {NOT_UP}"
        super().__init__(f"topology {name!r} was stopped{why}")
        self.code = outcome.exit_code


@contextmanager
def log_to(
    directory: str | os.PathLike[str] | None, topology: Topology, form: str = LogFormat.TEXT
) -> Iterator[TopologyLog | None]:
    """Inside of the block, write the topology's log to files in ``directory``, if it is not None.

    Raises:
        LogInUseError: another process writes the log of a topology of this name there.
        SparkboltError: the files cannot be written.
    """
    if directory is None:
        yield None
        return
    with TopologyLog(directory, topology.name, LogFormat.of(form)) as log:
        yield log


@contextmanager
def _prints_logged() -> Iterator[None]:
    """Inside of the block, the output of this process goes to its log, too, if it writes one."""
    log = current_log()
    with log.prints_taken() if log is not None else nullcontext():
        yield


ChangedCode = Callable[["Topology"], "Topology | None"]
"""Gets the topology that runs; returns the one with which it begins again, or None as long as it goes on."""


def perform(
    topology: Topology,
    display: Display,
    limits: Limits | None = None,
    changed: ChangedCode | None = None,
    **options: Any,
) -> RunOutcome:
    """Run a topology to its end, show it, and return its outcome.

    With ``changed``, which is asked a few times per second, it begins again from the checkpoint with changed code.
    """
    limits = limits or Limits()
    requests = StopRequests()
    began = time.monotonic()
    with requests.caught():
        try:
            log = current_log()
            if log is not None and not display.logs:
                log.write("INFO", f"{topology.name}: starting Spark")
            display.starting(topology)
            with _prints_logged():
                outcome = _run_to_the_end(topology, display, requests, limits, changed, options, began)
        except KeyboardInterrupt:
            outcome = RunOutcome(RunEnd.STOPPED, time.monotonic() - began, up=False)
        except BrokenPipeError:  # of a display that does not notice it itself
            outcome = RunOutcome(RunEnd.FAILED, time.monotonic() - began, failure=UNHEARD)
        except SparkboltError as error:
            outcome = RunOutcome(RunEnd.FAILED, time.monotonic() - began, failure=str(error), error=error)
        finally:
            display.close()
        display.summary(outcome)
        with suppress(BrokenPipeError):
            sys.stderr.flush()
    if not display.logs:
        _log_end(topology, outcome)
    return outcome


def _log_end(topology: Topology, outcome: RunOutcome) -> None:
    """Write how a run ended to its log, if it has one."""
    from sparkbolt.faces.cli.display import closing_lines

    log = current_log()
    if log is not None:
        for line in closing_lines(outcome, topology):
            log.write("ERROR" if outcome.kind == RunEnd.FAILED else "INFO", line)


def _run_to_the_end(
    topology: Topology,
    display: Display,
    requests: StopRequests,
    limits: Limits,
    changed: ChangedCode | None,
    options: dict[str, Any],
    began: float,
) -> RunOutcome:
    """Run a topology, and each topology that follows it because the code has changed."""
    outcome, end = _start_and_watch(topology, display, requests, limits, changed, options, began)
    after = end.followed_by
    earlier = Counter(outcome.given_up)
    committed = outcome.committed or 0
    while after is not None and changed is not None:
        topology, limits = after, replace(limits, stop_after_secs=end.left_secs)
        display.reloaded(topology)
        requests.may_interrupt = True
        # The session and the checkpoint are there, and what the first start decided is done.
        again = {name: value for name, value in options.items() if name not in ("master", "settings", "apply")}
        try:
            outcome, end = _start_and_watch(topology, display, requests, limits, changed, again, began)
        except SparkboltError as error:
            log.error("the changed code cannot be started, so the topology waits for the next change: %s", error)
            after = None
            while after is None and not (requests.count or display.is_closed):
                time.sleep(POLL_SECS)
                after = changed(topology)
            if after is None:
                raise
            continue
        after = end.followed_by
        earlier.update(outcome.given_up)
        committed += outcome.committed or 0
    return replace(outcome, given_up=dict(earlier), committed=committed)


def _start_and_watch(
    topology: Topology,
    display: Display,
    requests: StopRequests,
    limits: Limits,
    changed: ChangedCode | None,
    options: dict[str, Any],
    began: float,
) -> tuple[RunOutcome, _End]:
    """Run a topology until it ends, or until its code has changed."""
    from sparkbolt.spark import jvm  # imported here, since the import of pyspark is slow

    jvm.show_prints(display.printed)
    if limits.stop_after_secs is not None:
        options = {"open_secs": limits.stop_after_secs, **options}
    running: RunningTopology = topology.start(**options)
    requests.may_interrupt = False
    committed = 0
    exit_code = EXIT_FAILED

    def heard(report: MicroBatchReport) -> None:
        nonlocal committed
        committed += 1
        display.micro_batch(report, running.retries)

    try:
        running.on_micro_batch(heard)
        display.started(running)
        end = _watch(running, display, requests, limits, changed)
        failure = end.failure
        drained = running.stop(drain=False)
        jvm.await_prints()
        if failure is not None:
            log = jvm.keep_log()
            failure += f" (Spark's log: {log})" if log else ""
        outcome = RunOutcome(
            RunEnd.FAILED if failure is not None else RunEnd.FINISHED if end.finished else RunEnd.STOPPED,
            time.monotonic() - began,
            running.metrics(),
            drained,
            running.retries,
            failure,
            broken_off=None if drained else end.broken_off,
            time_over=end.time_over,
            killed=end.killed,
            checkpointed=options.get("checkpoint") is not None,
            given_up=running.given_up_here,
            committed=committed,
            letters_directory=running.dead_letters_directory,
        )
        exit_code = EXIT_FINISHED if end.followed_by is not None else outcome.exit_code
        return outcome, end
    finally:
        running.close()
        running.exits(exit_code)
        jvm.show_prints(None)


@dataclass(frozen=True)
class _End:
    """Why the run ended."""

    finished: bool = False
    failure: str | None = None
    broken_off: int | None = None
    time_over: bool = False
    killed: str | None = None
    followed_by: Topology | None = None
    """The topology of changed code, which begins again from the checkpoint."""
    left_secs: float | None = None
    """How much of the time of ``--for`` is left for it."""


def _runs(progress: Progress) -> object:
    """The work that a stop waits for: the running micro-batch, else a call in the driver; None if neither runs."""
    if progress.micro_batch_id is not None:
        return progress.micro_batch_id
    return next((("call", one.doing.serial) for one in progress.calls if one.waited_for), None)


def _watch(
    running: RunningTopology,
    display: Display,
    requests: StopRequests,
    limits: Limits,
    changed: ChangedCode | None,
) -> _End:
    """Wait until the topology ends or must stop; in the second case wait for the open trees, too."""
    until = None if limits.stop_after_secs is None else time.monotonic() + limits.stop_after_secs
    time_over = False
    try:
        while not (requests.count or display.is_closed or time_over):
            if running.killed is not None:
                return _watch_killed(running, display, requests)
            if running.await_finished(POLL_SECS):
                return _End(finished=True)
            after = changed(running.topology) if changed is not None else None
            if after is not None:
                left_secs = None if until is None else max(0.001, until - time.monotonic())
                return _End(followed_by=after, left_secs=left_secs)
            display.look(running)
            time_over = until is not None and time.monotonic() >= until
        trouble = running.trouble if time_over else None  # read before the spouts are deactivated, which may hide it
        display.draining(running.metrics().open_trees, asked=requests.count > 0)
        running.deactivate()
        patience = Patience(limits.drain_secs)
        timeout_secs = running.topology.config.message_timeout_secs
        # A tree times out at most a thirtieth of the timeout late, and its failure needs one more micro-batch.
        limit = time.monotonic() + 1.1 * timeout_secs + 10
        while requests.count < 2 and time.monotonic() < limit and not running.await_drained(POLL_SECS):
            runs = _runs(running.progress())
            if patience.is_over(running.waits_for if runs is None else runs, time.monotonic()):
                break
            display.look(running)
        if time_over and not requests.count:
            calls = (one for one in running.progress().calls if one.waited_for and one.secs >= limits.drain_secs)
            trouble = trouble or next((one.sentence() for one in calls), None)
            waits = running.waits_for
            trouble = trouble or (
                waits
                and f"it did not start in time: {waits}; use a longer time, or find out why the start takes so long"
            )
            if trouble is not None:
                return _End(failure=f"when its time was over: {trouble}")
        # The caller ignores ``broken_off`` if the run is drained after all.
        asked = requests.count > 0
        if display.is_closed and not asked and not time_over:
            return _End(failure=UNHEARD)
        return _End(broken_off=running.progress().micro_batch_id, time_over=time_over and not asked)
    except EngineError as error:
        if running.killed is not None and running.failure is None:
            return _End(killed=running.killed)
        return _End(failure=str(error))


def _watch_killed(running: RunningTopology, display: Display, requests: StopRequests) -> _End:
    """Wait until a topology that was killed from outside has ended by itself; Ctrl-C ends it at once."""
    display.draining(running.metrics().open_trees, asked=True)
    while running.is_running and not requests.count:
        display.look(running)
        time.sleep(POLL_SECS)
    return _End(killed=running.killed, failure=running.failure)
