"""A running sum: the turnover of the last 10,000 orders, after every 1,000, without adding 10,000 numbers each time.

    python examples/running_sum.py
    sparkbolt run examples.running_sum:topology

What is new in a window is added and what has expired is taken away, so a window of any size costs what changes. The
sum is an attribute, and so it is as durable as the window.
"""

from __future__ import annotations

import pyarrow.compute as pc

from sparkbolt import Count, TopologyBuilder, WindowedBolt
from sparkbolt.bolts import PrintBolt
from sparkbolt.spouts import GeneratorSpout

ORDERS = 50_000


def orders():
    """Orders of 1 to 500 cents."""
    for number in range(ORDERS):
        yield [number, 1 + number * 7919 % 500]


class Turnover(WindowedBolt):
    """The sum of a window's amounts."""

    outputs = ["orders", "cents"]

    def prepare(self, context):
        self.cents = 0

    def execute(self, window, collector):
        new, expired = window.get_new(), window.get_expired()
        self.cents += pc.sum(new.column("cents")).as_py()
        if len(expired):
            self.cents -= pc.sum(expired.column("cents")).as_py()
        collector.emit([len(window), self.cents])


def build():
    """The topology: orders, turnover, print."""
    builder = TopologyBuilder("running-sum")
    builder.set_spout("orders", GeneratorSpout(orders, outputs=["order", "cents"], count=ORDERS))
    turnover = Turnover().with_window(Count(10_000), slide=Count(1_000))
    builder.set_bolt("turnover", turnover).global_grouping("orders")
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("turnover")
    return builder.build()


topology = build()

if __name__ == "__main__":
    topology.run()
