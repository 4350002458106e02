"""Commits: checks the rows that leave the topology through its committers against those of the committed execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkbolt.api.committers import txid_of
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.sim.checkers.base import Checker, Facts
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.wire.plan import MicroBatchPlan


class CommitsAreExact(Checker):
    """A committer gets the rows of each micro-batch after its commit and before its promotion, once and in order."""

    promise = "each micro-batch is committed outside once"

    def __init__(self, facts: Facts) -> None:
        """Start without rows."""
        super().__init__(facts)
        self._due: dict[tuple[int, str], int] = {}
        """By txid and component: how many rows must arrive."""
        self._last: dict[str, tuple[int, int]] = {}
        """By component: the last txid that arrived, and the number of its life."""
        self._life = 0

    def life_began(self, driver: Driver) -> None:
        """Count the lives: only a new one may bring a txid again."""
        self._life += 1

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Note the rows that must arrive."""
        for part in outcome.kept:
            place = txid_of(plan.micro_batch_id), part.component
            self._due[place] = self._due.get(place, 0) + len(part.rows)

    def wrote(self, component: str, txid: int, rows: Sequence[Any]) -> None:
        """Check the rows that a committer gets."""
        last, life = self._last.get(component, (0, 0))
        if txid > txid_of(self.facts.committed):
            self.broken(f"{component!r} got the rows of txid {txid} before it was committed", component=component)
        elif txid < last or (txid == last and life == self._life):
            self.broken(f"{component!r} got the rows of txid {txid} after those of {last}", component=component)
        elif len(rows) != self._due.get((txid, component), 0 if txid > last else len(rows)):
            due = self._due.get((txid, component), 0)
            self.broken(f"{component!r} got {len(rows)} rows of txid {txid}, expected {due}", component=component)
        self._last[component] = txid, self._life
        self._due.pop((txid, component), None)

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Check that nothing is promoted before it is outside."""
        for txid, component in self._due:
            if txid <= txid_of(promotion.micro_batch_id):
                self.broken(
                    f"micro-batch {promotion.micro_batch_id} is promoted, and {component!r} has not got the rows of "
                    f"txid {txid}",
                    component=component,
                )

    def ended(self, driver: Driver) -> None:
        """Check that nothing is left."""
        for txid, component in self._due:
            self.broken(f"{component!r} has never got the rows of txid {txid}", component=component)
