"""Outcomes: decides what happens to the message of a failed tree.

Rule 1: a message is retried as often as the policy of its component allows. Then it is exhausted, which is always
reported.
Rule 2: a message that was not read was not tried, nor was a message that its bolt could not process (``outages``). A
source that is unavailable uses up no attempt and exhausts no message; there is always a wait before the next read. A
range that is too large to be read at once uses up no attempt either; its rest is due at once.
Rule 3: a dead letter that cannot be written is retried until it is written. If bolts receive a dead letter and refuse
it as often as the policy allows, it is sent once more, to the checkpoint, which accepts it (``refused``).
Rule 4: a record that can never be read (``BadRecord``), or is rejected (``Reject``), is not retried. An unreadable
record is retried while its spout can hardly read anything (``outages``). Records of a spout that reads once are never
retried.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sparkbolt.api.causes import AWAY, FINAL, NOT_READ, Cause, MessageOutcome
from sparkbolt.api.reports import Fail, FailedTree, why
from sparkbolt.api.retry import Policies, RetryPolicy
from sparkbolt.api.story import TreeNotes, message_text, on_the_way, root_text
from sparkbolt.driver.ledger.message_log import Live

AWAY_WAITS = RetryPolicy(max_retries=None, min_backoff=timedelta(seconds=1), max_backoff=timedelta(seconds=30))
"""The waits before an unavailable source is read again, if the policy retries messages at once.

They are needed because each request may take long, and everything else waits for it.
"""
LETTER_WAITS = RetryPolicy(max_retries=None, min_backoff=timedelta(seconds=1), max_backoff=timedelta(seconds=60))
"""The waits before a dead letter that could not be written is retried, until it is written."""


@dataclass(frozen=True)
class SpoutInfo:
    """The properties of a spout, or of a bolt that starts trees, that the ledger needs."""

    component: str
    tasks: tuple[int, ...]
    """The numbers of its tasks in the topology."""
    replayable: bool
    """Whether it is a ``PartitionedSpout``: its records can be read again."""
    retry: RetryPolicy | None
    """How failed messages are retried; None: the spout is notified, and decides."""
    dead_letters: bool = field(default=False, kw_only=True)
    """Whether an exhausted message becomes a dead letter."""
    own: bool = field(default=False, kw_only=True)
    """Whether it is a bolt that starts trees, or an inlet.

    Its tasks number first attempts, keep their emissions in an outbox, and emit them again; the source is
    ``own_source``.
    """


@dataclass(frozen=True)
class Terms:
    """The settings for failed messages; a decision stays as it was made when the settings change later."""

    policies: Policies
    """The retry policy of each component."""
    lettered: frozenset[str] = frozenset()
    """The spouts whose exhausted messages become dead letters."""
    patience_ms: int | None = None
    """For how long, in ms, a bolt that fails everything is only probed (``outages``); None: outages are not
    detected."""


@dataclass(frozen=True)
class Whose:
    """The origin of the message of a failed tree."""

    component: str
    task: int
    """The index of the task that started the tree."""
    source: str | None
    position: int | None
    """None, like ``source``, if the message has no position from which it can be read again."""
    away: int = 0
    """In how many consecutive micro-batches the source was unavailable."""


def decide(
    fail: Fail,
    whose: Whose,
    live: Live | None,
    policy: RetryPolicy | None,
    notes: TreeNotes,
    now_ms: int,
    *,
    lettered: bool = False,
    forgiven_ms: int | None = None,
) -> FailedTree:
    """Decide the outcome of one failed tree.

    Args:
        fail: the fail of the tree.
        whose: the origin of its message.
        live: the entry that read the message; None if there is none.
        policy: the retry policy of the component; None: its spout is notified.
        notes: the known hops of the tree.
        now_ms: the time of the micro-batch that ends the tree, in milliseconds.
        lettered: whether an exhausted message becomes a dead letter.
        forgiven_ms: if the failure does not count because of an outage: how long the message waits, in milliseconds.
    """
    if live is not None and live.entry.letters is not None:
        return _decide_letter(fail, whose, live, policy, notes, now_ms, lettered, forgiven_ms)
    entry = live.entry if live else None
    attempt, end = entry.attempt if entry else 1, None
    if entry is not None and whose.source is not None and entry.positions is None:
        end = entry.end if fail.cause in NOT_READ else None
        if end is None or whose.position != entry.start:
            attempt = 1  # the range is read again from the first position that could not be read: its records are new
    reads_once = entry is not None and entry.once and end is None
    outcome, due_ms, counted = MessageOutcome.SPOUT, None, fail.cause not in AWAY
    if policy is not None:
        away, forgiven = fail.cause in AWAY, forgiven_ms is not None
        again = not reads_once and (away or forgiven or (fail.cause not in FINAL and policy.allows(attempt)))
        counted = not again or not (away or forgiven)
        outcome = MessageOutcome.RETRY if again else MessageOutcome.DEAD_LETTER if lettered else MessageOutcome.GIVEN_UP
        if lettered:
            due_ms = now_ms
        if again:
            waits = policy if policy.max_backoff or not away else AWAY_WAITS
            wait_ms = waits.delay_ms(whose.away + 1 if away else attempt, fail.key)
            wait_ms = forgiven_ms if forgiven_ms is not None else 0 if fail.cause == Cause.POSTPONED else wait_ms
            due_ms = now_ms + wait_ms
    return _failed(
        fail, whose, live, notes, now_ms, attempt=attempt, outcome=outcome, end=end, due_ms=due_ms, counted=counted
    )


def _decide_letter(
    fail: Fail,
    whose: Whose,
    live: Live,
    policy: RetryPolicy | None,
    notes: TreeNotes,
    now_ms: int,
    lettered: bool,
    forgiven_ms: int | None,
) -> FailedTree:
    """Decide the outcome of a dead letter's failed tree: the dead letter is retried.

    It is not retried if the topology was started again without dead letters.
    """
    attempt, again = live.entry.attempt, lettered
    waits = LETTER_WAITS if fail.cause == Cause.LETTER else policy or LETTER_WAITS
    wait_ms = max(forgiven_ms or 0, waits.delay_ms(attempt, fail.key))
    outcome, due_ms = (MessageOutcome.DEAD_LETTER, now_ms + wait_ms) if again else (MessageOutcome.GIVEN_UP, None)
    counted = not (again and forgiven_ms is not None)
    return _failed(
        fail, whose, live, notes, now_ms, attempt=attempt, outcome=outcome, due_ms=due_ms, letter=True, counted=counted
    )


def _failed(
    fail: Fail,
    whose: Whose,
    live: Live | None,
    notes: TreeNotes,
    now_ms: int,
    *,
    attempt: int,
    letter: bool = False,
    **more: Any,
) -> FailedTree:
    hops = tuple(notes.hops)
    message = message_text(whose.component, whose.task, whose.source, whose.position, notes.message_id)
    return FailedTree(
        key=fail.key,
        component=whose.component,
        task=whose.task,
        source=whose.source,
        position=whose.position,
        attempt=attempt,
        fail=fail,
        story=(
            f"root {root_text(fail.key)}; {'dead letter of ' if letter else ''}{message}, attempt {attempt}; "
            f"{on_the_way(hops)}{'' if fail.cause == Cause.TIMEOUT else 'failed '}{why(fail)}"
        ),
        message_id=notes.message_id,
        started_in=live.micro_batch_id if live else None,
        started_ms=live.born_ms if live else None,
        ended_in=fail.micro_batch_id,
        ended_ms=now_ms,
        hops=hops,
        letter=letter,
        **more,
    )
