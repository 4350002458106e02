"""The same program with annotations, which ``mypy --strict`` accepts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sparkbolt import BasicBolt, TopologyBuilder, TopologyContext, Tuple, bolt
from sparkbolt.spouts import JsonLinesSpout
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.types import BasicCollector


class Order(NamedTuple):
    customer: str
    amount: float


@dataclass
class Problem:
    customer: str
    why: str


@bolt(outputs={"default": Order, "problems": Problem}, inputs=Order)
def check(tup: Order) -> Iterator[Order]:
    yield Order(tup.customer.lower(), float(tup.amount))


class Total(BasicBolt):
    inputs = Order
    outputs = {"default": ["customer", "total"], "problems": Problem}

    def prepare(self, context: TopologyContext) -> None:
        self.totals: dict[str, float] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        match tup:
            case {"customer": str(customer), "amount": float(amount)} if amount > 0:
                self.totals[customer] = self.totals.get(customer, 0.0) + amount
                collector.emit({"customer": customer, "total": self.totals[customer]})
            case _:
                collector.emit(Problem(tup.customer, f"{tup[1]} is no amount"), stream="problems")


builder = TopologyBuilder("orders")
orders = builder.set_spout("orders", JsonLinesSpout("orders/*.jsonl", outputs=Order))
checked = builder.set_bolt("check", check, parallelism=2).shuffle_grouping(orders)
total = builder.set_bolt("total", Total(), parallelism=2).fields_grouping(checked, ["customer"])
problems = builder.set_bolt("problems", bolt(outputs=["why"])(lambda tup: [tup.why]))
problems.shuffle_grouping(checked.stream("problems")).shuffle_grouping(total.stream("problems"))


def check_totals() -> None:
    """What a test of this program checks."""
    with TopologyTestDriver(builder) as driver:
        driver.feed("orders", {"customer": "Ann", "amount": 3}, message_id=1)
        driver.feed("orders", Order("bob", -1), message_id=2)
        driver.run_until_idle()
        assert driver.emitted("total") == [{"customer": "ann", "total": 3.0}]
        assert driver.emitted("total", "problems") == [Problem("bob", "-1.0 is no amount")]
        assert driver.emitted("problems") == [["-1.0 is no amount"]]
        assert sorted(driver.acked("orders")) == [1, 2]
