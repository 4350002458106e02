"""Classes that declare the fields of streams, and what a bolt declares to read of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypedDict

import pytest

from sparkbolt import BasicBolt, Direct, Spout, TopologyBuilder, Tumbling, WindowedBolt, bolt
from sparkbolt.api.components import BoltBase
from sparkbolt.api.tuples import StreamDef, parse_outputs
from sparkbolt.errors import InvalidTopology
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout, JsonLinesSpout
from sparkbolt.testing import TopologyTestDriver


class Order(NamedTuple):
    customer: str
    amount: float


@dataclass
class Problem:
    why: str
    order: Any
    MOST: ClassVar[int] = 3


class Total(TypedDict):
    customer: str
    total: float


class Orders(Spout):
    outputs = {"default": Order, "problems": Problem}

    def next_tuple(self, collector: Any) -> None: ...


@pytest.mark.parametrize(
    ("outputs", "fields"),
    [(Order, ("customer", "amount")), (Problem, ("why", "order")), (Total, ("customer", "total"))],
)
def test_a_class_declares_the_fields_of_a_stream(outputs: Any, fields: tuple[str, ...]) -> None:
    assert parse_outputs(outputs) == (StreamDef("default", fields),)
    assert parse_outputs({"one": outputs, "two": Direct(["a"])})[0] == StreamDef("one", fields)
    assert JsonLinesSpout("orders.jsonl", outputs=outputs).outputs == list(fields)


def test_a_class_without_fields_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="the class int declares no fields, expected a NamedTuple, a dataclass or a"):
        parse_outputs(int)


def check(tup: Any) -> Any:
    if tup.amount < 0:
        return None
    return Order(tup.customer, float(tup.amount))


def test_a_bolt_emits_instances_of_the_class_that_declares_its_fields() -> None:
    builder = TopologyBuilder("orders")
    builder.set_spout("orders", Orders())
    builder.set_bolt("check", bolt(outputs=Order, inputs=Order)(check)).shuffle_grouping("orders")
    with TopologyTestDriver(builder) as driver:
        driver.feed("orders", Order("ann", 3), message_id=1)
        driver.feed("orders", {"customer": "bob", "amount": -1}, message_id=2)
        driver.run_until_idle()
        assert driver.emitted("check") == [["ann", 3.0]]
        assert sorted(driver.acked("orders")) == [1, 2]


class Window(WindowedBolt):
    outputs = Total
    window = Tumbling(minutes=1, timestamp="amount", late="late")

    def execute(self, window: Any, collector: Any) -> Any: ...


def test_a_windowed_bolt_adds_its_stream_of_late_tuples_to_a_class() -> None:
    builder = TopologyBuilder("orders")
    builder.set_spout("orders", JsonLinesSpout("orders.jsonl", outputs=Order))
    builder.set_bolt("window", Window()).shuffle_grouping("orders")
    assert builder.build().components["window"].streams == (
        StreamDef("late", ("late_tuple",)),
        StreamDef("default", ("customer", "total")),
    )


class Reading(BasicBolt):
    def __init__(self, inputs: Any) -> None:
        self.inputs = inputs

    def execute(self, tup: Any, collector: Any) -> None: ...


class Ids(NamedTuple):
    customer: int
    amount: float


class Wrong(NamedTuple):
    costumer: str


class Loose(NamedTuple):
    amount: Any
    customer: str | int


def mistakes(reading: BoltBase, stream: str = "default") -> list[str]:
    builder = TopologyBuilder("orders")
    builder.set_spout("orders", Orders())
    builder.set_bolt("read", reading).shuffle_grouping("orders", stream)
    try:
        builder.build()
    except InvalidTopology as error:
        return [str(mistake) for mistake in error.mistakes]
    return []


@pytest.mark.parametrize("inputs", [None, Order, Loose, ["amount"], ("customer", "amount")])
def test_a_bolt_may_declare_what_it_reads(inputs: Any) -> None:
    assert mistakes(Reading(inputs)) == []


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (Wrong, "it reads 'costumer', which stream 'default' of 'orders' does not declare: did you mean 'customer'?"),
        (["total"], "it reads 'total', which stream 'default' of 'orders' does not declare: its fields are ['customer"),
        (Ids, "it reads 'customer' as int, and stream 'default' of 'orders' declares it as str"),
        ("customer", "its inputs: stream 'default': its fields are 'customer', expected a list of names"),
        (int, "its inputs: the class int declares no fields"),
    ],
)
def test_what_a_bolt_reads_is_checked_against_the_streams_it_gets(inputs: Any, why: str) -> None:
    [mistake] = mistakes(Reading(inputs))
    assert mistake.startswith(f"bolt 'read': {why}")
    assert mistakes(bolt(inputs=inputs)(print)) == [mistake]


def test_ints_may_be_read_as_floats_and_no_streams_type_is_guessed() -> None:
    class Whole(NamedTuple):
        customer: str
        amount: int

    class Numbers(Orders):
        outputs = {"default": Whole, "problems": ["customer", "amount"]}

    builder = TopologyBuilder("orders")
    builder.set_spout("orders", Numbers())
    builder.set_bolt("read", Reading(Order)).shuffle_grouping("orders").shuffle_grouping("orders", "problems")
    builder.build()


def emitted(make: Any, outputs: Any) -> Any:
    @bolt(outputs=outputs)
    def same(tup: Any) -> Any:
        yield tup

    builder = TopologyBuilder("generated")
    builder.set_spout("made", GeneratorSpout(make, outputs=outputs))
    builder.set_bolt("same", same).shuffle_grouping("made")
    engine = LocalEngine(builder.build())
    while engine.step() is not None:
        pass
    return engine.ledger.metrics.of("same").acked


@pytest.mark.parametrize(
    ("make", "outputs"),
    [
        (lambda: range(3), ["n"]),
        (lambda: ({"n": n} for n in range(3)), ["n"]),
        (lambda: (Order("ann", n) for n in range(3)), Order),
    ],
)
def test_a_generator_gives_values_by_name_and_the_value_of_the_only_field(make: Any, outputs: Any) -> None:
    assert emitted(make, outputs) == 3
