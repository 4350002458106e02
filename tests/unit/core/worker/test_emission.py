"""What user code says through its collectors: whole or not at all, with an error that names mistake and mend."""

from __future__ import annotations

import asyncio
import functools
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkbolt import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    ColumnBolt,
    Config,
    Count,
    Direct,
    EmitError,
    Spout,
    TopologyBuilder,
    WindowedBolt,
    bolt,
)
from sparkbolt.core.model.components import BoltBase
from sparkbolt.core.model.tuples import Origin, Tuple
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver

GOOD, BAD, LAST = 0, 1, 2
AFTERWARDS = 9
"""Ends the window of the number before it, whose tuple is acked then."""
STREAMS = {"default": ["word"], "pair": ["a", "b"], "to": Direct(["n"])}


class Numbers(Spout):
    outputs = ["n"]

    def next_tuple(self, collector: Any) -> None:
        """The driver feeds it."""


class Sink(BasicBolt):
    outputs = ["index", "value"]
    stateless = True

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([self.context.index, tup[0]])


class Other(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Subscribes to no direct stream."""


def run(tested: BoltBase, numbers: Any = (GOOD, BAD, LAST), **settings: Any) -> TopologyTestDriver:
    """Feed numbers to a bolt; sinks hear all its streams."""
    builder = TopologyBuilder("emission", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("tested", tested, **settings).shuffle_grouping("numbers")
    sink = builder.set_bolt("sink", Sink(), parallelism=2)
    declared = tested.outputs or {}
    for name in declared if isinstance(declared, dict) else ["default"]:
        (sink.direct_grouping if name == "to" else sink.shuffle_grouping)("tested", stream=name)
    builder.set_bolt("other", Other()).shuffle_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        for number in (*numbers, AFTERWARDS) if isinstance(tested, Window) else numbers:
            driver.feed("numbers", [number], message_id=number)
        driver.run_until_idle()
    return driver


class Basic(BasicBolt):
    outputs = STREAMS
    transient = ("emit",)

    def __init__(self, emit: Callable[[Any, Any], Any]) -> None:
        self.emit = emit

    def execute(self, tup: Any, collector: Any) -> Any:
        if tup["n"] == BAD:
            return self.emit(collector, tup)
        collector.emit([f"w{tup['n']}"])
        collector.emit([tup["n"], "b"], stream="pair")
        return None


class ByHand(Bolt):
    outputs = STREAMS
    transient = ("emit",)

    def __init__(self, emit: Callable[[Any, Any], Any]) -> None:
        self.emit = emit

    def execute(self, tup: Any, collector: Any) -> Any:
        if tup["n"] == BAD:
            return self.emit(collector, tup)
        collector.emit([f"w{tup['n']}"], anchors=tup)
        collector.emit([tup["n"], "b"], anchors=[tup], stream="pair")
        collector.ack(tup)
        return None


class Async(AsyncBolt):
    outputs = STREAMS
    transient = ("emit",)

    def __init__(self, emit: Callable[[Any, Any], Any]) -> None:
        self.emit = emit

    async def execute(self, tup: Any, collector: Any) -> Any:
        await asyncio.sleep(0)
        if tup["n"] == BAD:
            return self.emit(collector, tup)
        collector.emit([f"w{tup['n']}"])
        collector.emit([tup["n"], "b"], stream="pair")
        return None


class Window(WindowedBolt):
    outputs = STREAMS
    transient = ("emit",)

    def __init__(self, emit: Callable[[Any, Any], Any]) -> None:
        self.emit = emit
        self.with_tumbling_window(Count(1)).with_ack_on_expiry()

    def execute(self, window: Any, collector: Any) -> Any:
        [tup] = window
        if tup["n"] == AFTERWARDS:
            return None
        if tup["n"] == BAD:
            return self.emit(collector, tup)
        collector.emit([f"w{tup['n']}"])
        collector.emit([tup["n"], "b"], stream="pair")
        return None


BOLTS = [Basic, ByHand, Async, Window]
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
    "too many": (lambda c, t: c.emit(["a", "b"]), r"emitted 2 values on .*: did you emit a str instead of a list\?"),
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


# Collectors that are kept.


class Keeping(BasicBolt):
    """Uses the collector that it got first, for ever."""

    outputs = STREAMS
    transient = ("collector", "emit_by")

    def __init__(self, emit: Callable[[Any, int], None]) -> None:
        self.emit_by = emit
        self.collector: Any = None

    def execute(self, tup: Any, collector: Any) -> None:
        self.collector = self.collector or collector
        self.emit_by(self.collector, tup["n"])


def test_a_kept_collector_of_a_basic_bolt_anchors_to_the_tuple_whose_execute_runs() -> None:
    def emit(collector: Any, n: int) -> None:
        collector.emit([n, "b"], stream="pair")
        if n == 7:
            raise ValueError("seven")

    builder = TopologyBuilder("kept", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("tested", Keeping(emit)).shuffle_grouping("numbers")
    builder.set_bolt("sink", SlowToFail()).shuffle_grouping("tested", stream="pair")
    with TopologyTestDriver(builder.build()) as driver:
        for n in range(10):
            driver.feed("numbers", [n], message_id=n)
            if n in (3, 6):
                driver.run_until_idle()
        driver.run_until_idle()
        assert sorted(driver.acked("numbers")) == [0, 1, 2, 3, 4, 6, 8, 9]
        assert [(tree.message_id, tree.reason) for tree in driver.failed("numbers")] == [
            (5, "five"),
            (7, "ValueError: seven"),
        ]


class SlowToFail(Bolt):
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        collector.fail(tup, "five") if tup["a"] == 5 else collector.ack(tup)


@pytest.mark.parametrize("kind", BOLTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("stream", ["default", "pair"])
def test_a_collector_refuses_what_is_emitted_after_its_micro_batch(kind: Any, stream: str) -> None:
    kept = KEPT[kind] = []
    run(kind(functools.partial(keep, kind)))
    assert kept
    for late in (kept[0].emit, kept[1]):
        with pytest.raises(EmitError, match="'tested' emitted outside of its execute and flush"):
            late(["a"] if stream == "default" else [1, 2], stream=stream)


KEPT: dict[Any, list[Any]] = {}


def keep(kind: Any, collector: Any, tup: Any) -> None:
    KEPT[kind].extend([collector, collector.emit])
    if kind is ByHand:
        collector.ack(tup)


def test_a_coroutine_that_outlives_its_execute_cannot_emit() -> None:
    ERRORS.clear()
    driver = run(Outliving())
    assert driver.emitted("tested") == []
    assert sorted(driver.acked("numbers")) == [0, 1, 2]
    assert len(ERRORS) >= 2


ERRORS: list[BaseException] = []


class Outliving(AsyncBolt):
    outputs = ["word"]
    stateless = True

    async def execute(self, tup: Any, collector: Any) -> None:
        async def later() -> None:
            await asyncio.sleep(0)
            try:
                collector.emit(["late"])
            except EmitError as error:
                ERRORS.append(error)

        self.task = asyncio.create_task(later())


def test_a_thread_that_emits_between_micro_batches_is_refused() -> None:
    ERRORS.clear()
    KEPT[Basic] = []
    run(Basic(functools.partial(keep, Basic)))

    def late() -> None:
        try:
            KEPT[Basic][1](["late"])
        except EmitError as error:
            ERRORS.append(error)

    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    assert len(ERRORS) == 1


# Coroutines that do not end as others do.


class Ending(AsyncBolt):
    """Ends in an odd way where it gets BAD."""

    outputs = ["n"]
    transient = ("way",)
    concurrency = 2

    def __init__(self, way: Callable[[], Any]) -> None:
        self.way = way

    async def execute(self, tup: Any, collector: Any) -> None:
        await asyncio.sleep(0)
        if tup["n"] == BAD:
            result = self.way()
            if result is not None:
                await result
        collector.emit([tup["n"]])


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def raise_(error: BaseException) -> None:
    raise error


async def leave() -> None:
    await asyncio.sleep(0)
    raise SystemExit(3)


async def leave_in_a_gathered_task() -> None:
    await asyncio.gather(leave(), asyncio.sleep(0))


async def leave_in_a_task() -> None:
    await asyncio.create_task(leave())


async def leave_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leave())


async def leave_in_time() -> None:
    await asyncio.wait_for(asyncio.create_task(leave()), 3600)


async def wait_for_what_is_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize(
    ("way", "why"),
    [
        (lambda: raise_(asyncio.CancelledError("away")), "CancelledError: away"),
        (cancel_itself, "CancelledError"),
        (wait_for_what_is_cancelled, "CancelledError"),
        (lambda: raise_(GeneratorExit()), "GeneratorExit"),
        (lambda: raise_(StopIteration(1)), "RuntimeError: coroutine raised StopIteration"),
        (lambda: raise_(SystemExit(3)), "SystemExit: 3"),
        (leave_in_a_gathered_task, "SystemExit: 3"),
        (leave_in_a_task, "SystemExit: 3"),
        (leave_in_a_group, "SystemExit: 3"),
        (leave_in_time, "SystemExit: 3"),
        (
            lambda: raise_(BaseExceptionGroup("two", [asyncio.CancelledError()])),
            "BaseExceptionGroup: two (1 sub-",
        ),
        (lambda: asyncio.run(cancel_itself()), "RuntimeError: asyncio.run() cannot be called"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine 'cancel_itself' was never awaited")
def test_a_coroutine_that_is_cancelled_or_ends_oddly_fails_its_tuple_alone(way: Any, why: str) -> None:
    driver = run(Ending(way), numbers=range(6))
    [failed] = driver.failed("numbers")
    assert (failed.message_id, why in failed.reason) == (BAD, True), failed.reason
    assert sorted(driver.acked("numbers")) == [0, 2, 3, 4, 5]
    assert sorted(driver.emitted("tested")) == [[0], [2], [3], [4], [5]]


def test_ctrl_c_in_a_coroutine_ends_the_program() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Ending(lambda: raise_(KeyboardInterrupt())))


def test_ctrl_c_in_a_task_of_a_coroutine_ends_the_program() -> None:
    async def interrupted() -> None:
        raise_(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        run(Ending(lambda: asyncio.gather(interrupted())))


class Leaving(Bolt):
    """Exits where it is prepared, or cleaned up."""

    outputs = ["n"]
    stateless = True

    def __init__(self, where: str) -> None:
        self.where = where

    def prepare(self, context: Any) -> None:
        if self.where == "prepare":
            sys.exit(3)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.ack(tup)

    def cleanup(self) -> None:
        if self.where == "cleanup":
            sys.exit(3)


class LeavingWithState(Leaving):
    stateless = False

    def init_state(self, state: Any) -> None:
        if self.where == "init_state":
            sys.exit(3)


@pytest.mark.parametrize("where", ["prepare", "init_state"])
def test_a_bolt_that_exits_before_its_first_tuple_fails_what_came_for_it(where: str) -> None:
    builder = TopologyBuilder("leaving")
    builder.set_spout("numbers", Numbers())
    bolt = (LeavingWithState if where == "init_state" else Leaving)(where)
    builder.set_bolt("tested", bolt).shuffle_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("numbers", [1], message_id=1)
        driver.run_until_idle()
        (failure,) = driver.failed("numbers")
    assert f"{where} of 'tested' raised SystemExit: 3" in failure.story


def test_a_bolt_that_exits_in_cleanup_raises_as_any_other_exception() -> None:
    with pytest.raises(RuntimeError, match="cleanup of 'tested' raised SystemExit: 3"):
        run(Leaving("cleanup"))


def test_a_cleanup_that_raises_keeps_no_other_from_being_called(tmp_path: Path) -> None:
    class Tidy(Leaving):
        def cleanup(self) -> None:
            (tmp_path / self.where).touch()
            super().cleanup()

    builder = TopologyBuilder("tidy")
    builder.set_spout("numbers", Numbers())
    for name in ("a", "cleanup", "z"):
        builder.set_bolt(name, Tidy(name)).shuffle_grouping("numbers")
    driver = TopologyTestDriver(builder.build())
    driver.feed("numbers", [1])
    driver.run_until_idle()
    with pytest.raises(RuntimeError, match="cleanup of 'cleanup' raised SystemExit: 3"):
        driver.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "cleanup", "z"]


def test_a_coroutine_that_cancels_all_others_fails_them_and_the_rest_is_run() -> None:
    def cancel_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    driver = run(Ending(cancel_all), numbers=range(6))
    failed = {tree.message_id for tree in driver.failed("numbers")}
    assert BAD in failed
    assert failed | set(driver.acked("numbers")) == set(range(6))
    assert {values[0] for values in driver.emitted("tested")} >= set(driver.acked("numbers"))
    assert {3, 4, 5} <= set(driver.acked("numbers"))


def test_a_coroutine_that_stops_the_loop_stops_nothing() -> None:
    driver = run(Ending(lambda: asyncio.get_running_loop().stop()), numbers=range(6))
    assert sorted(driver.acked("numbers")) == list(range(6))


class Yielding(AsyncBolt):
    outputs = ["n"]
    stateless = True

    async def execute(self, tup: Any, collector: Any) -> Any:
        await asyncio.sleep(0)
        yield [tup["n"]]
        if tup["n"] == BAD:
            yield 5
        yield [tup["n"]]


def test_an_asynchronous_generator_of_an_async_bolt_emits() -> None:
    driver = run(Yielding())
    assert "'tested' emitted the int 5" in driver.failed("numbers")[0].reason
    assert sorted(driver.emitted("tested")) == [[0], [0], [1], [2], [2]]


@pytest.mark.parametrize("kind", [BasicBolt, AsyncBolt])
@pytest.mark.parametrize(
    ("say", "what"),
    [
        (lambda tup, collector: collector.emit(["no"], anchors=tup), "'tested' emitted with anchors"),
        (lambda tup, collector: collector.emit(["no"], [tup], "default"), "'tested' emitted with anchors"),
        (lambda tup, collector: collector.emit(["no"], tup), "'tested' emitted with anchors"),
        (lambda tup, collector: collector.emit_direct(1, [0], "to", anchors=tup), "'tested' emitted with anchors"),
        (lambda tup, collector: collector.ack(tup), "'BasicCollector' object has no attribute 'ack'"),
        (lambda tup, collector: collector.fail(tup), "'BasicCollector' object has no attribute 'fail'"),
    ],
)
def test_what_only_a_bolt_may_say_fails_in_a_basic_bolt_with_what_to_do_instead(kind: Any, say: Any, what: str) -> None:
    class Habits(kind):
        outputs = STREAMS

        def execute(self, tup: Any, collector: Any) -> Any:
            collector.emit(["yes"])
            if tup["n"] == BAD:
                say(tup, collector)

    class Awaited(Habits):
        async def execute(self, tup: Any, collector: Any) -> Any:
            Habits.execute(self, tup, collector)

    driver = run(Awaited() if kind is AsyncBolt else Habits())
    (failure,) = driver.failed("numbers")
    assert failure.message_id == BAD
    assert what in failure.reason
    assert "derive from Bolt" in failure.reason
    assert ["no"] not in driver.emitted("tested")
