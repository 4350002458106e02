"""Counts of trees: counts of trees by task, and what they add to the metrics of their spouts.

Which question it answers: how many trees of each spout are open, and how many were acked, failed or heard of too
late?

Rule 1: a tree is counted for the component whose task started it, be it a spout or a window.
Rule 2: counting costs by runs of keys of one task, not by trees.

Read before: ``ids``, ``metrics``, ``acker``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from sparkbolt.core.base.ids import I64, SEQUENCE_BITS, U64, constant, run_lengths, run_starts
from sparkbolt.core.model.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.core.model.reports import FailedTree
from sparkbolt.core.protocol.causes import POSTPONED

_TASK_SHIFT = constant(SEQUENCE_BITS)


class Tally:
    """Counts trees by their keys; part of the ledger.

    >>> tally = Tally(TopologyMetrics(), ["lines"], task_owner=lambda task: ("lines", task - 1))
    >>> tally.opened(np.array([1 << 48, (1 << 48) + 7, 2 << 48], dtype=np.uint64))
    >>> tally.pending(1), tally.pending("lines")
    (2, 3)
    """

    def __init__(
        self,
        metrics: TopologyMetrics,
        components: Iterable[str],
        *,
        task_owner: Callable[[int], tuple[str, int]],
    ) -> None:
        """Begin with no tree open.

        Args:
            metrics: where totals are added.
            components: the spouts, whose pending trees are shown even when there are none.
            task_owner: (component, index) of a task number.
        """
        self._metrics = metrics
        self._components = tuple(components)
        self._task_owner = task_owner
        self._pending: dict[int, int] = {}

    def pending(self, which: int | str) -> int:
        """How many trees of a task (by number) or of a component (by id) are open."""
        if isinstance(which, int):
            return self._pending.get(which, 0)
        return sum(count for task, count in self._pending.items() if self._task_owner(task)[0] == which)

    def opened(self, keys: U64) -> None:
        """These trees are open now."""
        for task, count in _by_task(keys).items():
            self._pending[task] = self._pending.get(task, 0) + count

    def closed(self, keys: U64) -> None:
        """These trees are no longer open, whatever became of them."""
        for task, count in _by_task(keys).items():
            self._pending[task] = self._pending.get(task, 0) - count

    def acked(self, keys: U64, counts: I64 | None = None) -> None:
        """These trees were acked; with ``counts``, ``counts[i]`` trees of the task of ``keys[i]``."""
        for metrics, count in self._owners(keys, counts):
            metrics.acked += count

    def written(self, keys: U64, counts: I64) -> None:
        """Dead letters are durable: ``counts[i]`` of the task of ``keys[i]``."""
        for metrics, count in self._owners(keys, counts):
            metrics.dead_letters += count
            metrics.set_aside += count

    def failed(self, trees: Iterable[FailedTree]) -> None:
        """These trees failed; that of a dead letter is no further failure of its message, nor is what comes later."""
        for tree in trees:
            metrics = self._metrics.of(tree.component)
            if tree.fail.cause == POSTPONED:
                continue  # nothing was tried, and nothing is missing: the rest of a range comes with the next plan
            metrics.failed += not tree.letter
            metrics.set_aside += tree.fate == "set_aside"
            metrics.retried += tree.fate == "retry"

    def late(self, keys: U64) -> None:
        """Something was said of these trees, which are not open."""
        for metrics, count in self._owners(keys):
            metrics.late += count

    def show(self, waiting: Mapping[str, int]) -> None:
        """Write the numbers of open trees, and of messages that wait to be given again, into the metrics."""
        self._metrics.open_trees = sum(self._pending.values())
        by_component = dict.fromkeys(self._components, 0)
        for task, count in self._pending.items():
            component = self._task_owner(task)[0]
            by_component[component] = by_component.get(component, 0) + count
        for component, count in by_component.items():
            self._metrics.of(component).pending = count
            self._metrics.of(component).waiting = waiting.get(component, 0)

    def _owners(self, keys: U64, counts: I64 | None = None) -> Iterator[tuple[ComponentMetrics, int]]:
        for task, count in _by_task(keys, counts).items():
            yield self._metrics.of(self._task_owner(task)[0]), count


def _by_task(keys: U64, counts: I64 | None = None) -> dict[int, int]:
    """How many keys each task has, or the sum of their counts; neighbours of one task are counted at once."""
    if len(keys) == 0:
        return {}
    tasks = keys >> _TASK_SHIFT
    starts = run_starts(tasks)
    each = run_lengths(starts, len(keys)) if counts is None else np.add.reduceat(counts, starts)
    totals: dict[int, int] = {}
    for task, count in zip(tasks[starts].tolist(), each.tolist(), strict=True):
        totals[task] = totals.get(task, 0) + count
    return totals
