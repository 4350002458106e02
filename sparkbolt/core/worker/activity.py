"""Activity: what a process that runs tasks is at, while it is at it.

Which question it answers: a micro-batch runs for minutes; which task is at which tuple, since when, and how much is
done?
Rule 1: it costs something once a frame and once a call of a component, and nothing once a tuple. Whoever looks, from
another thread of the process, finds the tuple in the task itself.
Rule 2: what the working thread notes is in memory that other processes see, so that the frame is known even where
the looking thread cannot run: some C code keeps Python's interpreter lock while it works.
Rule 3: it is a picture for people. No verdict and no state depends on it.

Read before: ``crash_isolation``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sparkbolt.core.model.metrics import ComponentMetrics
from sparkbolt.core.model.progress import HUNG_SECS, Activity, Doing, Progress, Sight

if TYPE_CHECKING:
    from sparkbolt.core.model.lane import Lane

HUNG_AGAIN_SECS_MAX = 600.0
SHOWN_AFTER_SECS = 2.0
"""How long a tuple has to be in ``execute`` before its values are written down for others."""
BLIND_SECS = 5.0
"""Without a look for so long, the process is taken for one whose other threads cannot run."""
VALUE_CHARACTERS_MAX = 80
VALUES_MAX = 8
_PLAIN = (str, bytes, int, float, bool, type(None))
_BRACKETS: dict[type, str] = {list: "[...]", dict: "{...}", tuple: "(...)", set: "{...}"}


class Working(Protocol):
    """A task whose user code may be seeing rows, as far as a looker asks it."""

    @property
    def current(self) -> tuple[int, list[Any] | None, int]:
        """(the number of what user code sees now, its values, how many others it sees besides)."""


class ActivityMonitor:
    """What one process is at. The thread that works tells it; other threads may look.

    >>> monitor = ActivityMonitor(clock=lambda: 12.0)
    >>> with monitor.at(Activity.FLUSH, 3):
    ...     monitor.doing.activity.name, monitor.doing.since_s
    ('FLUSH', 12.0)
    >>> monitor.doing.activity.name
    'OTHER'
    """

    def __init__(self, clock: Callable[[], float], note: Callable[[bytes], None] | None = None) -> None:
        """Idle.

        Args:
            clock: seconds; the same for all processes of the machine.
            note: keeps the bytes of a ``Doing`` where other processes see them.
        """
        self._clock = clock
        self._note = note
        self.doing = Doing()
        self.working: Working | None = None
        """The task that is in ``execute``."""
        self._done: dict[str, tuple[int, int]] = {}
        self._now: Mapping[str, ComponentMetrics] = {}

    def stage(self, micro_batch_id: int, metrics: Mapping[str, ComponentMetrics]) -> None:
        """A stage begins, which counts in ``metrics`` what it does; the one before has ended."""
        self._done = self.counts if micro_batch_id == self.doing.micro_batch_id else {}
        self._now = metrics
        self._move(Activity.OTHER, 0, 0, micro_batch_id)

    def begin(self, activity: Activity, task: int, rows: int = 0, working: Working | None = None) -> tuple[Doing, Any]:
        """Be at something; what the process was at before, for ``back``."""
        before = self.doing, self.working
        self.working = working
        self._move(activity, task, rows, self.doing.micro_batch_id)
        return before

    def back(self, before: tuple[Doing, Any]) -> None:
        """Be again at what the process was at before."""
        doing, self.working = before
        self._move(doing.activity, doing.task, doing.rows, self.doing.micro_batch_id)

    @contextmanager
    def at(self, activity: Activity, task: int) -> Iterator[None]:
        """Be at something, then again at what was before."""
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
        """By component: how many tuples were emitted and executed here in this micro-batch."""
        counts = dict(self._done)
        for component, own in list(self._now.items()):
            emitted, executed = counts.get(component, (0, 0))
            counts[component] = emitted + own.emitted, executed + own.executed
        return counts


class Looker:
    """Looks at an activity now and then, and remembers since when it has been at the same tuple."""

    def __init__(self, monitor: ActivityMonitor, where: Callable[[], str | None] = lambda: None) -> None:
        """Look at ``monitor``; ``where`` says in which line of user code the working thread is."""
        self._monitor = monitor
        self._where = where
        self._same: tuple[int, int] = (-1, -1)
        self._since_s = 0.0

    def look(self, now_s: float) -> bytes:
        """What is seen, for ``sight_of``."""
        counts = self._monitor.counts  # before the rest: a frame that ends meanwhile is not counted twice
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
    """Values of a tuple for people, shortened; code of users' own types is not called.

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
    """What a process is seen at; None if it has just begun to write it.

    Args:
        note: of the working thread.
        look: of the looking thread, the newest.
        now_s: by the clock of both.
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
    """Says which sights are worth a warning: after ``HUNG_SECS`` in one call, and then at growing distance.

    >>> hangs, at = Hangs(), lambda secs: {"a": Sight(Doing(5, 0, Activity.EXECUTE, 3, 10, 0.0), secs)}
    >>> [secs for secs in range(0, 300, 10) if hangs.worth(at(secs))]
    [30, 60, 120, 240]
    """

    def __init__(self, hung_secs: float = HUNG_SECS) -> None:
        """Nothing was said yet."""
        self._hung_secs = hung_secs
        self._next: dict[str, tuple[tuple[int, int], float]] = {}

    def worth(self, sights: Mapping[str, Sight]) -> list[Sight]:
        """Those to be told of now, of all processes, by their names."""
        found, known = [], {}
        for name, sight in sights.items():
            same = sight.doing.serial, sight.number
            if not sight.busy or sight.secs < self._hung_secs:
                continue
            before, due = self._next.get(name, (same, self._hung_secs))
            # What can no longer be seen into is still the same call.
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
    """What processes were seen at, as one picture."""
    components: dict[str, tuple[int, int]] = {}
    levels, hung = [], []
    for sight in sights:
        if sight.doing.micro_batch_id != micro_batch_id:
            continue
        for component, (emitted, executed) in sight.counts.items():
            before = components.get(component, (0, 0))
            components[component] = before[0] + emitted, before[1] + executed
        if sight.busy:
            component, _ = lane.topology.task_owner(sight.doing.task)
            emitted, executed = components.get(component, (0, 0))
            components[component] = emitted, executed + sight.done
            while component in lane.fused_into:
                component = lane.fused_into[component]
            levels.append(lane.level_of[component])
            if sight.secs >= HUNG_SECS:
                hung.append(sight.sentence(lane.topology.task_owner))
    level = max(levels, default=None)
    return Progress(micro_batch_id, secs, level, len(lane.levels), components, committing=committing, hung=tuple(hung))
