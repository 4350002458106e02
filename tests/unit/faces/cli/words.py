"""A small topology and what a display is shown of it: what tests of the command line share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sparkbolt import BasicBolt, Config, PartitionedSpout, Topology, TopologyBuilder
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from tests.topologies import Split


class Lines(PartitionedSpout):
    outputs = ["line"]

    def next_ranges(self, progress: Any, budget: int) -> Any:
        return []

    def read(self, range_: Any) -> Any:
        return iter(())


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


def build() -> Topology:
    builder = TopologyBuilder("words", Config(message_timeout_secs=1))
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    return builder.build()


def report(number: int, executed: int) -> Any:
    metrics = TopologyMetrics(
        {
            "lines": ComponentMetrics(emitted=10, acked=8, pending=2),
            "split": ComponentMetrics(executed=executed, errors=1),
        },
        micro_batches=number + 1,
        open_trees=2,
        micro_batch_ms=123.456,
    )
    return SimpleNamespace(promotion=SimpleNamespace(micro_batch_id=number), metrics=metrics)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def misspelt() -> None:
    TopologyBuilder("misspelt").set_bolt("split", Split()).field_grouping("lines", ["line"])  # type: ignore[attr-defined]
