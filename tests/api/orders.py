"""The program of classes, by name and with types, as it stands there, but for its metric."""

from typing import NamedTuple

from sparkbolt import BasicBolt, TopologyBuilder, bolt
from sparkbolt.spouts import JsonLinesSpout


class Order(NamedTuple):
    customer: str
    amount: float


@bolt(outputs=Order)
def check(tup):
    yield Order(tup.customer, float(tup.amount))  # or {"customer": ..., "amount": ...}


class Total(BasicBolt):
    outputs = ["customer", "total"]

    def prepare(self, context):
        self.totals = {}

    def execute(self, tup, collector):
        self.totals[tup.customer] = self.totals.get(tup.customer, 0.0) + tup.amount
        collector.emit({"customer": tup.customer, "total": self.totals[tup.customer]})


builder = TopologyBuilder("orders")
orders = builder.set_spout("orders", JsonLinesSpout("orders/*.jsonl", outputs=["customer", "amount"], follow=True))
checked = builder.set_bolt("check", check, parallelism=2).shuffle_grouping(orders)
total = builder.set_bolt("total", Total(), parallelism=2).fields_grouping(checked, ["customer"])
topology = builder.build()
