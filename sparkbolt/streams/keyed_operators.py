"""Operators that keep one value for each key, in a ``KeyValueState``: count, reduce and aggregate.

Each emits the new value for every tuple, anchored to it, and acks the tuple. The state is committed with the
micro-batch, and moves with its key if the number of tasks changes. What a program says (the key, the functions) is
transient: after a change of the program, the new code continues with the stored values.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkbolt.api.components import BasicBolt, TopologyContext
from sparkbolt.api.interfaces import BasicCollector, KeyValueState
from sparkbolt.api.tuples import Tuple
from sparkbolt.streams.aggregates import Aggregator, Reducer
from sparkbolt.streams.stateless_operators import key_of


class KeyCount(BasicBolt):
    """Counts the tuples of each key."""

    keyed = True
    ignores_ticks = True
    transient = ("key", "field", "outputs")

    def __init__(self, key: Sequence[str], into: str) -> None:
        """Count by the fields of ``key``, and emit the count in a field named ``into``."""
        self.key = tuple(key)
        self.field = key[0] if len(key) == 1 else None
        self.outputs = [*key, into]

    def init_state(self, state: KeyValueState) -> None:
        """Keep the counts."""
        self.counts = state

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Count one more."""
        if self.field is None:
            key = key_of(tup, self.key)
            count = self.counts.get(key, 0) + 1
            collector.emit([*key, count])
        else:
            key = tup[self.field]
            count = self.counts.get(key, 0) + 1
            collector.emit([key, count])
        self.counts.put(key, count)


class KeyReduce(BasicBolt):
    """Makes one tuple of all tuples of each key."""

    keyed = True
    ignores_ticks = True
    transient = ("key", "outputs", "reducer", "context")

    def __init__(self, reducer: Reducer) -> None:
        """Reduce by the function, the fields and the key of ``reducer``."""
        self.reducer = reducer
        self.key = reducer.key
        self.outputs = list(reducer.fields)

    def prepare(self, context: TopologyContext) -> None:
        """Keep the context, which names the component in errors."""
        self.context = context

    def init_state(self, state: KeyValueState) -> None:
        """Keep the tuple of each key so far."""
        self.reduced = state

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Add one tuple."""
        key = key_of(tup, self.key)
        row = self.reducer.step(self.reduced.get(key), tup, self.context.component)
        collector.emit(row)
        self.reduced.put(key, row)


class KeyAggregate(BasicBolt):
    """Computes aggregates of the tuples of each key."""

    keyed = True
    ignores_ticks = True
    transient = ("key", "outputs", "aggregator")

    def __init__(self, key: Sequence[str], aggregator: Aggregator) -> None:
        """Aggregate by the fields of ``key``."""
        self.key = tuple(key)
        self.aggregator = aggregator
        self.outputs = [*key, *aggregator.names]

    def init_state(self, state: KeyValueState) -> None:
        """Keep the aggregates of each key so far."""
        self.aggregated = state

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Add one tuple."""
        key = key_of(tup, self.key)
        state = self.aggregator.step(self.aggregated.get(key), tup)
        values = (key,) if len(self.key) == 1 else key
        collector.emit([*values, *self.aggregator.results(state)])
        self.aggregated.put(key, state)
