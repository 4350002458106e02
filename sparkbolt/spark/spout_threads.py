"""Spout threads: run the tasks of a ``Spout`` in the driver.

All calls of one task come from its own thread. An exception of user code is reported and followed by a pause; it never
ends the topology.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import cloudpickle

from sparkbolt.api.components import Spout, TopologyContext
from sparkbolt.api.reports import ErrorReport
from sparkbolt.base.exceptions import line_of
from sparkbolt.driver.lifecycle import Lifecycle
from sparkbolt.driver.spout_buffer import SpoutBuffer
from sparkbolt.layout.lane import Lane
from sparkbolt.spark.job_bundle import JobBundle
from sparkbolt.spark.user_calls import CLOSE_SECS, Calls
from sparkbolt.worker.emissions import Output
from sparkbolt.worker.routing import routes_of
from sparkbolt.worker.spout_task import SpoutTask
from sparkbolt.worker.worker import context_of

IDLE_SECS = 0.01
PAUSE_SECS_MIN = 0.1
PAUSE_SECS_MAX = 10.0
_THEN = {
    "ack": "what it was told stays told, and the spout goes on after a pause",
    "fail": "what it was told stays told, and the spout goes on after a pause",
    "close": "it is taken for closed",
}
"""By method, the consequence of an exception; any other method is called again after a pause."""
log = logging.getLogger("sparkbolt")


@dataclass(frozen=True)
class SpoutFailure:
    """An exception that a method of a spout task raised."""

    component: str
    task: int
    method: str
    error: BaseException

    def __str__(self) -> str:
        """The method, the task, the exception, and the consequence."""
        then = _THEN.get(self.method, "it is called again after a pause")
        return f"{self.method} of spout {self.component}[{self.task}] raised {line_of(self.error)}; {then}"


def close_all(threads: Sequence[SpoutThread], wait_secs: float = CLOSE_SECS) -> None:
    """Stop threads; each closes its spout if it was opened. All of them together get ``wait_secs``."""
    for thread in threads:
        thread._stop.set()
    until = time.monotonic() + wait_secs
    for thread in threads:
        thread._thread.join(max(0.0, until - time.monotonic()))
    for thread in threads:
        if thread._thread.is_alive():
            what, since_s = thread._at or ("a call", until - wait_secs)
            secs = time.monotonic() - since_s
            log.warning(
                "%s of spout %s has not returned for %.0f s: it is left behind, and the spout is not closed",
                what,
                thread.name,
                secs,
            )


def threads_of(
    lane: Lane,
    bundle: JobBundle,
    buffers: Mapping[int, SpoutBuffer],
    calls: Calls,
    lifecycle: Lifecycle,
    *,
    report: Callable[[SpoutFailure], None],
    tell: Callable[[ErrorReport], None],
) -> list[SpoutThread]:
    """The tasks of each ``Spout`` of a topology; arguments as those of ``SpoutThread``."""
    topology, threads = lane.topology, []
    for spec in topology.spouts:
        for number in topology.tasks(spec.id) if isinstance(spec.component, Spout) else ():
            thread = SpoutThread(
                cloudpickle.loads(bundle.components[spec.id]),
                context_of(lane, number, checkpoint_id=bundle.checkpoint_id, recorder=calls.metrics.recorder),
                Output(spec.id, routes_of(topology, spec.id, frozenset(), number)),
                buffers[number],
                calls,
                lifecycle,
                tracked=lane.tracked,
                report=report,
                tell=tell,
            )
            threads.append(thread)
    return threads


class SpoutThread(SpoutTask):
    """One task of a ``Spout``, with its thread."""

    def __init__(
        self,
        spout: Spout,
        context: TopologyContext,
        output: Output,
        buffer: SpoutBuffer,
        calls: Calls,
        lifecycle: Lifecycle,
        *,
        tracked: bool,
        report: Callable[[SpoutFailure], None],
        tell: Callable[[ErrorReport], None],
    ) -> None:
        """Prepare the task; ``start`` starts the thread and opens the spout.

        Args:
            spout: as in ``SpoutTask``.
            context: as in ``SpoutTask``.
            output: as in ``SpoutTask``.
            buffer: as in ``SpoutTask``.
            calls: the user calls of the topology; their lock guards the buffer, and is notified when new records wait.
            lifecycle: the state of the topology, which decides whether the spout may emit.
            tracked: whether the topology has ackers.
            report: called with each exception of user code.
            tell: called with each error that the spout itself reports.
        """
        super().__init__(spout, context, output, buffer, tracked=tracked, lock=calls.changed)
        self.name = f"{context.component}[{context.index}]"
        """The task's name in messages."""
        self.number = buffer.number
        self._report = report
        self._tell = tell
        self._calls = calls
        self._lifecycle = lifecycle
        self._at: tuple[str, float] | None = None
        """The method of the spout that runs, and its start on the monotonic clock; None if none runs."""
        self._stop = threading.Event()
        self.trouble: str | None = None
        """Why the spout does not emit, in a sentence; None if it is open, or is being opened for the first time."""
        self._pauses: dict[str, float] = {}
        """By method, how many seconds the next pause lasts; one method's success does not reset another's pause."""
        self._thread = threading.Thread(
            target=self._run, name=f"spout-{context.component}-{context.index}", daemon=True
        )

    def start(self) -> None:
        """Start the thread, which opens the spout and begins to emit."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and not self.open():
                pass
            self.trouble = None
            if self.is_open:
                self._lifecycle.opened(self.name)
            while not self._stop.is_set():
                if not self.take_turn(self._lifecycle.emits):
                    self._stop.wait(IDLE_SECS)
            self.close()
        except BaseException as error:  # a defect of Sparkbolt, since only ``SpoutTask`` runs user code
            self.trouble = f"the thread of spout {self.name} has ended by {line_of(error)}"
            log.exception("%s; nothing more is read from it until the topology is started again", self.trouble)

    @contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """Note that a method of the spout runs."""
        self._at = method, time.monotonic()
        try:
            with self._calls.at(f"{method} of spout {self.name}", waited_for=method in ("ack", "fail")):
                yield
        finally:
            self._at = None
        self._pauses.pop(method, None)

    def emitted(self) -> None:
        """Wake the threads that wait for new records."""
        self._calls.wake()

    def raised(self, method: str, error: BaseException) -> None:
        """Report an exception, and pause."""
        failure = SpoutFailure(self.context.component, self.context.index, method, error)
        if not self.is_open:
            self.trouble = str(failure)
        self._report(failure)
        pause = self._pauses.get(method, PAUSE_SECS_MIN)
        self._pauses[method] = min(2 * pause, PAUSE_SECS_MAX)
        self._stop.wait(pause)

    def reported(self, report: ErrorReport) -> None:
        """Pass on an error that the spout reports."""
        self._tell(report)
