"""Failures: what is kept of an exception, or of a reason, for which a tuple failed.

Which question it answers: what do a tree's story, the log and a dead letter say of it?
Rule: it stays small, whatever user code has put into it.

Read before: nothing.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from sparkbolt.errors import (
    EmitError,
    FailedException,
    KilledWorkerError,
    Reject,
    ReportedFailedException,
    SparkboltError,
    Unavailable,
)

TRACEBACK_CHARACTERS_MAX = 4000
REASON_CHARACTERS_MAX = 2000
"""An exception's text may hold the whole message; it goes into the ledger's log, into plans and into dead letters."""
UNAVAILABLE = "unavailable"
"""The cause of a tuple that failed since something is away that its bolt depends on (``Unavailable``)."""
REJECTED = "rejected"
"""The cause of a tuple that its bolt does not want to see again (``Reject``)."""
RAISED = frozenset({"exception", "emit", UNAVAILABLE})
"""The causes that tell that a bolt could not do its work. That a bolt fails or rejects a tuple is part of its work."""


@dataclass
class Failure:
    """Why the tuple of one row failed."""

    cause: str
    reason: str
    traceback: str | None = None
    reported: bool = True

    def __post_init__(self) -> None:
        """Shorten the reason, whoever has given it."""
        if len(self.reason) > REASON_CHARACTERS_MAX:
            self.reason = f"{self.reason[: REASON_CHARACTERS_MAX - 3]}..."


def failure_of(error: BaseException) -> Failure:
    """What an exception that left user code means for the tuple."""
    if isinstance(error, ReportedFailedException):
        return Failure("fail", line_of(error), text_of(error))
    if isinstance(error, FailedException):
        return Failure("fail", line_of(error), reported=False)
    if isinstance(error, KilledWorkerError):
        return Failure("killed", str(error))
    if isinstance(error, Unavailable):
        return Failure(UNAVAILABLE, line_of(error) or "it depends on something that is away")
    if isinstance(error, Reject):
        return Failure(REJECTED, line_of(error) or "rejected by the bolt")
    return Failure("emit" if isinstance(error, EmitError) else "exception", line_of(error), text_of(error))


def line_of(error: BaseException) -> str:
    """The exception in a line: its type, unless it is one of ours, and the first line of its text."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  user code may raise anything, here too
        text = "<its text raises>"
    if isinstance(error, SparkboltError):
        return text
    text = text.strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """The exception with the end of its traceback."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return "".join(lines)[-TRACEBACK_CHARACTERS_MAX:]
