"""Spout threads: where the tasks of a ``Spout`` live.

Rule: all calls of one task come from its own thread. An exception of user code is reported and followed by a pause; it
never ends the topology.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cloudpickle

from sparkbolt.api.components import Spout, TopologyContext
from sparkbolt.api.reports import ErrorReport
from sparkbolt.base.exceptions import line_of, reason_of
from sparkbolt.driver.lifecycle import Lifecycle
from sparkbolt.driver.spout_buffer import Emitted, SpoutBuffer
from sparkbolt.layout.lane import Lane
from sparkbolt.spark.job_bundle import JobBundle
from sparkbolt.spark.user_calls import CLOSE_SECS, Calls
from sparkbolt.wire.plan import Record
from sparkbolt.worker.collectors import SpoutRecordCollector
from sparkbolt.worker.emissions import Output
from sparkbolt.worker.returned_values import refuse_of_spout
from sparkbolt.worker.routing import routes_of
from sparkbolt.worker.worker import context_of

IDLE_SECS = 0.01
PAUSE_SECS_MIN = 0.1
PAUSE_SECS_MAX = 10.0
_THEN = {
    "ack": "what it was told stays told, and the spout goes on after a pause",
    "fail": "what it was told stays told, and the spout goes on after a pause",
    "close": "it is taken for closed",
}
"""By method, what happens after an exception; any other method is called again after a pause."""
log = logging.getLogger("sparkbolt")


@dataclass(frozen=True)
class SpoutFailure:
    """An exception that a method of a spout task raised."""

    component: str
    task: int
    method: str
    error: BaseException

    def __str__(self) -> str:
        """The method, the task, the exception, and what happens next."""
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
                context_of(lane, number, checkpoint_id=bundle.checkpoint_id),
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


class SpoutThread:
    """One task of a ``Spout``."""

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
            spout: the task's own copy.
            context: the context of the task.
            output: the streams on which it emits.
            buffer: the spout buffer, in which its records wait for a plan.
            calls: the user calls of the topology; their lock guards the buffer, and is notified when new records wait.
            lifecycle: the state of the topology, which says whether the spout may emit.
            tracked: whether the topology has ackers.
            report: called with each exception of user code.
            tell: called with each error that the spout itself reports.
        """
        self.spout = spout
        self._context = context
        self._output = output
        self._collector = SpoutRecordCollector(output)
        self._buffer = buffer
        self._lock = calls.changed
        self._tracked = tracked
        self._report = report
        self._tell = tell
        self._calls = calls
        self._lifecycle = lifecycle
        self._at: tuple[str, float] | None = None
        """The method of the spout that runs, and its start on the monotonic clock; None if none runs."""
        self._is_active = False
        """Whether the spout was activated, and not deactivated since."""
        self._stop = threading.Event()
        self._is_open = False
        self.trouble: str | None = None
        """Why the spout does not emit, in a sentence; None if it is open, or is being opened for the first time."""
        self._pauses: dict[str, float] = {}
        """By method, how many seconds the next pause lasts; one method's success does not reset another's pause."""
        self._thread = threading.Thread(
            target=self._run, name=f"spout-{context.component}-{context.index}", daemon=True
        )

    @property
    def name(self) -> str:
        """The task's name in messages."""
        return f"{self._context.component}[{self._context.index}]"

    def start(self) -> None:
        """Start the thread, which opens the spout and begins to emit."""
        self._thread.start()

    def go_on_with(self, buffers: Mapping[int, SpoutBuffer]) -> None:
        """Use the buffer of a new life, which has taken over the old buffer's content; called under the lock."""
        self._buffer = buffers[self._buffer.number]

    def close(self, wait_secs: float = CLOSE_SECS) -> None:
        """Stop the thread and close the spout, if it was opened."""
        close_all([self], wait_secs)

    def _run(self) -> None:
        try:
            self._live()
        except BaseException as error:  # a defect of Sparkbolt, since only ``_call`` runs user code
            self.trouble = f"the thread of spout {self.name} has ended by {line_of(error)}"
            log.exception("%s; nothing more is read from it until the topology is started again", self.trouble)

    def _live(self) -> None:
        while not self._is_open and not self._stop.is_set():
            self._is_open = self._call("open", self.spout.open, self._context)
        self.trouble = None
        if self._is_open:
            self._lifecycle.opened(self.name)
        while not self._stop.is_set():
            self._verdicts()
            emits = self._lifecycle.emits
            if emits != self._is_active:
                self._is_active = emits
                self._call("activate", self.spout.activate) if emits else self._call(
                    "deactivate", self.spout.deactivate
                )
            exhausted = self._is_exhausted()
            with self._lock:
                self._buffer.exhausted = exhausted and not self._collector.records
                may_read = emits and self._buffer.open_for_more and not self._buffer.exhausted
                self._collector.room = self._buffer.room
            if not may_read or not self._next():
                self._stop.wait(IDLE_SECS)
        self._verdicts()
        if self._is_open:
            self._call("close", self.spout.close)

    def _verdicts(self) -> None:
        while True:
            with self._lock:
                buffer = self._buffer
                if buffer.acks:
                    call, message_id = self.spout.ack, buffer.acks[0]
                elif buffer.fails:
                    call, message_id = self.spout.fail, buffer.fails[0]
                else:
                    return
                acked = bool(buffer.acks)
            self._call("ack" if acked else "fail", call, message_id)
            with self._lock:  # removed only now, so that the topology is not idle before the spout is notified
                buffer = self._buffer  # the buffer may be that of a new life, which has taken over this verdict
                (buffer.acks if acked else buffer.fails).popleft()

    def _next(self) -> bool:
        """Call ``next_tuple``; returns whether it emitted anything."""
        self._call("next_tuple", self.spout.next_tuple, self._collector)
        return self._hand_over()

    def _hand_over(self) -> bool:
        records = self._collector.records
        if not records:
            return False
        bytes_max = self._context.config.tuple_bytes_max
        given = [
            Emitted(Record.of(stream, values, self._tracked and message_id is not None, task, bytes_max), message_id)
            for stream, values, message_id, task in records
        ]
        with self._lock:
            self._buffer.waiting.extend(given)
            self._lock.notify_all()
        self._collector.records = []
        return True

    def _is_exhausted(self) -> bool:
        """Whether the spout is exhausted and never emits again; False if ``exhausted`` raises."""
        try:
            with self._in("exhausted"):
                exhausted = bool(self.spout.exhausted)
        except BaseException as error:  # noqa: BLE001  as in ``_call``
            self._raised("exhausted", error)
            return False
        self._pauses.pop("exhausted", None)
        return exhausted

    def _call(self, what: str, call: Callable[..., Any], *arguments: Any) -> bool:
        """Call user code, which may raise anything: ``sys.exit`` ends neither the thread nor the topology."""
        try:
            with self._in(what):
                refuse_of_spout(call(*arguments), what, self._context.component)
        except BaseException as error:  # noqa: BLE001
            self._tell_reported()
            self._raised(what, error)
            return False
        self._tell_reported()
        self._pauses.pop(what, None)
        if self._collector.records and what != "next_tuple":
            self._hand_over()
        return True

    @contextmanager
    def _in(self, what: str) -> Iterator[None]:
        """Note that a method of the spout runs."""
        self._at = what, time.monotonic()
        try:
            with self._calls.at(f"{what} of spout {self.name}", waited_for=what in ("ack", "fail")):
                yield
        finally:
            self._at = None

    def _raised(self, what: str, error: BaseException) -> None:
        failure = SpoutFailure(self._context.component, self._context.index, what, error)
        if not self._is_open:
            self.trouble = str(failure)
        self._report(failure)
        pause = self._pauses.get(what, PAUSE_SECS_MIN)
        self._pauses[what] = min(2 * pause, PAUSE_SECS_MAX)
        self._stop.wait(pause)

    def _tell_reported(self) -> None:
        for error in self._output.errors:
            self._tell(ErrorReport(self._context.component, self._context.index, *reason_of(error)))
        self._output.errors.clear()
