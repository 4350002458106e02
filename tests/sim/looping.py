"""Random topologies with loops: tuples that are fed back, held, failed and forgotten on the way, and trees that end by
``max_hops``."""

from __future__ import annotations

import random
from typing import Any

from sparkbolt import BasicBolt, Bolt, Config, FailedException, Topology, TopologyBuilder
from tests.sim.random_topologies import Jobs, Messages, Salted, Twice, pick

VALUES = 400
WAYS = ("shuffle", "fields", "partial_key", "all", "global", "none", "local_or_shuffle", "twice")


def smaller(salt: object, value: int) -> list[int]:
    """What becomes of a value: up to two others that are at most a quarter of it."""
    return [value // 4 - child for child in range(pick((salt, "children"), value, 3)) if value // 4 > child]


class Shrinking(Salted, BasicBolt):
    """Counts what it gets, and emits smaller values."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.counts: dict[int, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.attempt == 1 and pick((self.salt, "fail"), tup["n"], 29) == 0:
            raise FailedException("by chance")
        self.counts[tup["n"] % 7] = self.counts.get(tup["n"] % 7, 0) + 1
        for value in smaller(self.salt, tup["n"]):
            collector.emit([value])


class Lingering(Salted, Bolt):
    """Holds some tuples, and emits smaller values for them on ticks; forgets others at the first attempt."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            for held in self.held:
                self.work(held, collector, [held])
            self.held = []
            return
        way = pick((self.salt, "way"), tup["n"], 9)
        if way < 3:
            self.held.append(tup)
        elif way > 3 or tup.attempt > 1:
            self.work(tup, collector, [tup, *self.held[:1]] if way == 4 else [tup])

    def work(self, tup: Any, collector: Any, anchors: list[Any]) -> None:
        for value in smaller(self.salt, tup["n"]):
            collector.emit([value], anchors=anchors)
        collector.ack(tup)


class Scattering(Salted, Bolt):
    """Emits smaller values with the tree of the tuple, with two trees, or with none."""

    outputs = ["n"]
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        for value in smaller(self.salt, tup["n"]):
            collector.emit([value], anchors=tup if pick((self.salt, "anchor"), value, 4) else None)
        collector.ack(tup)


class Sowing(Salted, Bolt):
    """Acks what it gets, and starts trees with smaller values on the next tick."""

    outputs = ["n"]
    starts_trees = True

    def prepare(self, context: Any) -> None:
        self.values: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            self.values += smaller(self.salt, tup["n"])
            collector.ack(tup)
            return
        for value in self.values:
            collector.emit([value])
        self.values = []


def looping_topology(seed: int) -> tuple[Topology, dict[str, list[list[int]]]]:
    """A topology with one or two loops, and what its spout is fed."""
    random_ = random.Random(f"looping {seed}")
    config = Config(
        acker_tasks=random_.choice([None, 1, 3]),
        max_attempts=3,
        message_timeout_secs=random_.choice([3, 6]),
        max_hops=random_.choice([1, 2, 1000]),
        max_spout_pending=random_.choice([None, 20]),
        compact_every=random_.choice([2, 20]),
    )
    builder = TopologyBuilder(f"looping-{seed}", config)
    builder.set_spout("m", random_.choice([Messages, Jobs])(), random_.randint(1, 2))
    ids = ["b0", "b1", "b2"][: random_.randint(1, 3)]
    declared = {}
    for place, name in enumerate(ids):
        kind = random_.choice([Shrinking, Lingering, Scattering, Sowing])
        ticks = {"tick_tuple_freq_secs": 1} if kind in (Lingering, Sowing) else {}
        declared[name] = builder.set_bolt(name, kind(seed * 10 + place), random_.randint(1, 3), **ticks)
        subscribe(declared[name], ["m", *ids][place], random_.choice(WAYS), feedback=random_.random() < 0.1)
    last = ids[-1]
    subscribe(declared["b0"], last, random_.choice(WAYS), feedback=True)
    if len(ids) > 1 and random_.random() < 0.5:
        subscribe(declared[last], last, random_.choice(WAYS), feedback=True)
    return builder.build(), {"m": [[random_.randrange(VALUES)] for _ in range(random_.randint(5, 25))]}


def subscribe(declarer: Any, source: str, way: str, *, feedback: bool) -> None:
    if way in ("fields", "partial_key"):
        getattr(declarer, f"{way}_grouping")(source, ["n"], feedback=feedback)
    elif way == "twice":
        declarer.grouping(source, Twice(), feedback=feedback)
    else:
        getattr(declarer, f"{way}_grouping")(source, feedback=feedback)
