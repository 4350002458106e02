"""Timers: when the tasks of hosted bolts are to be told the time.

Which question it answers: which tasks are due at this time, and is there anything that a topology has to wait for?

Read before: ``plan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkbolt.core.protocol.plan import Wake


class Wakes:
    """When hosted tasks are to be told the time; in the driver.

    Args:
        unknown: tasks that may have something to do and have not said when: those of an earlier life, and those whose
            timers begin with the topology. Each is asked once.

    >>> wakes = Wakes()
    >>> wakes.heard = {3: Wake(1000), 4: None}
    >>> wakes.count(told=())
    >>> wakes.due(999), wakes.due(1000), wakes.waits
    ((), (3,), True)
    """

    def __init__(self, unknown: Iterable[int] = ()) -> None:
        self._wakes: dict[int, Wake] = dict.fromkeys(sorted(unknown), Wake(0))
        self.heard: Mapping[int, Wake | None] = {}
        """What the tasks of the staged micro-batch have said."""

    def due(self, now_ms: int) -> tuple[int, ...]:
        """The tasks that are to be told the time in a micro-batch at ``now_ms``."""
        return tuple(sorted(task for task, wake in self._wakes.items() if wake.due_ms <= now_ms))

    def dues(self) -> list[int]:
        """All times at which something is due."""
        return [wake.due_ms for wake in self._wakes.values()]

    @property
    def waits(self) -> bool:
        """Whether what tasks will do belongs to what has come."""
        return any(wake.waits for wake in self._wakes.values())

    def count(self, told: Iterable[int]) -> None:
        """The micro-batch is promoted: what it told is done, and what its tasks said counts."""
        for task, wake in {**dict.fromkeys(told), **self.heard}.items():
            if wake is None:
                self._wakes.pop(task, None)
            else:
                self._wakes[task] = wake
        self.heard = {}
