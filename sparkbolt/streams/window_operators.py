"""Operators on windows: count and aggregate, reduce, and a function of the window.

They are windowed bolts: a tuple is acked when the window that holds it is committed, and each result starts a tree of
its own (with ``ack_on_expiry`` it is anchored to the tuples of the window). Every result begins with the key, and with
``start`` and ``end`` of the window in milliseconds; ``start`` is None where the length is a count.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from sparkbolt.api.components import TopologyContext
from sparkbolt.streams.aggregates import Aggregator, Reducer, checked_row
from sparkbolt.windows.bolt import WindowedBolt
from sparkbolt.windows.kinds import Window

if TYPE_CHECKING:
    from sparkbolt.windows.collector import WindowCollector
    from sparkbolt.windows.window import TupleWindow

BOUNDS = ("start", "end")
"""The fields with the bounds of the window."""


class WindowOperator(WindowedBolt):
    """Emits the results of each window after its key and its bounds."""

    ignores_ticks = True
    transient = ("key", "fields", "outputs", "aggregator", "reducer", "function", "context")

    def __init__(self, window: Window, key: Sequence[str], fields: Sequence[str]) -> None:
        """Declare the fields of the results; one that is named like the key or a bound replaces that."""
        self.windowed(window)
        self.key = tuple(key)
        self.fields = tuple(fields)
        self.outputs = [*(name for name in (*key, *BOUNDS) if name not in fields), *fields]

    def prepare(self, context: TopologyContext) -> None:
        """Keep the context, which names the component in errors."""
        self.context = context

    @abstractmethod
    def results(self, window: TupleWindow) -> Iterator[Sequence[Any]]:
        """Yield the values of ``fields`` of each result."""

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        """Emit the results of a window."""
        key = (window.key,) if len(self.key) == 1 else window.key or ()
        before = dict(zip((*self.key, *BOUNDS), (*key, window.start_ms, window.end_ms), strict=True))
        head = [value for name, value in before.items() if name not in self.fields]
        for row in self.results(window):
            collector.emit([*head, *row])


class WindowAggregate(WindowOperator):
    """Computes aggregates of the tuples of each window."""

    def __init__(self, window: Window, key: Sequence[str], aggregator: Aggregator) -> None:
        """Emit the aggregates."""
        super().__init__(window, key, aggregator.names)
        self.aggregator = aggregator

    def results(self, window: TupleWindow) -> Iterator[Sequence[Any]]:
        """Yield the aggregates."""
        state = None
        for tup in window:
            state = self.aggregator.step(state, tup)
        assert state is not None  # a window has a tuple
        yield self.aggregator.results(state)


class WindowCount(WindowOperator):
    """Counts the tuples of each window."""

    def __init__(self, window: Window, key: Sequence[str], into: str) -> None:
        """Emit the count in a field named ``into``."""
        super().__init__(window, key, [into])

    def results(self, window: TupleWindow) -> Iterator[Sequence[Any]]:
        """Yield the count."""
        yield [len(window)]


class WindowReduce(WindowOperator):
    """Makes one tuple of the tuples of each window."""

    def __init__(self, window: Window, reducer: Reducer) -> None:
        """Reduce by the function, the fields and the key of ``reducer``."""
        super().__init__(window, reducer.key, [name for name in reducer.fields if name not in reducer.key])
        self.reducer = reducer

    def results(self, window: TupleWindow) -> Iterator[Sequence[Any]]:
        """Yield the tuple that the others were reduced to."""
        row: Sequence[Any] | None = None
        for tup in window:
            row = self.reducer.step(row, tup, self.context.component)
        assert row is not None  # a window has a tuple
        yield [value for name, value in zip(self.reducer.fields, row, strict=True) if name in self.fields]


class WindowApply(WindowOperator):
    """Emits what a function returns or yields for each window."""

    def __init__(
        self, window: Window, key: Sequence[str], function: Callable[[TupleWindow], Any], fields: Sequence[str]
    ) -> None:
        """Store the function; ``fields`` are those of its results."""
        super().__init__(window, key, fields)
        self.function = function

    def results(self, window: TupleWindow) -> Iterator[Sequence[Any]]:
        """Yield the results of the function."""
        returned = self.function(window)
        if isinstance(returned, GeneratorType):
            for values in returned:
                yield checked_row(values, self.fields, self.context.component)
        elif returned is not None:
            yield checked_row(returned, self.fields, self.context.component)
