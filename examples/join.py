"""A join that holds tuples: an order waits for its payment, maybe for many micro-batches, maybe over a restart.

    python examples/join.py

What waits is not acked, so its tree stays open; when the other half comes, both are acked and the joined tuple is
anchored to both. An order whose payment never comes times out, is given again, and is given up in the end with
its story.
"""

from __future__ import annotations

import random

from sparkbolt import Bolt, Config, TopologyBuilder
from sparkbolt.bolts import PrintBolt
from sparkbolt.spouts import GeneratorSpout

ORDERS = 200
LOST = 17
"""The order that is never paid."""


def orders():
    """Orders, one after the other."""
    for number in range(ORDERS):
        yield [number, f"customer-{number % 7}"]


def payments():
    """Payments in another order, one of them missing."""
    numbers = [number for number in range(ORDERS) if number != LOST]
    random.Random(11).shuffle(numbers)
    for number in numbers:
        yield [number, 10 + number % 90]


class Join(Bolt):
    """Holds a tuple until its other half comes."""

    outputs = ["order", "customer", "amount"]

    def prepare(self, context):
        self.waiting = {}

    def execute(self, tup, collector):
        other = self.waiting.pop(tup["order"], None)
        if other is None or other.source_component == tup.source_component:
            self.waiting[tup["order"]] = tup  # held; given again after a failure, it takes the old one's place
            return
        order, payment = (tup, other) if tup.source_component == "orders" else (other, tup)
        collector.emit([order["order"], order["customer"], payment["amount"]], anchors=[order, payment])
        collector.ack(order)
        collector.ack(payment)


def build():
    """The topology: orders and payments, join, print."""
    builder = TopologyBuilder("join", Config(message_timeout_secs=5, max_attempts=2))
    builder.set_spout("orders", GeneratorSpout(orders, outputs=["order", "customer"], count=ORDERS))
    builder.set_spout("payments", GeneratorSpout(payments, outputs=["order", "amount"], count=ORDERS - 1))
    join = builder.set_bolt("join", Join(), parallelism=2)
    join.fields_grouping("orders", ["order"]).fields_grouping("payments", ["order"])
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("join")
    return builder.build()


topology = build()

if __name__ == "__main__":
    topology.run()
