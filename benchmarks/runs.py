"""Runs of topologies on Spark, and their steady middle.

How much does a topology do in a second, once it has started?
Rule: it is measured between two promotions, so that only work that is committed counts; before the first of them
the size of micro-batches has settled, and the last micro-batch, which is not full, is left out.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.text import Text
from sparkbolt import Config, Topology, TopologyBuilder

if TYPE_CHECKING:  # `since` runs this with earlier versions, whose modules have other names
    from sparkbolt.api.components import BoltBase, PartitionedSpout
    from sparkbolt.api.reports import MicroBatchReport
    from sparkbolt.spark.running_on_spark import RunningOnSpark

MASTER = "local[2,4]"
PARALLELISM = 2
START = 0.4
"""Before this share of all tuples is counted, a run is starting."""
TIMEOUT_SECS = 900


@dataclass(frozen=True)
class Options:
    """What the command line may change."""

    words: int = 40_000_000
    rounds: int = 3
    secs: int = 240
    commit: str = "1bee66d"
    """What ``since`` compares with: the last commit before the work on speed."""


@dataclass(frozen=True)
class Mark:
    """What was known at a promotion."""

    at_s: float
    done: int
    """Tuples that the counting component had executed."""
    trees: int
    """Complete trees of all spouts."""
    collected_bytes: int
    """Bytes that had come to the driver at the ends of lanes."""


def steady_marks(marks: Sequence[Mark]) -> Sequence[Mark]:
    """The marks of the steady middle; the first of them is where it begins.

    Raises:
        ValueError: there are too few.
    """
    full = [mark for before, mark in itertools.pairwise(marks) if mark.done > before.done]
    full = [*marks[:1], *full][:-1]
    if len(full) < 2:
        raise ValueError(f"{len(marks)} micro-batches are too few for a steady middle: give more --words")
    started = [mark for mark in full if mark.done >= START * marks[-1].done]
    return started if len(started) >= 2 else full[-2:]


def steady_rate(marks: Sequence[Mark]) -> float:
    """Tuples a second in the steady middle of a run.

    >>> steady_rate([Mark(0.0, 10, 0, 0), Mark(2.0, 100, 0, 0), Mark(3.0, 200, 0, 0), Mark(4.0, 210, 0, 0)])
    100.0
    """
    steady = steady_marks(marks)
    return (steady[-1].done - steady[0].done) / (steady[-1].at_s - steady[0].at_s)


def start(topology: Topology, component: str = "count") -> tuple[RunningOnSpark, list[Mark]]:
    """Start a topology; the list gets a mark at each promotion, with what ``component`` has executed."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    marks: list[Mark] = []
    running = topology.start(master=MASTER)

    def note(report: MicroBatchReport) -> None:
        counts = report.metrics.components
        trees = sum(counts[spec.id].acked for spec in topology.spouts if spec.id in counts)
        done = report.metrics.of(component).executed
        marks.append(Mark(time.perf_counter(), done, trees, running.collected_bytes))

    running.on_micro_batch(note)
    return running, marks


def run(topology: Topology) -> list[Mark]:
    """Run a topology to its end; a mark for each promotion.

    Raises:
        RuntimeError: it did not end, or a tree failed.
    """
    running, marks = start(topology)
    try:
        if not running.await_finished(TIMEOUT_SECS):
            raise RuntimeError(f"{topology.name!r} did not finish within {TIMEOUT_SECS} s")
        failed = {name: counts.failed for name, counts in running.metrics().components.items() if counts.failed}
    finally:
        running.close()
    if failed:
        raise RuntimeError(f"{topology.name!r} failed trees: {failed}")
    return marks


def rate_of(topology: Topology, text: Text) -> float:
    """Words a second that a word count of the whole text counts.

    Raises:
        RuntimeError: it did not count every word once.
    """
    marks = run(topology)
    if marks[-1].done != text.words:
        raise RuntimeError(f"{topology.name!r} counted {marks[-1].done} words, the text has {text.words}")
    return steady_rate(marks)


def one_level(name: str, spout: PartitionedSpout, bolt: BoltBase) -> Topology:
    """A spout, and ``bolt`` behind a fields grouping on ``word``: one shuffle, one stateful level."""
    builder = TopologyBuilder(name, Config(message_timeout_secs=120))
    builder.set_spout("source", spout)
    builder.set_bolt("count", bolt, parallelism=PARALLELISM).fields_grouping("source", ["word"])
    return builder.build()


def in_turn(rounds: int, *contenders: Callable[[], float]) -> list[tuple[float, ...]]:
    """Call the contenders A B A B ..., ``rounds`` times; each one's values.

    >>> values = iter([1, 2, 3, 4])
    >>> in_turn(2, lambda: next(values), lambda: next(values))
    [(1, 3), (2, 4)]
    """
    turns = [tuple(contender() for contender in contenders) for _ in range(rounds)]
    return [tuple(values) for values in zip(*turns, strict=True)]
