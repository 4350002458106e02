"""What build() says of methods that cannot be called, or would do nothing when they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparkbolt import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    ColumnBolt,
    Count,
    PartitionedSpout,
    Spout,
    TopologyBuilder,
    WindowedBolt,
    bolt,
)
from sparkbolt.errors import InvalidTopology
from sparkbolt.spouts import QueueSpout


class Numbers(Spout):
    outputs = ["n"]

    def next_tuple(self, collector: Any) -> None:
        """Nothing."""


class Log(PartitionedSpout):
    outputs = ["n"]

    def next_ranges(self, progress: Any, budget: int) -> Any:
        return []

    def read(self, range_: Any) -> Iterator[Any]:
        yield from ()


class Queue(QueueSpout):
    outputs = ["n"]

    def receive(self, limit: int) -> Any:
        return []

    def confirm(self, message_id: Any) -> None:
        """Nothing."""

    def release(self, message_id: Any, *, again: bool) -> None:
        """Nothing."""


class Basic(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing."""


class ByHand(Bolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing."""


class Columns(ColumnBolt):
    def execute(self, batch: Any, collector: Any) -> None:
        """Nothing."""


class Async(AsyncBolt):
    async def execute(self, tup: Any, collector: Any) -> None:
        """Nothing."""


class Window(WindowedBolt):
    def __init__(self) -> None:
        self.with_tumbling_window(Count(1))

    def execute(self, window: Any, collector: Any) -> None:
        """Nothing."""


def mistakes(component: Any) -> list[str]:
    builder = TopologyBuilder("methods")
    spout = component if isinstance(component, Spout | PartitionedSpout) else Numbers()
    builder.set_spout("numbers", spout)
    tested = Basic() if spout is component else component
    builder.set_bolt("tested", tested).shuffle_grouping("numbers")
    try:
        builder.build()
    except InvalidTopology as error:
        return error.mistakes
    return []


def with_method(base: Any, name: str, method: Any) -> Any:
    return type(base.__name__, (base,), {name: method, "__module__": __name__})()


async def coroutine(self: Any, *_: Any) -> None:
    """Nothing."""


async def asynchronous(self: Any, *_: Any) -> Any:
    yield ["x"]


def generator(self: Any, *_: Any) -> Any:
    yield ["x"]


@pytest.mark.parametrize("base", [Numbers, Log, Queue, Basic, ByHand, Columns, Async, Window])
def test_a_correct_component_has_no_mistake(base: Any) -> None:
    assert mistakes(base()) == []


@pytest.mark.parametrize(
    ("base", "name", "method", "said"),
    [
        (Basic, "execute", lambda self, tup: None, "'tested': its execute(self, tup) is called as execute(self, tup"),
        (Window, "execute", lambda self, window: None, "execute(self, window) is called as execute(self, window, col"),
        (
            Basic,
            "prepare",
            lambda self, config, context, collector: None,
            "its prepare(self, config, context, collector) is called as prepare(self, context)",
        ),
        (Numbers, "next_tuple", lambda self: None, "its next_tuple(self) is called as next_tuple(self, collector)"),
        (Log, "next_ranges", lambda self, progress: [], "is called as next_ranges(self, progress, budget)"),
        (
            Basic,
            "flush",
            lambda self, now, collector: None,
            "its flush(self, now, collector) is called as flush(self) or flush(self, collector)",
        ),
        (Basic, "execute", None, "its execute is None, expected a method"),
        (ByHand, "execute", asynchronous, "which nothing awaits in a Bolt: make it an AsyncBolt"),
        (Columns, "execute", coroutine, "which nothing awaits in a ColumnBolt: make it an AsyncBolt"),
        (Async, "flush", coroutine, "its flush is a coroutine (async def): of an AsyncBolt only execute may be one"),
        (Numbers, "ack", coroutine, "its ack is a coroutine"),
        (Numbers, "next_tuple", generator, "its next_tuple has a yield in it, so that a call would run nothing: emit"),
        (Columns, "execute", generator, "its execute has a yield in it: a ColumnBolt emits columns"),
        (Basic, "rescale", lambda self, states: {}, "is called as rescale(self, states, part, parts)"),
        (Basic, "migrate", lambda self, version: {}, "is called as migrate(self, version, attributes)"),
        (Basic, "keyed", "counts", "expected True, False or a list of names of attributes, such as ['counts']"),
        (Basic, "state_version", 2, "state_version = 2 and no migrate"),
        (Numbers, "exhausted", lambda self: False, "its exhausted is a method, expected a property"),
    ],
)  # fmt: skip
def test_a_method_that_cannot_be_called_or_would_do_nothing_is_a_mistake(
    base: Any, name: str, method: Any, said: str
) -> None:
    [mistake] = mistakes(with_method(base, name, method))
    assert said in mistake


def test_a_function_that_cannot_be_a_bolt_is_a_mistake() -> None:
    async def fetch(tup: Any) -> Any:
        """Nothing."""

    [mistake] = mistakes(bolt(outputs=["word"])(fetch))
    assert mistake.startswith("bolt 'tested': its function fetch is a coroutine (async def), which nothing awaits")
    [mistake] = mistakes(bolt(outputs=["word"])(lambda tup, collector: None))
    assert mistake == "bolt 'tested': its function <lambda>(tup, collector) is called as <lambda>(tup)"
