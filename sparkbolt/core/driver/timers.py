"""Timers: when the tasks of bolts with a bolt runtime must receive the time.

Which question it answers: which tasks are due at this time, and does the topology have to wait for any of them?

It is apart from ``coordinator``, its only user, because it can be understood and tested without any plan.
Read before: ``plan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkbolt.core.protocol.plan import Timer


class Timers:
    """The timers of all tasks with a bolt runtime; in the driver.

    Args:
        unknown: numbers of tasks that may have a timer and have not reported it: tasks of an earlier life, and tasks
            whose timers begin with the topology. Each of them is asked once.

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
        """Whether a task still has to process what it has already received."""
        return any(timer.waits for timer in self._timers.values())

    def count(self, told: Iterable[int]) -> None:
        """Apply a promotion: remove the timers of the tasks in ``told``, then add the reported ones."""
        for task, timer in {**dict.fromkeys(told), **self.reported}.items():
            if timer is None:
                self._timers.pop(task, None)
            else:
                self._timers[task] = timer
        self.reported = {}
