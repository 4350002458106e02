"""Streams: what ``builder.stream`` returns. Each method declares a bolt, and returns the stream that the bolt emits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from sparkbolt.api.arguments import PART_OF_TUPLE, checked, field_names, function, verify
from sparkbolt.api.bolt_declarer import ComponentHandle, StreamHandle
from sparkbolt.api.components import BoltBase
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.groupings import FieldsGrouping, Grouping
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.topology import TopologyDeclarer, declarations_of
from sparkbolt.api.tuples import DEFAULT_STREAM, Tuple
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError
from sparkbolt.streams.join_operator import LEFT, RIGHT, Join
from sparkbolt.streams.operator_input import (
    FIELD,
    OperatorInput,
    OperatorSettings,
    check_new_fields,
    declare_operator,
    kind_of,
    known_fields,
    refuse_bolt,
)
from sparkbolt.streams.stateless_operators import REST, Branch, Enrich, Filter, FlatMap, Map, branch_name
from sparkbolt.windows.kinds import Unit, Window, duration

if TYPE_CHECKING:
    from sparkbolt.connectors.lookup.lookup import Lookup
    from sparkbolt.streams.keyed_stream import KeyedStream, WindowedStream

OF_TUPLE = function("a function of a tuple")


class Stream(OperatorInput):
    """A stream of tuples, from ``builder.stream`` or an operator; grouping methods of ``set_bolt`` accept it, too.

    An operator is a bolt like any other: it has a name, tasks and metrics, and it may be fused. Its function gets a
    ``Tuple``. If the function raises, its tuple fails, and the message is retried by its policy.

    The methods of operators take, besides the arguments below, ``name`` (the id of the bolt; by default one is made,
    such as ``lines-flat-map-1``), ``parallelism`` (by default as many tasks as the component above), ``renamed_from``,
    and the settings of ``set_bolt``.

    >>> from sparkbolt import TopologyBuilder
    >>> from sparkbolt.spouts import TextSpout
    >>> builder = TopologyBuilder("words")
    >>> lines = builder.stream(TextSpout("books/*.txt"), name="lines")
    >>> words = lines.flat_map(lambda tup: tup.line.split(), outputs=["word"], name="split")
    >>> words.key_by("word").count(name="count")
    <Stream of 'count': word, count>
    """

    # Without state.

    @checked
    def map(
        self,
        function: Annotated[Callable[[Tuple], Any], OF_TUPLE],
        outputs: Fields | None = None,
        **settings: Unpack[OperatorSettings],
    ) -> Stream:
        """Emit what a function returns for each tuple: one tuple, as values, by name, or as one value.

        It keeps no state. A tuple is acked when the function has returned; its result is anchored to it.

        Args:
            function: called with each tuple.
            outputs: the fields of the result, a list or a class as in ``Component.outputs``; None: those of this
                stream.
            settings: see ``Stream``.

        >>> from sparkbolt import TopologyBuilder
        >>> from sparkbolt.spouts import TextSpout
        >>> lines = TopologyBuilder("words").stream(TextSpout("books/*.txt"), name="lines")
        >>> lines.map(lambda tup: len(tup.line), outputs=["length"])
        <Stream of 'lines-map-1': length>
        """
        refuse_bolt("map", function)
        return operator_stream(self, Map(function, self._outputs(outputs)), "map", settings)

    @checked
    def flat_map(
        self,
        function: Annotated[Callable[[Tuple], Any], OF_TUPLE],
        outputs: Fields | None = None,
        **settings: Unpack[OperatorSettings],
    ) -> Stream:
        """Emit each of the tuples that a function yields, or returns in a list, for a tuple.

        It keeps no state. A tuple is acked when the function has returned; the results are anchored to it.

        Args:
            function: called with each tuple.
            outputs: the fields of the results; None: those of this stream.
            settings: see ``Stream``.
        """
        refuse_bolt("flat_map", function)
        return operator_stream(self, FlatMap(function, self._outputs(outputs)), "flat-map", settings)

    @checked
    def filter(
        self, function: Annotated[Callable[[Tuple], Any], OF_TUPLE], **settings: Unpack[OperatorSettings]
    ) -> Stream:
        """Emit the tuples for which a function is true, as they are.

        It keeps no state. A tuple is acked when the function has returned.
        """
        refuse_bolt("filter", function)
        return operator_stream(self, Filter(function, self.fields), "filter", settings)

    def branch(self, *predicates: Callable[[Tuple], Any], **settings: Unpack[OperatorSettings]) -> tuple[Stream, ...]:
        """Divide the stream: a tuple goes to the first function that is true for it.

        It keeps no state. A tuple is acked when the functions have returned.

        Returns:
            A stream for each function, and one more with the tuples for which none is true. They are the streams
            ``branch-1``, ``branch-2`` and so on, and ``rest``, of one bolt.

        >>> from sparkbolt import TopologyBuilder
        >>> from sparkbolt.spouts import JsonLinesSpout
        >>> spout = JsonLinesSpout("orders/*.jsonl", outputs=["customer", "amount"])
        >>> orders = TopologyBuilder("orders").stream(spout, name="orders")
        >>> large, others = orders.branch(lambda tup: tup.amount > 1000, name="size")
        >>> large, others
        (<Stream of 'size:branch-1': customer, amount>, <Stream of 'size:rest': customer, amount>)
        """
        if not predicates:
            raise ConfigError("branch() has no function: write branch(lambda tup: tup.amount > 1000)")
        for predicate in predicates:
            verify("predicates", predicate, OF_TUPLE)
            refuse_bolt("branch", predicate)
        declarer, base = declare_operator(self, Branch(predicates, self.fields), "branch", settings)
        names = [*(branch_name(number) for number in range(len(predicates))), REST]
        return tuple(stream_of(self._builder, declarer.stream(name), f"{base}-{name}") for name in names)

    def merge(self, *others: Stream) -> Stream:
        """Return a stream with the tuples of this one and of others, which have the same fields in the same order.

        It is no bolt, keeps nothing and changes no order: what reads the merged stream subscribes to all of them.
        """
        for other in others:
            self._check_stream("merge", other)
            if other.fields != self.fields:
                raise ConfigError(
                    f"merge: {other} has other fields than {self}: map one of them to the fields of the other"
                )
        handles = dict.fromkeys([handle for stream in (self, *others) for handle in stream.handles])
        return Stream(self._builder, tuple(handles), self.fields, self._base)

    def lookup(
        self,
        lookup: Lookup,
        on: str | Sequence[str],
        into: str,
        default: Any = None,
        **settings: Unpack[OperatorSettings],
    ) -> Stream:
        """Add a field with the value that a lookup has for a key of the tuple.

        It keeps no state: the cache of the lookup is not stored. Tuples of a frame are looked up together; each is
        acked when it has its value. While the source is unavailable, tuples wait as for any bolt that raises
        ``Unavailable``.

        Args:
            lookup: a ``sparkbolt.bolts.Lookup``.
            on: the field whose value is looked up; several fields give a tuple of values.
            into: the name of the new field.
            default: its value if the lookup has none for the key.
            settings: see ``Stream``.
        """
        key = known_fields(self, "lookup", "on", on)
        if not hasattr(lookup, "get") or not hasattr(lookup, "close"):
            raise ConfigError(f"lookup={printed(lookup)}: expected a Lookup, such as Lookup.sql(url, table, key)")
        check_new_fields("lookup", [verify("into", into, FIELD)], self.fields)
        return operator_stream(self, Enrich(lookup, key, into, default, self.fields), "lookup", settings)

    # Bolts of the user's.

    def through(self, bolt: BoltBase, **settings: Unpack[OperatorSettings]) -> Stream:
        """Send the tuples through any bolt, by shuffle grouping; returns what it emits on stream ``default``.

        State and acks are those of the bolt. ``.stream(name)`` of the result is another stream of the bolt.
        """
        return operator_stream(self, bolt, kind_of(bolt), settings)

    def to(self, bolt: BoltBase, **settings: Unpack[OperatorSettings]) -> ComponentHandle:
        """Send the tuples to a bolt that ends the stream, such as ``JsonLinesBolt``, by shuffle grouping.

        State and acks are those of the bolt. Returns its handle.
        """
        return declare_operator(self, bolt, kind_of(bolt), settings)[0]

    def stream(self, name: str) -> Stream:
        """Return another stream of the component that emits this one, such as ``checked.stream("errors")``.

        Raises:
            ConfigError: the component declares no such stream, or several components emit this one.
        """
        if len(self.handles) > 1:
            raise ConfigError(f"{self} comes from several components: take stream({name!r}) of each of them")
        base = self._base if name == DEFAULT_STREAM else f"{self._base}-{name}"
        return stream_of(self._builder, StreamHandle(self.handles[0].component, name), base)

    # With state.

    def key_by(self, *fields: str) -> KeyedStream:
        """Group the tuples by the values of some fields: those with equal values go to the same task.

        It is no bolt: what reads the keyed stream subscribes to this one by fields grouping.
        """
        if not fields:
            raise ConfigError(f'key_by() has no field: write key_by("user"); the fields are {list(self.fields)}')
        from sparkbolt.streams.keyed_stream import KeyedStream

        return KeyedStream(self, known_fields(self, "key_by", "fields", fields))

    def window(self, window: Window) -> WindowedStream:
        """Divide the whole stream into windows, which one task makes; ``key_by(...).window(...)`` has more tasks.

        Args:
            window: ``Tumbling``, ``Sliding``, ``Session`` or ``Count``.
        """
        from sparkbolt.streams.keyed_stream import WindowedStream

        return WindowedStream(self, (), window)

    @checked
    def join(
        self,
        other: Stream,
        on: str | Sequence[str],
        within: Annotated[timedelta, duration(0, None)],
        timestamp: Annotated[str | Callable[[Tuple], float | datetime], PART_OF_TUPLE] | None = None,
        *,
        unit: Unit | None = None,
        lag: Annotated[timedelta, duration(0, None)] = timedelta(0),
        suffix: str = "_right",
        **settings: Unpack[OperatorSettings],
    ) -> Stream:
        """Emit each pair of a tuple of this stream and one of another, if they fit: an inner join.

        They fit if they have equal values in ``on``, and if their times are at most ``within`` apart. Each pair is
        emitted once, when its second tuple arrives, in whatever order they arrive.

        It keeps the values of a tuple until no other can fit it any more: until both streams have reached its time
        plus ``within`` plus ``lag``, as far as the task has seen them. While one stream is silent, the tuples of the
        other one wait. A tuple is acked once its values are in the state, which is committed with the micro-batch:
        ``within`` may be longer than the message timeout. Each pair starts a tree of its own, and a pair that fails is
        retried by itself. State moves with its key if the number of tasks changes.

        Args:
            other: the other stream.
            on: the field, or fields, that both streams have.
            within: how far apart the times of the two tuples may be.
            timestamp: the field, which both streams have, or the function with the time of a tuple, as in ``Window``;
                a tuple without a valid time is rejected. None: the time at which the tuple arrived.
            unit: the unit of numbers in ``timestamp``, as in ``Window``.
            lag: how far out of order tuples may arrive.
            suffix: what is added to the name of a field of ``other`` that this stream has, too. The fields of a pair
                are those of this stream, and then those of ``other`` without ``on``.
            settings: see ``Stream``.

        >>> from sparkbolt import TopologyBuilder, minutes
        >>> from sparkbolt.spouts import JsonLinesSpout
        >>> builder = TopologyBuilder("shop")
        >>> clicks = builder.stream(JsonLinesSpout("clicks/*", outputs=["user", "at", "path"]), name="clicks")
        >>> bought = builder.stream(JsonLinesSpout("bought/*", outputs=["user", "at", "amount"]), name="bought")
        >>> clicks.join(bought, on="user", within=minutes(10), timestamp="at")
        <Stream of 'clicks-join-1': user, at, path, at_right, amount>
        """
        self._check_stream("join", other)
        key = known_fields(self, "join", "on", on)
        known_fields(other, "join", "on", on)
        if isinstance(timestamp, str):
            known_fields(self, "join", "timestamp", timestamp)
            known_fields(other, "join", "timestamp", timestamp)
        if set(self.handles) & set(other.handles):
            raise ConfigError("join: both sides read the same stream, and a bolt gets it once: map one side first")
        right = [name for name in other.fields if name not in key]
        renamed = [f"{name}{suffix}" if name in self.fields else name for name in right]
        check_new_fields("join", renamed, self.fields, "choose another suffix=")
        sides = {
            (str(handle.component), handle.stream): side
            for side, stream in ((LEFT, self), (RIGHT, other))
            for handle in stream.handles
        }
        time = Window(timestamp=timestamp, unit=unit, lag=lag)
        bolt = Join(sides, key, right, [*self.fields, *renamed], time, within)
        both = Stream(self._builder, (*self.handles, *other.handles), self.fields, self._base)
        return operator_stream(both, bolt, "join", settings, FieldsGrouping(key))

    def _outputs(self, outputs: Fields | None) -> Any:
        """The ``outputs`` of an operator: as given, or the fields of this stream."""
        if outputs is None:
            return list(self.fields)
        return outputs if isinstance(outputs, type) else field_names("outputs", outputs, "['word']")

    def _check_stream(self, operator: str, other: object) -> None:
        if not isinstance(other, Stream) or other._builder is not self._builder:
            raise ConfigError(f"{operator}: got {printed(other)}, expected a Stream of the same builder")


def stream_of(builder: TopologyDeclarer, handle: StreamHandle, base: str | None = None) -> Stream:
    """Return a stream of a component that is declared.

    Raises:
        ConfigError: the component declares no such stream.
    """
    declaration = declarations_of(builder)[str(handle.component)]
    streams = {stream.name: stream for stream in declaration.streams()}
    if handle.stream in streams:
        fields = streams[handle.stream].fields
    elif handle.stream == DEFAULT_STREAM:
        fields = ()  # it emits nothing, or build says what is wrong with its outputs
    else:
        hint = did_you_mean(handle.stream, streams) or f": its streams are {list(streams)}"
        raise ConfigError(f"{declaration} declares no stream {handle.stream!r}{hint}")
    named = declaration.id if handle.stream == DEFAULT_STREAM else f"{declaration.id}-{handle.stream}"
    return Stream(builder, (handle,), fields, named if base is None else base)


def operator_stream(
    source: OperatorInput, bolt: BoltBase, kind: str, settings: OperatorSettings, grouping: Grouping | None = None
) -> Stream:
    """Declare a bolt, as ``declare_operator``, and return what it emits on stream ``default``."""
    declarer, base = declare_operator(source, bolt, kind, settings, grouping)
    return stream_of(source._builder, declarer.stream(DEFAULT_STREAM), base)
