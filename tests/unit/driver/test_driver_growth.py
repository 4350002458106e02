"""How the driver's work grows with what it has to know: counted calls, with made-up verdicts and no worker."""

from __future__ import annotations

import pytest

from benchmarks.scale_driver import (
    LATER_MS,
    WAIT,
    Driver,
    OneLog,
    Sources,
    all_acked,
    all_failed,
    drain,
)
from tests.unit.growth import assert_flat, assert_linear, calls_of


def driver_of(count: int, report=all_acked, **settings) -> Driver:
    """A driver that has read of each source once."""
    driver = Driver(Sources(count), **settings)
    driver.spout.wanted = count
    driver.step(report)
    driver.spout.wanted = 0
    return driver


def test_a_poll_has_the_same_cost_for_any_number_of_sources() -> None:
    assert_flat(lambda count: calls_of(driver_of(count).poll), 40)


def test_a_poll_has_the_same_cost_for_any_number_of_waiting_retries() -> None:
    def poll(count: int) -> int:
        driver = driver_of(count, all_failed, retry=WAIT)
        assert driver.coordinator.retries == 2 * count
        driver.poll()  # the first look sorts what is new
        return calls_of(driver.poll)

    assert_flat(poll, 40)


def test_a_micro_batch_has_the_same_cost_for_each_of_its_sources() -> None:
    def micro_batch(count: int) -> int:
        driver = driver_of(count)
        driver.spout.wanted = count
        return calls_of(lambda: driver.step(all_acked))

    assert_linear(micro_batch, 40)


@pytest.mark.slow
def test_cost_of_a_retry_does_not_depend_on_other_failures() -> None:
    def retries(count: int) -> int:
        driver = Driver(OneLog(count), retry=WAIT)
        driver.step(all_failed)
        driver.now_ms += LATER_MS
        return calls_of(lambda: drain(driver))

    assert_linear(retries, 2_000)


def test_a_plan_is_divided_evenly_and_the_entries_of_a_task_stay_together() -> None:
    driver = Driver(Sources(20))
    driver.spout.wanted = 20
    plan = driver.machine.confirmed(driver.poll())
    shares = driver.machine.planner.shares(plan, 2)
    assert [sum(piece.entry.reserved for piece in share) for share in shares] == [20, 20]
    assert [len({piece.entry.task for piece in share}) for share in shares] == [1, 1]
