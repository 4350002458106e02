"""Inlets: rows that something else brings are kept, started, retried and written as dead letters by their tasks."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sparkbolt import BasicBolt, Committer, Config, TopologyBuilder, bolt
from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.api.inlets import InletSpout
from sparkbolt.api.topology import Topology
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.ids import AGAIN, LETTERS, split_key
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.returned_letters import RETURNED_FOLDER, request_of
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.wire.frames import Frame, Moment, encode
from sparkbolt.wire.plan import MicroBatchPlan
from sparkbolt.worker.routing import Row


class Brought(InletSpout):
    outputs = ["id", "n"]
    message_id = "id"

    def frame(self, spark: Any) -> Any:
        raise AssertionError("no Spark here")


class Refuses(BasicBolt):
    """Fails a row as often as its number says."""

    outputs = ["id"]

    def prepare(self, context: Any) -> None:
        self.tries: dict[str, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        tries = self.tries[tup["id"]] = self.tries.get(tup["id"], 0) + 1
        if tries <= tup["n"]:
            raise ValueError(f"try {tries} of {tup['id']}")
        collector.emit([tup["id"]])


@bolt(outputs=[])
def ends(tup: Any) -> None:
    """The end."""


class Engine(LocalEngine):
    """A local engine to which rows can be brought, as Spark brings them."""

    frames: Sequence[tuple[int, Sequence[tuple[str, int]]]] = ()

    def bring(self, *frames: tuple[int, Sequence[tuple[str, int]]]) -> None:
        """Bring frames of rows with the next micro-batch: (index of the task, rows)."""
        self.frames = frames

    def step(self) -> Promotion | None:
        """Run the next plan; one that reads nothing if only rows are there."""
        mono_s = self.now_ms / 1000
        if self.frames and self.perform_all(self.coordinator.next_plan(self.now_ms, mono_s)) is None:
            self.coordinator.plan_nothing(self.now_ms, mono_s)
        promotion = super().step()
        self.frames = ()
        return promotion

    def first_rows(self, plan: MicroBatchPlan) -> list[Row]:
        """The clocks, and what was brought."""
        tasks, stream = self.lane.topology.tasks("rows"), self.lane.topology.stream_index("rows", DEFAULT_STREAM)
        rows = super().first_rows(plan)
        for piece, (index, brought) in enumerate(self.frames):
            columns = [list(column) for column in zip(*brought, strict=True)]
            frame = Frame(tasks[index], stream, piece, 0, len(brought), columns)
            moment = Moment(plan.micro_batch_id, plan.now_ms)
            rows.append((self.lane.dests[tasks[index]], encode(frame, moment)))
        return rows


def topology(dead_letters: Any = None, **settings: Any) -> Topology:
    builder = TopologyBuilder("inlet", Config(max_attempts=3, **settings))
    given = {} if dead_letters is None else {"dead_letters": dead_letters}
    builder.set_spout("rows", Brought(), parallelism=2, **given)
    builder.set_bolt("refuses", Refuses(), parallelism=2).fields_grouping("rows", ["id"])
    last = builder.set_bolt("ends", ends).shuffle_grouping("refuses")
    if dead_letters == "stream:dead":
        last.shuffle_grouping("rows", "dead")
    return builder.build()


def run_out(engine: Engine) -> list[Promotion]:
    """Run until nothing is due any more, also not later."""
    found = []
    for _ in range(200):
        promotion = engine.step()
        if promotion is not None:
            found.append(promotion)
            continue
        due = engine.next_due_ms()
        if due is None or not (engine.coordinator.retries or engine.ledger.outbox_acks.first()):
            return found
        engine.now_ms = max(engine.now_ms + 1, due)
    raise AssertionError("it never comes to an end")


def kept(engine: Engine) -> int:
    """How many segments the tasks of the inlet hold besides their tables."""
    dests = [engine.lane.dests[task] for task in engine.lane.inlet_tasks]
    names = [name for dest in dests if dest in engine.stores for name in engine.stores[dest].keys()]  # noqa: SIM118
    return sum("__trees/" in name for name in names)


def test_rows_are_acked_retried_from_state_or_given_up_with_a_dead_letter_that_has_their_id() -> None:
    engine = Engine(topology())
    engine.bring((0, [("a", 0), ("b", 1)]), (1, [("c", 9)]))
    promotions = run_out(engine)
    rows = engine.ledger.metrics.components["rows"]
    assert (rows.acked, rows.failed, rows.retried, rows.given_up, rows.dead_letters) == (2, 4, 3, 1, 1)
    assert engine.ledger.open_trees == 0
    assert kept(engine) == 0, "what is settled is dropped"
    [line] = b"".join(engine.letters).splitlines()
    letter = json.loads(line)
    assert (letter["message_id"], letter["source"], letter["position"]) == ("'c'", "kept-1", 0)
    assert [attempt["reason"] for attempt in letter["attempts"]] == [f"ValueError: try {n} of c" for n in (1, 2, 3)]
    failed = [tree for promotion in promotions for tree in promotion.failed]
    assert ["message 'c'" in tree.story for tree in failed if "of c" in tree.story] == [False, True, True]
    keys = [split_key(tree.key)[1] for tree in failed]
    assert any(key < AGAIN for key in keys)
    assert any(AGAIN <= key < LETTERS for key in keys)


def letter(engine: Engine) -> DeadLetter:
    """The newest dead letter in the checkpoint."""
    return DeadLetter.from_json(json.loads(b"".join(engine.letters).splitlines()[-1]))


def give_back(engine: Engine, given: DeadLetter) -> None:
    engine.files.write(f"{RETURNED_FOLDER}/{given.id}", request_of([(given, False)]))
    engine.coordinator.returned.is_due = True
    run_out(engine)


def test_a_returned_row_whose_fields_have_changed_is_a_dead_letter_again_until_it_fits() -> None:
    engine = Engine(topology())
    engine.bring((1, [("c", 5)]))
    run_out(engine)
    first = letter(engine)
    give_back(engine, replace(first, fields=("id", "count")))
    again = letter(engine)
    assert [one.reason.partition(":")[0] for one in again.attempts[3:]] == [
        "a dead letter of stream 'default' (id, count) has no values for its fields now"
    ] * 3
    assert again.tuples == (("c", 5),)
    give_back(engine, replace(again, fields=first.fields))
    assert engine.ledger.metrics.components["rows"].acked == 1


def test_dead_letters_go_to_a_stream_or_a_function_and_wait_until_it_accepts_them() -> None:
    taken: list[Any] = []

    def take(letter: Any) -> None:
        taken.append(letter)
        if len(taken) == 1:
            raise OSError("not now")

    engine = Engine(topology("stream:dead"))
    engine.bring((0, [("a", 9), ("b", 0)]))
    run_out(engine)
    assert engine.ledger.metrics.components["rows"].dead_letters == 1
    assert engine.ledger.metrics.components["ends"].executed == 2
    assert kept(engine) == 0

    engine = Engine(topology(take))
    engine.bring((0, [("a", 9), ("b", 0)]))
    run_out(engine)
    assert engine.ledger.metrics.components["rows"].dead_letters == 1
    assert kept(engine) == 0


@pytest.mark.parametrize("seed", range(20))
def test_each_row_is_acked_or_becomes_a_dead_letter_whatever_fails_or_dies(seed: int) -> None:
    chance = random.Random(seed)
    engine = Engine(topology())
    total, doomed = 0, 0
    for _ in range(8):
        frames = []
        for task in range(2):
            rows = [(f"k{total + n}", chance.choice((0, 0, 0, 1, 2, 5))) for n in range(chance.randrange(6))]
            total += len(rows)
            doomed += sum(n >= 3 for _, n in rows)
            if rows:
                frames.append((task, rows))
        engine.bring(*frames)
        engine.step()
        engine.now_ms += chance.randrange(2000)
        if chance.random() < 0.4:
            engine.restart()
    run_out(engine)
    rows = engine.ledger.metrics.components["rows"]
    assert (rows.acked, rows.dead_letters) == (total - doomed, doomed)
    assert engine.ledger.open_trees == 0
    assert kept(engine) == 0


def test_without_tracking_rows_are_sent_and_nothing_is_kept() -> None:
    engine = Engine(topology(acker_tasks=0))
    engine.bring((0, [("a", 0), ("b", 9)]))
    run_out(engine)
    assert engine.ledger.metrics.components["rows"].emitted == 2
    assert kept(engine) == 0


class Balance(BasicBolt):
    """Counts a row before anything behind it can fail."""

    outputs = ["id", "n", "count"]

    def prepare(self, context: Any) -> None:
        self.count = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.count += 1
        collector.emit([tup["id"], tup["n"], self.count])


class Behind(BasicBolt):
    """Fails a row in its first ``n`` attempts, and each now and then for no reason."""

    outputs = ["id", "count"]

    def __init__(self, moody: float) -> None:
        self.moody, self.chance = moody, random.Random(1)

    transient = ["chance"]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.attempt <= tup["n"] or self.chance.random() < self.moody:
            raise ValueError("not now")
        collector.emit([tup["id"], tup["count"]])


class Rows(Committer):
    """Its rows are those of ``LocalEngine.committed``."""

    def commit(self, txid: int, rows: Any) -> None:
        """Nothing is outside."""


def transactional(moody: float = 0.0) -> Topology:
    builder = TopologyBuilder("inlet", Config(max_attempts=3 if not moody else 10_000, transactional=True))
    builder.set_spout("rows", Brought(), parallelism=2)
    builder.set_bolt("balance", Balance()).global_grouping("rows")
    builder.set_bolt("behind", Behind(moody), parallelism=2).fields_grouping("balance", ["id"])
    builder.set_bolt("out", Rows()).shuffle_grouping("behind")
    return builder.build()


@pytest.mark.parametrize("seed", range(20))
def test_failed_rows_leave_no_trace_in_a_transactional_topology(seed: int) -> None:
    chance = random.Random(seed)
    engine = Engine(transactional())
    expected, doomed = [], 0
    for step in range(8):
        frames = []
        for task in range(2):
            rows = [(f"{step}.{task}.{n}", chance.choice((0, 0, 0, 1, 2, 5))) for n in range(chance.randrange(6))]
            expected += [id_ for id_, n in rows if n < 3]
            doomed += sum(n >= 3 for _, n in rows)
            if rows:
                frames.append((task, rows))
        engine.bring(*frames)
        engine.step()
        engine.now_ms += chance.randrange(2000)
        if chance.random() < 0.4:
            engine.restart()
    run_out(engine)
    metrics = engine.ledger.metrics.components["rows"]
    assert (metrics.acked, metrics.dead_letters) == (len(expected), doomed)
    out = engine.committed["out"]
    assert sorted(row["id"] for row in out) == sorted(expected)
    assert sorted(row["count"] for row in out) == list(range(1, len(expected) + 1))
    assert engine.ledger.open_trees == 0
    assert kept(engine) == 0
