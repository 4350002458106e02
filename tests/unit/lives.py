"""Lives of one driver, without Spark."""

from __future__ import annotations

from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.settings import ledger_settings


def next_life(old: Coordinator) -> Coordinator:
    """The next life in the same driver, which has the buffers of the one before it."""
    ledger = Ledger.restore(old.ledger.snapshot(), **ledger_settings(old.lane))
    ledger.begin_life(old.life + 1)
    new = Coordinator(old.lane, ledger, old.spouts, now_ms=ledger.last_now_ms, mono_s=0.0)
    new.take_over(old)
    return new
