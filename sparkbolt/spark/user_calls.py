"""User calls: the user code that runs in the driver, and the threads that wait for it.

Rule 1: a thread that waits for such a call releases the lock, so that all other threads go on.
Rule 2: all calls of one spout come from one thread, one after the other; so do all calls of listeners.
Rule 3: when the topology stops, a call gets a short time to return. After that the waiting thread gets ``NotReturned``,
the call is abandoned in its thread, and its result is ignored.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from sparkbolt.api.metric_handles import MetricsRecorder
from sparkbolt.api.progress import CallSight, Doing
from sparkbolt.base.exceptions import end_if_forked, printed
from sparkbolt.driver.driver_metrics import DriverMetrics
from sparkbolt.errors import EngineError
from sparkbolt.spark.activity_pages import frames_of_threads, line_of

LEAVE_SECS = 0.5
"""How long a call may still take after the topology stops; then the waiting thread continues without it."""
CLOSE_SECS = 5.0
"""How long a spout may take, after the topology stops, to return from its last call and to close."""
log = logging.getLogger("sparkbolt")


class NotReturned(EngineError):  # noqa: N818  a state
    """A call of user code has not returned in time and was abandoned."""


class Calls:
    """The calls of one topology in this process."""

    def __init__(self, changed: threading.Condition) -> None:
        """Begin without calls; ``changed`` guards the coordinator, and threads wait on it for the end of a call."""
        self.changed = changed
        self.stopping = threading.Event()
        """Set when everything that runs for the topology begins to end."""
        self.ended_s = math.inf
        """When the topology was stopped, or when its start is given up; in seconds of the monotonic clock."""
        self.metrics = DriverMetrics(MetricsRecorder(time.monotonic, lambda: time.time() * 1000, threading.Lock()))
        """What user code records in the driver."""
        self._serials = count(1)
        self._now: dict[int, tuple[str, float, int, bool]] = {}

    @contextmanager
    def at(self, what: str, *, waited_for: bool = False) -> Iterator[None]:
        """Record that this thread is in a call of user code.

        Args:
            what: the call, in words.
            waited_for: whether the engine waits for its end.
        """
        serial, process = next(self._serials), os.getpid()
        self._now[serial] = what, time.monotonic(), threading.get_ident(), waited_for
        try:
            yield
        finally:
            end_if_forked(process)
            del self._now[serial]

    @property
    def has_this_thread(self) -> bool:
        """Whether the current thread is in user code that the topology called (a spout or a listener)."""
        return any(thread == threading.get_ident() for _, _, thread, _ in self._now.copy().values())

    def sights(self) -> dict[str, CallSight]:
        """The calls that have not returned, the oldest first; never waits for one of them."""
        if not self._now:
            return {}
        now_s, frames = time.monotonic(), frames_of_threads()
        return {
            f"call {serial}": CallSight(
                Doing(serial, since_s=since_s),
                now_s - since_s,
                where=line_of(frames.get(thread)),
                what=what,
                waited_for=waited_for,
            )
            for serial, (what, since_s, thread, waited_for) in self._now.copy().items()
        }

    def break_off(self) -> None:
        """Note that the topology stops, and wake all threads that wait for a call."""
        self.stopping.set()
        with self.changed:
            self.ended_s = min(self.ended_s, time.monotonic())
            self.changed.notify_all()

    def wake(self) -> None:
        """Wake all threads that wait for something to change."""
        with self.changed:
            self.changed.notify_all()


@dataclass(eq=False)
class Job:
    """A requested call of user code."""

    what: str
    function: Callable[[], Any]
    quiet: bool = False
    """Whether no thread waits for its end."""
    future: Future[Any] = field(default_factory=Future)
    """The result; cancelled if the thread that waited for it continues before the call has begun."""


class Caller:
    """A thread that calls user code; it starts with the first call."""

    def __init__(self, calls: Calls, name: str) -> None:
        """Prepare a thread named ``name``; it starts with the first call."""
        self._calls = calls
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._at: tuple[str, float] | None = None
        self._ended_s = math.inf

    @property
    def is_current(self) -> bool:
        """Whether the current thread is this caller's thread."""
        return threading.current_thread() is self._thread

    def ask(self, what: str, function: Callable[[], Any], patience_secs: float = math.inf) -> Any:
        """Call a function in the thread, and wait for it without the lock.

        Args:
            what: the call, in words.
            function: the function to call.
            patience_secs: how long the call may take; an earlier call that still runs counts from its start.

        Raises:
            NotReturned: the call takes longer, or the topology stops meanwhile and ``LEAVE_SECS`` pass.
            BaseException: any exception that the function raises.
        """
        until_s = self._since_s() + patience_secs
        return self._wait(what, function, lambda: min(until_s, self._calls.ended_s + LEAVE_SECS, self._leave_s))

    def later(self, what: str, function: Callable[[], Any]) -> Future[Any]:
        """Call a function in the thread, and return its future without waiting."""
        job = Job(what, function, quiet=True)
        self._put(job)
        return job.future

    def end(self, what: str = "", function: Callable[[], Any] = lambda: None) -> None:
        """Call a last function and end the thread; threads that wait for an earlier call go on after ``LEAVE_SECS``.

        Raises:
            NotReturned: the last function, or the call before it, takes longer than ``CLOSE_SECS``.
            BaseException: any exception that the function raises.
        """
        now_s = time.monotonic()
        with self._calls.changed:
            self._ended_s = now_s
            self._calls.changed.notify_all()
        until_s = max(self._since_s() + CLOSE_SECS, now_s + LEAVE_SECS)
        try:
            self._wait(what, function, lambda: until_s)
        finally:
            self._jobs.put(None)

    @property
    def _leave_s(self) -> float:
        return self._ended_s + LEAVE_SECS

    def _since_s(self) -> float:
        """The start of the current call in seconds of the monotonic clock; the current time if there is none."""
        at = self._at
        return time.monotonic() if at is None else at[1]

    def _wait(self, what: str, function: Callable[[], Any], until: Callable[[], float]) -> Any:
        job = Job(what, function)
        changed = self._calls.changed
        with changed:
            self._put(job)
            try:
                while not job.future.done():
                    left = until() - time.monotonic()
                    if left <= 0:
                        raise self._not_returned(what)
                    changed.wait(None if left == math.inf else left)
            finally:
                job.future.cancel()
        return job.future.result()

    def _not_returned(self, what: str) -> NotReturned:
        called, since_s = self._at or (what, time.monotonic())
        return NotReturned(f"{called} has not returned for {time.monotonic() - since_s:.0f} s")

    def _put(self, job: Job) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.future.set_running_or_notify_cancel():
                continue
            self._at = job.what, time.monotonic()
            value: Any = None
            raised: BaseException | None = None
            with self._calls.at(job.what, waited_for=True):
                try:
                    value = job.function()
                except BaseException as error:  # noqa: BLE001  user code; raised in the waiting thread
                    raised = error
            self._at = None
            job.future.set_result(value) if raised is None else job.future.set_exception(raised)
            if not job.quiet:
                with self._calls.changed:
                    self._calls.changed.notify_all()


class Listeners:
    """The listeners of a topology: each promotion is passed to one after the other, and the engine waits for all."""

    def __init__(self, calls: Calls, raised: Callable[[Any, BaseException], None]) -> None:
        """Begin without listeners; ``raised`` is called with a listener that raises, and its exception."""
        self._caller = Caller(calls, "sparkbolt-listeners")
        self._raised = raised
        self._listeners: list[Callable[[Any], None]] = []

    def add(self, listener: Callable[[Any], None]) -> None:
        """Add a listener; it is called from the next promotion on.

        Raises:
            EngineError: ``listener`` is not callable.
        """
        if not callable(listener):
            raise EngineError(f"on_micro_batch({printed(listener)}): expected a function of a micro-batch's report")
        self._listeners.append(listener)

    @property
    def is_current(self) -> bool:
        """Whether the current thread is that of the listeners."""
        return self._caller.is_current

    def tell(self, report: Any) -> None:
        """Call all listeners with a report.

        Raises:
            NotReturned: the topology stops, and a listener does not return.
        """
        for listener in list(self._listeners):
            try:
                self._caller.ask(f"listener {name_of(listener)}", partial(listener, report))
            except NotReturned:
                raise
            except BaseException as error:  # noqa: BLE001  user code, ``sys.exit`` in it too; the promotion is done
                self._raised(listener, error)

    def end(self) -> None:
        """Call no listener any more; one that does not return is abandoned. A listener must not call this."""
        try:
            self._caller.end()
        except NotReturned as error:
            log.warning("%s: it is left behind", error)


def name_of(listener: Any) -> str:
    """The name of a listener in messages."""
    return str(getattr(listener, "__qualname__", type(listener).__qualname__))
