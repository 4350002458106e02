"""The life of a tree: which states it has, and what takes it from one to the next.

Which question it answers: what can become of a tree, and who decides it?
Rule 1: this table is the only place that says it. The picture in the documentation is drawn from it, and the simulator
and the random trees of the tests hold the engine to it.
Rule 2: a state is as of the last promotion. What a micro-batch does to a tree counts once that is committed.

Read before: ``words``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkbolt.core.base.words import Word


class TreeState(Word):
    """Where a tree is in its life."""

    BEGUN = "begun"
    """Its root was emitted in a micro-batch that is not promoted yet."""
    OPEN = "open"
    """One of its deliveries was not acked yet, and no task has said that it holds the tuple."""
    HELD = "held"
    """A task has said that it holds one of its tuples."""
    FAILING = "failing"
    """Somebody has failed it, or it has timed out, in a micro-batch that is not promoted yet."""
    ACKED = "acked"
    """Each of its deliveries was acked."""
    FAILED = "failed"
    """A tuple of it was failed."""
    TIMED_OUT = "timed out"
    """It was open for ``message_timeout_secs``."""
    VOID = "void"
    """Its driver died, and with it the record of its ``Spout``: nobody waits for it."""
    RETRIED = "given again"
    """Its message begins another tree, after its wait."""
    SET_ASIDE = "set aside"
    """Its message is given up: it is set aside, or becomes a dead letter."""
    RETURNED = "returned"
    """Its spout was told, and decides."""
    UNKNOWN = "unknown"
    """Nothing is kept of it."""


@dataclass(frozen=True)
class Transition:
    """One step in the life of a tree."""

    before: TreeState | None
    """None: there is no tree yet."""
    after: TreeState
    why: str
    """In a few words."""
    where: str
    """Who decides it: a module of ``sparkbolt.core``, and what of it."""


_STAGE = "worker.stage.Stage.start_trees"
_JUDGE = "protocol.acker.judge"
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
    Transition(TreeState.HELD, TreeState.OPEN, "it holds it no more", _PROMOTE),
    Transition(TreeState.OPEN, TreeState.ACKED, "the rest is acked", _PROMOTE),
    Transition(TreeState.HELD, TreeState.ACKED, "the rest is acked", _PROMOTE),
    Transition(TreeState.OPEN, TreeState.FAILING, "failed, or too old", _EXPIRE),
    Transition(TreeState.HELD, TreeState.FAILING, "failed, or too old", _EXPIRE),
    Transition(TreeState.OPEN, TreeState.VOID, "its driver dies", _LIFE),
    Transition(TreeState.HELD, TreeState.VOID, "its driver dies", _LIFE),
    Transition(TreeState.FAILING, TreeState.FAILED, "a tuple was failed", _PROMOTE),
    Transition(TreeState.FAILING, TreeState.TIMED_OUT, "it was too old", _PROMOTE),
    Transition(TreeState.FAILED, TreeState.RETRIED, "its policy allows it", _DECIDE),
    Transition(TreeState.FAILED, TreeState.SET_ASIDE, "no attempt is left", _DECIDE),
    Transition(TreeState.FAILED, TreeState.RETURNED, "it has no policy", _DECIDE),
    Transition(TreeState.TIMED_OUT, TreeState.RETRIED, "its policy allows it", _DECIDE),
    Transition(TreeState.TIMED_OUT, TreeState.SET_ASIDE, "no attempt is left", _DECIDE),
    Transition(TreeState.TIMED_OUT, TreeState.RETURNED, "it has no policy", _DECIDE),
)
"""Every step that a tree may take. From one promotion to the next it may take several."""

_NEXT: dict[TreeState | None, frozenset[TreeState]] = {
    before: frozenset(step.after for step in TRANSITIONS if step.before == before) for before in (None, *TreeState)
}
ENDS = frozenset(state for state in TreeState if not _NEXT[state])
"""The states in which a tree's life ends; ``UNKNOWN`` is none of its states, but of what is known of it."""


def may_become(before: TreeState | None, *states: TreeState) -> bool:
    """Whether a tree may go through these states, one behind the other; one that stays as it is takes no step.

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
