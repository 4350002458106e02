"""Activity: the current work of a process that runs tasks, for people; no verdict and no state depends on it.

It costs something for each frame and each call of a component, and nothing for each tuple: a ``Looker``, in another
thread, finds the tuple in the task itself. The working thread writes its notes to memory that other processes can read,
because some C code keeps Python's interpreter lock while it works.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sparkbolt.api.outside import WritesOutside
from sparkbolt.api.progress import HUNG_SECS, WAIT_SECS, Activity, Doing, Progress, Sight, duration
from sparkbolt.observe.measurements import Flow, FlowCounts

if TYPE_CHECKING:
    from sparkbolt.layout.lane import Lane

HUNG_AGAIN_SECS_MAX = 600.0
SHOWN_AFTER_SECS = 2.0
"""How many seconds a tuple has to be in ``execute`` before its values are published."""
BLIND_SECS = 5.0
"""After this many seconds without a look, the process counts as one whose other threads cannot run."""
VALUE_CHARACTERS_MAX = 80
VALUES_MAX = 8
_PLAIN = (str, bytes, int, float, bool, type(None))
_BRACKETS: dict[type, str] = {list: "[...]", dict: "{...}", tuple: "(...)", set: "{...}"}


class Working(Protocol):
    """The part of a task that a ``Looker`` reads: the tuple that its user code has now."""

    @property
    def current(self) -> tuple[int, list[Any] | None, int]:
        """(number of the row or window that user code sees now, its values, how many other rows it sees too).

        The number is -1 if user code sees nothing.
        """


class ActivityMonitor:
    """The activity of one process. The working thread updates it; other threads may read it.

    >>> monitor = ActivityMonitor(clock=lambda: 12.0)
    >>> with monitor.at(Activity.FLUSH, 3):
    ...     monitor.doing.activity.name, monitor.doing.since_s
    ('FLUSH', 12.0)
    >>> monitor.doing.activity.name
    'OTHER'
    """

    def __init__(self, clock: Callable[[], float], note: Callable[[bytes], None] | None = None) -> None:
        """Begin idle.

        Args:
            clock: the time in seconds; the same clock for all processes of the machine.
            note: stores the bytes of a ``Doing`` where other processes can read them.
        """
        self._clock = clock
        self._note = note
        self.doing = Doing()
        self.working: Working | None = None
        """The task that is in ``execute``."""
        self._done: dict[str, tuple[int, int]] = {}
        self._now: Mapping[Flow, FlowCounts] = {}

    def stage(self, micro_batch_id: int, flows: Mapping[Flow, FlowCounts]) -> None:
        """Begin a stage, which counts its work in ``flows``; the stage before it has ended."""
        self._done = self.counts if micro_batch_id == self.doing.micro_batch_id else {}
        self._now = flows
        self._move(Activity.OTHER, 0, 0, micro_batch_id)

    def begin(self, activity: Activity, task: int, rows: int = 0, working: Working | None = None) -> tuple[Doing, Any]:
        """Begin an activity; return the one before it, for ``back``."""
        before = self.doing, self.working
        self.working = working
        self._move(activity, task, rows, self.doing.micro_batch_id)
        return before

    def back(self, before: tuple[Doing, Any]) -> None:
        """Return to the activity that ``begin`` returned."""
        doing, self.working = before
        self._move(doing.activity, doing.task, doing.rows, self.doing.micro_batch_id)

    @contextmanager
    def at(self, activity: Activity, task: int) -> Iterator[None]:
        """Begin an activity, and return to the one before it at the end."""
        before = self.begin(activity, task)
        try:
            yield
        finally:
            self.back(before)

    def _move(self, activity: Activity, task: int, rows: int, micro_batch_id: int) -> None:
        self.doing = Doing(self.doing.serial + 1, micro_batch_id, activity, task, rows, self._clock())
        if self._note is not None:
            self._note(self.doing.pack())

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """By component: how many tuples were emitted and executed in this process in this micro-batch."""
        counts = dict(self._done)
        for flow, own in list(self._now.items()):
            emitted, executed = counts.get(flow.component, (0, 0))
            counts[flow.component] = emitted + own.emitted, executed + own.executed
        return counts


class Looker:
    """Reads an ``ActivityMonitor`` now and then, and stores since when the process has been at the same tuple."""

    def __init__(self, monitor: ActivityMonitor, where: Callable[[], str | None] = lambda: None) -> None:
        """Read ``monitor``; ``where`` returns the line of user code that the working thread runs."""
        self._monitor = monitor
        self._where = where
        self._same: tuple[int, int] = (-1, -1)
        self._since_s = 0.0

    def look(self, now_s: float) -> bytes:
        """Return the activity of the process, as bytes for ``sight_of``."""
        counts = self._monitor.counts  # read first, so that a frame that ends during the look is not counted twice
        doing, working = self._monitor.doing, self._monitor.working
        number, values, more = (-1, None, 0) if working is None else working.current
        if (doing.serial, number) != self._same:
            self._same = doing.serial, number
            self._since_s = doing.since_s if number <= 0 else now_s
        long = doing.task != 0 and now_s - self._since_s >= SHOWN_AFTER_SECS
        seen = {
            "serial": doing.serial,
            "number": number,
            "since": self._since_s,
            "looked": now_s,
            "with": text_of_values(values) if long and values is not None else None,
            "more": more,
            "where": self._where() if long else None,
            "counts": counts,
        }
        return json.dumps(seen).encode()


def text_of_values(values: Iterable[Any]) -> str:
    """Values of a tuple as short text for people; no code of users' types is called.

    >>> text_of_values(["word", 3, {"a": [1, 2]}, object()])
    "['word', 3, {...}, <object>]"
    >>> len(text_of_values(["x" * 1_000_000]))
    84
    """
    texts = [_text_of(value) for value in list(values)[: VALUES_MAX + 1]]
    return f"[{', '.join(texts[:VALUES_MAX])}{', ...' if len(texts) > VALUES_MAX else ''}]"


def _text_of(value: Any) -> str:
    kind = type(value)
    if kind in (str, bytes):
        short = value[:VALUE_CHARACTERS_MAX]
        text = repr(short)
        cut = text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[: VALUE_CHARACTERS_MAX - 3]}..."
        return cut if len(short) == len(value) else f"{text[: VALUE_CHARACTERS_MAX - 1]}..."
    if kind is int and abs(value) >= 1 << 256:
        return "<int>"
    if kind in _PLAIN:
        return repr(value)
    return _BRACKETS.get(kind) or f"<{kind.__name__}>"


def sight_of(note: bytes, look: bytes, now_s: float) -> Sight | None:
    """The activity of a process, seen from outside; None while its working thread is writing the note.

    Args:
        note: the last note of the working thread.
        look: the last bytes of the looking thread.
        now_s: the time in seconds, by the clock of both threads.
    """
    doing = Doing.unpack(note)
    if doing is None:
        return None
    try:
        seen = json.loads(look)
    except ValueError:
        seen = {"serial": -1, "looked": now_s, "counts": {}}
    counts = {component: (int(emitted), int(executed)) for component, (emitted, executed) in seen["counts"].items()}
    if doing.task and now_s - max(seen["looked"], doing.since_s) >= BLIND_SECS:
        return Sight(doing, now_s - max(doing.since_s, seen["looked"]), blind=True, counts=counts)
    if seen["serial"] != doing.serial:
        return Sight(doing, max(0.0, now_s - doing.since_s), counts=counts)
    secs = max(0.0, now_s - seen["since"])
    return Sight(doing, secs, seen["number"], seen["with"], seen["more"], seen["where"], counts=counts)


class Hangs:
    """Finds the sights that need a warning: after ``HUNG_SECS`` in one call, then at growing intervals.

    >>> hangs, at = Hangs(), lambda secs: {"a": Sight(Doing(5, 0, Activity.EXECUTE, 3, 10, 0.0), secs)}
    >>> [secs for secs in range(0, 300, 10) if hangs.worth(at(secs))]
    [30, 60, 120, 240]
    """

    def __init__(self, hung_secs: float = HUNG_SECS) -> None:
        """Begin without any warning."""
        self._hung_secs = hung_secs
        self._next: dict[str, tuple[tuple[int, int], float]] = {}

    def worth(self, sights: Mapping[str, Sight]) -> list[Sight]:
        """Return the sights to warn of now; ``sights`` has one for each process, by its name."""
        found, known = [], {}
        for name, sight in sights.items():
            same = sight.doing.serial, sight.number
            if not sight.busy or sight.secs < self._hung_secs:
                continue
            before, due = self._next.get(name, (same, self._hung_secs))
            # A process whose other threads can no longer run is still in the same call.
            if before != same and not sight.blind:
                due = self._hung_secs
            if sight.secs >= due:
                found.append(sight)
                due = sight.secs + min(max(sight.secs, self._hung_secs), HUNG_AGAIN_SECS_MAX)
            known[name] = same, due
        self._next = known
        return found


def progress_of(
    lane: Lane, micro_batch_id: int, secs: float, sights: Iterable[Sight], committing: bool = False
) -> Progress:
    """Combine the sights of all processes into the progress of one micro-batch."""
    components: dict[str, tuple[int, int]] = {}
    levels, hung, waits = [], [], []
    for sight in sights:
        if sight.doing.micro_batch_id != micro_batch_id:
            continue
        for component, (emitted, executed) in sight.counts.items():
            before = components.get(component, (0, 0))
            components[component] = before[0] + emitted, before[1] + executed
        if sight.busy:
            component, index = lane.topology.task_owner(sight.doing.task)
            bolt = lane.topology.components[component].component
            is_long = sight.doing.activity is Activity.FLUSH and sight.secs >= WAIT_SECS
            if is_long and isinstance(bolt, WritesOutside):
                waits.append(f"{component}[{index}] waits for {bolt.place} for {duration(sight.secs)}")
            elif sight.secs >= HUNG_SECS:
                hung.append(sight.sentence(lane.topology.task_owner))
            emitted, executed = components.get(component, (0, 0))
            components[component] = emitted, executed + sight.done
            while component in lane.fused_into:
                component = lane.fused_into[component]
            levels.append(lane.level_of[component])
    level = max(levels, default=None)
    return Progress(
        micro_batch_id,
        secs,
        level,
        len(lane.levels),
        components,
        committing=committing,
        hung=tuple(hung),
        waits=tuple(waits),
    )
