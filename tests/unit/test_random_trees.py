"""Random topologies with random bolts, against a model that keeps every tree whole.

The model knows nothing of ids, edges and XOR values. It writes down every delivery that a bolt sees, to which trees
it belongs (the trees of its anchors), and what the bolt said of it. After each micro-batch it says which trees are
complete (every delivery acked), which failed (some delivery failed), which are open; the engine must say the same,
tree by tree, in the same micro-batch.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkbolt import (
    AsyncBolt,
    BadRecord,
    BasicBolt,
    Bolt,
    ColumnBolt,
    Config,
    Direct,
    FailedException,
    Grouping,
    PartitionedSpout,
    Range,
    Topology,
    TopologyBuilder,
)
from sparkbolt.base.ids import tree_key
from sparkbolt.errors import EmitError
from sparkbolt.sim.checkers.lives import LivesFollowTheTable
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.engine import LocalEngine
from tests.hypotheses import examples

pytestmark = pytest.mark.slow

Tree = tuple[int, int]
"""(position of the message, attempt)."""
EMISSIONS_MAX = 300
GROUPINGS = ["shuffle", "fields", "partial_key", "all", "global", "none", "direct", "local_or_shuffle", "custom"]


# The model.


@dataclass
class Delivery:
    """One tuple as one task got it."""

    number: int
    trees: frozenset[Tree]
    state: str = "open"


@dataclass
class Book:
    """What bolts did, and the choices that they make: the next byte of a script, over and over."""

    script: bytes = b""
    used: int = 0
    calm: bool = False
    """Nothing fails: bolts only ack, or hold and emit again. Ids that are not told apart show best so."""
    draining: bool = False
    emissions: int = 0
    trees_of: dict[int, frozenset[Tree]] = field(default_factory=dict)
    """The trees of each emitted tuple, by the number that it carries."""
    deliveries: dict[int, Delivery] = field(default_factory=dict)
    failed_now: set[Tree] = field(default_factory=set)
    open: set[Tree] = field(default_factory=set)

    def choose(self, options: int) -> int:
        if not self.script:
            return 0
        byte = self.script[self.used % len(self.script)]
        self.used += 1
        return byte % options

    def emitted(self, anchors: Sequence[int]) -> int:
        """A tuple is emitted, anchored to these deliveries: its number."""
        self.emissions += 1
        trees = frozenset().union(*(self.deliveries[anchor].trees for anchor in anchors))
        self.trees_of[self.emissions] = trees
        return self.emissions

    def delivered(self, tup: Mapping[str, Any], attempt: int) -> Delivery:
        """A task got a tuple: a message, whose number is negative, or one that a bolt emitted."""
        number = tup["n"]
        trees = self.trees_of[number] if number > 0 else frozenset({(-number, attempt)})
        if number == UNTRACKED:
            trees = frozenset()
        delivery = Delivery(len(self.deliveries), trees)
        self.deliveries[delivery.number] = delivery
        return delivery

    def ack(self, number: int) -> None:
        delivery = self.deliveries[number]
        if delivery.state == "open":
            delivery.state = "acked"

    def fail(self, number: int) -> None:
        delivery = self.deliveries[number]
        delivery.state = "failed"
        self.failed_now |= delivery.trees

    def verdicts(self, started: set[Tree]) -> tuple[set[Tree], set[Tree]]:
        """The end of a micro-batch: which trees are complete and which failed, of those that were open."""
        self.open |= started
        failed = self.open & self.failed_now
        waiting = set().union(*(each.trees for each in self.deliveries.values() if each.state != "acked"))
        acked = self.open - failed - waiting
        self.open -= failed | acked
        self.failed_now = set()
        return acked, failed


UNTRACKED = 0
HOLD = 7
BOOK = Book()


# Spouts and bolts that do what the book's script says, and write down what they did.


class Messages(PartitionedSpout):
    """Each position is a message: one tuple, several of one tree, or a record that cannot be read."""

    outputs = ["n"]

    def __init__(self, per_micro_batch: int, micro_batches: int) -> None:
        self.end = per_micro_batch * micro_batches
        self.step = per_micro_batch

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        ranges = []
        for task, source in enumerate(["a", "b"][: self.tasks]):
            start = progress.get(source, FIRST[source])
            if start < FIRST[source] + self.end:
                ranges.append(Range(task, source, start, start + self.step))
        return ranges

    def open(self, context: Any) -> None:
        self.tasks = context.parallelism

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        for position in range(range_.start, range_.end):
            if position % 11 == 10:
                yield BadRecord(position, "not a record")
            elif position % 13 != 12:  # a gap
                for _ in range(1 + position % 3 // 2):
                    yield position, [-position]


FIRST = {"a": 1, "b": 10_001}


class ByHand(Bolt):
    """Emits, anchors, acks, fails, holds and forgets at random."""

    outputs = {"default": ["n"], "direct": Direct(["n"])}

    def __init__(self) -> None:
        self.held: list[tuple[int, Any]] = []
        self.settled: list[tuple[int, Any]] = []

    def prepare(self, context: Any) -> None:
        self.consumers = [task for component in sorted(context.tasks) for task in context.tasks[component]]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            self.on_tick(collector)
            return
        delivery = BOOK.delivered(tup, tup.attempt)
        if BOOK.draining:
            BOOK.ack(delivery.number)
            collector.ack(tup)
            return
        me = (delivery.number, tup)
        for _ in range(BOOK.choose(4) % 3):
            self.emit(me, collector)
        self.settle(me, collector)
        if BOOK.choose(4) == 3:
            self.emit(me, collector)  # after it was settled, perhaps
        if BOOK.choose(8) == 7:
            self.release(collector)

    def on_tick(self, collector: Any) -> None:
        while self.held and BOOK.draining:
            self.release(collector)
        for _ in range(BOOK.choose(3)):
            self.release(collector)

    def emit(self, me: tuple[int, Any], collector: Any) -> None:
        known = [*self.held, *self.settled[-2:]]
        choices = {
            0: [me],
            1: [],
            2: [me, me],
            3: [me, *known[:1]],
            4: known[-1:],
            5: [*known, me],
            6: [*known[:1], me, *known[:1]],
        }
        self.emit_from(me, collector, choices[BOOK.choose(len(choices))])

    def emit_from(self, me: tuple[int, Any], collector: Any, anchors: list[tuple[int, Any]] | None = None) -> None:
        if BOOK.emissions > EMISSIONS_MAX:
            return
        anchors = [me] if anchors is None else anchors
        number = BOOK.emitted([anchor for anchor, _ in anchors])
        tuples = [tup for _, tup in anchors]
        given: Any = tuples[0] if len(tuples) == 1 and BOOK.choose(2) else tuples
        if BOOK.choose(3) == 2:
            task = self.consumers[BOOK.choose(len(self.consumers))]
            with suppress(EmitError):  # it may be a task that does not subscribe
                collector.emit_direct(task, [number], anchors=given, stream="direct")
        else:
            collector.emit([number], anchors=given or None)

    def settle(self, me: tuple[int, Any], collector: Any) -> None:
        number, tup = me
        choice = (0, HOLD, 6, HOLD, 0)[BOOK.choose(5)] if BOOK.calm else BOOK.choose(12)
        if choice in (HOLD, 8):
            self.held.append(me)
        elif choice == 9:
            pass  # forgotten: its trees stay open for ever
        elif choice == 10:
            BOOK.fail(number)
            if BOOK.choose(2):
                collector.ack(tup)
            raise ValueError("by chance")
        elif choice == 11:
            BOOK.fail(number)
            collector.fail(tup, "by chance")
            self.again(tup, collector)
        else:
            BOOK.ack(number)
            collector.ack(tup)
            if choice == 6:
                self.settled.append(me)
                collector.ack(tup)  # twice
            elif choice == 5:
                BOOK.fail(number)
                collector.fail(tup)

    def again(self, tup: Any, collector: Any) -> None:
        if BOOK.choose(2):
            collector.ack(tup)
        if BOOK.choose(2):
            collector.fail(tup)

    def release(self, collector: Any) -> None:
        """Something becomes of a tuple that was held: it emits again, and is settled or goes on being held."""
        if self.settled and BOOK.choose(2):
            collector.ack(self.settled[-1][1])  # once more
        if not self.held:
            return
        place = BOOK.choose(len(self.held))
        number, tup = me = self.held[place]
        if not BOOK.draining:
            for _ in range(BOOK.choose(3)):
                self.emit_from(me, collector)
            if BOOK.choose(2):
                return
        del self.held[place]
        choice = 4 * BOOK.choose(2) if BOOK.calm else BOOK.choose(6)
        if choice == 5:
            BOOK.fail(number)
            collector.fail(tup, "held, then failed")
            self.again(tup, collector)
            return
        BOOK.ack(number)
        collector.ack(tup)
        if choice == 4:
            self.settled.append(me)
        elif choice == 3:
            collector.ack(tup)
        elif choice == 2:
            BOOK.fail(number)
            collector.fail(tup)


def do_basic(delivery: Delivery, collector: Any) -> None:
    """What a bolt does whose tuples are anchored and acked for it."""
    for _ in range(BOOK.choose(4) % 3):
        if BOOK.emissions <= EMISSIONS_MAX and not BOOK.draining:
            collector.emit([BOOK.emitted([delivery.number])])
    if not (BOOK.calm or BOOK.draining) and BOOK.choose(10) == 9:
        BOOK.fail(delivery.number)
        raise (FailedException if BOOK.choose(2) else ValueError)("by chance")
    BOOK.ack(delivery.number)


class Basic(BasicBolt):
    outputs = ["n"]
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        do_basic(BOOK.delivered(tup, tup.attempt), collector)


class Kept(BasicBolt):
    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.last: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            self.last = [*self.last[-2:], tup]
            do_basic(BOOK.delivered(tup, tup.attempt), collector)


class Concurrent(AsyncBolt):
    outputs = ["n"]
    stateless = True

    async def execute(self, tup: Any, collector: Any) -> None:
        for _ in range(BOOK.choose(3)):
            await asyncio.sleep(0)
        do_basic(BOOK.delivered(tup, tup.attempt), collector)


class Columns(ColumnBolt):
    """Acks whole frames, or fails them; what it emits is anchored to its rows in any order."""

    outputs = ["n"]
    stateless = True

    def execute(self, batch: Any, collector: Any) -> None:
        rows = [BOOK.delivered({"n": n}, 1) for n in batch["n"].to_pylist()]
        numbers, parents = [], []
        for _ in range(BOOK.choose(2 * len(rows) + 1)):
            if BOOK.emissions <= EMISSIONS_MAX and not BOOK.draining:
                parents.append(BOOK.choose(len(rows)))
                numbers.append(BOOK.emitted([rows[parents[-1]].number]))
        if not (BOOK.calm or BOOK.draining) and BOOK.choose(12) == 11:
            for row in rows:
                BOOK.fail(row.number)
            raise ValueError("by chance")
        cut = BOOK.choose(len(numbers) + 1)
        for part in (slice(0, cut), slice(cut, None)):
            if numbers[part]:
                collector.emit([pa.array(numbers[part])], anchors=pa.array(parents[part]))
        for row in rows:
            BOOK.ack(row.number)


class AtRandom(Grouping):
    """Names no task, one, several, or one task several times, by the value alone."""

    def prepare(self, context: Any, stream: str, targets: Sequence[int]) -> None:
        self.targets = list(targets)

    def choose_tasks(self, sender_task: int, values: list[Any]) -> Sequence[int]:
        number = abs(values[0])
        chosen = [self.targets[0]] * (number % 4 // 2) + [self.targets[-1]] * (number % 3)
        return [*chosen, *self.targets] if number % 7 == 3 else chosen


# The engine's side.


@dataclass(frozen=True)
class Plan:
    """A topology and how it is run."""

    spout_tasks: int
    per_micro_batch: int
    micro_batches: int
    bolts: tuple[tuple[str, int, tuple[tuple[int, str], ...]], ...]
    """(kind, parallelism, ((source, grouping), ...)); source 0 is the spout, i the bolt before it."""
    max_attempts: int
    acker_tasks: int
    cores: int
    restarts: frozenset[int]
    """Micro-batches before which the driver is killed."""
    calm: bool
    script: bytes


KINDS = {"by_hand": ByHand, "basic": Basic, "kept": Kept, "async": Concurrent, "columns": Columns}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    bolts = []
    for place in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["by_hand", "by_hand", *KINDS]))
        sources = draw(st.lists(st.integers(0, place), min_size=1, max_size=2, unique=True))
        subscriptions = []
        for source in sources:
            allowed = [name for name in GROUPINGS if name != "direct" or (source and bolts[source - 1][0] == "by_hand")]
            subscriptions.append((source, draw(st.sampled_from(allowed))))
        if kind == "columns":  # attempts are not shown to a column bolt: it must not get messages themselves
            subscriptions = [entry for entry in subscriptions if entry[0]]
            kind = kind if subscriptions else "basic"
            subscriptions = subscriptions or [(0, "shuffle")]
        bolts.append((kind, draw(st.integers(1, 3)), tuple(subscriptions)))
    return Plan(
        spout_tasks=draw(st.integers(1, 2)),
        per_micro_batch=draw(st.integers(1, 6)),
        micro_batches=draw(st.integers(1, 4)),
        bolts=tuple(bolts),
        max_attempts=draw(st.integers(1, 2)),
        acker_tasks=draw(st.integers(1, 3)),
        cores=draw(st.integers(1, 3)),
        restarts=frozenset(draw(st.lists(st.integers(1, 6), max_size=2))),
        calm=draw(st.booleans()),
        script=draw(st.one_of(st.binary(min_size=1, max_size=120), st.integers(0, 1 << 32).map(_bytes_of))),
    )


def _bytes_of(seed: int) -> bytes:
    """A script that repeats itself late: what hypothesis draws byte by byte is short and even."""
    return random.Random(seed).randbytes(997)


def build(plan: Plan) -> Topology:
    config = Config(
        acker_tasks=plan.acker_tasks,
        max_attempts=plan.max_attempts,
        enable_message_timeouts=False,
        dead_letters="log:",
    )
    builder = TopologyBuilder("random", config)
    builder.set_spout("m", Messages(plan.per_micro_batch, plan.micro_batches), parallelism=plan.spout_tasks)
    for place, (kind, parallelism, subscriptions) in enumerate(plan.bolts, start=1):
        ticks = {"tick_tuple_freq_secs": 1} if kind in ("by_hand", "kept") else {}
        declarer = builder.set_bolt(f"b{place}", KINDS[kind](), parallelism=parallelism, **ticks)
        for source, grouping in subscriptions:
            name = f"b{source}" if source else "m"
            if grouping in ("fields", "partial_key"):
                getattr(declarer, f"{grouping}_grouping")(name, ["n"])
            elif grouping == "direct":
                declarer.direct_grouping(name, stream="direct")
            elif grouping == "custom":
                declarer.grouping(name, AtRandom())
            else:
                getattr(declarer, f"{grouping}_grouping")(name)
    return builder.build()


class Watched:
    """An engine whose every micro-batch is compared with the model."""

    def __init__(self, plan: Plan) -> None:
        self.engine = LocalEngine(build(plan), cores=plan.cores)
        self.trees: dict[int, Tree] = {}
        self.lives = LivesFollowTheTable(cast(Any, SimpleNamespace(where=hex)))

    def step(self) -> bool:
        self.engine.now_ms += 1000
        spout_plan = self.engine.perform_all(
            self.engine.coordinator.next_plan(self.engine.now_ms, self.engine.now_ms / 1000)
        )
        if spout_plan is None:
            return False
        started = set()
        for entry in spout_plan.entries:
            for place in range(entry.reserved):
                position = entry.position_of(entry.base + place)
                tree = (position, entry.attempt)
                self.trees[tree_key(entry.task, entry.base + place)] = tree
                if position % 11 == 10:
                    BOOK.failed_now.add(tree)
                if position % 11 == 10 or position % 13 != 12:
                    started.add(tree)
        promotion = self.engine.step()
        assert promotion is not None
        acked, failed = BOOK.verdicts(started)
        told: Counter[Tree] = Counter()
        for first, last, count in promotion.acked:
            found = [tree for key, tree in self.trees.items() if first <= key <= last and tree in started | acked]
            assert len([tree for tree in found if tree in acked]) == count, (first, last, count, found)
            told.update(found)
        assert set(told) == acked, f"acked {sorted(told)}, complete are {sorted(acked)}"
        assert not told or max(told.values()) == 1
        assert sorted(self.trees[tree.key] for tree in promotion.failed) == sorted(failed)
        assert self.engine.ledger.open_trees == len(BOOK.open), f"open: {sorted(BOOK.open)}"
        self.lives.promoted(cast(Any, self.engine), promotion, ExpectedVerdict())
        assert not self.lives.violations
        return True


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(plans())
def test_a_tree_is_acked_if_and_only_if_each_of_its_deliveries_is(plan: Plan) -> None:
    """Never may a tree be acked that has an unacked delivery; every tree whose deliveries are all acked must be."""
    global BOOK
    BOOK = Book(script=plan.script, calm=plan.calm)
    watched = Watched(plan)
    for number in range(plan.micro_batches + 3):
        if number in plan.restarts:
            watched.engine.restart()
        if not watched.step():
            break
    BOOK.draining = True
    for _ in range(3):
        watched.step()
    forgotten = set().union(*(each.trees for each in BOOK.deliveries.values() if each.state != "acked"))
    assert BOOK.open <= forgotten
    watched.engine.close()
