"""Random topologies for the simulator: DAGs, groupings, kinds of bolts, tuples that are held, failed and lost.

What a bolt does depends on the values that it gets and on its own durable attributes, and on nothing else: it is
deterministic, as the promises ask for. What goes wrong for a message goes wrong at its first attempt only, so that
every message is finished in the end.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pyarrow as pa

from sparkbolt import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    ColumnBolt,
    Config,
    Direct,
    FailedException,
    Grouping,
    PartitionedSpout,
    Range,
    Reject,
    RetryPolicy,
    Spout,
    Topology,
    TopologyBuilder,
    Unavailable,
)
from sparkbolt.errors import EmitError
from sparkbolt.sim.world import START_MS

GROUPINGS = ("shuffle", "fields", "partial_key", "all", "global", "none", "local_or_shuffle", "twice", "direct")
VALUES = 1 << 20


def pick(salt: object, value: object, options: int) -> int:
    """A choice that looks random and is always the same."""
    return zlib.crc32(f"{salt}/{value}".encode()) % options


def children(salt: object, value: int) -> list[int]:
    """What becomes of a value: up to two others."""
    return [(value * 31 + 7 * child + 1) % VALUES for child in range(pick((salt, "children"), value, 4) % 3)]


class Salted:
    """Each bolt of a topology behaves in a way of its own."""

    def __init__(self, salt: int) -> None:
        self.salt = salt


class Basic(Salted, BasicBolt):
    outputs = ["n"]
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.attempt == 1 and pick((self.salt, "fail"), tup["n"], 23) == 0:
            raise FailedException("by chance")
        for child in children(self.salt, tup["n"]):
            collector.emit([child])


class Counting(Salted, BasicBolt):
    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.counts: dict[int, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            return
        self.counts[tup["n"] % 50] = self.counts.get(tup["n"] % 50, 0) + 1
        for child in children(self.salt, tup["n"]):
            collector.emit([(child + self.counts[tup["n"] % 50]) % VALUES])


class Keyed(Salted, Bolt):
    outputs = ["n"]

    def init_state(self, state: Any) -> None:
        self.state = state

    def execute(self, tup: Any, collector: Any) -> None:
        count = self.state.get(tup["n"] % 50, 0) + 1
        self.state.put(tup["n"] % 50, count)
        for child in children(self.salt, tup["n"]):
            collector.emit([(child + count) % VALUES], anchors=tup)
        collector.ack(tup)


class Concurrent(Salted, AsyncBolt):
    outputs = ["n"]
    stateless = True

    async def execute(self, tup: Any, collector: Any) -> None:
        for _ in range(pick((self.salt, "sleep"), tup["n"], 3)):
            await asyncio.sleep(0)
        for child in children(self.salt, tup["n"]):
            collector.emit([child])


class Columns(Salted, ColumnBolt):
    outputs = ["n"]
    stateless = True

    def execute(self, batch: Any, collector: Any) -> None:
        numbers, parents = [], []
        for row, value in enumerate(batch["n"].to_pylist()):
            for child in children(self.salt, value):
                numbers.append(child)
                parents.append(row)
        if numbers:
            collector.emit([pa.array(numbers[::-1])], anchors=pa.array(parents[::-1]))


class Holding(Salted, Bolt):
    """Holds some tuples, emits anchored to them in later micro-batches, and lets them go on ticks."""

    outputs = {"default": ["n"], "direct": Direct(["n"])}

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []
        self.targets = [task for component in sorted(context.tasks) for task in context.tasks[component]]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            while len(self.held) > 2:
                self.release(collector)
            if self.held and self.held[0]["n"] % 2:
                self.release(collector)
            self.held = self.held[1:] + self.held[:1]
            if self.held:
                self.release(collector)
            return
        value = tup["n"]
        for child in children(self.salt, value):
            self.emit(child, collector, [tup, *self.held[:1]] if value % 3 == 0 else tup)
        way = pick((self.salt, "way"), value, 12)
        if way < 4:
            self.held.append(tup)
        elif way == 4 and tup.attempt == 1:
            collector.fail(tup, "by chance")
        elif way == 5 and tup.attempt == 1:
            pass  # forgotten: it times out
        elif way == 6 and tup.attempt == 1:
            raise ValueError("by chance")
        elif way == 7 and self.held:
            collector.emit([value], anchors=[self.held[0], tup, self.held[0]])
            collector.ack(tup)
        else:
            collector.ack(tup)

    def emit(self, value: int, collector: Any, anchors: Any) -> None:
        if pick((self.salt, "direct"), value, 3) == 0:
            task = self.targets[value % len(self.targets)]
            with suppress(EmitError):  # it may be a task that does not subscribe
                collector.emit_direct(task, [value], anchors=anchors, stream="direct")
        else:
            collector.emit([value], anchors=anchors)

    def release(self, collector: Any) -> None:
        held = self.held.pop(0)
        for child in children((self.salt, "release"), held["n"]):
            collector.emit([child], anchors=held)
        if len(self.held) % 2 and held["n"] % 5 == 0:
            collector.reset_timeout(held)
        collector.ack(held)


class Twice(Grouping):
    """Each tuple to one task, some of them two times."""

    def prepare(self, context: Any, stream: str, targets: Sequence[int]) -> None:
        self.targets = list(targets)

    def choose_tasks(self, sender_task: int, values: list[Any]) -> Sequence[int]:
        task = self.targets[values[0] % len(self.targets)]
        return [task, task] if values[0] % 3 == 0 else [task]


class Messages(PartitionedSpout):
    outputs = ["n"]

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Any]:
        raise NotImplementedError("it is fed")

    def read(self, range_: Any) -> Any:
        raise NotImplementedError("it is fed")


class Jobs(Spout):
    outputs = ["n"]

    def next_tuple(self, collector: Any) -> None: ...


POLICIES = (
    RetryPolicy(max_retries=2, min_backoff=timedelta(milliseconds=200), max_backoff=timedelta(seconds=2), jitter=0.5),
    RetryPolicy(max_retries=5, min_backoff=timedelta(milliseconds=500), max_backoff=timedelta(seconds=1), jitter=0),
)


def patient(spout: Any, random_: random.Random) -> Any:
    """A spout, perhaps with a policy of its own and a limit on what is uncommitted."""
    policy = random_.choice([None, *POLICIES])
    if policy is not None:
        spout.retry = policy
    if isinstance(spout, PartitionedSpout):
        spout.max_uncommitted = random_.choice([None, 2, 6])
        spout.once = random_.random() < 0.15
    return spout


KINDS = (Basic, Counting, Keyed, Concurrent, Columns, Holding, Holding)


def random_topology(seed: int) -> tuple[Topology, dict[str, list[list[int]]]]:
    """A topology and what its spouts are fed."""
    random_ = random.Random(f"topology {seed}")
    config = Config(
        acker_tasks=random_.choice([None, 1, 3]),
        max_attempts=3,
        message_timeout_secs=random_.choice([3, 6]),
        max_spout_pending=random_.choice([None, None, 20]),
    )
    builder = TopologyBuilder(f"random-{seed}", config)
    feed = {}
    spouts = ["m0", "m1"][: random_.choice([1, 1, 2])]
    for name in spouts:
        spout = patient(random_.choice([Messages, Messages, Jobs])(), random.Random(f"policy {seed} {name}"))
        builder.set_spout(name, spout, parallelism=random_.randint(1, 2))
        feed[name] = [[random_.randrange(VALUES)] for _ in range(random_.randint(5, 25))]
    known: list[tuple[str, type]] = [(name, object) for name in spouts]
    for place in range(random_.randint(1, 4)):
        kind = random_.choice(KINDS)
        sources = random_.sample(known, random_.randint(1, min(2, len(known))))
        if kind is Columns:  # it does not see attempts, and nothing in it needs them
            kind = Columns
        ticks = {"tick_tuple_freq_secs": 2} if kind in (Holding, Counting) else {}
        fuse = {} if random_.random() < 0.7 else {"fuse": False}
        declarer = builder.set_bolt(f"b{place}", kind(seed * 10 + place), random_.randint(1, 3), **ticks, **fuse)
        for source, source_kind in sources:
            grouping = random_.choice([name for name in GROUPINGS if name != "direct" or source_kind is Holding])
            if grouping in ("fields", "partial_key"):
                getattr(declarer, f"{grouping}_grouping")(source, ["n"])
            elif grouping == "direct":
                declarer.direct_grouping(source, stream="direct")
            elif grouping == "twice":
                declarer.grouping(source, Twice())
            else:
                getattr(declarer, f"{grouping}_grouping")(source)
        known.append((f"b{place}", kind))
    return builder.build(), feed


class Chunks(PartitionedSpout):
    """Each message is some tuples, several of them in chunks of their own."""

    outputs = ["n"]

    def __init__(self, salt: int, count: int) -> None:
        self.salt, self.count = salt, count

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Any]:
        start = progress.get("all", 0)
        return [Range(0, "all", start, min(start + 7, self.count))] if start < self.count else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("all", 0) >= self.count

    def read(self, range_: Any) -> Any:
        raise AssertionError("it is read in columns")

    def read_columns(self, range_: Any) -> Any:
        for position in range(range_.start, range_.end):
            left = 1 + pick((self.salt, "tuples"), position, 5)
            while left:
                some = min(left, 1 + pick((self.salt, left), position, 3))
                values = [pick(self.salt, (position, left - i), VALUES) for i in range(some)]
                yield [position] * some, [pa.array(values) if self.salt % 2 else values]
                left -= some


def chunked_topology(seed: int) -> Topology:
    """Messages of several tuples, which come in chunks; bolts that hold, fail and forget them."""
    random_ = random.Random(f"chunked {seed}")
    builder = TopologyBuilder(f"chunked-{seed}", Config(message_timeout_secs=3, max_attempts=3))
    builder.set_spout("m", Chunks(seed, random_.randint(5, 25)))
    fuse = {} if random_.random() < 0.5 else {"fuse": False}
    first = builder.set_bolt("b0", Holding(seed), random_.randint(1, 2), tick_tuple_freq_secs=2, **fuse)
    getattr(first, f"{random_.choice(['shuffle', 'all', 'global'])}_grouping")("m")
    builder.set_bolt("b1", Holding(seed + 1), random_.randint(1, 2), tick_tuple_freq_secs=2).fields_grouping(
        "b0", ["n"]
    )
    return builder.build()


class Insisting(Bolt):
    """Emits anchored to the oldest tuple that it holds, once in each micro-batch; lets it go after the third time."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.held: list[list[Any]] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            self.held.append([tup, 0])
            return
        for entry in self.held:
            held, times = entry
            collector.emit([times], anchors=held)
            entry[1] = times + 1
            if times == 2:
                collector.ack(held)
        self.held = [entry for entry in self.held if entry[1] < 3]


class Patient(Bolt):
    """Holds what it gets for some ticks."""

    def prepare(self, context: Any) -> None:
        self.held: list[list[Any]] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            self.held.append([tup, 0])
            return
        for entry in self.held:
            entry[1] += 1
            if entry[1] > 5:
                collector.ack(entry[0])
        self.held = [entry for entry in self.held if entry[1] <= 5]


def insisting_topology(seed: int) -> tuple[Topology, dict[str, list[list[int]]]]:
    """Tuples that are held emit in several micro-batches, and what they emit is held, too."""
    builder = TopologyBuilder("insisting", Config(message_timeout_secs=60))
    builder.set_spout("m", Messages())
    builder.set_bolt("insisting", Insisting(), tick_tuple_freq_secs=1).global_grouping("m")
    builder.set_bolt("patient", Patient(), tick_tuple_freq_secs=1).global_grouping("insisting")
    return builder.build(), {"m": [[number] for number in range(1 + seed % 7)]}


class Starting(Salted, Bolt):
    """Acks what it gets; starts trees at once or with the next tick, and emits anchored as well."""

    outputs = ["n"]
    starts_trees = True

    def prepare(self, context: Any) -> None:
        self.values: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            for value in self.values:
                for child in children(self.salt, value):
                    collector.emit([child])
            self.values = []
            return
        way = pick((self.salt, "way"), tup["n"], 5)
        if way < 2:
            collector.emit([tup["n"]], anchors=tup if way else None)
        self.values.append(tup["n"])
        collector.ack(tup)


class Fussy(Salted, Bolt):
    """Acks, fails, raises or forgets each attempt by itself."""

    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        way = pick((self.salt, tup.attempt), tup["n"], 6)
        if way == 0:
            collector.fail(tup, "by chance")
        elif way == 1:
            raise ValueError("by chance")
        elif way > 2 or tup.attempt > 1:
            collector.emit([tup["n"]], anchors=tup)
            collector.ack(tup)


def starting_topology(seed: int) -> tuple[Topology, dict[str, list[list[int]]]]:
    """Bolts that start trees, one behind the other, and others that fail them."""
    random_ = random.Random(f"starting {seed}")
    config = Config(
        message_timeout_secs=3, acker_tasks=random_.choice([None, 1, 3]), max_spout_pending=random_.choice([None, 20])
    )
    builder = TopologyBuilder(f"starting-{seed}", config)
    builder.set_spout("m", random_.choice([Messages, Jobs])(), parallelism=random_.randint(1, 2))
    before = "m"
    for place in range(2):
        policy = random.Random(f"policy {seed} {place}").choice([None, *POLICIES])
        starting = builder.set_bolt(
            f"s{place}", Starting(seed + place), random_.randint(1, 3), tick_tuple_freq_secs=2, retry=policy
        )
        starting.fields_grouping(before, ["n"])
        before = f"f{place}"
        builder.set_bolt(before, Fussy(seed + place), random_.randint(1, 2)).shuffle_grouping(f"s{place}")
    return builder.build(), {"m": [[random_.randrange(VALUES)] for _ in range(random_.randint(5, 40))]}


class Deadly(Salted, Bolt):
    """Some values it never takes, others not at the first attempt; by failing them, raising, or forgetting them."""

    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        way = pick((self.salt, "way"), tup["n"], 12)
        if way < 4 and (way % 2 == 0 or tup.attempt == 1):
            how = pick((self.salt, tup.attempt), tup["n"], 8)
            if how < 4:
                collector.fail(tup, "by chance")
            elif how < 7:
                raise ValueError("by chance")
            return
        collector.emit([tup["n"]], anchors=tup)
        collector.ack(tup)


class Undertaking(Salted, Bolt):
    """Gets dead letters; holds some for a tick, and refuses some, the first time or each time."""

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            for held in self.held:
                collector.ack(held)
            self.held = []
            return
        assert tup["story"]["attempts"], "a dead letter tells at least one attempt"
        way = pick((self.salt, "take"), tup["n"], 6)
        if way == 0 or (way == 1 and tup.attempt == 1):
            collector.fail(tup, "no")
        elif way == 2:
            self.held.append(tup)
        else:
            collector.ack(tup)


def forget(letter: Any) -> None:
    """What a simulation never calls: it has sinks of its own."""
    raise AssertionError("the simulator has written to a user's sink")


def lettered_topology(seed: int) -> tuple[Topology, dict[str, list[list[int]]]]:
    """Messages that fail for ever, and dead letters to a sink or to a stream."""
    random_ = random.Random(f"lettered {seed}")
    config = Config(
        message_timeout_secs=3,
        acker_tasks=random_.choice([None, 1, 3]),
        max_spout_pending=random_.choice([None, 20]),
        max_attempts=random_.choice([1, 2, 3]),
    )
    builder = TopologyBuilder(f"lettered-{seed}", config)
    wait = timedelta(milliseconds=random_.choice([0, 100, 1000]))
    policy = RetryPolicy(max_retries=random_.choice([0, 1, 3]), min_backoff=wait, max_backoff=10 * wait)
    retry = {"retry": policy} if random_.random() < 0.5 else {}
    way = random_.choice([forget, "stream:dead"])
    spout = random_.choice([Messages, Jobs])()
    builder.set_spout("m", spout, random_.randint(1, 2), dead_letters=way, **retry)
    builder.set_bolt("deadly", Deadly(seed), random_.randint(1, 3)).shuffle_grouping("m")
    builder.set_bolt("last", Fussy(seed), random_.randint(1, 2)).fields_grouping("deadly", ["n"])
    if way is not forget:
        undertaking = builder.set_bolt("undertaking", Undertaking(seed), random_.randint(1, 2), tick_tuple_freq_secs=1)
        undertaking.shuffle_grouping("m", "dead")
    return builder.build(), {"m": [[random_.randrange(VALUES)] for _ in range(random_.randint(5, 40))]}


class Depending(Salted, Bolt):
    """Depends on something that is away for a time; it says so, or just raises; some values it never takes."""

    outputs = ["n"]
    transient = ("context",)

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        begins_ms = START_MS + 500 * pick((self.salt, "begins"), 0, 8)
        lasts_ms = (1000, 5000, 40_000)[pick((self.salt, "lasts"), 0, 3)]
        if begins_ms <= self.context.now_ms < begins_ms + lasts_ms:
            said = pick((self.salt, "says"), 0, 3)
            if said == 0 or (said == 1 and pick((self.salt, "shard"), tup["n"], 3) == 0):
                raise Unavailable("it is away")
            if said == 2:
                raise ConnectionError("refused")
        way = pick((self.salt, "way"), tup["n"], 20)
        if way == 0:
            raise Reject("never")
        if way == 1:
            raise ValueError("each time")
        collector.emit([tup["n"]], anchors=tup)
        collector.ack(tup)


def depending_topology(seed: int) -> tuple[Topology, dict[str, list[list[int]]]]:
    """Bolts whose dependencies go away, before and behind others, fed by spouts of each kind."""
    random_ = random.Random(f"depending {seed}")
    config = Config(
        message_timeout_secs=random_.choice([3, 30]),
        acker_tasks=random_.choice([None, 1]),
        max_spout_pending=random_.choice([None, 60]),
        max_attempts=random_.choice([1, 3]),
        outage_patience_secs=random_.choice([2, 20, 60]),
    )
    builder = TopologyBuilder(f"depending-{seed}", config)
    feed = {}
    for name in ["m0", "m1"][: random_.choice([1, 2])]:
        spout = patient(random_.choice([Messages, Messages, Jobs])(), random_)
        spout.once = False
        builder.set_spout(name, spout, random_.randint(1, 2))
        feed[name] = [[random_.randrange(VALUES)] for _ in range(random_.choice([20, 130]))]
    depending = builder.set_bolt("depending", Depending(seed), random_.randint(1, 2)).shuffle_grouping("m0")
    if len(feed) > 1:
        depending.shuffle_grouping("m1")
    builder.set_bolt("last", Fussy(seed), random_.randint(1, 2)).fields_grouping("depending", ["n"])
    return builder.build(), feed
