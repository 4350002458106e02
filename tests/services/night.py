"""The topologies of ``test_operating``: what somebody is called about at night.

``shop`` reads orders of Kafka, has a slow bolt, and gives up an order whose amount is no number. ``failing`` fails
10,000 records and ends only when it is killed; ``steady`` goes on for ever. ``shop`` finds in the environment what to
read.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta

from sparkbolt import BasicBolt, Config, PartitionedSpout, Range, RetryPolicy, Topology, TopologyBuilder
from sparkbolt.bolts import KafkaBolt
from sparkbolt.spouts import KafkaSpout

SLOW_SECS = 0.01
FAILURES = 10_000
STEADY_ROWS = 50


class Check(BasicBolt):
    """Quick, and wrong for an order without a number."""

    outputs = ["order", "amount"]

    def execute(self, tup, collector):
        collector.emit([tup["order"], float(tup["amount"])])


class Price(BasicBolt):
    """Slow."""

    outputs = ["order", "amount"]

    def execute(self, tup, collector):
        threading.Event().wait(SLOW_SECS)  # it is busy for so long, and nobody waits for anything here
        collector.emit([tup["order"], tup["amount"]])


class Fail(BasicBolt):
    """Fails every second number; a bolt that fails nearly all of them would be taken for one that is out."""

    def execute(self, tup, collector):
        if tup["number"] % 2:
            raise ValueError(f"{tup['number']} is no good")


class Pass(BasicBolt):
    """Does nothing."""

    def execute(self, tup, collector):
        pass


class Numbers(PartitionedSpout):
    """Numbers up to an end, or without one: some in each micro-batch."""

    outputs = ["number"]

    def __init__(self, end: int | None) -> None:
        self.end = end

    def next_ranges(self, progress, budget):
        start = progress.get("numbers", 0)
        end = start + STEADY_ROWS if self.end is None else self.end
        return [Range(0, "numbers", start, end)] if start < end else []

    def read(self, range_):
        for number in range(range_.start, range_.end):
            yield number, [number]


def shop() -> Topology:
    """Orders of Kafka: checked, priced slowly, and written to Kafka."""
    brokers, orders, billed = (os.environ[name] for name in ("NIGHT_BROKERS", "NIGHT_ORDERS", "NIGHT_BILLED"))
    builder = TopologyBuilder("shop", Config(micro_batch_target_ms=500))
    spout = KafkaSpout(
        brokers,
        [orders],
        group=orders,
        value="json",
        outputs=["order", "amount"],
        start="earliest",
        retry=RetryPolicy(max_retries=1, min_backoff=timedelta(milliseconds=50)),
    )
    builder.set_spout("orders", spout)
    builder.set_bolt("check", Check()).shuffle_grouping("orders")
    builder.set_bolt("price", Price()).fields_grouping("check", ["order"])
    builder.set_bolt("bill", KafkaBolt(brokers, topic=billed, key="order")).fields_grouping("price", ["order"])
    return builder.build()


def failing() -> Topology:
    """Records fail, and the stories of all of them are kept."""
    builder = TopologyBuilder("night", Config(stories_max=FAILURES))
    builder.set_spout("source", Numbers(2 * FAILURES), max_attempts=1)
    builder.set_bolt("fail", Fail()).shuffle_grouping("source")
    return builder.build()


def steady() -> Topology:
    """It never ends."""
    builder = TopologyBuilder("night", Config(micro_batch_target_ms=500))
    builder.set_spout("source", Numbers(None))
    builder.set_bolt("pass", Pass()).shuffle_grouping("source")
    return builder.build()
