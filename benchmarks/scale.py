"""How cost grows with size.

What does twice as much cost: sources, kafka_partitions, failures, open trees, a backlog, files, tasks, components,
distinct words, keys whose tasks change, executors? Each axis gives its costs at several sizes, and the growth of each
cost, which is 1 where it is linear.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import scale_division, scale_driver, scale_rebalance, scale_spark, scale_topologies
from benchmarks.figures import Figure
from benchmarks.runs import Options


def figures(options: Options) -> Iterator[Figure]:
    """Measure: what needs no Spark first."""
    for axis in (*scale_driver.AXES, *scale_topologies.AXES, *scale_division.AXES):
        yield from axis.figures(options.rounds)
    yield from scale_spark.figures()
    yield from scale_rebalance.figures()
