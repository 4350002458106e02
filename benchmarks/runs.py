"""Runs of topologies on Spark, and the rate of their steady middle.

Which question it answers: how many words a second does a topology count, once it has started?
Rule: the rate is taken between two promotions, so that only work that is committed counts; before the first of
them the size of micro-batches has settled, and the last micro-batch, which is not full, is left out.

Read before: ``figures``, ``text``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sparkbolt import Topology
from sparkbolt.core.metrics import TopologyMetrics
from sparkbolt.spark.running import MicroBatchReport

MASTER = "local[2,4]"
TARGET_MS = 3000
"""What the word counts set ``micro_batch_target_ms`` to."""
START = 0.4
"""Before this share of all words is counted, a run is starting."""
TIMEOUT_SECS = 900


@dataclass
class Run:
    """What one run of a topology showed: (seconds, tuples executed by ``component``) at each promotion."""

    component: str
    marks: list[tuple[float, int]] = field(default_factory=list)
    elapsed_s: float = 0.0
    metrics: TopologyMetrics = field(default_factory=TopologyMetrics)

    def note(self, report: MicroBatchReport) -> None:
        self.marks.append((time.perf_counter(), report.metrics.of(self.component).executed))

    @property
    def rate(self) -> float:
        return steady_rate(self.marks)

    @property
    def micro_batch_s(self) -> float:
        """Mean length of the steady micro-batches."""
        first, last = steady_marks(self.marks)
        return (self.marks[last][0] - self.marks[first][0]) / (last - first)


def steady_marks(marks: list[tuple[float, int]]) -> tuple[int, int]:
    """Between which two promotions a run is steady, by their index in ``marks``.

    Raises:
        ValueError: there are none; the text is too short.
    """
    full = [i for i, (_, done) in enumerate(marks) if i == 0 or done > marks[i - 1][1]][:-1]
    if len(full) < 2:
        raise ValueError(f"{len(marks)} micro-batches are too few to see a steady rate: give more --words")
    last = full[-1]
    first = next(i for i in full if marks[i][1] >= START * marks[-1][1] or i == full[-2])
    return first, last


def steady_rate(marks: list[tuple[float, int]]) -> float:
    """Tuples a second in the steady middle of a run.

    >>> steady_rate([(0.0, 10), (2.0, 100), (3.0, 200), (4.0, 210)])
    100.0
    """
    first, last = steady_marks(marks)
    return (marks[last][1] - marks[first][1]) / (marks[last][0] - marks[first][0])


def run(topology: Topology, component: str) -> Run:
    """Run a topology to its end and note what ``component`` executed.

    Raises:
        RuntimeError: it did not end, or a tree failed.
    """
    logging.getLogger("py4j").setLevel(logging.ERROR)
    result = Run(component)
    began = time.perf_counter()
    running = topology.start(master=MASTER)
    running.on_micro_batch(result.note)
    try:
        if not running.await_finished(TIMEOUT_SECS):
            raise RuntimeError(f"{topology.name} did not finish within {TIMEOUT_SECS} s")
    finally:
        running.close()
    result.elapsed_s = time.perf_counter() - began
    result.metrics = running.metrics()
    failed = {name: counts.failed for name, counts in result.metrics.components.items() if counts.failed}
    if failed:
        raise RuntimeError(f"{topology.name}: trees failed: {failed}")
    return result


def in_turn(rounds: int, *contenders: Callable[[], float]) -> list[tuple[float, ...]]:
    """Call the contenders A B A B ..., ``rounds`` times; each one's values.

    >>> values = iter([1, 2, 3, 4])
    >>> in_turn(2, lambda: next(values), lambda: next(values))
    [(1, 3), (2, 4)]
    """
    turns = [tuple(contender() for contender in contenders) for _ in range(rounds)]
    return [tuple(values) for values in zip(*turns, strict=True)]
