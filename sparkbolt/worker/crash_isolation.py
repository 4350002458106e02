"""Crash isolation: finds the tuple that killed its worker, and fails it instead of executing it again.

Rule 1: a process notes its place before it calls user code; the note outlives the process.
Rule 2: a call that killed its process once is not made again in the same piece of work: its tuple fails as if it had
raised.
Rule 3: if a process dies in a whole block of rows (in a column bolt, or while the rows' emissions are routed), the
block is cut into pieces until one row is left to blame. If it dies in code that belongs to no tuple and no read
(``prepare``, the state), no tuple can be blamed: that is an error of the component. If it dies in no task at all, the
query is restarted.
Rule 4: a window that a bolt with a runtime shows is a place of its own. If it kills its worker, it is not shown again,
as if the bolt had raised for it; its tuples fail only if they are acked when they expire.
Rule 5: the number of repeats of a piece of work is limited: after ``CRASHES_MAX`` deaths the other rows of the task
fail without being executed, and at most ``CUTS_MAX`` blocks are cut.
Rule 6: a call may also leave something in its task's state that cannot be stored. No process dies then, but the call is
blamed in the same way: the work is repeated, and the state is checked after each piece (``Unkept``).

A place names the task, the number of the block of rows within the task's work, and rows of that block. If work is
repeated with one more isolated row, everything up to that row is the same, so places keep their meaning.

Only a second attempt is watched (on Spark: ``spark.crash_shield``), since it costs a microsecond for each tuple.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sparkbolt.api.progress import Activity
from sparkbolt.base.exceptions import Interruption, pass_on
from sparkbolt.errors import EngineError, KilledWorkerError, LostWorkerError, SparkboltError, UnkeptError

CRASHES_MAX = 100
"""The limit of deaths of one task in one piece of work; after it, the task's other rows fail without being executed."""
CUTS_MAX = 2000
"""How many blocks of rows may be cut in one piece of work."""
PIECES = 16
"""Into how many pieces a block of rows is cut: four deaths find one row among 4,096."""

_PLACE = struct.Struct("<iiqqq")
PLACE_BYTES = _PLACE.size
"""The size of a noted place in bytes."""


@dataclass(frozen=True)
class WorkPlace:
    """The place of a call: the activity, the task and the rows.

    >>> WorkPlace.unpack(WorkPlace(Activity.EXECUTE, 3, 0, 17, 18).pack())
    WorkPlace(activity=<Activity.EXECUTE: 3>, task=3, block=0, start=17, stop=18)
    """

    activity: Activity = Activity.OTHER
    task: int = 0
    """The number of the task in the topology; 0: none."""
    block: int = 0
    """The number of the block of rows within the task, from 0; or the number of the read within an entry."""
    start: int = 0
    stop: int = 0
    """Rows ``start`` to ``stop`` (exclusive) of the block. For a window, ``stop`` is the number of windows that were
    shown before it in the piece of rows that begins at ``start``."""

    def pack(self) -> bytes:
        """The place in ``PLACE_BYTES`` bytes."""
        return _PLACE.pack(self.activity, self.task, self.block, self.start, self.stop)

    @classmethod
    def unpack(cls, data: bytes) -> WorkPlace:
        """The inverse of ``pack``."""
        activity, *rest = _PLACE.unpack(data)
        return cls(Activity(activity), *rest)


class Unkept(Interruption):
    """Ends the work because a task's state holds something that cannot be kept; the work begins again without it."""

    def __init__(self, task: int, reason: str, place: WorkPlace | None = None) -> None:
        """Store the reason.

        Args:
            task: the number of the task.
            reason: the value that cannot be stored, and why.
            place: the call to blame; None if it is not known, because the state was not checked after each piece.
        """
        super().__init__(reason)
        self.task, self.reason, self.place = task, reason, place


@dataclass
class Crashes:
    """The deaths so far in one piece of work.

    >>> crashes = Crashes(lambda task: ("count", task - 1))
    >>> crashes.add(WorkPlace(Activity.EXECUTE, 3, 0, 17, 18), "signal 11")
    >>> crashes.reason(3, 0, 17)
    'killed its worker (signal 11)'
    >>> crashes.reason(3, 0, 18) is None
    True
    """

    who: Callable[[int], tuple[str, int]]
    """(component, index) of a task number."""
    rows: dict[tuple[int, int, int], str] = field(default_factory=dict)
    """(task, block, row) -> why it is not executed."""
    calls: dict[tuple[Activity, int, int], str] = field(default_factory=dict)
    """(activity, task, block) of a flush, a read or a write of dead letters -> why it is not called."""
    cuts: set[tuple[int, int, int, int]] = field(default_factory=set)
    """(task, block, start, stop) of rows that are no longer executed together."""
    windows: dict[tuple[int, int, int, int], str] = field(default_factory=dict)
    """(task, block, start, number) of a window -> why it is not shown; see ``WorkPlace``."""
    spent: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Task -> (block, row, number of the window) after which nothing is executed."""
    void: dict[int, str] = field(default_factory=dict)
    """Task -> why none of its rows is executed. The result of its flush cannot be stored; without the flush, its rows
    must not be executed either, because nothing would write their data."""
    unkept: set[str] = field(default_factory=set)
    """The reasons that concern state that cannot be kept."""
    first: dict[int, str] = field(default_factory=dict)
    """Task -> why the first of its calls is not made again. A later failure may follow from that."""
    _counts: Counter[int] = field(default_factory=Counter)

    def refusal(self, reason: str) -> KilledWorkerError:
        """The error that is raised instead of a call that is not made again."""
        return UnkeptError(reason) if reason in self.unkept else KilledWorkerError(reason)

    def add_unkept(self, place: WorkPlace, reason: str) -> None:
        """Record that the call at a place has left something that cannot be stored; raises the errors of ``add``."""
        reason = f"what this left in the state of its task cannot be kept: {reason}"
        self.unkept.add(reason)
        if place.activity is Activity.FLUSH:
            self.void[place.task] = reason
        self._isolate(place, reason, reason)

    def add(self, place: WorkPlace, how: str) -> None:
        """Record that a process died at a place.

        Args:
            place: the last noted place of the process.
            how: how it died, such as ``signal 11`` or ``exit code 3``.

        Raises:
            EngineError: no tuple and no read can be blamed, or a limit is reached.
            LostWorkerError: the process was in no task.
        """
        call = f"killed its worker ({how}) in {place.activity.name.lower()}"
        in_call = place.activity in (Activity.FLUSH, Activity.READ, Activity.WRITE)
        self._isolate(place, how, call if in_call else f"killed its worker ({how})")

    def _isolate(self, place: WorkPlace, how: str, reason: str) -> None:
        if place.activity is Activity.EXECUTE and place.stop - place.start > 1:
            self.cuts.add((place.task, place.block, place.start, place.stop))
            if len(self.cuts) > CUTS_MAX:
                raise self._error(place, how, f"and {CUTS_MAX} blocks of rows died before it")
            # Once the block is cut, its rows may show windows in another order, so the search for windows that died
            # begins again.
            for key in [key for key in self.windows if key[:3] == (place.task, place.block, place.start)]:
                del self.windows[key]
            return
        if place.activity is Activity.EXECUTE:
            self.rows[place.task, place.block, place.start] = reason
        elif place.activity is Activity.WINDOW:
            self.windows[place.task, place.block, place.start, place.stop] = reason
        elif place.activity in (Activity.FLUSH, Activity.READ, Activity.WRITE):
            self.calls[place.activity, place.task, place.block] = reason
        else:
            raise self._error(place, how, "which is not in a tuple: no tuple can be failed for it")
        self.first.setdefault(place.task, reason)
        self._counts[place.task] += 1
        if self._counts[place.task] == CRASHES_MAX:
            self.spent[place.task] = (place.block, place.start, place.stop if place.activity is Activity.WINDOW else 0)
        elif self._counts[place.task] > 2 * CRASHES_MAX:
            raise self._error(place, how, f"and {2 * CRASHES_MAX} times before in the same micro-batch")

    def _error(self, place: WorkPlace, how: str, more: str) -> SparkboltError:
        if not place.task:
            return LostWorkerError(f"a worker process died ({how}) between the tuples of a micro-batch, {more}")
        component, index = self.who(place.task)
        doing = {
            Activity.PREPARE: "in prepare",
            Activity.STATE: "while its state was read or written",
            Activity.READ: "in read",
            Activity.FLUSH: "in flush",
            Activity.WINDOW: "in a window",
            Activity.WRITE: "while it wrote dead letters",
        }
        what = doing.get(place.activity, "in execute")
        return EngineError(f"{component}[{index}] killed its worker ({how}) {what}, {more}")

    def reason(self, task: int, block: int, row: int) -> str | None:
        """Why a row is not executed; None if it is."""
        reason = self.rows.get((task, block, row), self.void.get(task))
        if reason is not None:
            return reason
        if task in self.spent and (block, row, 0) > self.spent[task]:
            done = "left what cannot be kept" if self.unkept else "killed their worker"
            return f"was not executed: {CRASHES_MAX} tuples of the micro-batch had {done} before it"
        return None

    def reason_of_window(self, task: int, block: int, start: int, number: int) -> str | None:
        """Why a window is not shown; None if it is."""
        reason = self.windows.get((task, block, start, number), self.void.get(task))
        if reason is not None:
            return reason
        if task in self.spent and (block, start, number) > self.spent[task]:
            return f"was not shown: the task had killed its worker {CRASHES_MAX} times in this micro-batch before it"
        return None

    def reason_of_call(self, activity: Activity, task: int, block: int) -> str | None:
        """Why a flush, a read or a write of dead letters is not called; None if it is."""
        return self.calls.get((activity, task, block))

    def spans(self, task: int, block: int, count: int) -> list[tuple[int, int]]:
        """The pieces, as (start, stop), in which a block of ``count`` rows is executed."""
        return list(self._cut(task, block, 0, count))

    def _cut(self, task: int, block: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
        if (task, block, start, stop) not in self.cuts:
            yield start, stop
            return
        step = -(-(stop - start) // PIECES)
        for first in range(start, stop, step):
            yield from self._cut(task, block, first, min(first + step, stop))


class Watch:
    """In a process that may die: it notes the process's place, and refuses calls that have killed a worker before.

    Args:
        crashes: the deaths of earlier processes.
        note: stores the bytes of a ``WorkPlace`` where they outlive the process.

    >>> noted = []
    >>> watch = Watch(Crashes(lambda task: ("count", 0)), noted.append)
    >>> with watch.at(Activity.PREPARE, 3):
    ...     WorkPlace.unpack(noted[-1]).activity.name
    'PREPARE'
    >>> WorkPlace.unpack(noted[-1]).activity.name
    'OTHER'
    """

    def __init__(self, crashes: Crashes, note: Callable[[bytes], None]) -> None:
        self.crashes = crashes
        self._note = note
        self._place = WorkPlace()
        self._tasks: dict[int, TaskWatch] = {}

    def again(self) -> Watch:
        """Return a new watch for the same work, which begins again in the same process."""
        return Watch(self.crashes, self._note)

    def move(self, place: WorkPlace) -> None:
        """Note the process's new place."""
        self._place = place
        self._note(place.pack())

    @contextmanager
    def at(self, activity: Activity, task: int, block: int = 0, start: int = 0, stop: int = 0) -> Iterator[None]:
        """Note a place, and at the end the place before it again.

        Raises:
            KilledWorkerError: this flush, read or write has killed its worker before.
        """
        before = self._place
        reason = self.crashes.reason_of_call(activity, task, block)
        if reason is not None:
            raise self.crashes.refusal(reason)
        self.move(WorkPlace(activity, task, block, start, stop))
        try:
            yield
        except GeneratorExit:  # the process ends and leaves ``spans`` unfinished
            raise
        except BaseException as error:
            pass_on(error)  # an exception that ends the process is raised again: the noted place stays
            self.move(before)
            raise
        self.move(before)

    def of(self, task: int) -> TaskWatch:
        """The watch over one task of a bolt."""
        return self._tasks.setdefault(task, TaskWatch(self, task))


class TaskWatch:
    """The watch over the rows of one task, block after block."""

    def __init__(self, watch: Watch, task: int) -> None:
        """Begin before the first block."""
        self._watch = watch
        self._task = task
        self._block = -1
        self._span = (0, 0)
        self._shown = 0
        self.look: Callable[[], str | None] | None = None
        """Returns why the task's state cannot be kept, or None if it can. The attribute is None without such checks."""

    @property
    def first_reason(self) -> str | None:
        """Why the first call of the task is not made again, now that its work is repeated; None if all are made."""
        return self._watch.crashes.first.get(self._task)

    def between(self) -> None:
        """Begin a step of a bolt runtime before or after its rows: a block without rows."""
        self._block += 1
        self._span = (0, 0)
        self._shown = 0

    @contextmanager
    def window(self) -> Iterator[None]:
        """To be entered around the call that shows a window to user code.

        Raises:
            KilledWorkerError: the window must not be shown.
            Unkept: the call has left state that cannot be kept.
        """
        start, number = self._span[0], self._shown
        self._shown += 1
        reason = self._watch.crashes.reason_of_window(self._task, self._block, start, number)
        if reason is not None:
            raise self._watch.crashes.refusal(reason)
        with self._looked_at(WorkPlace(Activity.WINDOW, self._task, self._block, start, number)):
            yield

    def spans(self, count: int) -> Iterator[tuple[int, int]]:
        """Begin the next block, and yield its pieces as (start, stop).

        A piece is executed, and its emissions are sent, before the next piece is requested.

        Raises:
            Unkept: a piece has left state that cannot be kept.
        """
        self._block += 1
        block = self._block
        for start, stop in self._watch.crashes.spans(self._task, block, count):
            self._span = (start, stop)
            self._shown = 0
            with self._watch.at(Activity.EXECUTE, self._task, block, start, stop):
                yield start, stop
            self._look(WorkPlace(Activity.EXECUTE, self._task, block, start, stop))

    @contextmanager
    def _looked_at(self, place: WorkPlace) -> Iterator[None]:
        """Note a place, and check the state after it, even if user code has raised there."""
        try:
            with self._watch.at(place.activity, place.task, place.block, place.start, place.stop):
                yield
        except BaseException as error:
            pass_on(error)
            self._look(place)
            raise
        self._look(place)

    def _look(self, place: WorkPlace) -> None:
        """Check the state, if ``look`` is set.

        Raises:
            Unkept: the state holds something that cannot be kept.
        """
        reason = self.look() if self.look is not None else None
        if reason is not None:
            raise Unkept(self._task, reason, place)

    def took(self, reason: str | None) -> None:
        """Called when user code has seen the piece.

        Args:
            reason: why a value of the piece cannot be kept; None if all can.

        Raises:
            Unkept: there is a reason.
        """
        if reason is not None:
            raise Unkept(self._task, reason, WorkPlace(Activity.EXECUTE, self._task, self._block, *self._span))

    def row(self, row: int) -> None:
        """Called before user code sees a row of the piece, counted from the piece's start.

        Raises:
            KilledWorkerError: the row must not be executed.
        """
        self._enter(self._span[0] + row, self._span[0] + row + 1)

    def piece(self) -> None:
        """Called before user code sees the piece as a whole.

        Raises:
            KilledWorkerError: the piece must not be executed.
        """
        self._enter(*self._span)

    def _enter(self, start: int, stop: int) -> None:
        reason = self._watch.crashes.reason(self._task, self._block, start)
        if reason is not None:
            raise self._watch.crashes.refusal(reason)
        self._watch.move(WorkPlace(Activity.EXECUTE, self._task, self._block, start, stop))

    def rest(self) -> None:
        """Called when user code has seen the piece, before its emissions are sent."""
        self._watch.move(WorkPlace(Activity.EXECUTE, self._task, self._block, *self._span))

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """To be entered around the flush that follows the current block.

        Raises:
            KilledWorkerError: on entering, if this flush has killed its worker before.
            Unkept: the flush has left state that cannot be kept.
        """
        with self._looked_at(WorkPlace(Activity.FLUSH, self._task, self._block)):
            yield
