"""Loops: feedback subscriptions in the local engine, from a driver's death to a change of the topology."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from examples.crawler import build as crawler
from sparkbolt import BasicBolt, Bolt, Config, PartitionedSpout, Range, Topology, TopologyBuilder
from sparkbolt.api.causes import Cause
from sparkbolt.driver.ledger.ledger_files import LOOPED_FOLDER, compact
from sparkbolt.driver.looped_tuples import looped_mistakes
from sparkbolt.errors import CheckpointError
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver


class Numbers(PartitionedSpout):
    """The numbers from 0 on, in one micro-batch."""

    outputs = ["n"]

    def __init__(self, count: int) -> None:
        self.count = count

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        return [] if progress else [Range(0, "all", 0, self.count)]

    def finished(self, progress: Mapping[str, int]) -> bool:
        return bool(progress)

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for position in range(range_.start, range_.end):
            yield position, [position]


class Down(BasicBolt):
    """Feeds a number back, smaller by one, until it is zero; counts by number what it gets."""

    outputs = ["n"]
    keyed = ("seen",)

    def prepare(self, context: Any) -> None:
        self.seen: dict[int, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen[tup["n"]] = self.seen.get(tup["n"], 0) + 1
        if tup["n"]:
            collector.emit([tup["n"] - 1])


class Last(BasicBolt):
    """Gets a copy of all that is fed back."""

    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"]])


def counting_down(
    count: int = 6, tasks: int = 2, grouping: str = "fields", fields: Sequence[str] = ("n",), **config: Any
) -> Topology:
    builder = TopologyBuilder("down", Config(max_attempts=1, **config))
    builder.set_spout("numbers", Numbers(count))
    down = builder.set_bolt("down", Down(), parallelism=tasks)
    down.fields_grouping("numbers", ["n"])
    own = [list(fields)] if grouping == "fields" else []
    getattr(down, f"{grouping}_grouping")("down", *own, feedback=True)
    return builder.build()


def finish(engine: LocalEngine) -> int:
    """Run until nothing is left to do; returns the number of micro-batches."""
    count = 0
    while engine.step() is not None:
        count += 1
        assert count < 100
    return count


def seen(engine: LocalEngine) -> Mapping[int, int]:
    """By number: how often tasks have got it, as they know it now."""
    total: dict[int, int] = {}
    for number in engine.topology.tasks("down"):
        store = engine.stores.get(engine.lane.dests[number])
        if store is not None:
            task = engine.worker.load(number, store)
            for n, times in task.bolt.seen.items():
                total[n] = total.get(n, 0) + times
    return total


EXPECTED = {n: 6 - n for n in range(6)}
"""Of the numbers 0 to 5, each greater one comes down to a number once."""


def test_tuples_ride_the_next_micro_batch_and_their_trees_stay_open() -> None:
    engine = LocalEngine(counting_down())
    opens = []
    while engine.step() is not None:
        opens.append(engine.ledger.open_trees)
    assert opens[:6] == [5, 4, 3, 2, 1, 0]
    assert engine.ledger.metrics.of("numbers").acked == 6
    assert seen(engine) == EXPECTED
    engine.close()


@pytest.mark.parametrize("dies_after", range(6))
def test_a_driver_that_dies_loses_and_repeats_nothing(dies_after: int) -> None:
    engine = LocalEngine(counting_down())
    for _ in range(dies_after):
        engine.step()
        engine.restart()
    finish(engine)
    assert engine.ledger.metrics.of("numbers").acked == 6
    assert seen(engine) == EXPECTED
    engine.close()


def test_a_micro_batch_that_runs_again_replaces_what_it_has_fed_back() -> None:
    engine = LocalEngine(counting_down())
    end = engine.perform_all(engine.machine.next_offset())
    assert end is not None
    engine.run_until_staged(end)
    first = engine.files.read(f"{LOOPED_FOLDER}/0")
    engine.stores = {}
    engine.restart()
    engine.last_commit = engine.run_until_staged(end)
    assert engine.files.read(f"{LOOPED_FOLDER}/0") == first
    engine.perform_all(engine.machine.committed(engine.last_commit))
    finish(engine)
    assert seen(engine) == EXPECTED
    engine.close()


def test_a_tree_fails_after_max_hops_with_its_story_and_its_tuples_are_dropped() -> None:
    engine = LocalEngine(counting_down(max_hops=3))
    finish(engine)
    metrics = engine.ledger.metrics.of("numbers")
    assert (metrics.acked, metrics.dead_letters) == (4, 2)
    first = engine.ledger.failed[0]
    assert first.fail.cause == Cause.HOPS
    assert "fed back in 4 micro-batches, more than max_hops allows; down[" in first.fail.reason
    assert first.fail.reason in first.story
    assert seen(engine) == {5: 1, 4: 2, 3: 3, 2: 4, 1: 4, 0: 4}
    engine.close()


def test_max_hops_of_a_spout_overrides_that_of_the_topology() -> None:
    builder = TopologyBuilder("down", Config(max_hops=1))
    builder.set_spout("numbers", Numbers(6), max_hops=5)
    builder.set_bolt("down", Down()).global_grouping("numbers").global_grouping("down", feedback=True)
    engine = LocalEngine(builder.build())
    finish(engine)
    assert engine.ledger.metrics.of("numbers").acked == 6
    engine.close()


def test_a_tree_that_waits_says_so_and_so_does_its_timeout() -> None:
    engine = LocalEngine(counting_down(message_timeout_secs=2))
    engine.step()
    engine.step()
    words = "fed back by down[0] in micro-batch 1 (hop 2), and waits for the next micro-batch"
    texts = [engine.ledger.story(key).why for key in engine.ledger.open_keys(10)]
    assert any(words in text or words.replace("[0]", "[1]") in text for text in texts), texts
    engine.now_ms += 10_000
    engine.step()
    engine.step()
    assert any("waits for the next micro-batch" in tree.fail.reason for tree in engine.ledger.failed)
    engine.close()


def test_what_waits_is_processed_though_the_topology_is_deactivated() -> None:
    engine = LocalEngine(counting_down())
    engine.step()
    engine.machine.lifecycle.emits = False  # type: ignore[misc]
    assert finish(engine) >= 5
    assert engine.coordinator.drained
    engine.close()


def test_a_topology_with_tuples_that_wait_is_not_drained() -> None:
    engine = LocalEngine(counting_down(acker_tasks=0))
    drained = []
    while engine.step() is not None:
        drained.append((engine.coordinator.drained, bool(engine.ledger.loops.waiting)))
    assert drained[:6] == [(False, True)] * 5 + [(True, False)]
    assert seen(engine) == EXPECTED
    engine.close()


def test_all_tasks_get_a_copy_and_each_copy_counts() -> None:
    engine = LocalEngine(counting_down(count=3, tasks=2, grouping="all"))
    finish(engine)
    assert engine.ledger.metrics.of("numbers").acked == 3
    assert seen(engine) == {2: 1, 1: 1 + 2, 0: 1 + 2 + 4}
    engine.close()


def test_compaction_keeps_what_waits_and_removes_the_rest() -> None:
    engine = LocalEngine(counting_down(count=40, compact_every=2))
    while engine.step() is not None:
        if engine.last_commit % 2 == 1:
            compact(engine.files, engine.last_commit, engine.ledger.snapshot())
    assert len(engine.files.names(LOOPED_FOLDER)) < 6
    assert engine.ledger.metrics.of("numbers").acked == 40
    engine.close()


def test_a_missing_file_of_looped_tuples_is_named() -> None:
    engine = LocalEngine(counting_down())
    engine.step()
    engine.files.remove(f"{LOOPED_FOLDER}/0")
    with pytest.raises(
        CheckpointError, match=f"{LOOPED_FOLDER}/0 is missing, though micro-batch 1 delivers its tuples"
    ):
        engine.step()
    engine.close()


def test_a_damaged_file_of_looped_tuples_is_named() -> None:
    engine = LocalEngine(counting_down())
    engine.step()
    data = engine.files.read(f"{LOOPED_FOLDER}/0")
    assert data is not None
    engine.files.write(f"{LOOPED_FOLDER}/0", data[:-1] + b"?")
    with pytest.raises(CheckpointError, match=f"{LOOPED_FOLDER}/0 is damaged: its checksum"):
        engine.step()
    engine.close()


def test_verify_reports_looped_tuples_that_are_missing_or_damaged() -> None:
    engine = LocalEngine(counting_down())
    engine.step()
    engine.step()
    assert looped_mistakes(engine.files, engine.last_commit) == []
    engine.files.write(f"{LOOPED_FOLDER}/0", b"SBF?")
    engine.files.remove(f"{LOOPED_FOLDER}/1")
    damaged, missing = looped_mistakes(engine.files, engine.last_commit)
    assert damaged.startswith(f"{LOOPED_FOLDER}/0 is damaged: it does not begin as a file of looped tuples")
    assert missing == f"{LOOPED_FOLDER}/1 is missing, with 4 tuples for the next micro-batch"
    engine.close()


@pytest.mark.parametrize("tasks", [1, 3, 5])
def test_tuples_that_wait_find_their_keys_when_the_bolt_has_other_tasks(tasks: int) -> None:
    engine = LocalEngine(counting_down(tasks=2))
    engine.step()
    engine.step()
    engine.restart(counting_down(tasks=tasks))
    finish(engine)
    assert engine.ledger.metrics.of("numbers").acked == 6
    assert seen(engine) == EXPECTED
    for place, number in enumerate(engine.topology.tasks("down")):
        store = engine.stores.get(engine.lane.dests[number])
        others = [n for n in range(6) if store and n in engine.worker.load(number, store).bolt.seen]
        assert all(n not in held for other, held in holdings(engine).items() if other != place for n in others)
    engine.close()


class Step(BasicBolt):
    """Feeds a number back, smaller by one, until it is zero; keeps nothing."""

    outputs = ["n"]
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"]:
            collector.emit([tup["n"] - 1])


def stepping(tasks: int, grouping: str) -> Topology:
    builder = TopologyBuilder("stepping", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers(6))
    step = builder.set_bolt("step", Step(), parallelism=tasks).shuffle_grouping("numbers")
    own = [["n"]] if grouping == "partial_key" else []
    getattr(step, f"{grouping}_grouping")("step", *own, feedback=True)
    return builder.build()


@pytest.mark.parametrize("tasks", [1, 5])
@pytest.mark.parametrize("grouping", ["shuffle", "none", "local_or_shuffle", "global", "partial_key"])
def test_a_tuple_that_waits_for_one_task_finds_one_when_there_are_more_or_fewer(grouping: str, tasks: int) -> None:
    engine = LocalEngine(stepping(3, grouping))
    engine.step()
    engine.restart(stepping(tasks, grouping))
    finish(engine)
    metrics = engine.ledger.metrics
    assert (metrics.of("numbers").acked, metrics.of("step").executed) == (6, 6 + 5 + 4 + 3 + 2 + 1)
    engine.close()


def test_a_copy_that_waits_for_a_task_that_is_gone_fails_its_tree() -> None:
    engine = LocalEngine(stepping(3, "all"))
    engine.step()
    engine.restart(stepping(2, "all"))
    finish(engine)
    metrics = engine.ledger.metrics.of("numbers")
    assert (metrics.acked, metrics.dead_letters, engine.ledger.open_trees) == (1, 5, 0)
    engine.close()


def holdings(engine: LocalEngine) -> dict[int, set[int]]:
    """By index of each task: the numbers that it has seen."""
    found = {}
    for place, number in enumerate(engine.topology.tasks("down")):
        store = engine.stores.get(engine.lane.dests[number])
        found[place] = set(engine.worker.load(number, store).bolt.seen) if store is not None else set()
    return found


def test_trees_whose_tuples_wait_for_a_bolt_that_is_gone_fail_with_the_next_plan() -> None:
    engine = LocalEngine(with_last(gone=False))
    engine.step()
    engine.restart(with_last(gone=True))
    finish(engine)
    assert engine.ledger.open_trees == 0
    metrics = engine.ledger.metrics.of("numbers")
    assert metrics.acked + metrics.dead_letters + metrics.given_up + metrics.failed >= 6
    engine.close()


def test_the_fields_of_a_stream_that_is_fed_back_cannot_change() -> None:
    builder = TopologyBuilder("down", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers(6))
    down = builder.set_bolt("down", DownWithMore(), parallelism=2)
    down.fields_grouping("numbers", ["n"]).fields_grouping("down", ["n"], feedback=True)
    engine = LocalEngine(counting_down())
    engine.step()
    with pytest.raises(CheckpointError, match="and it keeps tuples with the fields that"):
        engine.restart(builder.build())


class DownWithMore(Down):
    outputs = ["n", "more"]


def with_last(*, gone: bool) -> Topology:
    builder = TopologyBuilder("down", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers(6))
    builder.set_bolt("pass", Last()).shuffle_grouping("numbers")
    if not gone:
        builder.set_bolt("down", Down()).global_grouping("pass", feedback=True)
    return builder.build()


def test_levels_leave_feedback_out_and_a_bolt_with_feedback_is_not_fused() -> None:
    builder = TopologyBuilder("levels")
    builder.set_spout("numbers", Numbers(6))
    builder.set_bolt("a", Last()).shuffle_grouping("numbers").shuffle_grouping("c", feedback=True)
    builder.set_bolt("b", Last()).shuffle_grouping("a")
    builder.set_bolt("c", Last(), fuse=False).shuffle_grouping("b")
    builder.set_bolt("alone", Last()).shuffle_grouping("c", feedback=True)
    lane = lay_out(builder.build(), cores=2)
    assert lane.fused_into == {"b": "a"}
    assert {name: lane.stage_of(name) for name in ("a", "b", "c", "alone")} == {"a": 1, "b": 1, "c": 2, "alone": 1}


def test_testing_driver_runs_a_loop_until_it_is_idle() -> None:
    with TopologyTestDriver(counting_down()) as driver:
        driver.feed("numbers", {"n": 4}, message_id=1)
        driver.run_until_idle()
        assert driver.executed("down") == 5
        assert driver.acked("numbers") == [1]


class Forked(Bolt):
    """Feeds a tuple of two trees back, and fails one of the two in the same micro-batch."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.both: list[Any] = []
        self.again: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] >= 100:
            self.again.append(tup["n"])
            collector.ack(tup)
            return
        self.both.append(tup)
        if len(self.both) == 2:
            one, other = self.both
            collector.emit([100], anchors=[one, other])
            collector.emit([200], anchors=[one])
            collector.emit([300], anchors=[other])
            collector.fail(one, "no")
            collector.ack(other)
            self.both = []


def test_a_tuple_is_dropped_only_if_all_its_trees_have_ended() -> None:
    builder = TopologyBuilder("forked", Config(max_attempts=1))
    builder.set_spout("numbers", Numbers(2))
    builder.set_bolt("forked", Forked()).global_grouping("numbers").global_grouping("forked", feedback=True)
    engine = LocalEngine(builder.build())
    finish(engine)
    (number,) = engine.topology.tasks("forked")
    task = engine.worker.load(number, engine.stores[engine.lane.dests[number]])
    assert task.bolt.again == [100, 300]
    assert engine.ledger.metrics.of("numbers").acked == 1
    engine.close()


def test_crawler_fetches_each_page_once_although_its_driver_dies_after_each_micro_batch() -> None:
    engine = LocalEngine(crawler(pages=3_000))
    while engine.step() is not None:
        engine.restart()
    check_crawled(engine, 3_000)


def test_crawler_fetches_each_page_once_although_its_tasks_change_after_each_micro_batch() -> None:
    engine = LocalEngine(crawler(pages=1_000))
    while engine.step() is not None:
        engine.restart(crawler(pages=1_000, tasks=2 + engine.last_commit % 3))
    check_crawled(engine, 1_000)


def check_crawled(engine: LocalEngine, pages: int) -> None:
    metrics = engine.ledger.metrics
    assert metrics.of("fetch").executed == metrics.of("frontier").emitted == pages
    assert metrics.of("seeds").acked == 1
    engine.close()
