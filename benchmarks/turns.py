"""Topologies that take turns of a few micro-batches, in one session.

Which of two is faster, on a machine that is half as fast a minute later?
Rule: a contender rests while another one has its turn. The micro-batches in which a turn begins are not counted.

It is apart from ``runs``, whose topologies run from their beginning to their end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from benchmarks.runs import TIMEOUT_SECS, Mark, start
from sparkbolt import Topology


class Contender:
    """A topology that runs in its turns only."""

    def __init__(self, topology: Topology, done: int) -> None:
        """Start it, and let it rest when ``count`` has executed ``done`` tuples."""
        self.running, self._marks = start(topology)
        self._wait(lambda: bool(self._marks) and self._marks[-1].done >= done)
        self.rest()

    @property
    def done(self) -> int:
        """How many tuples ``count`` has executed."""
        return self._marks[-1].done

    def rest(self) -> None:
        """Wait until it does nothing."""
        self.running.deactivate()
        self.running.await_idle(TIMEOUT_SECS)

    def turn(self, micro_batches: int, left_out: int) -> Sequence[Mark]:
        """Run it for a while.

        Args:
            micro_batches: how many are counted.
            left_out: how many come before them, the one in which the turn begins among them.

        Returns:
            The mark at which the first of them begins, and one for each.

        Raises:
            RuntimeError: it makes no progress.
        """
        first = len(self._marks) + left_out
        self.running.activate()
        self._wait(lambda: len(self._marks) > first + micro_batches)
        self.rest()
        return self._marks[first : first + micro_batches + 1]

    def _wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECS
        while not until():
            if self.running.failure is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the topology made no progress: {self.running.failure}")
            time.sleep(0.02)
