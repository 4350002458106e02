"""Tally: the numbers of trees by task, for metrics and ``max_spout_pending``; part of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.reports import FailedTree
from sparkbolt.base.ids import I64, SEQUENCE_BITS, U64, constant, run_lengths, run_starts
from sparkbolt.observe.measurements import OWN_TREES, Flow, FlowCounts

_TASK_SHIFT = constant(SEQUENCE_BITS)


class Tally:
    """Counts trees by their keys; part of the ledger.

    >>> tally = Tally(TopologyMetrics(), {}, ["lines"], task_owner=lambda task: ("lines", task - 1))
    >>> tally.opened(np.array([1 << 48, (1 << 48) + 7, 2 << 48], dtype=np.uint64))
    >>> tally.pending(1), tally.pending("lines")
    (2, 3)
    """

    def __init__(
        self,
        metrics: TopologyMetrics,
        flows: dict[Flow, FlowCounts],
        components: Iterable[str],
        *,
        task_owner: Callable[[int], tuple[str, int]],
    ) -> None:
        """Begin with no tree open.

        Args:
            metrics: receives the totals.
            flows: receives the counts of each task's own trees.
            components: the spouts, whose pending trees are shown even if there are none.
            task_owner: (component, index) of a task number.
        """
        self._metrics = metrics
        self._flows = flows
        self._components = tuple(components)
        self._task_owner = task_owner
        self._pending: dict[int, int] = {}
        self._pending_of = dict.fromkeys(self._components, 0)

    def pending(self, which: int | str) -> int:
        """How many trees of a task (by number) or of a component (by id) are open."""
        if isinstance(which, int):
            return self._pending.get(which, 0)
        return self._pending_of.get(which, 0)

    def opened(self, keys: U64) -> None:
        """Count trees that become open: uint64[keys]."""
        self._add(keys, 1)

    def closed(self, keys: U64) -> None:
        """Count trees that are no longer open, whatever their outcomes: uint64[keys]."""
        self._add(keys, -1)

    def _add(self, keys: U64, sign: int) -> None:
        for task, count in _by_task(keys).items():
            component = self._task_owner(task)[0]
            self._pending[task] = self._pending.get(task, 0) + sign * count
            self._pending_of[component] = self._pending_of.get(component, 0) + sign * count

    def acked(self, keys: U64, counts: I64 | None = None) -> None:
        """Count acked trees: one for each key, or ``counts[i]`` trees of the task of ``keys[i]``."""
        for number, count in _by_task(keys, counts).items():
            component, task = self._task_owner(number)
            self._metrics.of(component).acked += count
            self._flow(component, task).acked += count

    def written(self, keys: U64, counts: I64) -> None:
        """Count durable dead letters: ``counts[i]`` of the task of ``keys[i]``."""
        for metrics, count in self._owners(keys, counts):
            metrics.dead_letters += count
            metrics.given_up += count

    def failed(self, trees: Iterable[FailedTree]) -> None:
        """Count failed trees; neither a dead letter's tree nor a postponed rest is another failure of its message."""
        for tree in trees:
            metrics = self._metrics.of(tree.component)
            if tree.fail.cause == Cause.POSTPONED:
                continue  # nothing was tried or lost: the rest of a range is in the next plan
            metrics.failed += not tree.letter
            self._flow(tree.component, tree.task).failed += not tree.letter
            metrics.given_up += tree.outcome == MessageOutcome.GIVEN_UP
            metrics.retried += tree.outcome == MessageOutcome.RETRY

    def _flow(self, component: str, task: int) -> FlowCounts:
        return self._flows.setdefault(Flow(component, task, "", OWN_TREES), FlowCounts())

    def late(self, keys: U64) -> None:
        """Count late acks or fails, for trees that are not open: uint64[keys]."""
        for metrics, count in self._owners(keys):
            metrics.late += count

    def show(self, waiting: Mapping[str, int]) -> None:
        """Write the numbers of open trees, and of messages that wait for a retry, into the metrics."""
        self._metrics.open_trees = sum(self._pending_of.values())
        for component, count in self._pending_of.items():
            self._metrics.of(component).pending = count
            self._metrics.of(component).waiting = waiting.get(component, 0)

    def _owners(self, keys: U64, counts: I64 | None = None) -> Iterator[tuple[ComponentMetrics, int]]:
        for task, count in _by_task(keys, counts).items():
            yield self._metrics.of(self._task_owner(task)[0]), count


def _by_task(keys: U64, counts: I64 | None = None) -> dict[int, int]:
    """The number of keys of each task, or the sum of their counts; runs of one task are counted at once."""
    if len(keys) == 0:
        return {}
    tasks = keys >> _TASK_SHIFT
    starts = run_starts(tasks)
    each = run_lengths(starts, len(keys)) if counts is None else np.add.reduceat(counts, starts)
    totals: dict[int, int] = {}
    for task, count in zip(tasks[starts].tolist(), each.tolist(), strict=True):
        totals[task] = totals.get(task, 0) + count
    return totals
