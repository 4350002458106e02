"""Lives of one driver, without Spark."""

from __future__ import annotations

from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.ledger.ledger_settings import ledger_settings
from sparkbolt.driver.machine import perform_all
from sparkbolt.wire.plan import MicroBatchPlan
from tests.ledgers import restored


def next_life(old: Coordinator) -> Coordinator:
    """The next life in the same driver, which has the buffers of the one before it."""
    ledger = restored(old.ledger.snapshot(), **ledger_settings(old.lane))
    ledger.begin_life(old.life + 1)
    new = Coordinator(old.lane, ledger, old.spouts, old.lifecycle, now_ms=ledger.last_now_ms, mono_s=0.0)
    new.take_over(old)
    return new


def next_plan(coordinator: Coordinator, now_ms: int) -> MicroBatchPlan:
    """The plan of the next micro-batch, which there is."""
    plan = perform_all(coordinator.next_plan(now_ms, 0.0), lambda effect: effect())
    assert plan is not None
    return plan
