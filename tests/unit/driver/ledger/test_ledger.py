"""The ledger against a model that keeps whole trees: crashes, replays, compactions, expiry, retries."""

import json
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.api.reports import Fail
from sparkbolt.api.retry import at_once
from sparkbolt.base.codec import decode, encode
from sparkbolt.base.ids import mix64, split_key, tree_key
from sparkbolt.driver.ledger.ledger import Ledger, SpoutInfo
from sparkbolt.driver.ledger.ledger_log import State
from sparkbolt.driver.ledger.retry_schedule import Retry
from sparkbolt.errors import CheckpointError, InvariantError
from sparkbolt.wire.acker import judge, merge
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.wire.verdicts import Feedback, Partials
from tests.hypotheses import examples
from tests.ledgers import restored as restored_of

LINES, QUEUE, COUNT, WINDOW = (1, 2), (3,), (4, 5), (6,)
SPOUTS = [SpoutInfo("lines", LINES, True, at_once(2)), SpoutInfo("queue", QUEUE, False, None)]
ROTATIONS = 3


def owner(number):
    for component, tasks in (("lines", LINES), ("queue", QUEUE), ("count", COUNT), ("window", WINDOW)):
        if number in tasks:
            return component, number - tasks[0]
    raise KeyError(number)


def new_ledger():
    return Ledger(SPOUTS, rotations=ROTATIONS, task_owner=owner)


def verdicts_of(inits=(), acks=(), held=(), fails=()):
    def columns(pairs, dtype=np.uint64):
        keys = np.array([k for k, _ in pairs], dtype=np.uint64)
        return keys, np.array([v for _, v in pairs], dtype=dtype)

    return merge([judge([Partials(*columns(inits), *columns(acks), *columns(held, np.int32), list(fails))])])


@dataclass
class Tree:
    edges: set
    source: str | None
    position: int | None
    attempt: int
    turn: int


class Naive:
    """What is known when every tree is kept with the edges that nobody has acked."""

    def __init__(self):
        self.open, self.retries, self.progress, self.sequence, self.life = {}, {}, {}, {}, 0
        self.counts = {c: {"acked": 0, "failed": 0, "late": 0, "given_up": 0} for c in ("lines", "queue", "window")}
        self.turn, self.expiring = 0, set()

    def count(self, key, what):
        self.counts[owner(split_key(key)[0])[0]][what] += 1

    def fail(self, key, tree):
        self.count(key, "failed")
        if tree.source is None:
            return (key, "spout")
        if tree.attempt < 2:
            self.retries[tree.source, tree.position] = tree.attempt + 1
            return (key, "retry")
        self.count(key, "given_up")
        return (key, "given_up")

    def finished(self, source):
        unfinished = [t.position for t in self.open.values() if t.source == source]
        unfinished += [position for s, position in self.retries if s == source]
        return min([*unfinished, self.progress[source]])


class Machine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.ledger, self.naive = new_ledger(), Naive()
        self.base, self.log, self.edge, self.now = None, [], 0, 0
        self.ledger.begin_life(0)

    def fresh_edge(self):
        self.edge += 1
        return mix64(self.edge)

    def make_plan(self, rng):
        ledger, entries, sequence = self.ledger, [], dict(self.naive.sequence)

        def reserve(task, count, **kwargs):
            base = sequence.get(task, 0)
            sequence[task] = base + count
            entries.append(Entry(task, base, **kwargs))

        for task in LINES:
            for source in (f"a{task}", "b") if task == 1 else (f"a{task}",):
                if rng.random() < 0.7:
                    start = self.naive.progress.get(source, 0)
                    end = start + rng.randint(1, 9)
                    reserve(task, end - start, source=source, start=start, end=end)
        queued = ledger.messages.retries.due(rng.randint(0, 3))
        assert queued == ledger.messages.retries.due(len(queued))
        for r in queued:
            where = {"start": r.position, "end": r.position + 1, "positions": (r.position,)}
            reserve(r.task, 1, source=r.source, attempt=r.attempt, **where)
        if rng.random() < 0.5:
            count = rng.randint(1, 4)
            reserve(3, count, source=None, start=0, end=count)
        self.now += rng.randint(0, 900)
        expired = ledger.expiring() if rng.random() < 0.8 else ()
        number = ledger.last_promoted + 1
        return MicroBatchPlan(number, ledger.life, self.now, tuple(entries), (), expired, ledger.void)

    def play(self, rng, plan):
        """What the tasks do: new trees with their edges, edges acked of old ones, fails, late acks."""
        new, toggles, failed = {}, {}, set()
        for entry in plan.alive_entries(self.ledger.life):
            for i in range(entry.reserved):
                if rng.random() < 0.7:
                    position = entry.position_of(entry.base + i) if entry.source is not None else None
                    edges = {self.fresh_edge() for _ in range(rng.randint(0, 2))}
                    new[entry.first_key + i] = Tree(edges, entry.source, position, entry.attempt, self.naive.turn)
        for i in range(rng.randint(0, 2)):
            key = tree_key(6, self.naive.sequence.get(6, 0) + 1000 * plan.micro_batch_id + i)
            new[key] = Tree({self.fresh_edge()}, None, None, 1, self.naive.turn)
        for key, tree in [*self.naive.open.items(), *new.items()]:
            chance = rng.random()
            if chance < 0.2:
                toggles[key] = set(tree.edges)
            elif chance < 0.3:
                toggles[key] = {self.fresh_edge(), *list(tree.edges)[:1]}
            elif chance < 0.36:
                failed.add(key)
        for _ in range(rng.randint(0, 2)):
            stranger = tree_key(rng.choice((1, 2, 3)), rng.randint(0, 30))
            if stranger not in self.naive.open and stranger not in new:
                toggles[stranger] = {self.fresh_edge()} if rng.random() < 0.7 else set()
                if rng.random() < 0.3:
                    failed.add(stranger)
        return new, toggles, failed

    def feedback(self, rng, plan, new, toggles, failed):
        def xor(edges):
            return int(np.bitwise_xor.reduce(np.array([0, *edges], dtype=np.uint64)))

        inits = [(key, xor(tree.edges)) for key, tree in new.items()]
        acks = [(key, e) for key, edges in toggles.items() for e in edges]
        rng.shuffle(acks)
        held = [(key, rng.choice(COUNT)) for key in toggles if rng.random() < 0.5]
        fails = [Fail(key, "count", 1, "exception", "ValueError: no", plan.micro_batch_id) for key in failed]
        verdicts = verdicts_of(inits, acks, held, fails)
        return Feedback(verdicts, metrics={"count": ComponentMetrics(executed=len(acks))}, partials=len(acks))

    def expect(self, plan, new, toggles, failed):
        """Apply the micro-batch to the model; (acked keys, failed keys with their fates)."""
        naive, acked, outcomes = self.naive, set(), []
        for entry in plan.entries:
            naive.sequence[entry.task] = entry.base + entry.reserved
            if entry.positions:
                naive.retries.pop((entry.source, entry.positions[0]))
            elif entry.source is not None:
                naive.progress[entry.source] = entry.end
        for key in plan.expired:
            if key in naive.open:
                outcomes.append(naive.fail(key, naive.open.pop(key)))
        naive.open |= new
        for key in failed | toggles.keys():
            tree = naive.open.get(key)
            if tree is None:
                if key in failed or toggles[key]:
                    naive.count(key, "late")
            elif key in failed:
                outcomes.append(naive.fail(key, naive.open.pop(key)))
            else:
                tree.edges ^= toggles[key]
        for key, tree in list(naive.open.items()):
            if not tree.edges:
                del naive.open[key]
                naive.count(key, "acked")
                acked.add(key)
        return acked, sorted(outcomes)

    @rule(
        seed=st.integers(0, 2**32),
        turns=st.integers(0, ROTATIONS),
        twice=st.booleans(),
        crash=st.sampled_from([0, 0, 0, 0, 1, 2]),
    )
    def micro_batch(self, seed, turns, twice, crash):
        rng = random.Random(seed)
        self.expire(turns)
        self.touch(rng.choice((None, rng.random())))
        plan = self.make_plan(rng)
        if twice or crash == 1:
            self.ledger.stage(plan, self.feedback(rng, plan, *self.play(rng, plan)))
        if crash == 1:
            self.rebuild()
        played = self.play(rng, plan)
        entry = self.ledger.stage(plan, self.feedback(rng, plan, *played))
        with pytest.raises(InvariantError, match="awaits its promotion"):
            self.ledger.expire()
        self.log.append(entry)
        void = self.ledger.void
        before = {s: self.naive.finished(s) for s in self.naive.progress}
        acked, outcomes = self.expect(plan, *played)
        if crash == 2:
            self.rebuild()
            return
        promotion = self.ledger.promote(plan.micro_batch_id)
        news = played[0].keys()
        got = []
        for first, last, count in promotion.acked:
            inside = [key for key in news if first <= key <= last] if count > 1 or first in news else [first]
            assert len(inside) == count
            got += inside
        assert sorted(got) == sorted(acked)
        assert sorted((tree.key, tree.outcome) for tree in promotion.failed) == outcomes
        moved = promotion.progress_moved.get("lines", {})
        after = {s: self.naive.finished(s) for s in self.naive.progress}
        assert moved == {s: p for s, p in after.items() if p > before.get(s, 0)}
        assert self.ledger.void == (() if plan.void == void else void)

    def rebuild(self):
        """The driver dies: what was promoted comes back from the snapshot and the log, the rest is gone."""
        ledger = restored_of(self.base, SPOUTS, rotations=ROTATIONS, task_owner=owner) if self.base else new_ledger()
        for entry in self.log:
            ledger.replay(entry)
        if ledger.last_promoted == self.ledger.last_promoted:
            if ledger.life < self.ledger.life:
                ledger.begin_life(self.ledger.life)
            assert ledger.snapshot() == self.ledger.snapshot()
        void = ledger.begin_life(max(ledger.life, self.ledger.life) + 1)
        assert void == tuple((3, s) for t, s in self.naive.sequence.items() if t == 3)
        self.ledger = ledger
        self.naive.open = {k: t for k, t in self.naive.open.items() if split_key(k)[0] not in QUEUE}
        for tree in self.naive.open.values():
            tree.turn = self.naive.turn
        self.naive.expiring = set()

    @rule(compact=st.booleans(), crash=st.booleans())
    def idle(self, compact, crash):
        if compact:
            self.base, self.log = self.ledger.snapshot(), []
        if crash:
            self.rebuild()

    def expire(self, turns):
        naive = self.naive
        for _ in range(turns):
            naive.turn += 1
            for key, tree in naive.open.items():
                if naive.turn - tree.turn >= ROTATIONS:
                    naive.expiring.add(key)
                    tree.turn = naive.turn
            assert self.ledger.expire() == tuple(sorted(naive.expiring & naive.open.keys()))

    def touch(self, seed):
        keys = [key for key in self.naive.open if seed and random.Random(key * seed).random() < 0.3]
        self.ledger.touch(np.array([*keys, tree_key(1, 10**9)], dtype=np.uint64))
        for key in keys:
            self.naive.open[key].turn = self.naive.turn
        self.naive.expiring -= set(keys)

    @invariant()
    def ledger_and_model_agree(self):
        if not hasattr(self, "ledger"):
            return
        ledger, naive = self.ledger, self.naive
        assert ledger.open_trees == len(naive.open)
        for task in (*LINES, *QUEUE, *WINDOW):
            assert ledger.pending(task) == sum(split_key(key)[0] == task for key in naive.open)
        unfinished = sum(live.unfinished for live in ledger.messages.state().live)
        assert unfinished == sum(split_key(key)[0] not in WINDOW for key in naive.open)
        assert ledger.expiring() == tuple(sorted(naive.expiring & naive.open.keys()))
        retries = {(r.source, r.position): r.attempt for r in ledger.messages.retries.due(10**6)}
        assert retries == naive.retries
        assert ledger.progress.get("lines", {}) == naive.progress
        assert ledger.finished.get("lines", {}) == {s: naive.finished(s) for s in naive.progress}
        assert all(ledger.next_sequence(task) == naive.sequence.get(task, 0) for task in (1, 2, 3))
        for component, counts in naive.counts.items():
            of = ledger.metrics.components.get(component, ComponentMetrics())
            assert {name: getattr(of, name) for name in counts} == counts
            assert of.pending == ledger.pending(component)


TestLedger = Machine.TestCase
TestLedger.settings = settings(max_examples=examples(60), stateful_step_count=25, deadline=None)


def test_a_restored_ledger_makes_the_same_snapshot_whatever_its_sources_came_first():
    machine = Machine()
    machine.begin()
    machine.micro_batch(crash=0, seed=2_282_899_187, turns=0, twice=False)
    machine.rebuild()
    machine.idle(compact=True, crash=False)
    machine.micro_batch(crash=0, seed=1, turns=0, twice=False)
    machine.rebuild()


def one_line(position=0, attempt=1, number=0, sequence=0, **kwargs):
    where = {"positions": (position,)} if attempt > 1 else {}
    entry = Entry(1, sequence, "books/a.txt", position, position + 1, attempt, **where)
    return MicroBatchPlan(number, 0, 1000 * number, (entry,), **kwargs)


def run(ledger, plan, **said):
    entry = ledger.stage(plan, Feedback(verdicts_of(**said)))
    return ledger.promote(plan.micro_batch_id), entry


def test_a_failed_record_is_retried_and_then_given_up_with_its_story():
    ledger = new_ledger()
    boom = Fail(tree_key(1, 0), "count", 1, "exception", "ValueError: no", 0)
    first, _ = run(ledger, one_line(120), inits=[(boom.key, 9)], fails=[boom])
    assert first.failed[0].outcome == "retry"
    assert ledger.messages.retries.due(5) == [Retry(1, "books/a.txt", 120, 2)]
    again = replace(boom, key=tree_key(1, 1), micro_batch_id=1)
    second, _ = run(ledger, one_line(120, 2, 1, 1), inits=[(again.key, 9)], fails=[again])
    (tree,) = second.failed
    assert (tree.outcome, tree.attempt, tree.position) == ("given_up", 2, 120)
    assert tree.story == (
        f"root {mix64(again.key):016x}; lines[0] books/a.txt@120, attempt 2; "
        "failed by count[1] in micro-batch 1: ValueError: no"
    )
    assert ledger.given_up == [tree]
    assert second.progress_moved == {"lines": {"books/a.txt": 121}}
    restored = restored_of(ledger.snapshot(), SPOUTS, task_owner=owner)
    assert restored.given_up == [tree]
    stored = json.dumps(encode(ledger.state())).replace("given_up", "set_aside")
    assert decode(State, json.loads(stored)).messages.given_up == [tree], "the words of earlier files are read"


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([(tree_key(1, 0), 5)], "timed out after 1.0 s; held by count[1] since micro-batch 0"),
        ([], "timed out after 1.0 s; not acked; no task reported that it holds it"),
    ],
)
def test_a_tree_that_times_out_reports_its_holder(held, words):
    ledger = new_ledger()
    run(ledger, one_line(), inits=[(tree_key(1, 0), 9)], held=held)
    for _ in range(ROTATIONS):
        expired = ledger.expire()
    promotion, _ = run(ledger, MicroBatchPlan(1, 0, 1000, expired=expired))
    assert promotion.failed[0].story.endswith(f"attempt 1; {words}")
    assert promotion.failed[0].fail.cause == "timeout"


def test_an_ack_after_the_timeout_changes_nothing_and_is_counted():
    ledger = new_ledger()
    run(ledger, one_line(), inits=[(tree_key(1, 0), 9)])
    run(ledger, MicroBatchPlan(1, 0, 1, expired=(tree_key(1, 0),)))
    promotion, _ = run(ledger, MicroBatchPlan(2, 0, 2), acks=[(tree_key(1, 0), 9)])
    assert promotion.acked == []
    assert ledger.metrics.of("lines").late == 1


def test_a_tree_that_completes_before_its_timeout_is_promoted_counts_as_acked():
    ledger = new_ledger()
    run(ledger, one_line(), inits=[(tree_key(1, 0), 9)])
    for _ in range(ROTATIONS):
        assert ledger.expire() in ((), (tree_key(1, 0),))
    promotion, _ = run(ledger, MicroBatchPlan(1, 0, 1), acks=[(tree_key(1, 0), 9)])
    assert promotion.acked == [(tree_key(1, 0), tree_key(1, 0), 1)]
    assert ledger.expiring() == ()


def test_a_promotion_happens_once_and_only_for_staged_results():
    ledger = new_ledger()
    with pytest.raises(InvariantError, match="staged is None"):
        ledger.promote(0)
    run(ledger, one_line())
    with pytest.raises(InvariantError, match="last promoted 0"):
        ledger.promote(0)
    with pytest.raises(InvariantError, match="the last promoted one is 0"):
        ledger.stage(MicroBatchPlan(2, 0, 0), Feedback())


def test_a_tree_that_the_plan_did_not_reserve_is_refused():
    with pytest.raises(InvariantError, match=r"started tree \(1, 7\)"):
        new_ledger().stage(one_line(), Feedback(verdicts_of(inits=[(tree_key(1, 7), 0)])))


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7), kind=st.booleans())
def test_damage_to_any_byte_is_detected_and_reported(at, bit, kind):
    ledger = new_ledger()
    _, entry = run(ledger, one_line(), inits=[(tree_key(1, 0), 9)])
    damaged = bytearray(ledger.snapshot() if kind else entry)
    damaged[at % len(damaged)] ^= 1 << bit

    def read(data):
        if kind:
            return restored_of(data, SPOUTS, task_owner=owner, name="ledger/7")
        return new_ledger().replay(data, "ledger/7")

    with pytest.raises(CheckpointError, match="ledger/7"):
        read(bytes(damaged))


def test_a_gap_in_the_log_is_refused():
    ledger = new_ledger()
    run(ledger, one_line())
    _, entry = run(ledger, one_line(5, number=1, sequence=1))
    with pytest.raises(CheckpointError, match="micro-batch 1, expected 0"):
        new_ledger().replay(entry, "ledger/1")


def test_a_life_that_is_not_later_is_refused():
    ledger = new_ledger()
    ledger.begin_life(3)
    with pytest.raises(InvariantError, match="numbered upwards"):
        ledger.begin_life(3)


def test_a_timeout_reset_in_a_micro_batch_restarts_the_full_timeout_of_a_tree():
    ledger = new_ledger()
    run(ledger, one_line(), inits=[(tree_key(1, 0), 9)])
    for _ in range(ROTATIONS):
        ledger.expire()
    touched = merge([judge([Partials(touched_keys=np.array([tree_key(1, 0)], dtype=np.uint64))])])
    ledger.stage(MicroBatchPlan(1, 0, 0), Feedback(touched))
    ledger.promote(1)
    assert [ledger.expire() for _ in range(ROTATIONS)] == [(), (), (tree_key(1, 0),)]
