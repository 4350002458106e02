"""What a topology costs by its shape: tasks of a bolt, components, distinct words; in one process, without Spark.

What do a small micro-batch and a text cost, by how many tasks and components there are, and by how many words a bolt
has counted; and what do retries cost, by how many there are?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from benchmarks.floor import PassOn
from benchmarks.scale_growth import Axis, Cost, spent_s
from benchmarks.spouts import Numbers
from benchmarks.words import WordCount
from sparkbolt import Bolt, Config, Range, Topology, TopologyBuilder
from sparkbolt.sim.engine import LocalEngine

SMALL, LARGE = 10, 20_000
"""Tuples of a small micro-batch, and of one that is not."""
EACH_TO_EACH = 100_000
"""So many that each of 200 tasks has something for each of 200 others."""
TURNS = 10
"""Small micro-batches."""
TOUCHED = 1_000
FILLED = 1_000_000
"""Tuples of one micro-batch, at most."""


class FailAtFirst(Bolt):
    """Fails the first attempt at each message."""

    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.attempt == 1:
            collector.fail(tup)
        else:
            collector.ack(tup)


class Words(Numbers):
    """The same numbers, as words."""

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]]]:
        for positions, (numbers,) in super().read_columns(range_):
            yield positions, [pa.array(numbers).cast(pa.string())]


def words(keys: int, small: int) -> Words:
    """Every word once, then as many small micro-batches as are asked for."""
    spout = Words(keys, fill=keys, steps=(small,), cycles=1 << 20)
    spout.first_budget = min(keys, FILLED)
    return spout


def built(declare: Callable[[TopologyBuilder], None], spout: Words) -> Topology:
    """A topology of the spout and what ``declare`` adds."""
    builder = TopologyBuilder("scale", Config(message_timeout_secs=3600, micro_batch_bytes_max=FILLED))
    builder.set_spout("source", spout)
    declare(builder)
    return builder.build()


def with_tasks(count: int, spout: Words) -> Topology:
    """Two bolts of so many tasks each, of which the second keeps counts; each task sends to each."""

    def declare(builder: TopologyBuilder) -> None:
        builder.set_bolt("pass", PassOn(), parallelism=count, fuse=False).shuffle_grouping("source")
        builder.set_bolt("count", WordCount(), parallelism=count).fields_grouping("pass", ["word"])

    return built(declare, spout)


def chain(count: int, spout: Words) -> Topology:
    """So many bolts in a row; each is a level of its own."""

    def declare(builder: TopologyBuilder) -> None:
        before = "source"
        for number in range(count):
            builder.set_bolt(f"bolt{number}", PassOn()).fields_grouping(before, ["word"])
            before = f"bolt{number}"

    return built(declare, spout)


def fan_out(count: int, spout: Words) -> Topology:
    """So many bolts side by side, each of which gets every tuple."""

    def declare(builder: TopologyBuilder) -> None:
        for number in range(count):
            builder.set_bolt(f"bolt{number}", PassOn()).fields_grouping("source", ["word"])

    return built(declare, spout)


NAMES = {with_tasks: "each to each", chain: "in a row", fan_out: "side by side"}


def _engine(topology: Topology) -> LocalEngine:
    return LocalEngine(topology, now_ms=1_800_000_000_000)


def _step(engine: LocalEngine, times: int = 1) -> None:
    for _ in range(times):
        assert engine.step() is not None
        engine.now_ms += 1000


def shape(of: Callable[[int, Words], Topology], large: int = LARGE) -> Callable[[int], dict[str, Cost]]:
    """The costs of topologies of a shape."""

    def costs(count: int) -> dict[str, Cost]:
        engine = _engine(of(count, words(large, SMALL)))
        first = spent_s(lambda: _step(engine))
        _step(engine)
        small = spent_s(lambda: _step(engine, TURNS)) / TURNS
        assert engine.ledger.metrics.of("source").acked == large + SMALL * (TURNS + 1)
        engine.close()
        name = NAMES[of]
        return {
            f"a small micro-batch, {name}": Cost(small),
            f"{large:,} tuples, {name}": Cost(first),
        }

    return costs


def vocabulary(count: int) -> dict[str, Cost]:
    """A bolt counts so many distinct words."""

    def declare(builder: TopologyBuilder) -> None:
        builder.set_bolt("count", WordCount(), parallelism=2).fields_grouping("source", ["word"])

    engine = _engine(built(declare, words(count, TOUCHED)))
    filled = spent_s(lambda: _fill(engine, count))
    _step(engine)
    few = min(spent_s(lambda: _step(engine)) for _ in range(5))
    nbytes = sum(len(value) for store in engine.stores.values() for value in store.values())
    engine.close()
    return {
        "counting each once": Cost(filled),
        "their state": Cost(float(nbytes), "bytes"),
        f"a micro-batch of {TOUCHED:,} of them": Cost(few),
    }


def retries(count: int) -> dict[str, Cost]:
    """So many messages have failed once, and are read and worked on again."""

    def declare(builder: TopologyBuilder) -> None:
        builder.set_bolt("fail", FailAtFirst(), parallelism=2, fuse=False).shuffle_grouping("source")

    engine = _engine(built(declare, words(count, SMALL)))
    while engine.ledger.metrics.of("source").failed < count:
        _step(engine)
    engine.now_ms += 60_000

    def again() -> None:
        while engine.ledger.metrics.of("source").acked < count:
            _step(engine)

    spent = spent_s(again)
    engine.close()
    return {"all retries, read and worked on": Cost(spent)}


def _fill(engine: LocalEngine, count: int) -> None:
    while engine.ledger.metrics.of("count").executed < count:
        _step(engine)


AXES = (
    Axis("tasks of each bolt", (2, 6, 20, 60, 200), shape(with_tasks, EACH_TO_EACH), rounds=1),
    Axis("bolts", (3, 5, 10, 20, 50), shape(chain), rounds=2),
    Axis("bolts", (3, 5, 10, 20, 50), shape(fan_out), rounds=2),
    Axis("failures", (300, 1_000, 3_000, 10_000, 30_000), retries, rounds=1),
    Axis("distinct words", (1_000, 10_000, 100_000, 1_000_000, 3_000_000), vocabulary, rounds=1),
)
