"""Operators without state: each is a bolt with a name, streams, and a tree for each tuple."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from sparkbolt import BasicBolt, Bolt, bolt
from sparkbolt.bolts import Lookup
from sparkbolt.errors import ConfigError, InvalidTopology, Unavailable
from sparkbolt.layout.lane import lay_out
from sparkbolt.testing import TopologyTestDriver
from tests.unit.streams.shop import ORDERS, Rows, builder, feed, order, orders_of, stream


class Keep(Bolt):
    """Acks what it gets."""

    def execute(self, tup: Any, collector: Any) -> None:
        collector.ack(tup)


class Priced(NamedTuple):
    customer: str
    price: float


def test_map_emits_one_tuple_for_each() -> None:
    shop = builder()
    orders = orders_of(shop)
    orders.map(lambda tup: [tup.customer, tup.amount * 2], name="doubled")
    orders.map(lambda tup: Priced(tup.customer, tup.amount / 2), outputs=Priced, name="priced")
    orders.map(lambda tup: tup.amount, outputs=["amount"], name="amounts")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3))
        assert driver.emitted("doubled") == [["ann", 6]]
        assert driver.emitted("priced") == [{"customer": "ann", "price": 1.5}]
        assert driver.emitted("amounts") == [[3]]
        assert len(driver.acked("orders")) == 1


def test_flat_map_emits_each_value_of_a_list_or_a_generator() -> None:
    shop = builder()
    lines = stream(shop, "lines", "line")
    lines.flat_map(lambda tup: tup.line.split(), outputs=["word"], name="listed")
    lines.flat_map(lambda tup: ([word, len(word)] for word in tup.line.split()), outputs=["word", "n"], name="made")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "lines", {"line": "to be"}, {"line": ""})
        assert driver.emitted("listed") == [["to"], ["be"]]
        assert driver.emitted("made") == [["to", 2], ["be", 2]]
        assert len(driver.acked("lines")) == 2


def test_filter_keeps_tuples_and_their_fields() -> None:
    shop = builder()
    large = orders_of(shop).filter(lambda tup: tup.amount > 3, name="large")
    assert large.fields == ("customer", "amount")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", *ORDERS)
        assert driver.emitted("large") == [["bob", 5], ["ann", 4]]


def test_branch_sends_a_tuple_to_the_first_function_that_is_true_or_to_the_rest() -> None:
    shop = builder()
    large, odd, others = orders_of(shop).branch(lambda tup: tup.amount > 4, lambda tup: tup.amount % 2, name="sizes")
    for name, part in (("large", large), ("odd", odd), ("others", others)):
        part.map(lambda tup: tup.amount, outputs=["amount"], name=name)
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", *ORDERS)
        assert [driver.emitted(name) for name in ("large", "odd", "others")] == [[[5]], [[3]], [[4]]]


def test_a_merged_stream_has_the_tuples_of_all() -> None:
    shop = builder()
    orders = orders_of(shop)
    merged = orders.merge(stream(shop, "returns", "customer", "amount"), orders)
    merged.map(lambda tup: tup.amount, outputs=["amount"], name="amounts")
    shop.set_bolt("keep", Keep()).shuffle_grouping(merged)
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3))
        feed(driver, "returns", order("ann", -1))
        assert driver.emitted("amounts") == [[3], [-1]]
    sources = [sub.source for sub in shop.build().component("keep").subscriptions]
    assert sources == ["orders", "returns"]


def test_lookup_adds_a_field() -> None:
    shop = builder()
    lookup = Lookup(lambda keys: {key: "Ann Lee" for key in keys if key == "ann"})
    named = orders_of(shop).lookup(lookup, on="customer", into="name", default="?", name="named")
    assert named.fields == ("customer", "amount", "name")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3), order("bob", 5))
        assert driver.emitted("named") == [["ann", 3, "Ann Lee"], ["bob", 5, "?"]]
        assert len(driver.acked("orders")) == 2


def test_a_lookup_whose_source_is_away_fails_its_tuple_as_unavailable() -> None:
    def fetch(keys: list[Any]) -> dict[Any, Any]:
        raise Unavailable("the database is away")

    shop = builder()
    orders_of(shop).lookup(Lookup(fetch), on=["customer", "amount"], into="name", name="named")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3))
        (failed,) = driver.failed("orders")
        assert (failed.cause, "the database is away" in failed.story) == ("unavailable", True)


def test_a_function_that_raises_fails_its_tuple_alone() -> None:
    shop = builder()
    orders_of(shop).map(lambda tup: [tup.customer, 10 / tup.amount], name="shares")
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 0), order("bob", 5))
        assert driver.emitted("shares") == [["bob", 2.0]]
        (failed,) = driver.failed("orders")
        assert "division by zero" in failed.story


class Checked(BasicBolt):
    outputs = {"default": ["customer"], "errors": ["why"]}

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.amount < 0:
            collector.emit([f"{tup.amount}"], stream="errors")
        else:
            collector.emit([tup.customer])


def test_a_bolt_goes_through_and_has_other_streams() -> None:
    shop = builder()
    checked = orders_of(shop).through(Checked(), name="checked")
    checked.stream("errors").map(lambda tup: tup.why, name="reasons")
    shop.set_bolt("keep", Keep()).shuffle_grouping(checked).shuffle_grouping(checked.stream("errors"))
    with TopologyTestDriver(shop) as driver:
        feed(driver, "orders", order("ann", 3), order("bob", -5))
        assert driver.emitted("checked") == [["ann"]]
        assert driver.emitted("reasons") == [["-5"]]


def test_a_handle_an_id_and_a_stream_handle_become_streams() -> None:
    shop = builder()
    spout = shop.set_spout("orders", Rows(["customer", "amount"]), parallelism=2)
    checked = shop.set_bolt("checked", Checked()).shuffle_grouping(spout)
    assert shop.stream(spout).fields == shop.stream("orders").fields == ("customer", "amount")
    assert shop.stream(checked.stream("errors")).fields == ("why",)
    shop.stream(checked).to(Keep(), name="end", fuse=False)
    assert [spec.id for spec in shop.build().bolts] == ["checked", "end"]
    assert shop.build().component("end").config.fuse is False


def test_operators_have_ids_and_tasks_of_those_above_and_run_fused() -> None:
    shop = builder()
    lines = stream(shop, "lines", "line", parallelism=3)
    words = lines.flat_map(lambda tup: tup.line.split(), outputs=["word"]).filter(lambda tup: tup.word)
    words.flat_map(lambda tup: [tup.word])
    words.map(lambda tup: tup.word, name="same", parallelism=2).map(lambda tup: tup.word)
    words.to(Keep())
    topology = shop.build()
    assert {spec.id: spec.parallelism for spec in topology.bolts} == {
        "lines-flat-map-1": 3,
        "lines-filter-1": 3,
        "lines-flat-map-2": 3,
        "same": 2,
        "same-map-1": 2,
        "lines-keep-1": 3,
    }
    assert set(lay_out(topology, 2).fused_into) == {spec.id for spec in topology.bolts}


def test_a_spout_without_a_name_is_named_after_its_class() -> None:
    shop = builder()
    for _ in range(2):
        shop.stream(Rows(["line"])).to(Keep())
    assert [spec.id for spec in shop.build().components.values()] == [
        "rows-1",
        "rows-1-keep-1",
        "rows-2",
        "rows-2-keep-1",
    ]


def test_renamed_from_and_settings_are_those_of_the_bolt() -> None:
    shop = builder()
    orders_of(shop).map(lambda tup: [1, 2], name="new", renamed_from="old", tick_tuple_freq_secs=5.0)
    spec = shop.build().component("new")
    assert (spec.renamed_from, spec.config.tick_tuple_freq_secs) == ("old", None)  # operators get no ticks


@bolt(outputs=["word"])
def split(tup: Any) -> Any:
    yield [tup["line"]]


def test_mistakes_name_the_operator_and_the_mend() -> None:
    shop = builder()
    orders: Any = orders_of(shop)
    other = orders_of(builder())
    cases: list[tuple[Any, str]] = [
        (lambda: orders.map("amount"), "function='amount': expected a function of a tuple"),
        (lambda: orders.flat_map(split), r"flat_map: got the bolt 'split', expected a function: write .through"),
        (lambda: orders.map(lambda tup: 1, outputs="total"), r"did you mean outputs = \['total'\]"),
        (lambda: orders.key_by("custommer"), "no field 'custommer'; did you mean 'customer'|no field 'custommer'"),
        (lambda: orders.key_by(), "key_by.. has no field"),
        (lambda: orders.merge(other), "expected a Stream of the same builder"),
        (lambda: orders.merge(stream(shop, "lines", "line")), "has other fields than"),
        (lambda: orders.branch(), "branch.. has no function"),
        (lambda: orders.stream("errors"), "declares no stream 'errors'"),
        (lambda: orders.lookup({}, on="customer", into="name"), "expected a Lookup"),
        (lambda: orders.lookup(Lookup(lambda keys: {}), on="customer", into="amount"), "two fields 'amount'"),
        (lambda: shop.stream("nothing"), "expected a spout, or the handle or the id of a declared component"),
        (lambda: shop.stream("orders", name="others"), "the component is declared already"),
    ]
    for act, text in cases:
        with pytest.raises(ConfigError, match=text):
            act()


def test_mistakes_of_the_declaration_are_those_of_build() -> None:
    shop = builder()
    orders_of(shop).map(lambda tup: 1, name="orders", parallelism=0)
    with pytest.raises(InvalidTopology, match="already that of a spout"):
        shop.build()
