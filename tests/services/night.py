"""The topology of ``test_operating``: what somebody is called about at night.

It reads orders of Kafka, has a slow bolt, and gives up an order whose amount is no number. It finds in the environment
what to read.
"""

from __future__ import annotations

import os
import threading
from datetime import timedelta

from sparkbolt import BasicBolt, Config, RetryPolicy, Topology, TopologyBuilder
from sparkbolt.bolts import KafkaBolt
from sparkbolt.spouts import KafkaSpout

SLOW_SECS = 0.01


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
