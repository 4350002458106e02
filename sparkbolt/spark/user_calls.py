"""Calls: the code of users that the driver is in, and who waits for it.

Which question it answers: what becomes of a topology when ``next_ranges``, a hook of a spout or a listener does not
return?
Rule 1: who waits for such a call lets go of the lock, so that everybody else goes on.
Rule 2: all calls of one spout come from one thread, one after the other; so do all calls of listeners.
Rule 3: when the topology stops, a call gets a moment to return. Then whoever waits for it is told that it has not, and
it is left behind in its thread: nobody hears what it gives back later.

Read before: ``core.worker.activity``, ``core.model.components``.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from sparkbolt.core.base.exceptions import end_if_forked, printed
from sparkbolt.core.model.components import PartitionedSpout, Range, TopologyContext
from sparkbolt.core.model.progress import CallSight, Doing
from sparkbolt.core.model.reports import SourceView
from sparkbolt.errors import EngineError
from sparkbolt.spark.activity_pages import frames_of_threads, line_of

LEAVE_SECS = 0.5
"""How long a call may go on once the topology stops, before who waits for it goes on without it."""
CLOSE_SECS = 5.0
"""How long a spout may take, from then on, to leave its last call and to close."""
LAG_SECS = 0.5
"""How long somebody who asks for metrics waits for ``lag``."""
log = logging.getLogger("sparkbolt")


class NotReturned(EngineError):  # noqa: N818  a state
    """A call of user code was given up."""


class Calls:
    """The calls of one topology in this process."""

    def __init__(self, changed: threading.Condition) -> None:
        """None yet; ``changed`` guards the coordinator, and whoever waits for a call waits on it."""
        self.changed = changed
        self.ended_s = math.inf
        """When the topology was stopped, on the monotonic clock; or when its start is given up."""
        self._serials = count(1)
        self._now: dict[int, tuple[str, float, int, bool]] = {}

    @contextmanager
    def at(self, what: str, *, waited_for: bool = False) -> Iterator[None]:
        """This thread is in a call."""
        serial, process = next(self._serials), os.getpid()
        self._now[serial] = what, time.monotonic(), threading.get_ident(), waited_for
        try:
            yield
        finally:
            end_if_forked(process)
            del self._now[serial]

    @property
    def has_this_thread(self) -> bool:
        """Whether it is user code called by the topology, a spout or a listener, that asks."""
        return any(thread == threading.get_ident() for _, _, thread, _ in self._now.copy().values())

    def sights(self) -> dict[str, CallSight]:
        """The calls that have not returned, the oldest first; never waits for anybody."""
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
        """The topology stops."""
        with self.changed:
            self.ended_s = min(self.ended_s, time.monotonic())
            self.changed.notify_all()


@dataclass(eq=False)
class Job:
    """A call that was asked for."""

    what: str
    function: Callable[[], Any]
    quiet: bool = False
    """Whether nobody waits for its end."""
    done: bool = False
    left: bool = False
    """Whether nobody waits for it any more: it need not begin."""
    value: Any = None
    error: BaseException | None = None

    def result(self) -> Any:
        """What the call gave, or raises what it raised."""
        if self.error is not None:
            raise self.error
        return self.value


class Caller:
    """A thread that calls user code; begins with the first call."""

    def __init__(self, calls: Calls, name: str) -> None:
        """Call nothing yet; ``name`` is the thread's."""
        self._calls = calls
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._at: tuple[str, float] | None = None
        self._ended_s = math.inf

    @property
    def is_current(self) -> bool:
        """Whether this is the thread that asks."""
        return threading.current_thread() is self._thread

    def ask(self, what: str, function: Callable[[], Any], patience_secs: float = math.inf) -> Any:
        """Have a function called, and wait for it without the lock.

        Raises:
            NotReturned: it takes longer than that, or than the end of the topology allows.
            BaseException: whatever it raises.
        """
        until_s = self._since_s() + patience_secs
        return self._wait(what, function, lambda: min(until_s, self._calls.ended_s + LEAVE_SECS, self._leave_s))

    def later(self, what: str, function: Callable[[], Any]) -> Job:
        """Have a function called, and wait for nothing."""
        job = Job(what, function, quiet=True)
        self._put(job)
        return job

    def end(self, what: str = "", function: Callable[[], Any] = lambda: None) -> None:
        """Have a last function called; who waits for an earlier call waits no more.

        Raises:
            NotReturned: it, or the call before it, takes longer than ``CLOSE_SECS``.
            BaseException: whatever it raises.
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
        """Since when it is in a call; now, if it is in none."""
        at = self._at
        return time.monotonic() if at is None else at[1]

    def _wait(self, what: str, function: Callable[[], Any], until: Callable[[], float]) -> Any:
        job = Job(what, function)
        changed = self._calls.changed
        with changed:
            self._put(job)
            try:
                while not job.done:
                    left = until() - time.monotonic()
                    if left <= 0:
                        raise self._not_returned(what)
                    changed.wait(None if left == math.inf else left)
            finally:
                job.left = True
        return job.result()

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
            if job.left:
                continue
            self._at = job.what, time.monotonic()
            with self._calls.at(job.what, waited_for=True):
                try:
                    job.value = job.function()
                except BaseException as error:  # noqa: BLE001  user code; raised where somebody waits for it
                    job.error = error
            self._at = None
            job.done = True
            if not job.quiet:
                with self._calls.changed:
                    self._calls.changed.notify_all()


class Listeners:
    """Those who hear of each promotion, one after the other; who hears waits for all of them."""

    def __init__(self, calls: Calls, raised: Callable[[Any, BaseException], None]) -> None:
        """Nobody yet; ``raised`` is called with a listener that raises."""
        self._caller = Caller(calls, "sparkbolt-listeners")
        self._raised = raised
        self._listeners: list[Callable[[Any], None]] = []

    def add(self, listener: Callable[[Any], None]) -> None:
        """Have it called from now on.

        Raises:
            EngineError: it cannot be called.
        """
        if not callable(listener):
            raise EngineError(f"on_micro_batch({printed(listener)}): expected a function of a micro-batch's report")
        self._listeners.append(listener)

    @property
    def is_current(self) -> bool:
        """Whether a listener asks."""
        return self._caller.is_current

    def tell(self, report: Any) -> None:
        """Call all of them.

        Raises:
            NotReturned: the topology stops, and one of them does not return.
        """
        for listener in list(self._listeners):
            try:
                self._caller.ask(f"listener {name_of(listener)}", partial(listener, report))
            except NotReturned:
                raise
            except BaseException as error:  # noqa: BLE001  user code, ``sys.exit`` in it too; the promotion is done
                self._raised(listener, error)

    def end(self) -> None:
        """Nobody is called any more; one that does not return is left behind. No listener calls this."""
        try:
            self._caller.end()
        except NotReturned as error:
            log.warning("%s: it is left behind", error)


def name_of(listener: Any) -> str:
    """How a listener is called in a message."""
    return str(getattr(listener, "__qualname__", type(listener).__qualname__))


class DriverSpout(PartitionedSpout):
    """A spout of the user's as the coordinator of a life calls it; executors read with copies of their own.

    ``finished`` and ``lag`` are asked by whoever looks, so they never wait for long: ``finished`` says what is known.
    """

    def __init__(self, spout: PartitionedSpout, component: str, calls: Calls) -> None:
        """Call ``spout`` in a thread of its own."""
        self.spout = spout
        self._component = component
        self._caller = Caller(calls, f"spout-{component}")
        self._asked: tuple[Mapping[str, int], Job] | None = None
        self._finished: Mapping[str, int] | None = None
        """The progress with which it has said that it is finished."""
        self._lag: Mapping[str, int] = {}
        self._skipped = 0

    def _what(self, method: str) -> str:
        return f"{method} of spout {self._component!r}"

    def _ask(self, method: str, *arguments: Any) -> Any:
        if getattr(type(self.spout), method) is getattr(PartitionedSpout, method):
            return None  # a hook that it does not have
        return self._caller.ask(self._what(method), partial(getattr(self.spout, method), *arguments))

    def open(self, context: TopologyContext) -> None:
        """As the user's."""
        self._ask("open", context)
        self.first_budget = self.spout.first_budget
        self.once, self.max_uncommitted = self.spout.once, self.spout.max_uncommitted

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """As the user's."""
        call = partial(self.spout.next_ranges, progress, budget)
        ranges: list[Range] = self._caller.ask(self._what("next_ranges"), lambda: list(call()))
        return ranges

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Whether it has said so of this progress; it is asked again meanwhile, and the answer counts the next time."""
        if self._asked is not None and self._asked[1].done:
            (of, job), self._asked = self._asked, None
            if job.result():
                self._finished = of
        if self._finished == progress:
            return True
        if self._asked is None:
            of = dict(progress)
            self._asked = of, self._caller.later(self._what("finished"), lambda: self.spout.finished(of))
        return False

    def on_committed(self, progress: Mapping[str, int]) -> None:
        """As the user's."""
        self._ask("on_committed", progress)

    def on_read(self, reads: Sequence[tuple[Range, int]]) -> None:
        """As the user's."""
        self._ask("on_read", reads)

    def lag(self) -> Mapping[str, int]:
        """As the user's; what it said last, where it does not answer at once."""
        with suppress(NotReturned):
            self._caller.ask(self._what("lag"), self._look, LAG_SECS)
        return self._lag

    def _look(self) -> None:
        self._lag = self.spout.lag()
        self._skipped += self.spout.take_skipped()

    def take_skipped(self) -> int:
        """What has become known with ``lag``."""
        skipped, self._skipped = self._skipped, 0
        return skipped

    def close(self) -> None:
        """As the user's.

        Raises:
            NotReturned: it does not return, or a call before it does not.
        """
        self._caller.end(self._what("close"), self.spout.close)

    def read(self, range_: Range) -> Any:
        """Never called in the driver."""
        return self.spout.read(range_)


class TellingSpout(DriverSpout):
    """The same of a spout that wants to be told."""

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        """As the user's."""
        self._ask("on_sources_changed", sources)


def in_driver(spout: PartitionedSpout, component: str, calls: Calls) -> DriverSpout:
    """A spout as the driver calls it."""
    asks = type(spout).on_sources_changed is not PartitionedSpout.on_sources_changed
    return (TellingSpout if asks else DriverSpout)(spout, component, calls)
