"""What build() says of methods that cannot be called, or would do nothing when they are."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkbolt import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    ColumnBolt,
    Count,
    InvalidTopology,
    PartitionedSpout,
    Spout,
    TopologyBuilder,
    WindowedBolt,
    bolt,
)
from sparkbolt.faces.cli import main
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


def passing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def with_a_database(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, tup: Any, collector: Any) -> Any:
        return function(self, tup, collector, "database")

    return call


def run_here(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return asyncio.run(function(*args))

    return call


@pytest.mark.parametrize("base", [Numbers, Log, Queue, Basic, ByHand, Columns, Async, Window])
def test_a_component_as_it_should_be_has_no_mistake(base: Any) -> None:
    assert mistakes(base()) == []


@pytest.mark.parametrize(
    ("base", "name", "method", "said"),
    [
        (Basic, "execute", lambda self, tup: None, "'tested': its execute(self, tup) is called as execute(self, tup"),
        (ByHand, "execute", lambda self: None, "its execute(self) is called as execute(self, tup, collector)"),
        (Window, "execute", lambda self, window: None, "execute(self, window) is called as execute(self, window, col"),
        (Columns, "execute", lambda self, batch: None, "execute(self, batch) is called as execute(self, batch, col"),
        (Basic, "prepare", lambda self: None, "its prepare(self) is called as prepare(self, context)"),
        (
            Basic,
            "prepare",
            lambda self, config, context, collector: None,
            "its prepare(self, config, context, collector) is called as prepare(self, context)",
        ),
        (
            Numbers,
            "open",
            lambda self, ctx, collector: None,
            "spout 'numbers': its open(self, ctx, collector) is called as open(self, context)",
        ),
        (Numbers, "next_tuple", lambda self: None, "its next_tuple(self) is called as next_tuple(self, collector)"),
        (Numbers, "ack", lambda self: None, "its ack(self) is called as ack(self, message_id)"),
        (Numbers, "fail", lambda self, id_, why: None, "its fail(self, id_, why) is called as fail(self, m"),
        (Log, "next_ranges", lambda self, progress: [], "is called as next_ranges(self, progress, budget)"),
        (Queue, "release", lambda self, id_: None, "release(self, id_) is called as release(self, message_id, again="),
        (
            Basic,
            "flush",
            lambda self, collector: None,
            "its flush(self, collector) is called as flush(self)",
        ),
        (Basic, "init_state", lambda self: None, "its init_state(self) is called as init_state(self, state)"),
        (Basic, "execute", None, "its execute is None, expected a method"),
        (Basic, "execute", lambda self, tup, collector, *, more: None, "its execute(self, tup, collector, *, more) is"),
        (Basic, "execute", coroutine, "its execute is a coroutine (async def), which nothing awaits in a BasicBolt: m"),
        (ByHand, "execute", asynchronous, "which nothing awaits in a Bolt: make it an AsyncBolt"),
        (Window, "execute", coroutine, "which nothing awaits in a WindowedBolt: make it an AsyncBolt"),
        (Columns, "execute", coroutine, "which nothing awaits in a ColumnBolt: make it an AsyncBolt"),
        (Basic, "flush", coroutine, "its flush is a coroutine (async def), which nothing awaits: take the async"),
        (Async, "flush", coroutine, "its flush is a coroutine (async def): of an AsyncBolt only execute may be one"),
        (Async, "prepare", coroutine, "its prepare is a coroutine (async def): of an AsyncBolt only execute may be"),
        (Numbers, "next_tuple", coroutine, "its next_tuple is a coroutine (async def), which nothing awaits: take"),
        (Numbers, "ack", coroutine, "its ack is a coroutine"),
        (Log, "read", asynchronous, "its read is a coroutine"),
        (Numbers, "next_tuple", generator, "its next_tuple has a yield in it, so that a call would run nothing: emit"),
        (Numbers, "open", generator, "its open has a yield in it, so that a call would run nothing"),
        (Log, "next_ranges", generator, "its next_ranges has a yield in it"),
        (Columns, "execute", generator, "its execute has a yield in it: a ColumnBolt emits columns"),
        (Basic, "prepare", generator, "its prepare has a yield in it"),
        (Numbers, "exhausted", lambda self: False, "its exhausted is a method, expected a property"),
    ],
)  # fmt: skip
def test_a_method_that_cannot_be_called_or_would_do_nothing_is_a_mistake(
    base: Any, name: str, method: Any, said: str
) -> None:
    [mistake] = mistakes(with_method(base, name, method))
    assert said in mistake


@pytest.mark.parametrize(
    ("base", "name", "method"),
    [
        (Basic, "execute", lambda self, t, c: None),
        (Basic, "execute", lambda self, tup, collector, more=None: None),
        (Basic, "execute", lambda self, *args: None),
        (Basic, "execute", staticmethod(lambda tup, collector: None)),
        (Basic, "execute", passing(lambda self, tup, collector: None)),
        (Basic, "execute", with_a_database(lambda self, tup, collector, database: None)),
        (Basic, "execute", run_here(coroutine)),
        (Basic, "execute", functools.partialmethod(lambda self, more, tup, collector: None, 1)),
        (Basic, "execute", generator),
        (ByHand, "execute", generator),
        (Window, "execute", generator),
        (Async, "execute", asynchronous),
        (Async, "execute", lambda self, tup, collector: coroutine(self)),
        (Basic, "flush", generator),
        (Log, "read_columns", generator),
        (Log, "read", lambda self, range_: []),
        (Numbers, "exhausted", property(lambda self: True)),
    ],
)
def test_a_method_that_can_be_called_is_none(base: Any, name: str, method: Any) -> None:
    assert mistakes(with_method(base, name, method)) == []


def test_a_function_that_cannot_be_a_bolt_is_a_mistake() -> None:
    async def fetch(tup: Any) -> Any:
        """Nothing."""

    [mistake] = mistakes(bolt(outputs=["word"])(fetch))
    assert mistake.startswith("bolt 'tested': its function fetch is a coroutine (async def), which nothing awaits")
    [mistake] = mistakes(bolt(outputs=["word"])(lambda tup, collector: None))
    assert mistake == "bolt 'tested': its function <lambda>(tup, collector) is called as <lambda>(tup)"


def test_a_decorator_without_its_parentheses_or_its_keyword_says_how_it_is_written() -> None:
    mend = r"write @bolt\(outputs=\[...\]\) above the function, or @bolt\(\) if it emits nothing"
    with pytest.raises(TypeError, match=f"@bolt: the parentheses are missing: {mend}"):

        @bolt
        def split(tup: Any) -> Any:
            """Nothing."""

    with pytest.raises(TypeError, match=rf"@bolt: got \['word'\]: {mend}"):
        bolt(["word"])


class Lazy(BasicBolt):
    outputs = ["n"]

    async def execute(self, tup: Any, collector: Any) -> None:  # type: ignore[override]
        collector.emit([1])


def lazy() -> Any:
    """A topology that check refuses."""
    builder = TopologyBuilder("lazy")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("tested", Lazy()).shuffle_grouping("numbers")
    return builder.build()


def test_check_shows_a_coroutine_that_nobody_awaits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{__name__}:lazy"]) == 1
    assert "its execute is a coroutine (async def)" in "".join(capsys.readouterr())
