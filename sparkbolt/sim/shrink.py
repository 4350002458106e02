"""Shrinking: finds a shortest history that still fails.

Prior art: delta debugging (Zeller, "Yesterday, my program worked. Today, it does not. Why?", 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkbolt.sim.faults import Fault

RUNS_MAX = 200


def shrink(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> tuple[Fault, ...]:
    """Leave out the faults that are not needed.

    Args:
        faults: A history that fails.
        fails: Whether a part of the history fails.

    >>> history = [Fault.parse(f"{number}:run:slow:0") for number in range(6)]
    >>> [fault.micro_batch_id for fault in shrink(history, lambda some: {history[1], history[4]} <= set(some))]
    [1, 4]
    """
    left = tuple(faults)
    runs = 0
    if left and fails(()):
        return ()
    size = max(1, len(left) // 2)
    while left and runs < RUNS_MAX:
        for start in range(0, len(left), size):
            shorter = left[:start] + left[start + size :]
            runs += 1
            if shorter and fails(shorter):
                left = shorter
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return left
