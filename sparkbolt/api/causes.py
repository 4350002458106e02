"""Causes and outcomes: why a tuple or a tree failed, and what happens to its message then.

No other module contains their texts. A text of a later version can be read too (``Word.of``).
"""

from __future__ import annotations

from sparkbolt.base.words import Word


class Cause(Word):
    """Why a tuple, a record or a tree failed.

    >>> Cause.TIMEOUT, Cause.TIMEOUT == "timeout", Cause.UNREADABLE in FINAL, "unreadable" in FINAL
    ('timeout', True, True, True)
    """

    EXCEPTION = "exception"
    """A component raised."""
    FAIL = "fail"
    """The bolt failed the tuple (``collector.fail``)."""
    EMIT = "emit"
    """An emitted tuple does not fit the declared outputs."""
    UNAVAILABLE = "unavailable"
    """A service that the bolt depends on is unavailable (``Unavailable``)."""
    REJECTED = "rejected"
    """The bolt rejected the tuple, which is not retried (``Reject``)."""
    KILLED = "killed"
    """The tuple ended the worker process that executed it."""
    STATE = "state"
    """After the tuple, the bolt's state contains a value that cannot be stored."""
    TIMEOUT = "timeout"
    """The tree was not complete within ``message_timeout_secs``."""
    HOPS = "hops"
    """Tuples of the tree were fed back in more than ``max_hops`` micro-batches."""
    UNREADABLE = "unreadable"
    """The record, or its timestamp, can never be read (``BadRecord``)."""
    READ = "read"
    """Reading the range failed at this position; the tree represents all later positions of the range, too."""
    CUT = "cut"
    """Reading the range failed after this record, which may be incomplete."""
    AWAY = "away"
    """Like ``READ``, because the source is unavailable."""
    INTERRUPTED = "interrupted"
    """Like ``CUT``, because the source is unavailable."""
    POSTPONED = "postponed"
    """Like ``READ``, because the range was too large to be read at once: the tree represents the rest of it."""
    MISPLACED = "misplaced"
    """The spout returned the record after records of later positions, or outside the range."""
    HELD = "held"
    """In a transactional topology: the tree was not complete at the end of its micro-batch."""
    EXCLUDED = "excluded"
    """In a transactional topology: the tree has failed in an earlier execution of its micro-batch, whose failure
    replaces this one."""
    LETTER = "dead letter"
    """The tree belongs to a dead letter that could not be written."""


NOT_READ = frozenset({Cause.READ, Cause.AWAY, Cause.POSTPONED})
"""The causes of trees that represent a whole range, from their position on."""
AWAY = frozenset({Cause.AWAY, Cause.INTERRUPTED, Cause.POSTPONED})
"""The causes of failures that do not count as attempts: the source was unavailable, or enough was read."""
NOT_TRIED = "not tried, as others before it had failed: "
"""The beginning of the reason of a tuple that was not tried after others in its frame; their reason follows."""
RAISED = frozenset({Cause.EXCEPTION, Cause.EMIT, Cause.UNAVAILABLE, Cause.UNREADABLE})
"""The causes that show that a component cannot do its work; to fail or to reject a tuple is part of a bolt's work."""
FINAL = frozenset({Cause.UNREADABLE, Cause.REJECTED})
"""The causes after which a message is never retried, except in an outage."""
STOPPING = frozenset({Cause.EXCEPTION, Cause.KILLED, Cause.READ})
"""The causes that stop the topology where ``on_error`` is ``stop``."""


class MessageOutcome(Word):
    """What happens to the message of a failed tree.

    >>> MessageOutcome.GIVEN_UP == "given_up", MessageOutcome.GIVEN_UP in EXHAUSTED
    (True, True)
    """

    RETRY = "retry"
    GIVEN_UP = "given_up"
    """The message is given up, and no dead letter is written."""
    DEAD_LETTER = "dead_letter"
    """The message is given up, and a dead letter will be written."""
    SPOUT = "spout"
    """Its spout is notified (``fail``) and decides."""


_OUTCOMES = {
    MessageOutcome.RETRY: "its message is retried as a new tree, under another root",
    MessageOutcome.GIVEN_UP: "its message was given up after the last attempt",
    MessageOutcome.DEAD_LETTER: "its message was given up after the last attempt and becomes a dead letter",
    MessageOutcome.SPOUT: "its spout was notified",
}
EXHAUSTED = frozenset({MessageOutcome.GIVEN_UP, MessageOutcome.DEAD_LETTER})
"""The outcomes of messages that are given up."""


def outcome_words(outcome: MessageOutcome | None) -> str:
    """Describe what happens to the message of a failed tree; empty for an outcome of a later version.

    >>> outcome_words(MessageOutcome.SPOUT), outcome_words(MessageOutcome.of("sold"))
    ('its spout was notified', '')
    """
    return _OUTCOMES.get(outcome, "") if outcome is not None else ""
