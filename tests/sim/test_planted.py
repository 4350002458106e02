"""Bugs that are planted on purpose: the simulator finds each of them.

Each one is real: somebody has made it, or might. It is planted by replacing a function of the core or of the world for
the length of a test; there are no switches in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.api import groupings
from sparkbolt.api.reports import FailedTree
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.ids import MASK64, U64, edge_salt, edges_of, run_lengths
from sparkbolt.driver import machine
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.ledger import ledger_files, ledger_log
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.message_log import MessageLog
from sparkbolt.driver.ledger.messages import Messages as KnownMessages
from sparkbolt.driver.ledger.outbox_acks import OutboxAcks
from sparkbolt.driver.ledger.retry_schedule import RetrySchedule
from sparkbolt.driver.planner import Planner
from sparkbolt.sim.executors import Executors
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.spark_loop import MicroBatchLoop
from sparkbolt.sim.subject import Subject, subject_of
from sparkbolt.sim.subprocess_runner import close_processes
from sparkbolt.sim.world import World
from sparkbolt.testing import simulate
from sparkbolt.wire import acker, edges
from sparkbolt.wire.frames import Inbox, python_values
from sparkbolt.wire.plan import Entry
from sparkbolt.wire.verdicts import Verdicts
from sparkbolt.worker import routing
from sparkbolt.worker.emissions import NO_ROWS
from sparkbolt.worker.outbox import Outbox
from sparkbolt.worker.source_reader import EntryReader
from sparkbolt.worker.stage import Stage
from sparkbolt.worker.state.task_state import TaskState
from sparkbolt.worker.worker import Worker
from tests.sim.planting import Patch, hunt
from tests.sim.planting import patch as patch
from tests.sim.random_topologies import Messages, starting_topology


def edges_without_the_delivery_slot(patch: Patch) -> None:
    patch.setattr(routing, "edge_salt", lambda number, anchor, slot, to: edge_salt(number, anchor, 0, to))


def edges_without_the_micro_batch(patch: Patch) -> None:
    patch.setattr(routing, "edge_salt", lambda number, anchor, slot, to: edge_salt(0, anchor, slot, to))


def edges_without_the_ordinal(patch: Patch) -> None:
    def of_runs(parents: U64, starts: Any, count: int, _first: int, salt: int) -> U64:
        return edges_of(parents.repeat(run_lengths(starts, count)), 0, salt)

    patch.setattr(edges, "edges_of", lambda parents, _, salt: edges_of(parents, 0, salt))
    patch.setattr(edges, "edges_of_runs", of_runs)


def staging_adds_instead_of_replacing(patch: Patch) -> None:
    note = Ledger._note

    def adding(self: Ledger, plan: Any, feedback: Any) -> None:
        before = self._staged
        note(self, plan, feedback)
        if before is not None and before[0].micro_batch_id == plan.micro_batch_id:
            verdicts, old = feedback.verdicts, before[1].verdicts
            merged = {
                name: np.concatenate((getattr(old, name), getattr(verdicts, name)))
                for name in ("done_first", "done_last", "done_counts")
            }
            self._staged = plan, replace(feedback, verdicts=replace(verdicts, **merged))

    patch.setattr(Ledger, "_note", adding)


def an_ack_before_the_commit(patch: Patch) -> None:
    stage = Coordinator.stage

    def eager(self: Coordinator, micro_batch_id: int, feedback: Any) -> bytes:
        entry = stage(self, micro_batch_id, feedback)
        verdicts: Verdicts = feedback.verdicts
        for first, last in zip(verdicts.done_first.tolist(), verdicts.done_last.tolist(), strict=True):
            for key in range(first, last + 1):
                buffer = self.buffers.get(key >> 48)
                message_id = buffer.message_ids.pop(key & ((1 << 48) - 1), None) if buffer is not None else None
                if buffer is not None and message_id is not None:
                    buffer.acks.append(message_id)
        return entry

    patch.setattr(Coordinator, "stage", eager)


def a_plan_that_is_computed_again(patch: Patch) -> None:
    begin = World._begin_life

    def forgetful(self: World, before: Any = None) -> None:
        begin(self, before)
        running = self.durable.log.running
        if running is not None:
            self._set_budgets(running + 1000)
            again = self._perform_all(self.driver.coordinator.next_plan(self.now_ms, self.mono_s))
            if again is None:
                del self.durable.log.offsets[running]
            else:
                self.durable.log.offsets[running] = again.dumps()
            self._loop = MicroBatchLoop(self.durable.log, self)

    patch.setattr(World, "_begin_life", forgetful)


def a_cache_keyed_by_the_micro_batch_alone(patch: Patch) -> None:
    load = Worker.load

    def trusting(self: Worker, number: int, store: Any) -> Any:
        seen = self.__dict__.setdefault("seen", {})
        now = self.now
        patched = number in self._states and seen.get(number) in (now - 1, now)
        seen[number] = now
        if patched:
            patch.setattr(TaskState, "instance_is_current", property(lambda self: True))
        try:
            return load(self, number, store)
        finally:
            if patched:
                patch.setattr(TaskState, "instance_is_current", property(lambda self: self._instance_current))

    run_level = Stage.run_task

    def noting(self: Stage, number: int, inbox: Any, store: Any) -> None:
        self.worker.now = self.moment.micro_batch_id  # type: ignore[attr-defined]
        run_level(self, number, inbox, store)

    patch.setattr(Worker, "load", trusting)
    patch.setattr(Stage, "run_task", noting)


def a_cache_that_is_believed_without_its_stamp(patch: Patch) -> None:
    patch.setattr(TaskState, "_snapshot_proof", lambda self: 1)


def frames_are_not_put_in_order(patch: Patch) -> None:
    patch.setattr(Inbox, "in_order", lambda self: self.frames)


def init_is_lost_on_a_retry(patch: Patch) -> None:
    for reading in ("_again", "_start_gathered"):
        patch.setattr(EntryReader, reading, without_what_it_reports(getattr(EntryReader, reading)))


def without_what_it_reports(reading: Callable[..., None]) -> Callable[..., None]:
    def without_init(self: EntryReader, *arguments: Any) -> None:
        parts = self._stage.reports.parts
        before = len(parts)
        reading(self, *arguments)
        del parts[before:]

    return without_init


def an_entry_counts_before_its_commit(patch: Patch) -> None:
    load = machine.load_ledger

    def eager(files: Any, last_commit: int, *rest: Any, **options: Any) -> Any:
        written = [int(name.split(".")[0]) for name in files.names("ledger") if name.endswith(".entry")]
        return load(files, max([last_commit, *written]), *rest, **options)

    patch.setattr(machine, "load_ledger", eager)


def a_base_is_used_again_after_a_restart(patch: Patch) -> None:
    forget = KnownMessages.forget_records

    def forgetful(self: KnownMessages) -> Any:
        void = forget(self)
        for task, _ in void:
            self._next_sequence.pop(task, None)
        return void

    patch.setattr(KnownMessages, "forget_records", forgetful)


def two_lives_have_one_number(patch: Patch) -> None:
    def same(files: Any, owner: str) -> int:
        files.files["lives/0"] = owner.encode()
        return 0

    patch.setattr(ledger_files, "begin_life", same)
    patch.setattr(Ledger, "begin_life", _begin_any_life(Ledger.begin_life))


def _begin_any_life(begin: Callable[[Ledger, int], Any]) -> Callable[[Ledger, int], Any]:
    def any_life(self: Ledger, life: int) -> Any:
        self.life = min(self.life, life - 1)
        return begin(self, life)

    return any_life


def a_tree_that_timed_out_stays_open(patch: Patch) -> None:
    time_out = Ledger._time_out

    def forgetful(self: Ledger, plan: Any, promotion: Any) -> None:
        remove = self._trees.remove
        self._trees.remove = lambda keys: self._trees.find(keys)[1]  # type: ignore[method-assign]
        time_out(self, plan, promotion)
        self._trees.remove = remove  # type: ignore[method-assign]

    patch.setattr(Ledger, "_time_out", forgetful)


def compaction_forgets_retries(patch: Patch) -> None:
    state = MessageLog.state
    patch.setattr(MessageLog, "state", lambda self: replace(state(self), retries=[]))


def compaction_forgets_open_trees(patch: Patch) -> None:
    dump = ledger_log.dump_snapshot
    patch.setattr(
        ledger_log,
        "dump_snapshot",
        lambda state: dump(replace(state, trees=tuple(column[:0] for column in state.trees))),
    )


def a_held_tuple_loses_its_trees_with_its_worker(patch: Patch) -> None:
    reduce = Tuple.__reduce__

    def poor(self: Tuple) -> Any:
        restore, (origin, values, _, attempt, state) = reduce(self)
        return restore, (origin, values, (), attempt, state)

    patch.setattr(Tuple, "__reduce__", poor)


def an_attempt_writes_into_the_committed_state(patch: Patch) -> None:
    attempt = Executors._attempt

    def eager(self: Executors, *arguments: Any) -> Any:
        done = attempt(self, *arguments)
        self._stores.update(done.stores)  # type: ignore[attr-defined]
        return done

    patch.setattr(Executors, "_attempt", eager)


def a_fail_is_forgotten_where_the_tree_began(patch: Patch) -> None:
    judge = acker.judge

    def lenient(parts: Any) -> Any:
        return judge([replace(part, fails=[]) for part in parts])

    patch.setattr(acker, "judge", lenient)


def retries_do_not_wait(patch: Patch) -> None:
    due = RetrySchedule.due
    patch.setattr(RetrySchedule, "due", lambda self, limit, now_ms=None, rooms=None: due(self, limit))


def nobody_wakes_for_a_retry(patch: Patch) -> None:
    patch.setattr(RetrySchedule, "next_due_ms", lambda self, not_before=None: None)


def a_further_attempt_has_the_number_of_the_last(patch: Patch) -> None:
    patch.setattr(FailedTree, "next_attempt", property(lambda self: max(2, self.attempt)))


def what_is_read_once_is_read_in_the_next_life(patch: Patch) -> None:
    patch.setattr(Entry, "lasting", property(lambda self: self.source is not None))


def a_beginning_that_is_given_as_an_end(patch: Patch) -> None:
    patch.setattr(Planner, "plan_nothing", lambda self, now_ms, mono_s: None)


def a_life_that_does_not_look_at_what_was_promoted(patch: Patch) -> None:
    def trusting(self: Planner, start: Any) -> int | None:
        staged = self.coordinator.ledger.staged
        return staged if staged is not None and start.get("n") == staged else None

    patch.setattr(Planner, "committed", trusting)


def a_life_that_never_read_is_taken_for_another_driver(patch: Patch) -> None:
    patch.setattr(World, "_still_ours", lambda self: self.driver.tenure.check(self.driver.coordinator.life))


PLANTS = (
    a_life_that_never_read_is_taken_for_another_driver,
    a_beginning_that_is_given_as_an_end,
    a_life_that_does_not_look_at_what_was_promoted,
    edges_without_the_delivery_slot,
    edges_without_the_micro_batch,
    edges_without_the_ordinal,
    staging_adds_instead_of_replacing,
    an_ack_before_the_commit,
    a_plan_that_is_computed_again,
    a_cache_keyed_by_the_micro_batch_alone,
    a_cache_that_is_believed_without_its_stamp,
    frames_are_not_put_in_order,
    init_is_lost_on_a_retry,
    an_entry_counts_before_its_commit,
    a_base_is_used_again_after_a_restart,
    two_lives_have_one_number,
    a_tree_that_timed_out_stays_open,
    compaction_forgets_retries,
    compaction_forgets_open_trees,
    a_held_tuple_loses_its_trees_with_its_worker,
    an_attempt_writes_into_the_committed_state,
    a_fail_is_forgotten_where_the_tree_began,
    retries_do_not_wait,
    nobody_wakes_for_a_retry,
    a_further_attempt_has_the_number_of_the_last,
    what_is_read_once_is_read_in_the_next_life,
)


@pytest.mark.campaign
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Callable[[Patch], None], patch: Patch) -> None:
    plant(patch)
    needed, promise, words = hunt()
    print(f"{plant.__name__}: {needed} seeds; {promise}: {words}")


def what_is_settled_stays(patch: Patch) -> None:
    patch.setattr(Outbox, "settle", lambda self, spans: None)


def what_was_given_up_is_never_told(patch: Patch) -> None:
    learn = OutboxAcks.learn

    def deaf(self: OutboxAcks, promotion: Any, messages: Any) -> None:
        learn(self, replace(promotion, failed=[]), messages)

    patch.setattr(OutboxAcks, "learn", deaf)


def two_values_are_given_again_at_most(patch: Patch) -> None:
    again = Outbox.again

    def shortened(self: Outbox, entry: Entry, streams: Any) -> Any:
        return again(self, replace(entry, positions=(entry.positions or ())[:2]), streams)

    patch.setattr(Outbox, "again", shortened)


def compaction_forgets_what_is_settled(patch: Patch) -> None:
    dump = ledger_log.dump_snapshot
    patch.setattr(ledger_log, "dump_snapshot", lambda state: dump(replace(state, outbox_acks=())))


def sequences_begin_anew_with_each_worker(patch: Patch) -> None:
    known: set[int] = set()
    init = Outbox.__init__

    def forgetful(self: Outbox, state: Any, number: int, pickling: Any) -> None:
        init(self, state, number, pickling)
        if id(state) not in known:
            known.add(id(state))
            self._first = self._next = 0

    patch.setattr(Outbox, "__init__", forgetful)


OWN_PLANTS = (
    what_is_settled_stays,
    what_was_given_up_is_never_told,
    two_values_are_given_again_at_most,
    compaction_forgets_what_is_settled,
    sequences_begin_anew_with_each_worker,
)


@pytest.mark.campaign
@pytest.mark.parametrize("plant", OWN_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_in_trees_that_bolts_start_is_found(plant: Callable[[Patch], None], patch: Patch) -> None:
    plant(patch)
    starting: dict[int, Subject] = {}
    needed, promise, words = hunt(
        lambda number: starting.get(number) or starting.setdefault(number, subject_of(*starting_topology(number)))
    )
    print(f"{plant.__name__}: {needed} seeds; {promise}: {words}")


class Gathering(BasicBolt):
    """Emits what it has gathered when it has got all of a micro-batch."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.gathered: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.gathered.append(tup["n"])

    def flush(self) -> Iterator[list[int]]:
        gathered, self.gathered = self.gathered, []
        yield from ([number] for number in gathered)


def test_tuples_emitted_in_flush_and_never_sent_are_detected(patch: Patch) -> None:
    def silent(self: Stage, task: Any, seen: Any, own: Any = None) -> None:
        done, emitted = task.flush(seen), task.output.streams
        task.output.streams = {}
        self._take(task, NO_ROWS, done, 0.0, None)
        task.output.streams = emitted

    builder = TopologyBuilder("gathering")
    builder.set_spout("m", Messages())
    builder.set_bolt("gather", Gathering()).shuffle_grouping("m")
    builder.set_bolt("last", Gathering()).shuffle_grouping("gather")
    gathering = subject_of(builder.build(), {"m": [[number] for number in range(12)]})
    assert not run_seed(gathering, 0).violations
    patch.setattr(Stage, "_flush", silent)
    _, promise, words = hunt(lambda _: gathering)
    assert (promise, "that 'gather' emitted on 'default' were never sent" in words) == ("the engine goes on", True)


def hashed(columns: Any, n: int, fields: Any = ()) -> Any:
    """What routing by Python's ``hash`` would do: another thing in each process."""
    rows = zip(*(python_values(column) for column in columns), strict=True)
    return groupings._scale(np.array([hash(row) & MASK64 for row in rows], dtype=np.uint64), n)


class Planting(BasicBolt):
    """Plants the bug in every process that loads it."""

    outputs = ["n"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        groupings.fields_targets = hashed

    def __getstate__(self) -> dict[str, Any]:
        return {"planted": True}  # without any, nothing would be set

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"]])


@pytest.mark.slow
def test_second_process_detects_routing_by_python_hash(patch: Patch) -> None:
    patch.setattr(groupings, "fields_targets", hashed)
    builder = TopologyBuilder("planted")
    builder.set_spout("words", Messages())
    builder.set_bolt("pass", Planting(), fuse=False).shuffle_grouping("words")
    builder.set_bolt("last", Planting(), parallelism=3).fields_grouping("pass", ["n"])
    report = simulate(builder.build(), feed={"words": [[f"word {number}"] for number in range(30)]}, history="")
    close_processes()
    assert report.promise == "components are deterministic"
    assert report.component == "pass"
