"""Causes and outcomes: why a tuple or a tree failed, and what becomes of the message.

Which question it answers: by which words do tasks, the driver, a dead letter and users know a cause and an outcome, and
which causes belong together?

Rule 1: whoever makes a failure names its cause by a ``Cause``, whoever decides on a message what becomes of it by a
``MessageOutcome``; no other module writes their texts itself.
Rule 2: files and plans hold the texts. What a later version wrote is read too (``Word.of``).

Read before: ``words``. Who decides on outcomes: ``outcomes``, in ``core/driver/ledger``.
"""

from __future__ import annotations

from sparkbolt.core.base.words import Word


class Cause(Word):
    """Why a tuple, a record or a tree failed.

    >>> Cause.TIMEOUT, Cause.TIMEOUT == "timeout", Cause.UNREADABLE in FINAL, "unreadable" in FINAL
    ('timeout', True, True, True)
    """

    EXCEPTION = "exception"
    """A component raised."""
    FAIL = "fail"
    """The bolt said so."""
    EMIT = "emit"
    """What was emitted does not fit the declared outputs."""
    UNAVAILABLE = "unavailable"
    """Something is away that the bolt depends on (``Unavailable``)."""
    REJECTED = "rejected"
    """The bolt does not want to see the tuple again (``Reject``)."""
    KILLED = "killed"
    """It ended its worker process."""
    STATE = "state"
    """What the bolt would keep because of it cannot be kept."""
    TIMEOUT = "timeout"
    """The tree was not complete in time."""
    UNREADABLE = "unreadable"
    """The record, or its timestamp, can never be read (``BadRecord``)."""
    READ = "read"
    """The range broke off here; the tree stands for all positions behind its own, too."""
    CUT = "cut"
    """The range broke off behind this record, which may not be whole."""
    AWAY = "away"
    """As ``READ``, since the source is away."""
    INTERRUPTED = "interrupted"
    """As ``CUT``, since the source is away."""
    POSTPONED = "postponed"
    """As ``READ``, since the range was too large to be read at once: the tree stands for the rest of it."""
    MISPLACED = "misplaced"
    """The record came behind later ones."""
    LETTER = "dead letter"
    """The tree is that of a dead letter, which could not be written."""


NOT_READ = frozenset({Cause.READ, Cause.AWAY, Cause.POSTPONED})
"""The causes of trees that stand for a whole range, from their position on."""
AWAY = frozenset({Cause.AWAY, Cause.INTERRUPTED, Cause.POSTPONED})
"""The causes of trees that failed though nothing was tried: their source was away, or enough was read of it."""
RAISED = frozenset({Cause.EXCEPTION, Cause.EMIT, Cause.UNAVAILABLE})
"""The causes that tell that a bolt could not do its work. That a bolt fails or rejects a tuple is part of its work."""
FINAL = frozenset({Cause.UNREADABLE, Cause.REJECTED})
"""The causes after which a message is never given again."""
STOPPING = frozenset({Cause.EXCEPTION, Cause.KILLED, Cause.READ})
"""The causes that stop the topology where ``on_error`` is ``stop``."""


class MessageOutcome(Word):
    """What becomes of the message of a failed tree.

    >>> MessageOutcome.SET_ASIDE == "set_aside", MessageOutcome.SET_ASIDE in EXHAUSTED
    (True, True)
    """

    RETRY = "retry"
    SET_ASIDE = "set_aside"
    """It was given up, and no dead letter is written."""
    DEAD_LETTER = "dead_letter"
    """It was given up, and its letter is to be written."""
    SPOUT = "spout"
    """Its spout is told, and decides."""


_OUTCOMES = {
    MessageOutcome.RETRY: "its message is given again, under another root",
    MessageOutcome.SET_ASIDE: "its message was set aside after the last attempt",
    MessageOutcome.DEAD_LETTER: "it was given up after the last attempt, and becomes a dead letter",
    MessageOutcome.SPOUT: "its spout was told",
}
EXHAUSTED = frozenset({MessageOutcome.SET_ASIDE, MessageOutcome.DEAD_LETTER})
"""The outcomes of messages that are not given again."""


def outcome_words(outcome: MessageOutcome | None) -> str:
    """What becomes of the message of a failed tree, in words; empty where only a later version has them.

    >>> outcome_words(MessageOutcome.SPOUT), outcome_words(MessageOutcome.of("sold"))
    ('its spout was told', '')
    """
    return _OUTCOMES.get(outcome, "") if outcome is not None else ""
