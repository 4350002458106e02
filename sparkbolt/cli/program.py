"""A run from start to end: what ``sparkbolt run`` and ``topology.run()`` do.

Which question it answers: when does a run end, how, and what is left?
Rule 1: the first Ctrl-C (or SIGTERM) stops new tuples and lets open trees finish; the second stops at once and
leaves them for replay. Signals are only counted where they arrive; the main loop acts on them.
Rule 2: a run has one outcome, and the display hears of it once.

Read before: ``display``.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sparkbolt.core.metrics import TopologyMetrics
from sparkbolt.errors import EngineError, SparkboltError

if TYPE_CHECKING:
    from sparkbolt.cli.display import Display
    from sparkbolt.core.topology import Topology
    from sparkbolt.spark.running import RunningTopology

POLL_SECS = 0.2
EXIT_FINISHED, EXIT_FAILED, EXIT_WRONG_USE, EXIT_SET_ASIDE, EXIT_LEFT = 0, 1, 2, 3, 130


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    kind: Literal["finished", "stopped", "failed"]
    elapsed_s: float
    metrics: TopologyMetrics = field(default_factory=TopologyMetrics)
    drained: bool = False
    """Whether no tree was left open."""
    retries: int = 0
    """Records that wait to be read again; the next start with the same checkpoint does it."""
    failure: str | None = None
    error: BaseException | None = None
    """What a failure is raised from."""
    set_aside: Mapping[str, int] = field(default_factory=dict)
    """How many messages of each spout this run has seen given up; only of those that have some."""
    letters_directory: str = ""
    """Where the dead letters of the checkpoint are."""

    @property
    def exit_code(self) -> int:
        """0: finished, or stopped and drained; 3: the same, with messages set aside; 1: failed; 130: trees are left."""
        if self.kind == "failed":
            return EXIT_FAILED
        if self.kind != "finished" and not self.drained:
            return EXIT_LEFT
        return EXIT_SET_ASIDE if self.set_aside else EXIT_FINISHED


class StopRequests:
    """Counts Ctrl-C and SIGTERM while it is entered; of use in the main thread only, harmless in others."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self.count = 0
        self.may_interrupt = True
        """Whether a second request raises KeyboardInterrupt: while a start, which cannot be stopped, is going on."""

    def _ask(self, *_: Any) -> None:
        self.count += 1
        if self.may_interrupt and self.count > 1:
            raise KeyboardInterrupt

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Take the signals, and give them back at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in before:
            signal.signal(number, self._ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run(
    topology: Topology, *, stop_after_secs: float | None = None, display: Display | None = None, **options: Any
) -> TopologyMetrics:
    """Run a topology until its spouts are exhausted and every tree is finished, or until Ctrl-C.

    Shows what ``sparkbolt run`` shows: a live table on a terminal, a line every few seconds elsewhere, both on
    standard error. The first Ctrl-C (or SIGTERM) stops new tuples and lets open trees finish; the second stops at once.

    Args:
        topology: what to run.
        stop_after_secs: stop as with Ctrl-C after that time; None for never.
        display: what shows the run instead.
        options: those of ``sparkbolt.spark.running.start``.

    Returns:
        The last counters, also of a run that was stopped and drained.

    Raises:
        EngineError: it failed.
        CheckpointError: the checkpoint is corrupt, another topology's, or in use.
        KeyboardInterrupt: it was stopped, and trees were left for replay.
    """
    from sparkbolt.cli.display import choose_display

    outcome = perform(topology, display or choose_display(), stop_after_secs=stop_after_secs, **options)
    if outcome.kind == "failed":
        raise outcome.error if outcome.error is not None else EngineError(outcome.failure)
    if outcome.exit_code == EXIT_LEFT:
        raise KeyboardInterrupt(f"topology {topology.name!r} was stopped, and open trees are left for replay")
    return outcome.metrics


def perform(topology: Topology, display: Display, *, stop_after_secs: float | None = None, **options: Any) -> Outcome:
    """Run a topology to its outcome, and show it."""
    requests = StopRequests()
    began = time.monotonic()
    with requests.caught():
        try:
            display.starting(topology)
            outcome = _start_and_watch(topology, display, requests, stop_after_secs, options, began)
        except KeyboardInterrupt:
            outcome = Outcome("stopped", time.monotonic() - began)
        except SparkboltError as error:
            outcome = Outcome("failed", time.monotonic() - began, failure=str(error), error=error)
        finally:
            display.close()
        display.summary(outcome)
        sys.stderr.flush()
    return outcome


def _start_and_watch(
    topology: Topology,
    display: Display,
    requests: StopRequests,
    stop_after_secs: float | None,
    options: dict[str, Any],
    began: float,
) -> Outcome:
    from sparkbolt.spark import jvm  # only now: pyspark takes its time

    jvm.show_prints(display.printed)
    running: RunningTopology = topology.start(**options)
    requests.may_interrupt = False
    try:
        running.on_micro_batch(lambda report: display.micro_batch(report, running.retries))
        display.started(running)
        until = None if stop_after_secs is None else time.monotonic() + stop_after_secs
        finished, failure = _watch(running, display, requests, until)
        drained = running.stop(drain=False)
        jvm.await_prints()
        if failure is not None:
            log = jvm.keep_log()
            failure += f" (Spark's log: {log})" if log else ""
        return Outcome(
            "failed" if failure is not None else "finished" if finished else "stopped",
            time.monotonic() - began,
            running.metrics(),
            drained,
            running.retries,
            failure,
            set_aside=running.set_aside_here,
            letters_directory=running.dead_letters_directory,
        )
    finally:
        running.close()
        jvm.show_prints(None)


def _watch(
    running: RunningTopology, display: Display, requests: StopRequests, until: float | None
) -> tuple[bool, str | None]:
    """Wait for the end, or for a reason to stop, and then for the open trees: (finished, failure)."""
    try:
        while not (requests.count or display.is_closed or (until is not None and time.monotonic() >= until)):
            if running.await_finished(POLL_SECS):
                return True, None
        display.draining(running.metrics().open_trees, asked=requests.count > 0)
        running.deactivate()
        timeout_secs = running.topology.config.message_timeout_secs
        # A tree dies at most a thirtieth of the timeout late, and its failure needs a micro-batch.
        limit = time.monotonic() + 1.1 * timeout_secs + 10
        while requests.count < 2 and time.monotonic() < limit and not running.await_drained(POLL_SECS):
            pass
    except EngineError as error:
        return False, str(error)
    return False, None
