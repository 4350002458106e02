"""The host: plans, pacing, time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt import BasicBolt, Bolt, Config, PartitionedSpout, Range, Spout, Topology, TopologyBuilder
from sparkbolt.driver.coordinator import FIRST_RECORDS, GROWTH_AT_FIRST, Coordinator
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.lifecycle import LifecycleEvent
from sparkbolt.driver.machine import perform_all
from sparkbolt.driver.rate import RateController
from sparkbolt.driver.spout_buffer import SPOUT_BUFFER_RECORDS_MAX, BufferedRecord, SpoutBuffer
from sparkbolt.errors import EmitError, EngineError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.wire.acker import gather
from sparkbolt.wire.plan import Record


class Numbers(PartitionedSpout):
    """The numbers from 0 on."""

    outputs = ["number"]

    def __init__(self, count: int = 1000) -> None:
        self.count = count

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("numbers", 0)
        end = min(self.count, start + budget)
        return [Range(0, "numbers", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= self.count

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]


class Keep(Bolt):
    """Holds every tuple for ever."""

    def prepare(self, context: Any) -> None:
        self.kept: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.kept.append(tup)


def keeping(**settings: Any) -> Topology:
    """Numbers that are held."""
    builder = TopologyBuilder("keeping", Config(**settings))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("keep", Keep()).fields_grouping("numbers", ["number"])
    return builder.build()


def run_one(engine: LocalEngine, planned_at_s: float, promoted_at_s: float) -> Promotion:
    """One micro-batch that takes its time."""
    coordinator: Coordinator = engine.coordinator
    plan = perform_all(coordinator.next_plan(int(planned_at_s * 1000), planned_at_s), lambda effect: effect())
    assert plan is not None
    feedback = gather(data for _, data in engine.run(plan))
    coordinator.stage(plan.micro_batch_id, feedback)
    return perform_all(coordinator.promote(plan.micro_batch_id, promoted_at_s), lambda effect: effect())


def test_the_host_returns_the_same_plan_when_asked_again_before_it_is_confirmed() -> None:
    engine = LocalEngine(keeping())
    first = engine.perform_all(engine.coordinator.next_plan(0, 0.0))
    assert engine.perform_all(engine.coordinator.next_plan(999, 1.0)) is first


def test_offer_of_a_spout_is_not_taken_if_it_is_deactivated_meanwhile() -> None:
    engine = LocalEngine(keeping())
    spout = engine.coordinator.spouts["numbers"]
    next_ranges = spout.next_ranges

    def slow(progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        engine.machine.lifecycle.on(LifecycleEvent.DEACTIVATE)
        return next_ranges(progress, budget)

    spout.next_ranges = slow  # type: ignore[method-assign]
    assert engine.perform_all(engine.coordinator.next_plan(0, 0.0)) is None
    assert engine.coordinator.nothing_new_s == 0.0
    spout.next_ranges = next_ranges  # type: ignore[method-assign]
    engine.machine.lifecycle.on(LifecycleEvent.ACTIVATE)
    plan = engine.perform_all(engine.coordinator.next_plan(0, 0.5))
    assert plan is not None
    assert engine.coordinator.reads(plan)
    assert engine.coordinator.nothing_new_s is None


class Offers(Numbers):
    def __init__(self, offer: Any) -> None:
        super().__init__()
        self.offer = offer

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Any:
        return iter(self.offer) if isinstance(self.offer, tuple) else self.offer


def offering(offer: Any) -> LocalEngine:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Offers(offer))
    builder.set_bolt("keep", Keep()).shuffle_grouping("numbers")
    return LocalEngine(builder.build())


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (None, "gave None: expected a list of Range, an empty one if there is nothing to read"),
        ([(0, "a", 0, 5)], r"gave \(0, 'a', 0, 5\) among its ranges: expected Range\(task, source, start, end\)"),
        ([Range(1, "a", 0, 5)], r"task=1.*: it has 1 task\(s\), counted from 0"),
        ([Range(0, "a", 0.5, 5)], "task, start and end are whole numbers"),
        ([Range(0, b"a", 0, 5)], "a source is a str"),
        ([Range(0, "a", 10, 20), Range(0, "a", 0, 10)], "positions of 'a' are planned up to 20 already"),
    ],
)
def test_an_offer_that_cannot_be_planned_is_refused_with_its_spout(offer: Any, said: str) -> None:
    with pytest.raises(EmitError, match=f"^next_ranges of spout 'numbers' gave .*{said}|^next_ranges.* {said}"):
        offering(offer).step()


def test_a_micro_batch_longer_than_the_timeout_fails_nothing_that_it_started() -> None:
    engine = LocalEngine(keeping(message_timeout_secs=30, max_spout_pending=10))
    run_one(engine, 0.0, promoted_at_s=100.0)
    assert engine.ledger.open_trees == 10
    plan = engine.perform_all(engine.coordinator.next_plan(100_000, 100.0))
    assert plan is None or plan.expired == ()


def test_open_tree_times_out_counted_from_its_promotion() -> None:
    engine = LocalEngine(keeping(message_timeout_secs=30, max_spout_pending=10))
    run_one(engine, 0.0, promoted_at_s=100.0)
    early = engine.perform_all(engine.coordinator.next_plan(129_900, 129.9))
    assert early is None
    late = engine.perform_all(engine.coordinator.next_plan(131_100, 131.1))
    assert late is not None
    assert len(late.expired) == 10


def test_a_spout_that_has_reached_max_spout_pending_names_the_task_with_the_oldest_tree() -> None:
    engine = LocalEngine(keeping(max_spout_pending=10), now_ms=60_000)
    assert engine.coordinator.full() == {}
    while engine.step() is not None:
        pass
    assert engine.coordinator.full() == {
        "numbers": "numbers waits: 10 trees are open, and max_spout_pending is reached; the oldest tree has been open "
        "since 1970-01-01 00:01Z, held by keep[0] since micro-batch 0"
    }


def test_no_more_trees_are_open_than_max_spout_pending_allows() -> None:
    engine = LocalEngine(keeping(max_spout_pending=64))
    for second in range(5):
        if engine.perform_all(engine.coordinator.next_plan(second * 1000, float(second))) is None:
            break
        run_one(engine, float(second), float(second))
    assert engine.ledger.open_trees == 64


@given(
    target=st.floats(100, 5000),
    first=st.integers(1, 10**6),
    runs=st.lists(st.tuples(st.floats(1, 60_000), st.floats(0, 1)), max_size=30),
)
def test_a_budget_changes_at_most_twofold_and_never_vanishes(
    target: float, first: int, runs: list[tuple[float, float]]
) -> None:
    rate = RateController(target, first, budget_max=10**7)
    for elapsed_ms, share in runs:
        before = rate.budget
        positions = int(before * share)
        rate.observe(elapsed_ms, positions, positions)
        assert 1 <= rate.budget <= min(10**7, 2 * before)
        assert rate.budget >= positions // 2 or rate.budget == before


def test_a_first_budget_keeps_within_the_limit() -> None:
    assert RateController(1000, 262_144, budget_max=20_000).budget == 20_000


def paced(
    rate: RateController, cost_ms: float, floor_ms: float, micro_batches: int, seed: int = 0, start_ms: float = 3000
) -> list[tuple[int, float]]:
    """Positions and milliseconds of micro-batches, of which each position costs so much; the first starts processes."""
    chance, found = random.Random(seed), []
    for number in range(micro_batches):
        elapsed = (floor_ms + cost_ms * rate.budget) * chance.uniform(0.95, 1.05) + (start_ms if number == 0 else 0)
        found.append((rate.budget, elapsed))
        rate.observe(elapsed, rate.budget, rate.budget)
    return found


@pytest.mark.parametrize("floor_ms", [100, 400])
@pytest.mark.parametrize("cost_ms", [0.05, 2, 20, 100])
def test_micro_batches_take_about_the_target_time_from_the_start(cost_ms: float, floor_ms: float) -> None:
    for seed in range(20):
        found = paced(
            RateController(1000, FIRST_RECORDS, SPOUT_BUFFER_RECORDS_MAX, GROWTH_AT_FIRST), cost_ms, floor_ms, 40, seed
        )
        assert all(elapsed < 2100 for _, elapsed in found[1:]), found
        assert all(650 < elapsed < 1600 for _, elapsed in found[9:]), found


def test_micro_batches_of_a_spout_start_small_and_at_most_the_next_two_are_buffered() -> None:
    builder = TopologyBuilder("t", Config(micro_batch_target_ms=1000))
    builder.set_spout("endless", Endless(), parallelism=3)
    builder.set_bolt("drop", Drop()).shuffle_grouping("endless")
    engine = LocalEngine(builder.build())
    coordinator, sizes, allowed = engine.coordinator, [], [0.0]
    for _ in range(12):
        for spout in engine.spouts.values():
            spout.turn(emits=True)
        waiting = {len(buffer.waiting) for buffer in coordinator.buffers.values()}
        plan = perform_all(coordinator.next_plan(engine.now_ms, engine.now_ms / 1000), lambda effect: effect())
        assert plan is not None
        size = sum(entry.reserved for entry in plan.entries)
        rate = coordinator.rates["endless"]
        allowed.append((rate.budget + rate.outlook) / 3 + 1)
        assert max(waiting) <= max(allowed), "what waited before the pace fell is not sent away"
        assert max(entry.reserved for entry in plan.entries) - min(entry.reserved for entry in plan.entries) <= 1
        sizes.append(size)
        feedback = gather(data for _, data in engine.run(plan))
        coordinator.stage(plan.micro_batch_id, feedback)
        engine.now_ms += 400 + 2 * size + (3000 if len(sizes) == 1 else 0)
        perform_all(coordinator.promote(plan.micro_batch_id, engine.now_ms / 1000), lambda effect: effect())
    assert (sizes[0], rate.growth) == (FIRST_RECORDS, 2.0)
    assert max(sizes) < 600
    assert max(allowed) < 300
    assert all(200 < size < 400 for size in sizes[-4:]), sizes


def record(number: int) -> BufferedRecord:
    return BufferedRecord(Record("default", [number], True), number)


def test_a_spout_buffer_in_a_new_life_repeats_planned_records_and_fails_open_ones() -> None:
    old = SpoutBuffer(1, 100)
    old.waiting.extend([record(0), record(1)])
    assert old.plan(0, 10**6) is not None
    old.planned = []  # promoted, and the trees stay open
    old.waiting.append(record(2))
    assert old.plan(2, 10**6) is not None
    old.waiting.append(record(3))
    old.acks.append("heard of soon")
    old.fails.append("this, too")
    new = SpoutBuffer(1, 100)
    new.take_over(old)
    assert [message_id for _, message_id in new.waiting] == [2, 3]
    assert list(new.acks) == ["heard of soon"]
    assert list(new.fails) == ["this, too", 0, 1]
    assert (new.planned, new.unfinished) == ([], {})


class Drop(BasicBolt):
    """Does nothing."""

    def execute(self, tup: Any, collector: Any) -> None:
        pass


def test_ticks_faster_than_micro_batches_do_not_keep_a_topology_from_finishing() -> None:
    builder = TopologyBuilder("ticking", Config())
    builder.set_spout("numbers", Numbers(count=10))
    builder.set_bolt("drop", Drop(), tick_tuple_freq_secs=0.5).shuffle_grouping("numbers")
    engine = LocalEngine(builder.build())
    coordinator: Coordinator = engine.coordinator
    engine.step()
    assert coordinator.finished
    for _ in range(3):
        plan = perform_all(coordinator.next_plan(engine.now_ms + 1000, 1.0), lambda effect: effect())
        assert plan is not None
        assert plan.ticks
        assert coordinator.drained
        assert coordinator.finished
        engine.now_ms += 1000
        engine.step()


def test_a_topology_with_its_last_records_only_planned_is_not_finished() -> None:
    engine = LocalEngine(keeping())
    assert engine.perform_all(engine.coordinator.next_plan(0, 0.0)) is not None
    assert not engine.coordinator.drained


def test_a_topology_with_a_logged_uncommitted_micro_batch_is_neither_drained_nor_finished() -> None:
    builder = TopologyBuilder("logged", Config())
    builder.set_spout("numbers", Numbers(count=10))
    builder.set_bolt("drop", Drop()).shuffle_grouping("numbers")
    engine = LocalEngine(builder.build())
    coordinator: Coordinator = engine.coordinator
    coordinator.is_read_logged = True
    assert not coordinator.drained
    engine.step()
    assert coordinator.drained
    assert coordinator.finished


class Ticking(BasicBolt):
    """Wants a tick every five seconds."""

    stateless = True

    def execute(self, tup: Any, collector: Any) -> None: ...


def ticking() -> Topology:
    builder = TopologyBuilder("ticking")
    builder.set_spout("numbers", Numbers(0))
    builder.set_bolt("ticking", Ticking(), tick_tuple_freq_secs=5).shuffle_grouping("numbers")
    return builder.build()


def ticks_within(engine: LocalEngine, wall_s: float, mono_s: float, for_s: float, takes_s: float = 0.0) -> list[float]:
    """Seconds on the monotonic clock at which ticks came, while the wall clock goes on from ``wall_s``."""
    found = []
    passed = 0.0
    while passed < for_s:
        plan = engine.perform_all(engine.coordinator.next_plan(int((wall_s + passed) * 1000), mono_s + passed))
        if plan is not None:
            assert plan.ticks == ("ticking",)
            found.append(passed)
            engine.coordinator.stage(plan.micro_batch_id, gather(data for _, data in engine.run(plan)))
            passed += takes_s
            engine.perform_all(engine.coordinator.promote(plan.micro_batch_id, mono_s + passed))
        due = engine.coordinator.next_due_ms(int((wall_s + passed) * 1000), mono_s + passed)
        assert due is not None
        passed += max(0.05, due / 1000 - wall_s - passed)
    return found


def test_ticks_continue_when_the_clock_jumps_forward_and_back() -> None:
    for takes_s in (0.0, 4.0):
        engine = LocalEngine(ticking())
        assert len(ticks_within(engine, 0.0, 0.0, 60.0, takes_s)) in (11, 12)
        assert len(ticks_within(engine, 3660.0, 60.0, 20.0, takes_s)) in (3, 4, 5), "an hour forward is one tick"
        ahead = ticks_within(engine, 80.0, 80.0, 600.0, takes_s)
        assert 100 <= len(ahead) <= 120, "and back again: a tenth slower, until the clock has come up"


def test_plan_time_and_wall_clock_agree_again_after_the_clock_is_set_back_a_little() -> None:
    engine = LocalEngine(ticking())
    ticks_within(engine, 60.0, 0.0, 20.0)
    ticks_within(engine, 70.0, 20.0, 200.0)  # ten seconds back
    before = engine.ledger.last_now_ms
    ticks_within(engine, 270.0, 220.0, 20.0)
    assert before < engine.ledger.last_now_ms <= 290_000, "no second ahead of the wall clock any more"


class Endless(Spout):
    """Emits for ever."""

    outputs = ["n"]

    def open(self, context: Any) -> None:
        self.count = 0

    def next_tuple(self, collector: Any) -> None:
        self.count += 1
        collector.emit([self.count], message_id=self.count)


def _run_out(engine: LocalEngine) -> None:
    while engine.step() is not None:
        pass


def nanoseconds(step: int, end: int) -> LocalEngine:
    builder = TopologyBuilder("nanoseconds", Config(max_attempts=2))
    builder.set_spout("times", Nanoseconds(step, end))
    builder.set_bolt("bolt", FailsOnce()).shuffle_grouping("times")
    return LocalEngine(builder.build())


def test_positions_beyond_48_bits_are_given_again() -> None:
    engine = nanoseconds(10**9, 3 * 10**9)
    while engine.step() is not None:
        engine.restart()
    metrics = engine.ledger.metrics.of("times")
    assert (metrics.acked, metrics.failed, metrics.given_up) == (6, 6, 0)
    assert engine.ledger.progress["times"] == {"times": Nanoseconds.begin + 3 * 10**9}


class FailsOnce(BasicBolt):
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.attempt == 1:
            raise ValueError("not at first")


class Nanoseconds(PartitionedSpout):
    """Records at times that nobody could count to."""

    outputs = ["n"]
    begin = 1_766_000_000_000_000_000

    def __init__(self, step: int, end: int) -> None:
        self.step, self.end = step, end

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        start = progress.get("times", self.begin)
        return [Range(0, "times", start, start + self.step)] if start < self.begin + self.end else []

    def read(self, range_: Range) -> Iterator[tuple[int, list[Any]]]:
        for position in (range_.start, range_.end - 1):
            if range_.start <= position < range_.end:
                yield position, [position]


@pytest.mark.slow
def test_more_positions_than_trees_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected at most 2\*\*40.*Are they nanoseconds\?"):
        nanoseconds(1 << 41, 1 << 41).step()
    with pytest.raises(ValueError, match=r"below 2\*\*63"):
        Range(0, "times", 1, 1 << 63)
    engine = nanoseconds(1 << 40, 1 << 50)
    with pytest.raises(EngineError, match=r"times\[0\] has reserved .* trees .*not nanoseconds"):
        _run_out(engine)
    assert engine.ledger.metrics.of("times").failed > 0
