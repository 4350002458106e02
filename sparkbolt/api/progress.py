"""Progress: how far the current micro-batch has come, and which calls of user code are running.

This module has only the values and their sentences; ``activity`` and ``spark.activity_pages`` observe the processes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

HUNG_SECS = 30.0
"""After how many seconds in one call of user code it is reported; again after twice, four times, ... as long."""
WAIT_SECS = 5.0
"""After how many seconds in ``flush`` or ``commit`` a bolt is reported to wait for what it writes to."""
_NOTE = struct.Struct("<qqiiqdq")
NOTE_BYTES = _NOTE.size
"""The size of a note, which is a packed ``Doing``, in bytes."""


@dataclass(frozen=True)
class Sight:
    """The activity of a process, observed from outside."""

    doing: Doing
    secs: float = 0.0
    """For how many seconds, at least, the same call of user code has been running."""
    number: int = -1
    """The row of the current frame that is being executed; -1: unknown, or all rows at once."""
    values: str | None = None
    more: int = 0
    where: str | None = None
    blind: bool = False
    """Whether only the note is known, because no other thread of the process can run."""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """How many tuples of the current frame are executed, if they run one by one; ``counts`` excludes them.

        >>> Sight(Doing(5, 0, Activity.EXECUTE, 3, 100), number=30).done, Sight(Doing(5, 0, Activity.FLUSH, 3)).done
        (30, 0)
        """
        one_by_one = self.doing.activity is Activity.EXECUTE and not self.more and 0 < self.number < self.doing.rows
        return self.number if one_by_one else 0

    @property
    def busy(self) -> bool:
        """Whether the code of a component is running."""
        return self.doing.task != 0

    def sentence(self, who: Callable[[int], tuple[str, int]]) -> str:
        """Return a sentence on its activity.

        Args:
            who: returns (component, index) of a task number.

        >>> sight = Sight(Doing(5, 0, Activity.EXECUTE, 3, 4096), 31.4, 17, "['word']", where="words.py:12, in count")
        >>> sight.sentence(lambda task: ("count", 1))
        "count[1] has been in execute for 31 s with ['word'] (tuple 18 of 4,096 of its frame), at words.py:12, in count"
        """
        component, index = who(self.doing.task)
        where = f"{component}[{index}] has been in {_VERBS[self.doing.activity]}"
        return f"{where} for {self.secs:.0f} s{self._with()}{self._at()}"

    def _with(self) -> str:
        rows = self.doing.rows
        if self.doing.activity is not Activity.EXECUTE or (self.blind and not rows):
            return ""
        if self.values is not None:
            place = f" (tuple {self.number + 1:,} of {rows:,} of its frame)" if 0 <= self.number < rows else ""
            return f" with {self.values}{f' and {self.more:,} others' if self.more else place}"
        if rows == 1:
            return " with a tuple"
        if self.blind:
            return f" with one of {rows:,} tuples"
        return f" with {rows:,} tuples" if rows else ""

    def _at(self) -> str:
        if self.blind:
            return ", in code that keeps Python's interpreter lock"
        return f", at {self.where}" if self.where else ""


@dataclass(frozen=True)
class CallSight(Sight):
    """A call of user code in the driver: of a spout, or of a listener."""

    what: str = ""
    """The method, and the component or listener to which it belongs."""
    waited_for: bool = False
    """Whether nothing new is read before it returns, and a stop waits for it."""

    @property
    def busy(self) -> bool:
        """Always True: user code is running."""
        return True

    def sentence(self, who: Callable[[int], tuple[str, int]] | None = None) -> str:
        """Return a sentence on the call that has not returned; ``who`` is not used.

        >>> CallSight(Doing(), 12.2, where="words.py:9, in next_ranges", what="next_ranges of spout 'lines'").sentence()
        "next_ranges of spout 'lines' has not returned for 12 s, at words.py:9, in next_ranges"
        """
        return f"{self.what} has not returned for {self.secs:.0f} s{self._at()}"


@dataclass(frozen=True)
class Progress:
    """How far a micro-batch that is not committed yet has come.

    >>> Progress().sentence
    'no micro-batch runs'
    """

    micro_batch_id: int | None = None
    """The micro-batch that is running; None: no micro-batch runs."""
    secs: float = 0.0
    """For how many seconds it has been running."""
    level: int | None = None
    """The furthest level that is working; 0: the source is being read; None: unknown."""
    levels: int = 0
    components: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """How many tuples each component has (emitted, executed) in it so far, counting only workers on this machine."""
    spark_tasks: tuple[int, int] | None = None
    """(finished spark_tasks of the stage, all of them), if workers run on other machines."""
    committing: bool = False
    """Whether its work is done, and it is being committed."""
    hung: tuple[str, ...] = ()
    """Sentences on calls of user code that have been running for ``HUNG_SECS`` or longer."""
    waits: tuple[str, ...] = ()
    """Sentences on bolts that have been waiting for a server or a database for ``WAIT_SECS`` or longer."""
    calls: tuple[CallSight, ...] = ()
    """The calls of user code in the driver that have not returned at the moment, the oldest first."""

    def with_calls(self, calls: Sequence[CallSight]) -> Progress:
        """Return a copy that also contains calls of user code in the driver."""
        hung = tuple(call.sentence() for call in calls if call.secs >= HUNG_SECS)
        return replace(self, hung=(*self.hung, *hung), calls=tuple(calls))

    @property
    def sentence(self) -> str:
        """The progress as a sentence.

        >>> Progress(0, 3.2, 1, 2, {"split": (20, 10), "count": (0, 5)}).sentence
        'micro-batch 0 runs for 3 s: level 1 of 2, 15 executed so far'
        >>> Progress(0, 61, 0, 2).sentence
        'micro-batch 0 runs for 1 min 1 s: the source is read (level 0 of 2)'
        """
        if self.micro_batch_id is None:
            return "no micro-batch runs"
        parts = []
        if self.committing:
            parts.append("it is being committed")
        elif self.level is not None:
            what = f"level {self.level} of {self.levels}"
            parts.append(what if self.level else f"the source is read ({what})")
        executed = sum(executed for _, executed in self.components.values())
        if executed:
            parts.append(f"{executed:,} executed so far")
        if self.spark_tasks is not None and not self.committing:
            parts.append(f"{self.spark_tasks[0]} of {self.spark_tasks[1]} spark_tasks done")
        more = f": {', '.join(parts)}" if parts else ""
        return f"micro-batch {self.micro_batch_id} runs for {duration(self.secs)}{more}"


def duration(secs: float) -> str:
    """Return a duration as readable text.

    >>> [duration(secs) for secs in (0.4, 59.2, 61, 3600, 100_000)]
    ['0 s', '59 s', '1 min 1 s', '1 h 0 min', '27 h 46 min']
    """
    whole = int(secs)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Activity(IntEnum):
    """The kinds of work that a worker does."""

    OTHER = 0
    PREPARE = 1
    READ = 2
    EXECUTE = 3
    FLUSH = 4
    STATE = 5
    WINDOW = 6
    WRITE = 7


class Doing(NamedTuple):
    """The activity of the working thread of a process."""

    serial: int = 0
    """Counts the activities of the process."""
    micro_batch_id: int = -1
    activity: Activity = Activity.OTHER
    task: int = 0
    """The number of the task in the topology; 0: none."""
    rows: int = 0
    """How many rows its user code has to process."""
    since_s: float = 0.0

    def pack(self) -> bytes:
        """Encode it as a note of ``NOTE_BYTES`` bytes, with ``serial`` at both ends.

        >>> doing = Doing(7, 3, Activity.EXECUTE, 2, 4096, 1.5)
        >>> Doing.unpack(doing.pack()) == doing
        True
        """
        return _NOTE.pack(
            self.serial, self.micro_batch_id, self.activity, self.task, self.rows, self.since_s, self.serial
        )

    @classmethod
    def unpack(cls, data: bytes) -> Doing | None:
        """The inverse of ``pack``; None for a note that is being written, so that its two serials differ."""
        serial, micro_batch_id, activity, task, rows, since_s, end = _NOTE.unpack(data)
        return cls(serial, micro_batch_id, Activity(activity), task, rows, since_s) if serial == end else None


_VERBS = {
    Activity.OTHER: "its worker",
    Activity.PREPARE: "prepare",
    Activity.READ: "read",
    Activity.EXECUTE: "execute",
    Activity.FLUSH: "flush",
    Activity.STATE: "the reading or writing of its state",
    Activity.WINDOW: "execute",
    Activity.WRITE: "the writing of dead letters",
}
