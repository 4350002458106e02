"""Operators that keep one value for each key: their results, their state after a restart, and with more tasks."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbolt import BasicBolt, Topology
from sparkbolt.errors import ConfigError
from sparkbolt.streams.aggregates import KINDS
from sparkbolt.testing import TopologyTestDriver, simulate
from tests.unit.streams.shop import ORDERS, builder, feed, order, orders_of


def more(so_far: Any, tup: Any) -> dict[str, Any]:
    """One order of two."""
    return {"amount": so_far.amount + tup.amount}


class Rate(BasicBolt):
    """A bolt of the user's."""

    outputs = ["customer"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup.customer])


def keyed(parallelism: int = 1) -> Topology:
    """A count, a reduce and an aggregate of orders."""
    shop = builder()
    by_customer = orders_of(shop).key_by("customer")
    by_customer.count(name="count", parallelism=parallelism)
    by_customer.reduce(more, name="reduce", parallelism=parallelism)
    by_customer.aggregate(n="count", largest=("amount", "max"), name="aggregate", parallelism=parallelism)
    return shop.build()


def last(driver: TopologyTestDriver) -> dict[str, Any]:
    """What each emitted last."""
    return {name: list(driver.emitted(name)[-1]) for name in ("count", "reduce", "aggregate")}


def test_each_tuple_gives_the_value_of_its_key_so_far() -> None:
    with TopologyTestDriver(keyed(2)) as driver:
        feed(driver, "orders", *ORDERS)
        assert driver.emitted("count") == [["ann", 1], ["bob", 1], ["ann", 2]]
        assert driver.emitted("reduce") == [["ann", 3], ["bob", 5], ["ann", 7]]
        assert driver.emitted("aggregate") == [["ann", 1, 3], ["bob", 1, 5], ["ann", 2, 4]]
        assert len(driver.acked("orders")) == 3


def test_values_survive_a_restart_and_move_with_their_keys_to_other_tasks() -> None:
    with TopologyTestDriver(keyed()) as driver:
        feed(driver, "orders", *ORDERS, *(order(f"c{number}", 1) for number in range(20)))
        driver.restart(keyed(3))
        feed(driver, "orders", order("ann", 1))
        assert last(driver) == {"count": ["ann", 3], "reduce": ["ann", 8], "aggregate": ["ann", 3, 4]}
        feed(driver, "orders", order("c7", 1))
        assert last(driver) == {"count": ["c7", 2], "reduce": ["c7", 2], "aggregate": ["c7", 2, 1]}


def test_after_a_change_of_the_program_new_functions_continue_with_old_values() -> None:
    def product(so_far: Any, tup: Any) -> list[Any]:
        return [tup.customer, so_far.amount * tup.amount]

    def program(function: Any) -> Topology:
        shop = builder()
        orders_of(shop).key_by("customer").reduce(function, name="reduce")
        return shop.build()

    with TopologyTestDriver(program(more)) as driver:
        feed(driver, "orders", *ORDERS)
        driver.restart(program(product))
        feed(driver, "orders", order("ann", 10))
        assert driver.emitted("reduce")[-1] == ["ann", 70]


def test_a_key_of_several_fields_is_a_key() -> None:
    shop = builder()
    pairs = orders_of(shop).key_by("customer", "amount")
    pairs.count(name="count", into="times", parallelism=2)
    pairs.aggregate(n="count", name="aggregate")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3), order("ann", 4), order("ann", 3))
        assert driver.emitted("count")[-1] == {"customer": "ann", "amount": 3, "times": 2}
        assert driver.emitted("aggregate")[-1] == ["ann", 3, 2]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("count", [1, 2, 2, 3]),
        ("sum", [3, 8, 8, 11]),
        ("min", [3, 3, 3, 3]),
        ("max", [3, 5, 5, 5]),
        ("mean", [3.0, 4.0, 4.0, 11 / 3]),
        ("first", [3, 3, 3, 3]),
        ("last", [3, 5, 5, 3]),
        ("list", [[3], [3, 5], [3, 5], [3, 5, 3]]),
        ("set", [[3], [3, 5], [3, 5], [3, 5]]),
    ],
)
def test_aggregates_leave_out_none(kind: str, expected: list[Any]) -> None:
    assert kind in KINDS
    shop = builder()
    orders_of(shop).key_by("customer").aggregate(result=("amount", kind), name="aggregate")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3), order("ann", 5), order("ann", None), order("ann", 3))
        assert [row[1] for row in driver.emitted("aggregate")] == expected


def test_without_a_value_a_count_is_0_lists_are_empty_and_others_are_none() -> None:
    shop = builder()
    every: dict[str, Any] = {kind: ("amount", kind) for kind in KINDS}
    orders_of(shop).key_by("customer").aggregate(**every, name="aggregate")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", None))
        empty = {"count": 0, "list": [], "set": []}
        expected = {"customer": "ann", **{kind: empty.get(kind) for kind in KINDS}}
        assert driver.emitted("aggregate") == [expected]


def test_a_function_that_raises_changes_no_value() -> None:
    shop = builder()
    orders_of(shop).key_by("customer").reduce(more, name="reduce")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3), order("ann", "x"), order("ann", 4))
        assert driver.emitted("reduce") == [["ann", 3], ["ann", 7]]
        assert len(driver.failed("orders")) == 1


def test_a_result_of_a_reduce_has_the_fields_of_the_stream() -> None:
    shop = builder()
    orders_of(shop).key_by("customer").reduce(lambda so_far, tup: so_far.amount, name="reduce")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3), order("ann", 4))
        (failed,) = driver.failed("orders")
        assert "declares 2 field(s) ('customer', 'amount')" in failed.story


def test_bolts_behind_a_keyed_stream_get_their_tuples_by_key() -> None:
    shop = builder()
    by_customer = orders_of(shop, parallelism=2).key_by("customer")
    by_customer.through(Rate(), name="rate")
    by_customer.to(Rate(), name="end")
    topology = shop.build()
    for name in ("rate", "end"):
        assert [sub.describe() for sub in topology.component(name).subscriptions] == ["fields(customer)"]
        assert topology.component(name).parallelism == 2


def test_mistakes_of_aggregates_name_them() -> None:
    by_customer: Any = orders_of(builder()).key_by("customer")
    cases: list[tuple[Any, str]] = [
        (lambda: by_customer.aggregate(), "aggregate.. has no aggregate"),
        (lambda: by_customer.aggregate(total="amount"), "expected a field and a kind"),
        (lambda: by_customer.aggregate(total=("amount", "suum")), "there is no kind 'suum'.*sum"),
        (lambda: by_customer.aggregate(total=("amout", "sum")), "there is no field 'amout'"),
        (lambda: by_customer.aggregate(customer="count"), "two fields 'customer'"),
        (lambda: by_customer.count(into="customer"), "two fields 'customer'"),
        (lambda: by_customer.reduce(None), "expected a function of two tuples"),
    ]
    for act, text in cases:
        with pytest.raises(ConfigError, match=text):
            act()


@pytest.mark.slow
def test_keyed_operators_keep_their_promises_under_faults() -> None:
    report = simulate(keyed(2), seed=3, feed={"orders": [[f"c{number % 5}", number] for number in range(60)]})
    assert report.ok, report.story
