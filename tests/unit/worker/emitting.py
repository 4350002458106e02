"""Bolts of each kind that emit what a test says: what tests of collectors share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sparkbolt import AsyncBolt, BasicBolt, Bolt, Config, Count, Direct, Spout, TopologyBuilder, WindowedBolt
from sparkbolt.api.components import BoltBase
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
