"""Timers: when the tasks of bolts with a runtime are to be told the time.

Which question it answers: which tasks are due at this time, and is there anything that a topology has to wait for?

Read before: ``plan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkbolt.core.protocol.plan import Timer


class Timers:
    """When tasks with a runtime are to be told the time; in the driver.

    Args:
        unknown: tasks that may have something to do and have not said when: those of an earlier life, and those whose
            timers begin with the topology. Each is asked once.

    >>> timers = Timers()
    >>> timers.reported = {3: Timer(1000), 4: None}
    >>> timers.count(told=())
    >>> timers.due(999), timers.due(1000), timers.waits
    ((), (3,), True)
    """

    def __init__(self, unknown: Iterable[int] = ()) -> None:
        self._timers: dict[int, Timer] = dict.fromkeys(sorted(unknown), Timer(0))
        self.reported: Mapping[int, Timer | None] = {}
        """What the tasks of the staged micro-batch have said."""

    def due(self, now_ms: int) -> tuple[int, ...]:
        """The tasks that are to be told the time in a micro-batch at ``now_ms``."""
        return tuple(sorted(task for task, timer in self._timers.items() if timer.due_ms <= now_ms))

    def dues(self) -> list[int]:
        """All times at which something is due."""
        return [timer.due_ms for timer in self._timers.values()]

    @property
    def waits(self) -> bool:
        """Whether what tasks will do belongs to what has come."""
        return any(timer.waits for timer in self._timers.values())

    def count(self, told: Iterable[int]) -> None:
        """The micro-batch is promoted: what it told is done, and what its tasks said counts."""
        for task, timer in {**dict.fromkeys(told), **self.reported}.items():
            if timer is None:
                self._timers.pop(task, None)
            else:
                self._timers[task] = timer
        self.reported = {}
