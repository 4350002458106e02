"""Collectors that are kept, or asked for what they cannot do."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt import AsyncBolt, BasicBolt, Bolt, Config, TopologyBuilder
from sparkbolt.errors import EmitError
from sparkbolt.testing import TopologyTestDriver
from tests.unit.worker.emitting import BAD, BOLTS, STREAMS, ByHand, Numbers, run


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


def test_a_stored_collector_of_a_basic_bolt_anchors_to_the_tuple_being_executed() -> None:
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
def test_a_collector_refuses_emits_after_its_micro_batch(kind: Any, stream: str) -> None:
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
def test_calls_reserved_for_bolts_fail_in_a_basic_bolt_and_name_the_alternative(kind: Any, say: Any, what: str) -> None:
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
