"""Keyed and windowed streams: what ``key_by`` and ``window`` of a stream return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Unpack

from sparkbolt.api.arguments import checked, function
from sparkbolt.api.bolt_declarer import ComponentHandle
from sparkbolt.api.components import BoltBase
from sparkbolt.api.groupings import FieldsGrouping, GlobalGrouping
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.tuples import Tuple, parse_outputs
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError
from sparkbolt.streams.aggregates import Aggregator, Reducer
from sparkbolt.streams.keyed_operators import KeyAggregate, KeyCount, KeyReduce
from sparkbolt.streams.operator_input import (
    FIELD,
    OperatorSettings,
    check_new_fields,
    declare_operator,
    kind_of,
    refuse_bolt,
)
from sparkbolt.streams.stream import Stream, operator_stream
from sparkbolt.streams.window_operators import BOUNDS, WindowAggregate, WindowApply, WindowCount, WindowReduce
from sparkbolt.windows.kinds import Window
from sparkbolt.windows.window import TupleWindow

OF_TWO = function("a function of two tuples")
OF_WINDOW = function("a function of a window")


class KeyedStream:
    """A stream whose tuples are grouped by a key: ``words.key_by("word")``.

    State of its operators belongs to keys: it moves with them if the number of tasks changes.
    """

    def __init__(self, stream: Stream, key: Sequence[str]) -> None:
        """Not for users: ``Stream.key_by`` makes keyed streams."""
        self.stream = stream
        """The stream without the key."""
        self.key = tuple(key)
        """The names of the fields of the key."""
        self._grouping = FieldsGrouping(list(key))

    def __repr__(self) -> str:
        """Return the stream and the key."""
        return f"<KeyedStream of {self.stream} by {', '.join(self.key)}>"

    @checked
    def count(self, into: Annotated[str, FIELD] = "count", **settings: Unpack[OperatorSettings]) -> Stream:
        """Count the tuples of each key; for each tuple, emit the key and its count so far.

        It keeps one number for each key. A tuple is acked when it is counted; the result is anchored to it, so a
        message that fails further down is retried and counted again, except in a transactional topology.

        Args:
            into: the name of the field with the count.
            settings: see ``Stream``.
        """
        check_new_fields("count", [into], self.key)
        return self._operator(KeyCount(self.key, into), "count", settings)

    @checked
    def reduce(
        self, function: Annotated[Callable[[Tuple, Tuple], Any], OF_TWO], **settings: Unpack[OperatorSettings]
    ) -> Stream:
        """Make one tuple of all tuples of each key; for each tuple, emit the one so far.

        It keeps one tuple for each key. A tuple is acked when it is part of that; the result is anchored to it, as in
        ``count``.

        Args:
            function: called with the tuple so far and the next one; returns the values of one with the same fields. A
                mapping may leave out the key. The first tuple of a key is taken as it is.
            settings: see ``Stream``.
        """
        refuse_bolt("reduce", function)
        return self._operator(KeyReduce(Reducer(function, self.stream.fields, self.key)), "reduce", settings)

    def aggregate(
        self,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        renamed_from: str | None = None,
        **aggregates: tuple[str, str] | Literal["count"],
    ) -> Stream:
        """Compute aggregates of the tuples of each key; for each tuple, emit the key and the aggregates so far.

        It keeps one value for each key and aggregate; ``list`` and ``set`` keep all (distinct) values. A tuple is acked
        when it is part of the aggregates; the result is anchored to it, as in ``count``.

        Args:
            name: the id of the bolt; see ``Stream``.
            parallelism: how many tasks it has; see ``Stream``.
            renamed_from: see ``Stream``.
            aggregates: by output field, ``(field, kind)`` or ``"count"``, the number of tuples. The kinds are count,
                sum, min, max, mean, first, last, list and set (a list of the distinct values). Values that are None are
                left out; without a value, count is 0, list and set are empty, and the others None.

        >>> from sparkbolt import TopologyBuilder
        >>> from sparkbolt.spouts import JsonLinesSpout
        >>> spout = JsonLinesSpout("orders/*.jsonl", outputs=["customer", "amount"])
        >>> orders = TopologyBuilder("orders").stream(spout, name="orders")
        >>> orders.key_by("customer").aggregate(orders="count", total=("amount", "sum"), name="totals")
        <Stream of 'totals': customer, orders, total>
        """
        check_new_fields("aggregate", list(aggregates), self.key)
        bolt = KeyAggregate(self.key, Aggregator(aggregates, self.stream.fields))
        return self._operator(bolt, "aggregate", _settings(name, parallelism, renamed_from))

    def window(self, window: Window) -> WindowedStream:
        """Divide the tuples of each key into windows.

        Args:
            window: ``Tumbling``, ``Sliding``, ``Session`` or ``Count``; its ``key`` is that of this stream.
        """
        return WindowedStream(self.stream, self.key, window)

    def through(self, bolt: BoltBase, **settings: Unpack[OperatorSettings]) -> Stream:
        """Send the tuples through any bolt, by fields grouping; as ``Stream.through`` else."""
        return self._operator(bolt, kind_of(bolt), settings)

    def to(self, bolt: BoltBase, **settings: Unpack[OperatorSettings]) -> ComponentHandle:
        """Send the tuples to a bolt that ends the stream, by fields grouping; as ``Stream.to`` else."""
        return declare_operator(self.stream, bolt, kind_of(bolt), settings, self._grouping)[0]

    def _operator(self, bolt: BoltBase, kind: str, settings: OperatorSettings) -> Stream:
        return operator_stream(self.stream, bolt, kind, settings, self._grouping)


class WindowedStream:
    """Windows of a stream, each of one key if the stream has a key: ``words.key_by("word").window(...)``.

    Its operators keep the tuples of their windows. A tuple is acked when the window that holds it is committed with the
    micro-batch, and each result starts a tree of its own, which is retried by itself; with ``ack_on_expiry`` a tuple is
    acked when it expires, and results are anchored to the tuples of their window. Windows move with their keys if the
    number of tasks changes.

    A result has the fields of the key, then ``start`` and ``end`` of the window in milliseconds since the epoch
    (``start`` is None where the length is a count), then its own.
    """

    def __init__(self, stream: Stream, key: tuple[str, ...], window: Window) -> None:
        """Not for users: ``window`` of a stream makes windowed streams."""
        self._stream = stream
        self._key = key
        _check_window(window, key)
        self._window = replace(window, key=list(key)) if key else window
        self._grouping = FieldsGrouping(list(key)) if key else GlobalGrouping()
        self._results: list[Stream] = []

    def __repr__(self) -> str:
        """Return the stream and the windows."""
        return f"<WindowedStream of {self._stream}: {self._window!r}>"

    @property
    def late(self) -> Stream:
        """The late tuples: a stream with one field, ``late_tuple``, which holds a ``LateTuple``.

        The window must have a ``late`` stream, and an operator must be declared before; with several, it is that of the
        first.
        """
        if self._window.late is None:
            raise ConfigError(
                f"{self} has no stream of late tuples: write {type(self._window).__name__}(..., late='late')"
            )
        if not self._results:
            raise ConfigError(f"{self} has no operator yet: call count(), aggregate(...) or apply(...) before late")
        return self._results[0].stream(self._window.late)

    @checked
    def count(self, into: Annotated[str, FIELD] = "count", **settings: Unpack[OperatorSettings]) -> Stream:
        """Emit the number of tuples of each window, in a field named ``into``; see ``WindowedStream`` for state."""
        self._check_own("count", [into])
        return self._operator(WindowCount(self._window, self._key, into), "count", settings)

    @checked
    def reduce(
        self, function: Annotated[Callable[[Tuple, Tuple], Any], OF_TWO], **settings: Unpack[OperatorSettings]
    ) -> Stream:
        """Make one tuple of the tuples of each window, and emit it; see ``WindowedStream`` for state.

        Args:
            function: as for ``KeyedStream.reduce``.
            settings: see ``Stream``.
        """
        refuse_bolt("reduce", function)
        self._check_own("reduce", [name for name in self._stream.fields if name not in self._key])
        return self._operator(
            WindowReduce(self._window, Reducer(function, self._stream.fields, self._key)), "reduce", settings
        )

    def aggregate(
        self,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        renamed_from: str | None = None,
        **aggregates: tuple[str, str] | Literal["count"],
    ) -> Stream:
        """Emit aggregates of the tuples of each window; see ``WindowedStream`` for state.

        Args:
            name: the id of the bolt; see ``Stream``.
            parallelism: how many tasks it has; see ``Stream``.
            renamed_from: see ``Stream``.
            aggregates: as for ``KeyedStream.aggregate``.
        """
        self._check_own("aggregate", list(aggregates))
        bolt = WindowAggregate(self._window, self._key, Aggregator(aggregates, self._stream.fields))
        return self._operator(bolt, "aggregate", _settings(name, parallelism, renamed_from))

    @checked
    def apply(
        self,
        function: Annotated[Callable[[TupleWindow], Any], OF_WINDOW],
        outputs: Fields = ("value",),
        **settings: Unpack[OperatorSettings],
    ) -> Stream:
        """Emit what a function makes of each window; see ``WindowedStream`` for state.

        Args:
            function: called with a ``TupleWindow``, as ``WindowedBolt.execute``. It returns the values of one tuple, or
                yields those of several; None emits nothing.
            outputs: the fields of these values. Of the fields of the key and the bounds, those that are among
                ``outputs`` are not added.
            settings: see ``Stream``.
        """
        refuse_bolt("apply", function)
        try:
            fields = parse_outputs(list(outputs) if isinstance(outputs, tuple) else outputs)[0].fields
        except (ValueError, IndexError) as error:
            raise ConfigError(f"outputs={printed(outputs)}: {error}") from None
        return self._operator(WindowApply(self._window, self._key, function, fields), "apply", settings)

    def _check_own(self, operator: str, new: Sequence[str]) -> None:
        mend = "choose another name" if operator != "reduce" else "rename it by map before the window"
        check_new_fields(operator, new, (*self._key, *BOUNDS), mend)

    def _operator(self, bolt: BoltBase, kind: str, settings: OperatorSettings) -> Stream:
        if not self._key and settings.get("parallelism") is None:
            settings = {**settings, "parallelism": 1}
        result = operator_stream(self._stream, bolt, f"window-{kind}", settings, self._grouping)
        self._results.append(result)
        return result


def _settings(name: str | None, parallelism: int | None, renamed_from: str | None) -> OperatorSettings:
    return {"name": name, "parallelism": parallelism, "renamed_from": renamed_from}


def _check_window(window: object, key: tuple[str, ...]) -> None:
    if not isinstance(window, Window):
        raise ConfigError(f"window({printed(window)}): expected a window, such as Tumbling(minutes=1)")
    if window.key_fields not in (None, key or None):
        wanted = f"key_by({', '.join(map(repr, key))})" if key else "no key_by"
        raise ConfigError(
            f"window: {window!r} has a key of its own, and the stream has {wanted}: leave key= out, and write key_by"
        )
