"""Lives of trees: checks that each tree takes only steps that the table of its life allows."""

from __future__ import annotations

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.tree_life import TreeState, may_become
from sparkbolt.base.ids import split_key
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.sim.checkers.base import Checker, Facts
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.driver import Driver

_OF_OUTCOMES = {
    MessageOutcome.RETRY: TreeState.RETRIED,
    MessageOutcome.GIVEN_UP: TreeState.GIVEN_UP,
    MessageOutcome.DEAD_LETTER: TreeState.GIVEN_UP,
    MessageOutcome.SPOUT: TreeState.RETURNED,
}


class LivesFollowTheTable(Checker):
    """A tree takes only steps that the table allows: a tree that has ended stays ended."""

    promise = "a tree ends once"

    def __init__(self, facts: Facts) -> None:
        """Start without trees."""
        super().__init__(facts)
        self._states: dict[int, TreeState] = {}
        """States by key, of the trees that were not acked in the micro-batch in which they began."""

    def life_began(self, driver: Driver) -> None:
        """Trees of a dead life's ``Spout`` records are void."""
        void = dict(driver.ledger.void)
        for key, state in self._states.items():
            task, sequence = split_key(key)
            if state in (TreeState.OPEN, TreeState.HELD) and sequence < void.get(task, 0):
                self._states[key] = TreeState.VOID

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Move each tree that the promotion names, or that is open, to its next state."""
        for tree in (*promotion.failed, *promotion.letters_failed):
            failed = TreeState.TIMED_OUT if tree.fail.cause == Cause.TIMEOUT else TreeState.FAILED
            outcome = _OF_OUTCOMES.get(tree.outcome)
            self._move(tree.key, TreeState.FAILING, failed, *(() if outcome is None else (outcome,)))
        for first, last, _ in (*promotion.acked, *promotion.letters):
            if first == last and first in self._states:  # a longer range names trees that began just now
                self._move(first, TreeState.ACKED)
        for key in driver.ledger.open_keys(driver.ledger.open_trees):
            held = bool(driver.ledger.holders_of([key]))
            self._move(key, TreeState.HELD if held else TreeState.OPEN)

    def _move(self, key: int, *states: TreeState) -> None:
        before = self._states.get(key, TreeState.BEGUN)
        if not may_become(before, *states):
            self.broken(f"{self.facts.where(key)} was {before} and became {', then '.join(states)}", key)
        self._states[key] = states[-1]
