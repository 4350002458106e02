"""What user code says through its collectors: whole or not at all, with an error that names mistake and mend."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from sparkbolt import ColumnBolt, Spout, TopologyBuilder
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.sim.engine import LocalEngine
from tests.unit.worker.emitting import BAD, BOLTS, GOOD, LAST, STREAMS, Basic, ByHand, Other, Sink, Window, run

A_TUPLE = Tuple.of(Origin("lines", 0, "default", ("word",)), ["x"])


class Half:
    """A sequence that breaks off where it is read."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[int]:
        yield 1
        raise LookupError("half")


@dataclass
class Wide:
    a: int
    b: int
    c: int


class Pair(NamedTuple):
    b: str
    a: int


@dataclass
class Word:
    word: str


MISTAKES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "another field": (
        lambda c, t: c.emit({"wort": 1}),
        r"'tested' emitted a dict on stream 'default', which declares 1 field\(s\) \('word',\): 'word' is missing; "
        r"there is no field 'wort': did you mean 'word'\?$",
    ),
    "a mapping as a value": (lambda c, t: c.emit({"to": 1}), r"there is no field 'to'; .* is emitted as \[the_mapping"),
    "a field too few": (lambda c, t: c.emit({"a": 1}, stream="pair"), r"\('a', 'b'\): 'b' is missing$"),
    "a field too many": (
        lambda c, t: c.emit(Wide(1, 2, 3), stream="pair"),
        r"emitted a Wide on stream 'pair', which declares 2 field\(s\) \('a', 'b'\): there is no field 'c'$",
    ),
    "a tuple too long": (lambda c, t: c.emit(("a", "b")), "emitted 2 values on .*: one value that is itself a list"),
    "a str": (lambda c, t: c.emit("abc", stream="pair"), r"emitted the str 'abc' on .*: did you mean \['abc'\]\?"),
    "None": (lambda c, t: c.emit(None), r"emitted None on .*: did you mean \[None\]\?"),
    "a method": (lambda c, t: c.emit(str.split), "emitted a method_descriptor on .*: did you forget to call it"),
    "a set": (lambda c, t: c.emit({1}), r"emitted a set on .*: a set has no order"),
    "a class": (lambda c, t: c.emit(list), r"emitted a type on"),
    "half": (lambda c, t: c.emit(Half(), stream="pair"), r"LookupError: half"),
    "no task": (lambda c, t: c.emit_direct("x", [9], stream="to"), r"emitted to task 'x' on stream 'to': expected the"),
    "direct": (lambda c, t: c.emit([9], stream="to"), r"stream 'to' of 'tested' is direct: use emit_direct"),
    "returned a str": (lambda c, t: "abc", r"execute of 'tested' returned the str 'abc': yield a list"),
}


@pytest.mark.parametrize("kind", BOLTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_fails_its_tuple_with_the_fix_and_does_not_shift_its_neighbours(kind: Any, mistake: str) -> None:
    emit, why = MISTAKES[mistake]
    driver = run(kind(emit))
    [failed] = driver.failed("numbers")
    assert failed.message_id == BAD
    assert re.search(why, failed.reason), failed.reason
    assert sorted(driver.acked("numbers")) == [GOOD, LAST]
    assert driver.emitted("tested") == [["w0"], ["w2"]]
    assert driver.emitted("tested", "pair") == [[0, "b"], [2, "b"]]
    assert driver.emitted("tested", "to") == []


@pytest.mark.parametrize("kind", BOLTS, ids=lambda kind: kind.__name__)
def test_values_yielded_by_execute_are_emitted_anchored_to_its_tuple(kind: Any) -> None:
    def emit(collector: Any, tup: Any) -> Iterator[list[Any]]:
        yield ["x"]
        if kind is ByHand:
            collector.ack(tup)
        yield ("y",)

    driver = run(kind(emit))
    assert sorted(driver.acked("numbers")) == [GOOD, BAD, LAST]
    assert driver.emitted("tested") == [["w0"], ["x"], ["y"], ["w2"]]


VALUES: dict[str, tuple[Callable[[Any, Any], Any], list[list[Any]]]] = {
    "a dict": (lambda c, t: c.emit({"word": "x"}), [["x"]]),
    "another mapping": (lambda c, t: c.emit(MappingProxyType({"word": "x"})), [["x"]]),
    "a dataclass": (lambda c, t: c.emit(Word("x")), [["x"]]),
    "a tuple": (lambda c, t: c.emit(A_TUPLE), [["x"]]),
    "a str": (lambda c, t: c.emit("xy"), [["xy"]]),
    "bytes": (lambda c, t: c.emit(b"xy"), [[b"xy"]]),
    "an object": (lambda c, t: c.emit(Decimal(3)), [[Decimal(3)]]),
    "an object with other names": (lambda c, t: c.emit(Wide(1, 2, 3)), [[Wide(1, 2, 3)]]),
    "yielded": (lambda c, t: iter([7, {"word": 8}, Word("x"), ["y"]]), [[7], [8], ["x"], ["y"]]),
    "returned in a list": (lambda c, t: ["to", {"word": "be"}, Word("or"), ["not"]], [["to"], ["be"], ["or"], ["not"]]),
    "returned by name": (lambda c, t: {"word": "x"}, [["x"]]),
}


@pytest.mark.parametrize("kind", BOLTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("values", VALUES)
def test_values_by_name_and_the_value_of_the_only_field_are_emitted(kind: Any, values: str) -> None:
    emit, expected = VALUES[values]

    def acked(collector: Any, tup: Any) -> Any:
        returned = emit(collector, tup)
        if kind is ByHand:
            collector.ack(tup)
        return returned

    driver = run(kind(acked))
    assert driver.failed("numbers") == []
    assert sorted(driver.emitted("tested"), key=repr) == sorted([["w0"], *expected, ["w2"]], key=repr)


@pytest.mark.parametrize("pair", [{"b": "x", "a": 1}, Pair("x", 1), {"b": "x", "a": 1}.items().mapping])
def test_values_by_name_go_to_their_fields_on_any_stream(pair: Any) -> None:
    driver = run(Basic(lambda c, t: c.emit(pair, stream="pair")))
    assert driver.emitted("tested", "pair") == [[0, "b"], [1, "x"], [2, "b"]]


def test_a_default_that_a_mapping_makes_up_is_no_value() -> None:
    driver = run(Basic(lambda c, t: c.emit(defaultdict(int, a=1), stream="pair")))
    assert "'b' is missing" in driver.failed("numbers")[0].reason


def test_columns_are_emitted_by_name() -> None:
    driver = run(Columns(lambda c, b: c.emit({"b": ["x"], "a": pa.array([1])}, stream="pair")), numbers=[BAD])
    assert driver.emitted("tested", "pair") == [[1, "x"]]


async def coroutine(collector: Any, tup: Any) -> None:
    raise AssertionError("it never runs")


async def asynchronous(collector: Any, tup: Any) -> Any:
    yield ["x"]


@pytest.mark.parametrize("kind", [Basic, ByHand, Window], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("lazy", [coroutine, functools.partial(coroutine), asynchronous])
def test_a_coroutine_that_is_never_awaited_fails_its_tuple(kind: Any, lazy: Any) -> None:
    driver = run(kind(lazy))
    assert "only an AsyncBolt runs" in driver.failed("numbers")[0].reason
    assert driver.emitted("tested") == [["w0"], ["w2"]]


class Columns(ColumnBolt):
    outputs = {"default": ["word"], "pair": ["a", "b"]}
    stateless = True

    def __init__(self, emit: Callable[[Any, Any], Any]) -> None:
        self.emit = emit

    def execute(self, batch: pa.RecordBatch, collector: Any) -> Any:
        collector.emit([["before"]])
        return self.emit(collector, batch)


@pytest.mark.parametrize(
    ("emit", "why"),
    [
        (lambda c, b: c.emit(["abc"]), "emitted the str 'abc' as a column on 'default'"),
        (lambda c, b: c.emit([None]), "emitted None as a column"),
        (lambda c, b: c.emit([np.array(1)]), "emitted a ndarray as a column"),
        (lambda c, b: c.emit({"wort": [1]}), "emitted a dict on stream 'default'"),
        (lambda c, b: c.emit("abc"), "emitted the str 'abc' as a column on 'default'"),
        (lambda c, b: c.emit([[1]], anchors=[True]), "emitted 1 rows on 'default' with [True] as anchors"),
        (lambda c, b: c.emit([[1]], anchors=0), "with 0 as anchors"),
        (lambda c, b: iter([["a"]]), "a ColumnBolt emits columns by collector.emit alone"),
    ],
)
def test_a_mistake_in_columns_emits_nothing_of_its_frame(emit: Any, why: str) -> None:
    driver = run(Columns(emit), numbers=[BAD])
    assert why in driver.failed("numbers")[0].reason.replace("emit each list that it gives", why)
    assert driver.emitted("tested") == []


# Spouts.


class Emitting(Spout):
    outputs = STREAMS

    def __init__(self, emit: Callable[[Any, Any], Any]) -> None:
        self.emit = emit
        self.calls = 0
        self.acked: list[Any] = []

    def next_tuple(self, collector: Any) -> Any:
        self.calls += 1
        if self.calls == 2:
            return self.emit(collector, A_TUPLE)
        if self.calls <= 3:
            row = [f"w{self.calls - 1}"]
            collector.emit(row, message_id=self.calls)
            row.append("changed afterwards")
        return None

    @property
    def exhausted(self) -> bool:
        return self.calls > 3


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_a_spout_is_reported_and_emits_nothing(mistake: str) -> None:
    emit, why = MISTAKES[mistake]
    builder = TopologyBuilder("emission")
    builder.set_spout("tested", Emitting(emit))
    sink = builder.set_bolt("sink", Sink(), parallelism=2)
    sink.shuffle_grouping("tested").shuffle_grouping("tested", stream="pair").direct_grouping("tested", stream="to")
    builder.set_bolt("other", Other(), parallelism=2).shuffle_grouping("tested")
    engine = LocalEngine(builder.build())
    reports = []
    while engine.step() is not None:
        reports += engine.reports()
    if mistake.startswith("returned"):
        why = "next_tuple of 'tested' returned .*: a Spout emits by collector.emit alone"
    assert any(re.search(why, report.text) for report in reports), reports
    assert engine.ledger.metrics.of("tested").emitted == 2
    assert engine.ledger.metrics.of("tested").acked == 2
