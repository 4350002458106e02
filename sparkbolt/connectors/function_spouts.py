"""Function spouts: turns a generator into a spout, by ``@spout``."""

from __future__ import annotations

import asyncio
import functools
import inspect
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, suppress
from typing import Any, Generic, ParamSpec, overload

from sparkbolt.api.arguments import field_names
from sparkbolt.api.components import Spout, TopologyContext
from sparkbolt.api.function_calls import FunctionCall
from sparkbolt.api.interfaces import SpoutCollector
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.retry import DEFAULT
from sparkbolt.base.exceptions import printed
from sparkbolt.connectors.argument_pickle import PicklesArguments
from sparkbolt.connectors.generator_spout import GeneratorSpout
from sparkbolt.errors import EmitError

Arguments = ParamSpec("Arguments")
POLL_SECS = 0.01
"""How long one ``next_tuple`` waits for an item: acks and fails are called by the same thread."""
ITEMS_MAX = 1000
"""How many items one ``next_tuple`` emits at most."""


class FunctionSpout(GeneratorSpout, Generic[Arguments]):
    """The spout that ``@spout`` makes from a generator function; call it to bind the function's arguments."""

    def __init__(self, call: FunctionCall, outputs: Fields) -> None:
        """Store the function and its arguments; ``build`` checks whether they fit."""
        functools.update_wrapper(self, call.function)
        super().__init__(call, outputs)
        self.call = call
        self.shares = call.shares

    def __call__(self, *arguments: Arguments.args, **options: Arguments.kwargs) -> FunctionSpout[[]]:
        """Return a spout that calls the function with these arguments; TypeError if it does not take them."""
        return FunctionSpout(self.call.with_arguments(arguments, options), self.fields)


class AsyncFunctionSpout(PicklesArguments, Spout, Generic[Arguments]):
    """The spout that ``@spout`` makes from an async generator function; call it to bind the function's arguments.

    Each task has an event loop, which runs while ``next_tuple`` does. If the generator raises, the error is reported,
    and after a pause the function is called again. At the end of the topology the generator is closed.
    """

    rehearsable = False
    retry = DEFAULT
    _opened = ("_runner", "_pump", "_items", "_room", "_more", "_arrived", "_count", "_share", "_has_ended")

    def __init__(self, call: FunctionCall, outputs: Fields) -> None:
        """Store the function and its arguments; ``build`` checks whether they fit."""
        functools.update_wrapper(self, call.function)
        self.outputs = self.fields = field_names("outputs", outputs)
        self.call = call
        self._begin()

    def __call__(self, *arguments: Arguments.args, **options: Arguments.kwargs) -> AsyncFunctionSpout[[]]:
        """Return a spout that calls the function with these arguments; TypeError if it does not take them."""
        return AsyncFunctionSpout(self.call.with_arguments(arguments, options), self.fields)

    def _begin(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._pump: asyncio.Task[None] | None = None
        self._items: deque[Any] = deque()
        self._room = 0
        self._more = asyncio.Event()
        self._arrived = asyncio.Event()
        self._count = 0
        self._share: tuple[int, ...] = ()
        self._has_ended = False

    def open(self, context: TopologyContext) -> None:
        """Start the event loop; without shares, only task 0 calls the function."""
        if self.call.shares:
            self._share = (context.index, context.parallelism)
        self._has_ended = context.index > 0 and not self.call.shares
        self._runner = asyncio.Runner()
        weakref.finalize(self, self._runner.get_loop().close)  # also for a task that is never closed

    @property
    def exhausted(self) -> bool:
        """Whether the generator has ended."""
        return self._has_ended

    def next_tuple(self, collector: SpoutCollector) -> None:
        """Emit the items that have arrived, or wait a moment for one."""
        assert self._runner is not None, "open was not called"
        loop = self._runner.get_loop()
        self._room = max(1, min(collector.room, ITEMS_MAX))
        loop.run_until_complete(self._wait())
        while self._items:
            self._count += 1
            try:
                collector.emit(self._items.popleft(), message_id=self._count)
            except EmitError as error:  # the items after it have arrived as well
                collector.report_error(error)
        pump = self._pump
        if pump is not None and pump.done():
            self._pump = None
            pump.result()
            self._has_ended = True

    async def _wait(self) -> None:
        self._arrived.clear()
        self._more.set()
        if self._pump is None:
            self._pump = asyncio.create_task(self._receive())
        arrival = asyncio.create_task(self._arrived.wait())
        await asyncio.wait({arrival, self._pump}, timeout=POLL_SECS, return_when=asyncio.FIRST_COMPLETED)
        arrival.cancel()

    async def _receive(self) -> None:
        async with aclosing(self.call(*self._share)) as items:
            async for item in items:
                self._items.append(item)
                self._arrived.set()
                if len(self._items) >= self._room:
                    self._more.clear()
                    await self._more.wait()

    def close(self) -> None:
        """Close the generator, whose ``finally`` runs, and the event loop."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            with suppress(SystemExit):
                runner.close()


class SpoutDecorator:
    """What ``spout(outputs=...)`` returns."""

    def __init__(self, outputs: Fields) -> None:
        """Store the fields."""
        self._outputs = outputs

    @overload
    def __call__(self, function: Callable[Arguments, AsyncIterator[Any]]) -> AsyncFunctionSpout[Arguments]: ...

    @overload
    def __call__(self, function: Callable[Arguments, Iterable[Any]]) -> FunctionSpout[Arguments]: ...

    def __call__(self, function: Callable[..., Any]) -> AsyncFunctionSpout[...] | FunctionSpout[...]:
        """Make the spout."""
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"@spout: {function.__name__} is a coroutine (async def) without a yield: let it yield tuples"
            )
        if inspect.isasyncgenfunction(function):
            return AsyncFunctionSpout(FunctionCall(function), self._outputs)
        return FunctionSpout(FunctionCall(function), self._outputs)


def spout(*misplaced: object, outputs: Fields = ()) -> SpoutDecorator:
    """Make a spout from a generator function, or from an async one, that yields the values of tuples.

    What it yields is as in ``GeneratorSpout``: a list of values, or values by name, or one value if there is one field.
    Give ``set_spout`` the decorated function, or call it to bind arguments. Only task 0 calls the function, unless it
    has parameters named ``index`` and ``parallelism``: then each task calls it, with its own numbers.

    What is replayed:

    - A generator must yield the same items each time, because it is called again to read an item again: in each process
      that reads, for a retry, and after a crash. Items that are done are skipped. So a crash loses nothing, and
      finished items are not processed again.
    - An async generator runs in the driver, and may wait for a server. Failed items are retried from memory. After a
      crash of the driver the function is called anew, and nothing is skipped: an item that was yielded before and not
      acked is lost, unless the function yields it again. If the function raises, the error is reported, and after a
      pause the function is called again.

    Args:
        misplaced: nothing; an argument without a name is a mistake.
        outputs: the fields: a list of names, or a class that declares them.

    Raises:
        TypeError: the decorator is used without parentheses, ``outputs`` is missing, or the function is a coroutine
            that yields nothing.
        ConfigError: ``outputs`` is not a list of names.

    >>> @spout(outputs=["line"])
    ... def lines(path):
    ...     with open(path) as file:
    ...         yield from file
    >>> @spout(outputs=["n"])
    ... async def ticks():
    ...     for n in range(3):
    ...         await asyncio.sleep(1)
    ...         yield [n]
    >>> from sparkbolt import TopologyBuilder
    >>> builder = TopologyBuilder("reading")
    >>> handles = builder.set_spout("lines", lines("a.txt")), builder.set_spout("ticks", ticks)
    """
    if misplaced or not outputs:
        what = "outputs is missing" if not misplaced else f"got {printed(misplaced[0]):.60}"
        raise TypeError(f"@spout: {what}: write @spout(outputs=[...]) above the generator function")
    return SpoutDecorator(outputs)
