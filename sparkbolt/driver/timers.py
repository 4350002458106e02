"""Timers: when the tasks of bolts with a bolt runtime must receive the time, and when bolts get tick tuples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkbolt.wire.plan import Timer


class Timers:
    """The timers of all tasks with a bolt runtime; in the driver.

    Args:
        unknown: numbers of tasks that may have a timer and have not reported it: tasks of an earlier life, and tasks
            whose timers begin with the topology. Each of them gets the time once.

    >>> timers = Timers()
    >>> timers.reported = {3: Timer(1000), 4: None}
    >>> timers.count(told=())
    >>> timers.due(999), timers.due(1000), timers.waits
    ((), (3,), True)
    """

    def __init__(self, unknown: Iterable[int] = ()) -> None:
        self._timers: dict[int, Timer] = dict.fromkeys(sorted(unknown), Timer(0))
        self.reported: Mapping[int, Timer | None] = {}
        """The timers that tasks reported in the staged micro-batch, by task number; None: the task has no timer."""

    def due(self, now_ms: int) -> tuple[int, ...]:
        """The numbers of the tasks that receive the time in a micro-batch at ``now_ms``, ascending."""
        return tuple(sorted(task for task, timer in self._timers.items() if timer.due_ms <= now_ms))

    def dues(self) -> list[int]:
        """All times at which a timer is due, in milliseconds since the epoch."""
        return [timer.due_ms for timer in self._timers.values()]

    @property
    def waits(self) -> bool:
        """Whether a task still has to process tuples that it has already received."""
        return any(timer.waits for timer in self._timers.values())

    def count(self, told: Iterable[int]) -> None:
        """Apply a promotion: remove the timers of the tasks in ``told``, then add the reported ones."""
        for task, timer in {**dict.fromkeys(told), **self.reported}.items():
            if timer is None:
                self._timers.pop(task, None)
            else:
                self._timers[task] = timer
        self.reported = {}


class Ticks:
    """When each bolt with ``tick_tuple_freq_secs`` gets its next tick tuple; in the driver.

    >>> ticks = Ticks({"count": 0.5}, now_ms=1000)
    >>> ticks.due(1499), ticks.due(1700)
    ((), ('count',))
    >>> ticks.count(("count",), now_ms=1700)
    >>> ticks.dues()
    [2000]
    """

    def __init__(self, every_secs: Mapping[str, float], now_ms: int) -> None:
        """Begin at ``now_ms``.

        Args:
            every_secs: the frequency of each bolt that has one.
            now_ms: milliseconds since the epoch.
        """
        self._every_ms = {component: int(secs * 1000) for component, secs in every_secs.items()}
        self._next_ms = {component: now_ms + every for component, every in self._every_ms.items()}

    def due(self, now_ms: int) -> tuple[str, ...]:
        """The bolts whose tick is due."""
        return tuple(component for component, due in self._next_ms.items() if now_ms >= due)

    def dues(self) -> list[int]:
        """All times at which a tick is due, in milliseconds since the epoch."""
        return list(self._next_ms.values())

    def count(self, told: Iterable[str], now_ms: int) -> None:
        """Apply a promotion whose plan, made at ``now_ms``, gave ticks to the bolts ``told``.

        Missed ticks are not made up for.
        """
        for component in told:
            every = self._every_ms.get(component)
            if every is None:  # the life that made the plan had a tick frequency; this one has none
                continue
            due = self._next_ms[component] + every
            self._next_ms[component] = due if due > now_ms else now_ms + every
