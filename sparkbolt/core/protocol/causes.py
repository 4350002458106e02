"""Causes: the words for why a tuple failed, or a tree.

Which question it answers: by which words do tasks, the driver and a dead letter know a cause, and which belong
together?

Read before: nothing.
"""

from __future__ import annotations

POSTPONED = "postponed"
"""The cause of a tree that stands for the rest of a range that was too large to be read at once."""
NOT_READ = frozenset({"read", "away", POSTPONED})
"""The causes of trees that stand for a whole range, from their position on."""
AWAY = frozenset({"away", "interrupted", POSTPONED})
"""The causes of trees that failed though nothing was tried: their source was away, or enough was read of it."""
LETTER = "dead letter"
"""The cause of a dead letter's tree that failed since the letter could not be written."""
UNAVAILABLE = "unavailable"
"""The cause of a tuple that failed since something is away that its bolt depends on (``Unavailable``)."""
REJECTED = "rejected"
"""The cause of a tuple that its bolt does not want to see again (``Reject``)."""
RAISED = frozenset({"exception", "emit", UNAVAILABLE})
"""The causes that tell that a bolt could not do its work. That a bolt fails or rejects a tuple is part of its work."""
FINAL = frozenset({"unreadable", REJECTED})
"""The causes after which a message is never given again."""
