"""Attempts: the failed attempts at one message until it is exhausted."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkbolt.api.dead_letters import Attempt, ExhaustedMessage, remember
from sparkbolt.api.reports import FailedTree
from sparkbolt.api.story import root_text


@dataclass(frozen=True)
class MessageAttempts:
    """The attempts at one message so far."""

    attempts: tuple[Attempt, ...] = ()
    left_out: int = 0
    """How many attempts after the first one are not kept."""
    record: str | None = None
    """If an operator has given its dead letter back: its record (``ReturnedRecord``, dumped)."""
    before: int = 0
    """How many attempts had failed when its dead letter was given back."""

    @property
    def count(self) -> int:
        """How many attempts have failed."""
        return len(self.attempts) + self.left_out

    def with_failure(self, tree: FailedTree) -> MessageAttempts:
        """These attempts and one more failed attempt."""
        if not tree.counted:
            return self
        kept = remember(self.attempts, attempt_of(tree, self.before))
        return replace(self, attempts=kept, left_out=self.count + 1 - len(kept))

    def exhausted(self, tree: FailedTree) -> ExhaustedMessage:
        """The report on a message whose last attempt, which is among these, failed."""
        return ExhaustedMessage(self.attempts, self.left_out, tree.end, tree.message_id, self.record)


NO_ATTEMPTS = MessageAttempts()


def attempt_of(tree: FailedTree, before: int = 0) -> Attempt:
    """A failed tree as an attempt at its message, after ``before`` attempts that led to an earlier dead letter."""
    return Attempt(
        number=before + tree.attempt,
        root=root_text(tree.key),
        cause=str(tree.fail.cause),
        reason=tree.fail.reason,
        component=tree.fail.component,
        task=tree.fail.task,
        micro_batch_id=tree.fail.micro_batch_id,
        started_ms=tree.started_ms,
        ended_ms=tree.ended_ms or 0,
        traceback=tree.fail.traceback,
    )
