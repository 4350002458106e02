"""Crash isolation: which tuple killed its worker, and what is done instead of executing it again.

Which question it answers: a process died in the middle of a stage; which tuple was it at, and how does a second
process do the same work without it?

Rule 1: whoever works notes where it is before it calls user code, so that the note outlives the process.
Rule 2: what died once is never called again in the same piece of work: its tuple fails as if it had raised.
Rule 3: where a whole block of rows died at once (a column bolt, or while what the rows emitted was routed), the
block is cut into pieces until one row is left to blame. What belongs to no tuple and no read (``prepare``, the
state) is nobody's fault but the component's, and is an error; what belongs to no task costs a start of the query.
Rule 4: a window that a bolt with a runtime shows is a place of its own: it is over, as if the bolt had raised, and its
tuples are not blamed for it unless they wait for it.
Rule 5: a piece of work is begun again at most so often: after ``CRASHES_MAX`` deaths the rest of the task's rows fail
unseen, and there is a limit on cuts, too.
Rule 6: what leaves something in its task's state that cannot be kept is found and blamed in the same way, though no
process dies: the state is looked at behind each piece, in work that begins again because of it (``Unkept``).

A place names the task, the number of the block of rows within that task's work, and rows of it. Work that is
repeated with more isolated rows is the same up to the newest of them, so places keep their meaning.

The watching is for a second attempt only (on Spark: ``spark.crash_shield``): it costs a microsecond a tuple.
Read before: ``components``, ``failures``.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sparkbolt.core.base.exceptions import Interruption, pass_on
from sparkbolt.core.model.progress import Activity
from sparkbolt.errors import EngineError, KilledWorkerError, LostWorkerError, SparkboltError, UnkeptError

CRASHES_MAX = 100
"""How many tuples of one task may die in one piece of work, before the rest of its rows fails unseen."""
CUTS_MAX = 2000
"""How many blocks may be cut in one piece of work."""
PIECES = 16
"""Into how many pieces a block is cut: four deaths find one row among 4,096."""

_PLACE = struct.Struct("<iiqqq")
PLACE_BYTES = _PLACE.size
"""How much room a noted place takes."""


@dataclass(frozen=True)
class WorkPlace:
    """Where work is.

    >>> WorkPlace.unpack(WorkPlace(Activity.EXECUTE, 3, 0, 17, 18).pack())
    WorkPlace(activity=<Activity.EXECUTE: 3>, task=3, block=0, start=17, stop=18)
    """

    activity: Activity = Activity.OTHER
    task: int = 0
    """The number of the task in the topology; 0: none."""
    block: int = 0
    """Which block of rows of the task, or which chunk of a read, counted from 0."""
    start: int = 0
    stop: int = 0
    """Rows ``start`` to ``stop`` (exclusive) of the block; of a window, how many were shown before it while the work
    was at the rows from ``start`` on."""

    def pack(self) -> bytes:
        """The place in ``PLACE_BYTES`` bytes."""
        return _PLACE.pack(self.activity, self.task, self.block, self.start, self.stop)

    @classmethod
    def unpack(cls, data: bytes) -> WorkPlace:
        """The inverse of ``pack``."""
        activity, *rest = _PLACE.unpack(data)
        return cls(Activity(activity), *rest)


class Unkept(Interruption):
    """The work ends here, and begins again without what has left something in a task's state that cannot be kept."""

    def __init__(self, task: int, reason: str, place: WorkPlace | None = None) -> None:
        """Keep what it is about.

        Args:
            task: the number of the task.
            reason: what cannot be kept, and why.
            place: what is to blame; None where that is not known, since the state was not looked at before.
        """
        super().__init__(reason)
        self.task, self.reason, self.place = task, reason, place


@dataclass
class Crashes:
    """What has died so far in one piece of work.

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
    """(activity, task, block) -> why it is not called, of flushes, reads and writes of dead letters."""
    cuts: set[tuple[int, int, int, int]] = field(default_factory=set)
    """(task, block, start, stop): rows that are not worked on together any more."""
    windows: dict[tuple[int, int, int, int], str] = field(default_factory=dict)
    """(task, block, start, number) -> why it is not shown, of windows; see ``WorkPlace``."""
    spent: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Task -> (block, row, number of the window) from which on nothing is executed."""
    void: dict[int, str] = field(default_factory=dict)
    """Task -> why nothing of it is executed: what its flush writes of what was gathered cannot be kept, and what is not
    flushed must not be gathered."""
    unkept: set[str] = field(default_factory=set)
    """Those of the reasons that tell of state that cannot be kept."""
    _counts: Counter[int] = field(default_factory=Counter)

    def refusal(self, reason: str) -> KilledWorkerError:
        """What is raised in the place of what is not called again."""
        return UnkeptError(reason) if reason in self.unkept else KilledWorkerError(reason)

    def add_unkept(self, place: WorkPlace, reason: str) -> None:
        """What was done at a place has left something that cannot be kept; see ``add``."""
        reason = f"what this left in the state of its task cannot be kept: {reason}"
        self.unkept.add(reason)
        if place.activity is Activity.FLUSH:
            self.void[place.task] = reason
        self._isolate(place, reason, reason)

    def add(self, place: WorkPlace, how: str) -> None:
        """A process died at a place.

        Args:
            place: what it noted last.
            how: ``signal 11``, ``exit code 3``.

        Raises:
            EngineError: no tuple and no read can be blamed for it, or the limit is reached.
            LostWorkerError: it was at no task.
        """
        call = f"killed its worker ({how}) in {place.activity.name.lower()}"
        in_call = place.activity in (Activity.FLUSH, Activity.READ, Activity.WRITE)
        self._isolate(place, how, call if in_call else f"killed its worker ({how})")

    def _isolate(self, place: WorkPlace, how: str, reason: str) -> None:
        if place.activity is Activity.EXECUTE and place.stop - place.start > 1:
            self.cuts.add((place.task, place.block, place.start, place.stop))
            if len(self.cuts) > CUTS_MAX:
                raise self._error(place, how, f"and {CUTS_MAX} blocks of rows died before it")
            # Cut, its rows may show their windows in another order: those that died are found again.
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
        """Why a flush or the next chunk of a read is not called; None if it is."""
        return self.calls.get((activity, task, block))

    def spans(self, task: int, block: int, count: int) -> list[tuple[int, int]]:
        """The pieces, as (start, stop), in which a block of ``count`` rows is worked on."""
        return list(self._cut(task, block, 0, count))

    def _cut(self, task: int, block: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
        if (task, block, start, stop) not in self.cuts:
            yield start, stop
            return
        step = -(-(stop - start) // PIECES)
        for first in range(start, stop, step):
            yield from self._cut(task, block, first, min(first + step, stop))


class Watch:
    """In the process that may die: notes where it is, and refuses what has crashed a worker before.

    Args:
        crashes: of the processes before it.
        note: keeps the bytes of a ``WorkPlace`` where they outlive the process.

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
        """A watch over the same work, which begins again in the same process."""
        return Watch(self.crashes, self._note)

    def move(self, place: WorkPlace) -> None:
        """The work is at another place now."""
        self._place = place
        self._note(place.pack())

    @contextmanager
    def at(self, activity: Activity, task: int, block: int = 0, start: int = 0, stop: int = 0) -> Iterator[None]:
        """Be at a place, then again where the work was before.

        Raises:
            KilledWorkerError: the flush or the read died before.
        """
        before = self._place
        reason = self.crashes.reason_of_call(activity, task, block)
        if reason is not None:
            raise self.crashes.refusal(reason)
        self.move(WorkPlace(activity, task, block, start, stop))
        try:
            yield
        except GeneratorExit:  # ``spans`` is left behind by what ends the process
            raise
        except BaseException as error:
            pass_on(error)  # what ends the process happened here
            self.move(before)
            raise
        self.move(before)

    def of(self, task: int) -> TaskWatch:
        """The watch over one task of a bolt."""
        return self._tasks.setdefault(task, TaskWatch(self, task))


class TaskWatch:
    """Over the rows of one task, block after block."""

    def __init__(self, watch: Watch, task: int) -> None:
        """No block yet."""
        self._watch = watch
        self._task = task
        self._block = -1
        self._span = (0, 0)
        self._shown = 0
        self.look: Callable[[], str | None] | None = None
        """Says what is in the task's state that cannot be kept, where that is to be found out."""

    def between(self) -> None:
        """A step of a bolt with a runtime before or behind its rows begins: a block without rows."""
        self._block += 1
        self._span = (0, 0)
        self._shown = 0

    @contextmanager
    def window(self) -> Iterator[None]:
        """User code is about to see a window.

        Raises:
            KilledWorkerError: it is not to see it.
        """
        start, number = self._span[0], self._shown
        self._shown += 1
        reason = self._watch.crashes.reason_of_window(self._task, self._block, start, number)
        if reason is not None:
            raise self._watch.crashes.refusal(reason)
        with self._looked_at(WorkPlace(Activity.WINDOW, self._task, self._block, start, number)):
            yield

    def spans(self, count: int) -> Iterator[tuple[int, int]]:
        """Begin the next block; its pieces, each of which is worked on, with what it emits, while it is current."""
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
        """Be at a place, behind which the state is looked at, also where user code has raised there."""
        try:
            with self._watch.at(place.activity, place.task, place.block, place.start, place.stop):
                yield
        except BaseException as error:
            pass_on(error)
            self._look(place)
            raise
        self._look(place)

    def _look(self, place: WorkPlace) -> None:
        """Look at the state, where that is asked for.

        Raises:
            Unkept: there is something in it that cannot be kept.
        """
        reason = self.look() if self.look is not None else None
        if reason is not None:
            raise Unkept(self._task, reason, place)

    def took(self, reason: str | None) -> None:
        """User code has seen the piece; ``reason``: why its values cannot be kept.

        Raises:
            Unkept: there is a reason.
        """
        if reason is not None:
            raise Unkept(self._task, reason, WorkPlace(Activity.EXECUTE, self._task, self._block, *self._span))

    def row(self, row: int) -> None:
        """User code is about to see a row of the piece, counted from the piece's start.

        Raises:
            KilledWorkerError: it is not to see it.
        """
        self._enter(self._span[0] + row, self._span[0] + row + 1)

    def piece(self) -> None:
        """User code is about to see the piece as a whole, or what it emitted is about to be sent.

        Raises:
            KilledWorkerError: the piece is one row, and isolated.
        """
        self._enter(*self._span)

    def _enter(self, start: int, stop: int) -> None:
        reason = self._watch.crashes.reason(self._task, self._block, start)
        if reason is not None:
            raise self._watch.crashes.refusal(reason)
        self._watch.move(WorkPlace(Activity.EXECUTE, self._task, self._block, start, stop))

    def rest(self) -> None:
        """User code has seen the piece; what it emitted is about to be sent."""
        self._watch.move(WorkPlace(Activity.EXECUTE, self._task, self._block, *self._span))

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Be in the flush that follows the current block.

        Raises:
            KilledWorkerError: on entering, where it died before.
        """
        with self._looked_at(WorkPlace(Activity.FLUSH, self._task, self._block)):
            yield
