"""The life of a tree: its states, and the transitions between them.

This table is the only definition: the drawing in the documentation is generated from it, and the simulator and the
tests with random trees check the engine against it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkbolt.base.words import Word


class TreeState(Word):
    """The state of a tree."""

    BEGUN = "begun"
    """Its root was emitted in a micro-batch that is not promoted yet."""
    OPEN = "open"
    """One of its deliveries is not acked yet, and no task has reported that it holds the tuple."""
    HELD = "held"
    """A task has reported that it holds one of its tuples."""
    FAILING = "failing"
    """One of its tuples was failed, or it timed out, in a micro-batch that is not promoted yet."""
    ACKED = "acked"
    """All its deliveries were acked."""
    FAILED = "failed"
    """A tuple of it was failed."""
    TIMED_OUT = "timed out"
    """It was open for ``message_timeout_secs``."""
    VOID = "void"
    """Its driver died, and the message of its ``Spout`` was lost with it: its result has no effect."""
    RETRIED = "given again"
    """Its message is retried: it starts another tree, after a wait."""
    GIVEN_UP = "given up"
    """Its message is given up; it becomes a dead letter if its spout has ``dead_letters``."""
    RETURNED = "returned"
    """Its spout is notified, and decides."""
    UNKNOWN = "unknown"
    """Nothing is stored about it."""


@dataclass(frozen=True)
class Transition:
    """One step in the life of a tree."""

    before: TreeState | None
    """None: the tree does not exist yet."""
    after: TreeState
    why: str
    """The reason, in a few words."""
    where: str
    """The code that decides it, as a path below ``sparkbolt``."""


_STAGE = "worker.stage.Stage.start_trees"
_JUDGE = "wire.acker.judge"
_PROMOTE = "driver.ledger.ledger.Ledger.promote"
_EXPIRE = "driver.ledger.ledger.Ledger.expire"
_LIFE = "driver.ledger.ledger.Ledger.begin_life"
_DECIDE = "driver.ledger.outcomes.decide"

TRANSITIONS = (
    Transition(None, TreeState.BEGUN, "its root is emitted", _STAGE),
    Transition(TreeState.BEGUN, TreeState.ACKED, "every delivery is acked", _JUDGE),
    Transition(TreeState.BEGUN, TreeState.OPEN, "a delivery is not acked", _JUDGE),
    Transition(TreeState.BEGUN, TreeState.HELD, "a task holds a tuple", _JUDGE),
    Transition(TreeState.BEGUN, TreeState.FAILING, "a tuple is failed", _JUDGE),
    Transition(TreeState.OPEN, TreeState.HELD, "a task holds a tuple", _PROMOTE),
    Transition(TreeState.OPEN, TreeState.ACKED, "the rest is acked", _PROMOTE),
    Transition(TreeState.HELD, TreeState.ACKED, "the rest is acked", _PROMOTE),
    Transition(TreeState.OPEN, TreeState.FAILING, "failed, or too old", _EXPIRE),
    Transition(TreeState.HELD, TreeState.FAILING, "failed, or too old", _EXPIRE),
    Transition(TreeState.OPEN, TreeState.VOID, "its driver dies", _LIFE),
    Transition(TreeState.HELD, TreeState.VOID, "its driver dies", _LIFE),
    Transition(TreeState.FAILING, TreeState.FAILED, "a tuple was failed", _PROMOTE),
    Transition(TreeState.FAILING, TreeState.TIMED_OUT, "it was too old", _PROMOTE),
    Transition(TreeState.FAILED, TreeState.RETRIED, "its policy allows it", _DECIDE),
    Transition(TreeState.FAILED, TreeState.GIVEN_UP, "no attempt is left", _DECIDE),
    Transition(TreeState.FAILED, TreeState.RETURNED, "it has no policy", _DECIDE),
    Transition(TreeState.TIMED_OUT, TreeState.RETRIED, "its policy allows it", _DECIDE),
    Transition(TreeState.TIMED_OUT, TreeState.GIVEN_UP, "no attempt is left", _DECIDE),
    Transition(TreeState.TIMED_OUT, TreeState.RETURNED, "it has no policy", _DECIDE),
)
"""All allowed transitions. Between two promotions a tree may make several."""

_NEXT: dict[TreeState | None, frozenset[TreeState]] = {
    before: frozenset(step.after for step in TRANSITIONS if step.before == before) for before in (None, *TreeState)
}
ENDS = frozenset(state for state in TreeState if not _NEXT[state])
"""The states without a transition: a tree's life ends in them. ``UNKNOWN`` is not a state of a tree, but of a story."""


def may_become(before: TreeState | None, *states: TreeState) -> bool:
    """Whether a tree may go through these states in order; a repeated state needs no transition.

    >>> may_become(TreeState.BEGUN, TreeState.FAILING, TreeState.FAILED, TreeState.RETRIED)
    True
    >>> may_become(TreeState.ACKED, TreeState.OPEN), may_become(TreeState.OPEN, TreeState.OPEN, TreeState.ACKED)
    (False, True)
    """
    for after in states:
        if after != before and after not in _NEXT[before]:
            return False
        before = after
    return True
