"""Kafka spouts in tests: a topology of one spout and some bolts, run in this process against whatever brokers.

What bolts were given is in ``SEEN`` by a name of the test's own. Brokers answer in their own time, so a run looks
again and again until a condition holds; the topology's clock goes on with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sparkbolt import BasicBolt, Config, PartitionedSpout, Topology, TopologyBuilder
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_cluster import Cluster
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.offset_stores import Stored, packed
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import KafkaSpout
from tests.patience import PATIENCE_SECS

SEEN: dict[str, list[dict[str, Any]]] = {}


class Keep(BasicBolt):
    """Notes what it gets; fails what ``bad`` says."""

    transient = ("bad",)

    def __init__(self, name: str, bad: Callable[[dict], bool] = lambda _: False) -> None:
        self.name, self.bad = name, bad

    def execute(self, tup, collector):
        see(self.name, dict(tup) | {"attempt": tup.attempt})
        if self.bad(tup):
            raise ValueError(f"{dict(tup)} is bad")


def see(name: str, row: dict[str, Any]) -> None:
    SEEN.setdefault(name, []).append(row)


def topology(name: str, spout: PartitionedSpout, *bolts, **config) -> Topology:
    builder = TopologyBuilder(name, Config(**config))
    builder.set_spout("messages", spout, parallelism=2)
    for number, one in enumerate(bolts or (Keep(name),)):
        builder.set_bolt(f"bolt{number}", one).shuffle_grouping("messages")
    return builder.build()


def spout(brokers: str, name: str, **options) -> KafkaSpout:
    given = {"group": name, "value": "text", "outputs": ["line", "partition", "offset"], "start": "earliest"} | options
    return KafkaSpout(brokers, given.pop("topics", [name]), **given)


def run(engine: LocalEngine, until: Callable[[], bool]) -> None:
    """Run until the condition holds."""
    limit, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
    while not until():
        assert time.monotonic() < limit, (engine.ledger.metrics, engine.failure)
        assert engine.failure is None, engine.failure
        if engine.step() is None:
            pause.wait(0.02)
            engine.now_ms += 20


def poll(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    limit, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
    while not condition():
        assert time.monotonic() < limit
        pause.wait(0.02)


def finished(engine: LocalEngine) -> Callable[[], bool]:
    return lambda: engine.coordinator.finished


def close(engine: LocalEngine) -> None:
    """Stop in an orderly way."""
    for one in engine.coordinator.spouts.values():
        one.close()
    engine.close()


def run_to_end(built: Topology) -> LocalEngine:
    """With ``stop_at_end``: run until all is finished, and stop in an orderly way."""
    engine = LocalEngine(built)
    try:
        run(engine, finished(engine))
    finally:
        close(engine)
    return engine


def committed(brokers: str, topic: str, group: str | None = None) -> dict[int, tuple[int, str]]:
    """The offsets of a topic with their metadata, by kafka_partition; the group is called as the topic is."""
    cluster = Cluster(ClientSettings(brokers), group or topic, read_committed=True, request_secs=10)
    try:
        return {place.number: at for place, at in cluster.committed(cluster.kafka_partitions((topic,))).items()}
    finally:
        cluster.close()


def store_all(brokers: str, topic: str, offsets: dict[int, Stored]) -> None:
    """Write offsets of a topic, by kafka_partition, into the group that is called as the topic is."""
    cluster = Cluster(ClientSettings(brokers), topic, read_committed=True, request_secs=10)
    try:
        cluster.commit({KafkaPartition(topic, part): (at.offset, packed(at)) for part, at in offsets.items()})
    finally:
        cluster.close()
