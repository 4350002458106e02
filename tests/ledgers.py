"""Ledgers as a restart makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_log import load_snapshot
from sparkbolt.driver.ledger.outcomes import SpoutInfo


def restored(
    snapshot: bytes, spouts: Sequence[SpoutInfo], *, name: str = "a ledger snapshot", **settings: Any
) -> Ledger:
    """The ledger of a snapshot."""
    return Ledger(spouts, state=load_snapshot(snapshot, name), **settings)
