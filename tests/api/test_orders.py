"""The program with a fixture of the public interface: classes that emit by name, tested with ``topology_driver``."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparkbolt import BasicBolt, TopologyBuilder, bolt
from sparkbolt.pytest_plugin import TopologyDriver
from sparkbolt.spouts import JsonLinesSpout


class Order(NamedTuple):
    customer: str
    amount: float


@bolt(outputs=Order)
def check(tup: Any) -> Any:
    yield Order(tup.customer, float(tup.amount))


class Total(BasicBolt):
    outputs = ["customer", "total"]

    def prepare(self, context: Any) -> None:
        self.totals: dict[str, float] = {}
        self.large = context.metrics.counter("large_orders")

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.amount > 1000:
            self.large.inc()
        self.totals[tup.customer] = self.totals.get(tup.customer, 0.0) + tup.amount
        collector.emit({"customer": tup.customer, "total": self.totals[tup.customer]})


builder = TopologyBuilder("orders")
orders = builder.set_spout("orders", JsonLinesSpout("orders/*.jsonl", outputs=["customer", "amount"], follow=True))
checked = builder.set_bolt("check", check, parallelism=2).shuffle_grouping(orders)
total = builder.set_bolt("total", Total(), parallelism=2).fields_grouping(checked, ["customer"])
topology = builder.build()


def test_totals(topology_driver: TopologyDriver) -> None:
    driver = topology_driver(topology)
    driver.feed("orders", {"customer": "ann", "amount": 3}, message_id=1)
    driver.run_until_idle()
    assert driver.emitted("total") == [{"customer": "ann", "total": 3.0}]
    assert driver.acked("orders") == [1]
    assert driver.metric("large_orders") == 0
