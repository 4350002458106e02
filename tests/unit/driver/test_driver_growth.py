"""How the driver's work grows with what it has to know: counted calls, with made-up verdicts and no worker."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scale_driver import (
    LATER_MS,
    SOURCE,
    WAIT,
    Driver,
    OneLog,
    Sources,
    all_acked,
    all_failed,
    all_open,
    drain,
    fail_all,
    retry_all,
    write_all,
)
from sparkbolt.api.causes import MessageOutcome
from sparkbolt.api.retry import at_once
from sparkbolt.base.ids import tree_key
from sparkbolt.driver import coordinator
from sparkbolt.driver.ledger.ledger import Ledger, SpoutInfo
from sparkbolt.driver.ledger.open_trees import RotatingMap
from sparkbolt.driver.retry_entries import LETTERS_PER_PLAN_MAX
from sparkbolt.driver.spout_buffer import SpoutBuffer
from sparkbolt.wire.acker import judge
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.wire.verdicts import Feedback, Partials
from tests.unit.growth import assert_flat, assert_linear, calls_of


def driver_of(count: int, report=all_acked, **settings) -> Driver:
    """A driver that has read of each source once."""
    driver = Driver(Sources(count), **settings)
    driver.spout.wanted = count
    driver.step(report)
    driver.spout.wanted = 0
    return driver


def test_a_poll_costs_the_same_whatever_sources_there_are() -> None:
    assert_flat(lambda count: calls_of(driver_of(count).poll), 40)


def test_a_poll_costs_the_same_whatever_waits() -> None:
    def poll(count: int) -> int:
        driver = driver_of(count, all_failed, retry=WAIT)
        assert driver.coordinator.retries == 2 * count
        driver.poll()  # the first look sorts what is new
        return calls_of(driver.poll)

    assert_flat(poll, 40)


def test_a_micro_batch_costs_each_of_its_sources_the_same() -> None:
    def micro_batch(count: int) -> int:
        driver = driver_of(count)
        driver.spout.wanted = count
        return calls_of(lambda: driver.step(all_acked))

    assert_linear(micro_batch, 40)


def test_a_micro_batch_of_one_source_costs_the_same_whatever_others_have_open() -> None:
    def micro_batch(count: int) -> int:
        driver = driver_of(count, all_open)
        driver.spout.wanted = 1
        driver.step(all_acked)
        return calls_of(lambda: driver.step(all_acked))

    assert_flat(micro_batch, 40)


def test_what_failed_is_retried_at_the_same_cost_whatever_else_has_failed() -> None:
    def retries(count: int) -> int:
        driver = Driver(OneLog(count), retry=WAIT)
        driver.step(all_failed)
        driver.now_ms += LATER_MS
        return calls_of(lambda: drain(driver))

    assert_linear(retries, 2_000)


def test_dead_letters_are_written_at_the_same_cost_whatever_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # A plan asks for more records than the dead letters that it takes; from five plans on, this too is the same.
    monkeypatch.setattr(coordinator, "RETRIES_PER_PLAN_MAX", LETTERS_PER_PLAN_MAX)

    def letters(count: int) -> int:
        driver = Driver(OneLog(count), max_attempts=1, dead_letters="checkpoint:")
        driver.step(all_failed)
        return calls_of(lambda: drain(driver))

    assert_linear(letters, LETTERS_PER_PLAN_MAX)


@pytest.mark.parametrize(
    ("outcome", "drain"), [(MessageOutcome.RETRY, retry_all), (MessageOutcome.DEAD_LETTER, write_all)]
)
def test_a_queues_failures_cost_the_same_whatever_others_wait(outcome, drain) -> None:
    def cost(count: int) -> int:
        buffer = SpoutBuffer(1, count, keeps=True, remembers=True)
        fail_all(buffer, count, outcome)
        assert calls_of(lambda: (buffer.ready(0), buffer.next_due_ms())) < 20
        return calls_of(lambda: drain(buffer, count))

    assert_linear(cost, 500)


def test_what_is_planned_of_trees_that_timed_out_costs_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger([SpoutInfo("lines", (1,), True, at_once(1))], rotations=2, task_owner=lambda task: ("lines", 0))
    keys = np.array([tree_key(1, place) for place in range(1000)], dtype=np.uint64)
    plan = MicroBatchPlan(0, life=0, now_ms=0, entries=(Entry(1, 0, "log", 0, 1000),))
    ledger.stage(plan, Feedback(judge([Partials(init_keys=keys, init_xors=keys)])))
    ledger.promote(0)
    ledger.expire()
    ledger.expire()
    looked: list[int] = []
    find = RotatingMap.find
    monkeypatch.setattr(RotatingMap, "find", lambda self, keys: looked.append(len(keys)) or find(self, keys))
    assert ledger.expiring(10) == tuple(keys[:10].tolist())
    assert looked == [10]
    looked.clear()
    ledger._trees.remove(keys[:995])
    assert ledger.expiring(10) == tuple(keys[995:].tolist())
    assert ledger.expiring() == tuple(keys[995:].tolist())


def test_a_map_of_progress_never_changes_and_cannot_be_changed() -> None:
    driver = driver_of(3)
    before = driver.ledger.progress[SOURCE]
    kept = dict(before)
    driver.spout.wanted = 3
    driver.step(all_acked)
    assert before == kept
    assert driver.ledger.progress[SOURCE] == {name: 2 * end for name, end in kept.items()}
    with pytest.raises(TypeError):
        before["source-000000"] = 0  # type: ignore[index]


def test_a_plan_is_divided_evenly_and_the_entries_of_a_task_stay_together() -> None:
    driver = Driver(Sources(20))
    driver.spout.wanted = 20
    plan = driver.machine.confirmed(driver.poll())
    shares = driver.machine.planner.shares(plan, 2)
    assert [sum(piece.entry.reserved for piece in share) for share in shares] == [20, 20]
    assert [len({piece.entry.task for piece in share}) for share in shares] == [1, 1]
