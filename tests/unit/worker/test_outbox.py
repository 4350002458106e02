"""Trees that bolts start: what is kept and given again, against models that keep everything; crashes; plans."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt import BasicBolt, Bolt, Config, PartitionedSpout, Range, Topology, TopologyBuilder
from sparkbolt.api.groupings import GlobalGrouping
from sparkbolt.api.pickling import Pickling
from sparkbolt.base.codec import decode
from sparkbolt.base.ids import AGAIN, mix64_array, tree_key
from sparkbolt.driver.coordinator import OUTBOX_ACKS_WAIT_SECS
from sparkbolt.driver.ledger.ledger_settings import ROTATIONS, spout_infos
from sparkbolt.driver.ledger.outbox_acks import OutboxAcks
from sparkbolt.errors import InvalidTopology
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.wire.edges import Parents
from sparkbolt.wire.plan import Entry, MicroBatchPlan, own_source
from sparkbolt.worker.outbox import Outbox
from sparkbolt.worker.routing import EmittedRows, Route, StreamRoutes
from sparkbolt.worker.state.task_state import DictStore, TaskState
from tests.hypotheses import examples
from tests.ledgers import restored as restored_of

TASK = 6
TO_ONE = (Route(0, "behind", (9,), GlobalGrouping(), False),)
STREAMS = {
    name: StreamRoutes("window", name, at, ("n", "text"), False, TO_ONE if name != "unheard" else (), frozenset())
    for at, name in enumerate(("a", "b", "unheard"))
}


# What is settled.


def test_outbox_acks_are_repeated_until_a_plan_that_contains_them_is_promoted() -> None:
    outbox_acks = OutboxAcks()
    keys = np.array([tree_key(task, position) for task in (6, 7) for position in (1, 2, 5)], dtype=np.uint64)
    outbox_acks.add(keys, keys)
    assert outbox_acks.first() == ((6, 1, 3), (6, 5, 6), (7, 1, 3), (7, 5, 6))
    assert outbox_acks.first(2) == outbox_acks.first()[:2]
    outbox_acks.delivered(outbox_acks.first(2))
    outbox_acks.delivered([(6, 1, 10)])  # of no promotion of this ledger: it is passed over
    assert outbox_acks.first() == ((7, 1, 3), (7, 5, 6))
    assert OutboxAcks(outbox_acks.first()).first() == outbox_acks.first()


# What one task keeps.


class Kept:
    """A task's own trees over micro-batches, as one worker after the other sees them."""

    def __init__(self) -> None:
        self.store = DictStore()
        self.stamps = iter(range(1, 1 << 62))
        self.state = TaskState()

    def begin(self, another_worker: bool = False) -> Outbox:
        if another_worker:
            self.state = TaskState()
        self.state.begin(self.store)
        return Outbox(self.state, TASK, Pickling({}))

    def commit(self, own: Outbox) -> None:
        own.save()
        self.state.commit(self.stamps.__next__)


def block(stream: str, values: Sequence[tuple[int, str]], anchored: Sequence[int] | None = None) -> EmittedRows:
    """Rows, of which some are anchored to a tree of their own, by the number of its pairs."""
    columns = [list(column) for column in zip(*values, strict=True)]
    parents = None
    if anchored is not None:
        offsets = np.concatenate(([0], np.cumsum(anchored)))
        ids = np.arange(1000, 1000 + offsets[-1], dtype=np.uint64)
        parents = Parents(ids, ids + np.uint64(1), ids * np.uint64(0), offsets)
    return EmittedRows(STREAMS[stream], columns, len(values), 0, parents)


def given_again(own: Outbox, base: int, positions: Sequence[int]) -> dict[int, tuple[str, int, str, int]]:
    """Position -> (stream, n, text, attempt)."""
    entry = Entry(TASK, base, own_source(0), positions[0], positions[0] + 1, 2, tuple(positions))
    found = {}
    for started in own.again(entry, STREAMS):
        assert not started.refused
        assert started.block.attempts is not None
        sequences = (started.keys - np.uint64(tree_key(TASK, 0))).tolist()
        assert started.block.parents is not None
        assert started.block.parents.roots.tolist() == mix64_array(started.keys).tolist()
        rows = zip(*started.block.columns, strict=True)
        for sequence, (n, text), attempt in zip(sequences, rows, started.block.attempts.tolist(), strict=True):
            found[positions[sequence - base]] = (started.block.stream.name, n, text, attempt)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 2**32), micro_batches=st.integers(1, 12))
def test_outbox_of_a_task_equals_a_dict_across_crashes(seed: int, micro_batches: int) -> None:
    rng = random.Random(seed)
    kept, model, next_position, base = Kept(), dict[int, tuple[str, int, str]](), 0, AGAIN
    for _ in range(micro_batches):
        own = kept.begin(another_worker=rng.random() < 0.4)
        after, position = dict(model), next_position
        outbox_acks = [n for n in range(-2, next_position + 3) if rng.random() < 0.3]
        own.settle([(n, n + 1) for n in outbox_acks if n >= 0])
        for n in outbox_acks:
            after.pop(n, None)
        if after and rng.random() < 0.7:
            wanted = rng.sample(sorted(after), rng.randint(1, len(after)))
            assert given_again(own, base, wanted) == {n: (*after[n], 2) for n in wanted}
            base += len(wanted)
        for _ in range(rng.randint(0, 3)):
            stream, values = (
                rng.choice("ab"),
                [(rng.randint(0, 9), "x" * rng.randint(0, 300)) for _ in range(rng.randint(1, 5))],
            )
            anchored = rng.choice((None, [rng.randint(0, 2) for _ in values]))
            started = own.start(block(stream, values, anchored))
            new = [row for row in range(len(values)) if anchored is None or anchored[row] == 0]
            assert started.keys.tolist() == [tree_key(TASK, position + i) for i in range(len(new))]
            for row in new:
                after[position] = (stream, *values[row])
                position += 1
        assert own.kept == len(after)
        if rng.random() < 0.3:
            continue  # the attempt fails, and nothing of it is left
        kept.commit(own)
        model, next_position = after, position
    own = kept.begin(another_worker=True)
    own.settle([(0, 1 << 40)])
    kept.commit(own)
    assert kept.begin().kept == 0
    assert all("/" not in name for name in kept.store), "no page is left"


def test_rows_that_have_a_tree_keep_it_and_their_place_among_those_that_start_one() -> None:
    own = Kept().begin()
    before = block("a", [(n, "") for n in range(4)], [2, 0, 1, 0])
    started = own.start(before)
    parents, old = started.block.parents, before.parents
    assert parents is not None
    assert old is not None
    assert parents.offsets is not None
    assert np.diff(parents.offsets).tolist() == [2, 1, 1, 1]
    roots = mix64_array(started.keys).tolist()
    assert parents.roots.tolist() == [*old.roots[:2].tolist(), roots[0], int(old.roots[2]), roots[1]]
    assert parents.edges.tolist() == [*old.edges[:2].tolist(), roots[0], int(old.edges[2]), roots[1]]


def test_a_value_that_cannot_be_kept_is_refused_and_its_neighbours_are_not() -> None:
    own = Kept().begin()
    values: list[Any] = [(0, "a"), (1, lambda: 0), (2, "c")]
    started = own.start(block("a", values))
    assert [reason.split(" holds")[0] for reason in started.refused] == ["field 'text'"]
    assert list(started.block.columns[0]) == [0, 2]
    assert len(started.keys) == own.kept == 2


def test_what_is_not_kept_cannot_be_given_again_and_that_is_said() -> None:
    kept = Kept()
    entry = Entry(TASK, AGAIN, own_source(0), 7, 8, 2, (7,))
    [started] = kept.begin().again(entry, STREAMS)
    assert (started.block.count, len(started.keys)) == (0, 0)
    assert "[7]" in started.refused[0]


# Plans.


def test_a_plan_lists_the_entries_to_retry_and_the_settled_ones() -> None:
    again = (Entry(TASK, AGAIN, own_source(0), 7, 8, 2, (7, 9)),)
    plan = MicroBatchPlan(3, life=1, now_ms=5, again=again, outbox_acks=((TASK, 0, 7), (TASK, 8, 9)))
    assert decode(MicroBatchPlan, json.loads(plan.dumps())) == plan
    assert plan.reserving == again
    assert plan.alive_entries(2) == ()


# A topology.


class Numbers(PartitionedSpout):
    """The numbers from 0 on."""

    outputs = ["n"]

    def __init__(self, count: int) -> None:
        self.count = count

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("numbers", 0)
        end = min(self.count, start + min(budget, 10))
        return [Range(0, "numbers", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= self.count

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]


class Gathers(Bolt):
    """Acks what it gets, and emits it with the next tuple or tick after the third."""

    outputs = ["n"]
    starts_trees = True

    def prepare(self, context: Any) -> None:
        self.held: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick or len(self.held) >= 3:
            for n in self.held:
                collector.emit([n])
            self.held = []
        if not tup.is_tick:
            self.held.append(tup["n"])
            collector.ack(tup)


def activity(seed: int, n: int, attempt: int) -> str:
    return random.Random(f"{seed} {n} {attempt}").choice(("ack", "ack", "fail", "raise", "hold"))


class Behind(Bolt):
    """Does with each attempt what ``activity`` says, and remembers that it had it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.seen: list[tuple[int, int]] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.append((tup["n"], tup.attempt))
        what = activity(self.seed, tup["n"], tup.attempt)
        if what == "raise":
            raise ValueError("no")
        if what == "fail":
            collector.fail(tup, "not now")
        elif what == "ack":
            collector.ack(tup)


def starting(
    count: int, seed: int = 0, tasks: int = 1, own: Mapping[str, Any] | None = None, **config: Any
) -> Topology:
    builder = TopologyBuilder("starting", Config(**{"message_timeout_secs": 3, "max_attempts": 3, **config}))
    builder.set_spout("numbers", Numbers(count))
    gathers = builder.set_bolt("gathers", Gathers(), tasks, tick_tuple_freq_secs=5, **(own or {}))
    gathers.fields_grouping("numbers", ["n"])
    builder.set_bolt("behind", Behind(seed)).global_grouping("gathers")
    return builder.build()


def kept_by(engine: LocalEngine, component: str = "gathers") -> int:
    total = 0
    for number in engine.topology.tasks(component):
        state = TaskState()
        state.begin(engine.stores.setdefault(engine.lane.dests[number], DictStore()))
        total += Outbox(state, number, Pickling({})).kept
    return total


def run_on(engine: LocalEngine, secs: float) -> None:
    """Run, and let time pass."""
    end = engine.now_ms + int(secs * 1000)
    while engine.now_ms < end:
        if engine.step() is None:
            engine.now_ms += 100


def seen_by(engine: LocalEngine) -> list[tuple[int, int]]:
    engine.restart()  # so that what is seen is what is durable
    [number] = engine.topology.tasks("behind")
    task = engine.worker.load(number, engine.stores[engine.lane.dests[number]])
    assert isinstance(task.bolt, Behind)
    return sorted(task.bolt.seen)


def crash(engine: LocalEngine, rng: random.Random) -> None:
    """A micro-batch that dies before its commit, or after it and before its promotion."""
    stores, before = copy.deepcopy(engine.stores), engine.last_commit
    end = engine.perform_all(engine.machine.next_offset())
    if end is not None:
        number = engine.run_until_staged(end)
        if rng.random() < 0.5:
            engine.last_commit = number
        else:
            engine.stores = stores
    engine.restart()
    if end is not None and engine.last_commit == before and rng.random() < 0.5:  # Spark had written its offset
        engine.last_commit = engine.run_until_staged(end)
        engine.perform_all(engine.machine.committed(engine.last_commit))


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32), tasks=st.integers(1, 2), count=st.integers(1, 40))
def test_each_value_is_retried_until_acked_or_given_up_and_no_crash_loses_or_repeats_one(
    seed: int, tasks: int, count: int
) -> None:
    rng = random.Random(seed)
    engine = LocalEngine(starting(count, seed, tasks))
    for _ in range(rng.randint(5, 40)):
        if rng.random() < 0.25:
            crash(engine, rng)
        elif engine.step() is None:
            engine.now_ms += rng.choice((100, 1000))
        restored = restored_of(
            engine.ledger.snapshot(),
            spout_infos(engine.lane),
            rotations=ROTATIONS,
            task_owner=engine.topology.task_owner,
        )
        assert restored.snapshot() == engine.ledger.snapshot()
        assert restored.outbox_acks.first() == engine.ledger.outbox_acks.first()
    run_on(engine, 25)
    expected, acked, given_up = [], 0, 0
    for n in range(count):
        attempts = next((i for i in (1, 2, 3) if activity(seed, n, i) == "ack"), None)
        expected += [(n, i) for i in range(1, (attempts or 3) + 1)]
        acked += attempts is not None
        given_up += attempts is None
    metrics = engine.ledger.metrics.of("gathers")
    assert (metrics.acked, metrics.given_up, metrics.pending) == (count + acked, given_up, 0)
    assert metrics.failed == len(expected) - acked
    assert engine.coordinator.finished
    assert engine.ledger.outbox_acks.first() == ()
    assert kept_by(engine) == 0
    assert seen_by(engine) == sorted(expected)


def test_each_given_up_tree_has_a_story() -> None:
    engine = LocalEngine(starting(60, max_attempts=2))
    run_on(engine, 20)
    trees = engine.ledger.given_up
    assert trees
    assert {tree.attempt for tree in trees} == {2}
    assert all(f"gathers[0] {own_source(0)}@{tree.position}, attempt 2; " in tree.story for tree in trees)
    assert {tree.fail.cause for tree in trees} == {"exception", "fail", "timeout"}


def test_a_topology_with_only_news_for_its_tasks_delivers_it_in_one_micro_batch_after_a_while() -> None:
    kind = next(seed for seed in range(10_000) if all(activity(seed, n, 1) == "ack" for n in range(4)))
    engine = LocalEngine(starting(4, kind))
    while engine.step() is not None:
        pass
    engine.now_ms += 5000
    assert engine.step() is not None, "the tick"
    assert engine.step() is None
    assert engine.coordinator.finished
    assert kept_by(engine) == 1, "of the four three went with an earlier micro-batch"
    assert engine.ledger.outbox_acks.first() != ()
    assert engine.next_due_ms() == engine.now_ms + int(OUTBOX_ACKS_WAIT_SECS * 1000)
    engine.now_ms += int(OUTBOX_ACKS_WAIT_SECS * 1000) - 1
    assert engine.step() is None
    engine.now_ms += 1
    assert engine.step() is not None
    assert kept_by(engine) == 0
    engine.now_ms += 500
    assert engine.step() is None


def test_reading_pauses_while_a_bolt_has_its_maximum_of_open_trees() -> None:
    topology = starting(200, seed=3, own={"max_spout_pending": 5}, enable_message_timeouts=False)
    engine = LocalEngine(topology)
    run_on(engine, 60)
    assert engine.ledger.pending("gathers") >= 5
    assert engine.ledger.progress["numbers"]["numbers"] < 200
    free = LocalEngine(starting(200, seed=3, enable_message_timeouts=False))
    run_on(free, 60)
    assert free.ledger.progress["numbers"]["numbers"] == 200


def test_a_bolt_that_starts_trees_is_stateful_and_never_fused_and_cannot_be_stateless() -> None:
    class Bare(BasicBolt):
        outputs = ["n"]
        starts_trees = True

        def execute(self, tup: Any, collector: Any) -> None:
            collector.emit([1])

    class Both(Bare):
        stateless = True

    builder = TopologyBuilder("bare")
    builder.set_spout("numbers", Numbers(1))
    builder.set_bolt("bare", Bare()).shuffle_grouping("numbers")
    topology = builder.build()
    lane = lay_out(topology, 2)
    assert (lane.fused_into, lane.levels[0].stateful, lane.starters) == ({}, True, ("bare",))
    assert topology.fingerprint()["components"]["bare"]["starts_trees"] is True
    builder.set_bolt("both", Both()).shuffle_grouping("numbers")
    with pytest.raises(InvalidTopology, match="starts trees and is stateless"):
        builder.build()


def test_anchored_tuple_stays_in_its_tree() -> None:
    class Passes(BasicBolt):
        outputs = ["n"]
        starts_trees = True

        def execute(self, tup: Any, collector: Any) -> None:
            collector.emit([tup["n"]])

    builder = TopologyBuilder("passes", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers(10))
    builder.set_bolt("passes", Passes()).global_grouping("numbers")
    builder.set_bolt("behind", Behind(0)).global_grouping("passes")
    engine = LocalEngine(builder.build())
    run_on(engine, 1)
    assert kept_by(engine, "passes") == 0
    assert engine.ledger.metrics.of("numbers").failed > 0
    assert Counter(tree.component for tree in engine.ledger.given_up) == {
        "numbers": engine.ledger.metrics.of("numbers").failed
    }


def test_without_ackers_nothing_is_kept() -> None:
    engine = LocalEngine(starting(20, acker_tasks=0))
    run_on(engine, 6)
    assert engine.ledger.metrics.of("behind").executed == 20
    assert kept_by(engine) == 0
    assert engine.ledger.open_trees == 0
