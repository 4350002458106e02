"""What user code says through its collectors: whole or not at all, with an error that names mistake and mend."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkbolt import ColumnBolt, Spout, TopologyBuilder, bolt
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


MISTAKES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a dict": (
        lambda c, t: c.emit({"word": 1}),
        r"'tested' emitted a dict on stream 'default', which .*\[row\['word'\]\]",
    ),
    "bytes": (lambda c, t: c.emit(b"a"), r"emitted the bytes b'a' on .*: did you mean \[b'a'\]\?"),
    "a str": (lambda c, t: c.emit("a"), r"emitted the str 'a' on .*: did you mean \['a'\]\?"),
    "a long str": (lambda c, t: c.emit("abc"), r"emitted the str 'abc' on .*: did you mean \['abc'\]\?"),
    "an int": (lambda c, t: c.emit(5), r"emitted the int 5 on .*: did you mean \[5\]\?"),
    "None": (lambda c, t: c.emit(None), r"emitted None on .*: emit a list of values"),
    "a tuple": (lambda c, t: c.emit(t), r"emitted a Tuple on .*: did you mean tup.values\?"),
    "a set": (lambda c, t: c.emit({1}), r"emitted a set on .*: a set has no order"),
    "a generator": (lambda c, t: c.emit(x for x in [1]), r"emitted a generator on .*: emit each list that it gives"),
    "an array of no dimension": (lambda c, t: c.emit(np.array(1)), r"emitted a ndarray on .*"),
    "a class": (lambda c, t: c.emit(list), r"emitted a type on"),
    "too many": (
        lambda c, t: c.emit(["a", "b"]),
        r"emitted 2 values on .*: one value that is itself a list is emitted as \[the_list\]",
    ),
    "too few": (lambda c, t: c.emit([1], stream="pair"), r"emitted 1 values on stream 'pair', which declares 2 field"),
    "half": (lambda c, t: c.emit(Half(), stream="pair"), r"LookupError: half"),
    "no stream": (lambda c, t: c.emit(["a"], stream="odd"), r"on stream 'odd'; its declared streams are 'default'"),
    "a stream that is none": (lambda c, t: c.emit(["a"], stream=["b"]), r"on stream \['b'\], expected its name"),
    "no task": (lambda c, t: c.emit_direct("x", [9], stream="to"), r"emitted to task 'x' on stream 'to': expected the"),
    "a task of no consumer": (
        lambda c, t: c.emit_direct(2, [9], stream="to"),
        r"emitted to task 2 on stream 'to', which does not subscribe to it: expected a task of \['sink'\], which are",
    ),
    "a bool": (lambda c, t: c.emit_direct(True, [9], stream="to"), r"emitted to task True on stream 'to': expected"),
    "too many for a task": (lambda c, t: c.emit_direct(3, [9, 9], stream="to"), r"emitted 2 values on stream 'to'"),
    "direct": (lambda c, t: c.emit([9], stream="to"), r"stream 'to' of 'tested' is direct: use emit_direct"),
    "returned": (lambda c, t: 5, r"execute of 'tested' returned the int 5: yield a list of values for each tuple"),
    "returned values": (lambda c, t: ["a"], r"returned \['a'\], expected a list with .*: did you mean \[\['a'\]\]\?"),
    "returned a dict": (lambda c, t: {"word": 1}, r"execute of 'tested' returned a dict: yield a list"),
}


@pytest.mark.parametrize("kind", BOLTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_fails_its_tuple_with_its_mend_and_shifts_no_neighbour(kind: Any, mistake: str) -> None:
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
def test_all_kinds_of_lists_are_values(kind: Any) -> None:
    class Pair(list[int]):
        pass

    def emit(collector: Any, tup: Any) -> None:
        for values in [(1, 2), Pair([3, 4]), np.array([5, 6]), range(7, 9), {"a": 9, "b": 10}.values()]:
            collector.emit(values, stream="pair")
        if kind is ByHand:
            collector.ack(tup)

    driver = run(kind(emit))
    assert driver.failed("numbers") == []
    emitted = [values for values in driver.emitted("tested", "pair") if values[1] != "b"]
    assert emitted == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]


@pytest.mark.parametrize("kind", BOLTS, ids=lambda kind: kind.__name__)
def test_what_execute_yields_is_emitted_anchored_to_its_tuple(kind: Any) -> None:
    def emit(collector: Any, tup: Any) -> Iterator[list[Any]]:
        yield ["x"]
        if kind is ByHand:
            collector.ack(tup)
        yield ("y",)

    driver = run(kind(emit))
    assert sorted(driver.acked("numbers")) == [GOOD, BAD, LAST]
    assert driver.emitted("tested") == [["w0"], ["x"], ["y"], ["w2"]]


def test_a_bolt_that_acks_by_hand_and_yields_still_acks_by_hand() -> None:
    driver = run(ByHand(lambda collector, tup: iter([["x"]])))
    assert driver.emitted("tested") == [["w0"], ["x"], ["w2"]]
    assert (driver.acked("numbers"), driver.failed("numbers")) == ([GOOD, LAST], [])


@pytest.mark.parametrize("kind", BOLTS, ids=lambda kind: kind.__name__)
def test_a_scalar_that_is_yielded_fails_its_tuple(kind: Any) -> None:
    driver = run(kind(lambda collector, tup: iter([5])))
    assert "'tested' emitted the int 5 on stream 'default'" in driver.failed("numbers")[0].reason
    assert driver.emitted("tested") == [["w0"], ["w2"]]


async def coroutine(collector: Any, tup: Any) -> None:
    raise AssertionError("it never runs")


async def asynchronous(collector: Any, tup: Any) -> Any:
    yield ["x"]


@pytest.mark.parametrize("kind", [Basic, ByHand, Window], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("lazy", [coroutine, functools.partial(coroutine), asynchronous])
def test_a_coroutine_that_nobody_runs_fails_its_tuple(kind: Any, lazy: Any) -> None:
    driver = run(kind(lazy))
    assert "only an AsyncBolt runs" in driver.failed("numbers")[0].reason
    assert driver.emitted("tested") == [["w0"], ["w2"]]


def function(returned: Callable[[Any], Any]) -> Any:
    return bolt(outputs=["word"])(lambda tup: returned(tup) if tup["n"] == BAD else [[f"w{tup['n']}"]])


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (lambda tup: 5, "'tested' returned the int 5: yield a list"),
        (lambda tup: "abc", "'tested' returned the str 'abc': yield a list"),
        (lambda tup: ["abc"], "returned ['abc'], expected a list with a list of values for each tuple"),
        (lambda tup: [["a"], "b"], "returned [['a'], 'b'], expected a list"),
        (lambda tup: {"word": "abc"}, "'tested' returned a dict: yield a list"),
        (lambda tup: coroutine(None, tup), "'tested' returned a coroutine: nothing awaits it here: only an AsyncBolt"),
        (lambda tup: iter([5]), "'tested' emitted the int 5"),
    ],
)
def test_what_a_function_returns_is_rows_or_a_mistake(returned: Any, why: str) -> None:
    driver = run(function(returned))
    assert why in driver.failed("numbers")[0].reason
    assert driver.emitted("tested") == [["w0"], ["w2"]]


def test_a_function_may_return_rows_of_any_kind() -> None:
    for returned in ([["a"], ("b",)], (["a"], ["b"]), iter([["a"], ["b"]])):
        driver = run(function(lambda tup, returned=returned: returned), numbers=[BAD])
        assert driver.emitted("tested") == [["a"], ["b"]]


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
        (lambda c, b: c.emit([5]), "emitted the int 5 as a column"),
        (lambda c, b: c.emit([None]), "emitted None as a column"),
        (lambda c, b: c.emit([{"a": 1}]), "emitted a dict as a column"),
        (lambda c, b: c.emit([np.array(1)]), "emitted a ndarray as a column"),
        (lambda c, b: c.emit(b), "emitted a RecordBatch on 'default': emit its columns"),
        (lambda c, b: c.emit({"word": [1]}), "emitted a dict on stream 'default'"),
        (lambda c, b: c.emit([[1], [2]]), "emitted 2 values on stream 'default'"),
        (lambda c, b: c.emit([[1], [2, 3]], stream="pair"), "columns of different lengths [1, 2]"),
        (lambda c, b: c.emit([[1]], anchors=[True]), "emitted 1 rows on 'default' with [True] as anchors"),
        (lambda c, b: c.emit([[1]], anchors=[0.0]), "with [0.0] as anchors"),
        (lambda c, b: c.emit([[1]], anchors=0), "with 0 as anchors"),
        (lambda c, b: c.emit([[1]], anchors=[9]), "with 1 anchors: expected one for each row, each an input row"),
        (lambda c, b: iter([["a"]]), "a ColumnBolt emits columns by collector.emit alone"),
    ],
)
def test_a_mistake_in_columns_emits_nothing_of_its_frame(emit: Any, why: str) -> None:
    driver = run(Columns(emit), numbers=[BAD])
    assert why in driver.failed("numbers")[0].reason.replace("emit each list that it gives", why)
    assert driver.emitted("tested") == []


def test_columns_of_all_kinds_are_emitted() -> None:
    def emit(collector: Any, batch: Any) -> None:
        collector.emit([pa.array(["a"])], anchors=pa.array([0]))
        collector.emit([pa.chunked_array([["b"], ["c"]])], anchors=np.zeros(2, dtype=np.uint8))
        collector.emit([("d",)], anchors=[0])
        collector.emit([[]], anchors=[])

    driver = run(Columns(emit), numbers=[BAD])
    assert driver.emitted("tested") == [["before"], ["a"], ["b"], ["c"], ["d"]]


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
def test_a_mistake_of_a_spout_is_reported_and_nothing_of_it_is_emitted(mistake: str) -> None:
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
