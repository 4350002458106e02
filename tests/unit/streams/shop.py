"""A builder with streams of a shop, and short ways to run what a test builds on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkbolt import Config, Spout, Stream, TopologyBuilder
from sparkbolt.testing import TopologyTestDriver


class Rows(Spout):
    """A spout that emits what a test feeds."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.outputs = list(fields)

    def next_tuple(self, collector: Any) -> None:
        """Emit nothing."""


def builder() -> TopologyBuilder:
    """A topology without components."""
    return TopologyBuilder("shop", Config(message_timeout_secs=30))


def stream(of: TopologyBuilder, name: str, *fields: str, parallelism: int | None = None) -> Stream:
    """A stream of rows."""
    return of.stream(Rows(fields), name=name, parallelism=parallelism)


def feed(driver: TopologyTestDriver, spout: str, *rows: Mapping[str, Any]) -> None:
    """Feed rows one after the other, each with a message id of its own, and wait until nothing is left to do."""
    for row in rows:
        driver.feed(spout, row, message_id=f"{spout}-{len(driver.acked(spout)) + len(driver.failed(spout))}-{row}")
        driver.run_until_idle()


def orders_of(of: TopologyBuilder, **settings: Any) -> Stream:
    """Orders of customers."""
    return stream(of, "orders", "customer", "amount", **settings)


def order(customer: str | None, amount: Any) -> dict[str, Any]:
    """One order."""
    return {"customer": customer, "amount": amount}


ORDERS = [order("ann", 3), order("bob", 5), order("ann", 4)]
