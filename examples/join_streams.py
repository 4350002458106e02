"""The join of ``join.py`` with streams as functions: an order and its payment, by the number of the order.

    python examples/join_streams.py

The join keeps the values of a tuple for ten minutes and acks it at once. An order that is never paid is forgotten after
that; ``join.py`` holds the tuple itself instead, so that such an order fails, and is given up with its story.
"""

from __future__ import annotations

import random

from sparkbolt import TopologyBuilder, minutes
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


def build():
    """The topology: orders and payments, join, print."""
    builder = TopologyBuilder("join-streams")
    ordered = builder.stream(GeneratorSpout(orders, outputs=["order", "customer"], count=ORDERS), name="orders")
    paid = builder.stream(GeneratorSpout(payments, outputs=["order", "amount"], count=ORDERS - 1), name="payments")
    bought = ordered.join(paid, on="order", within=minutes(10), name="bought", parallelism=2)
    bought.to(PrintBolt(), name="print", parallelism=1)
    return builder.build()


topology = build()

if __name__ == "__main__":
    topology.run()
