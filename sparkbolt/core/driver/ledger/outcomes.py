"""Outcomes: what becomes of the message of a tree that failed.

Which question it answers: is the message given again, given up, or is its spout told?
Rule 1: a message is given again as often as the policy of its component allows, and then given up, never in silence.
Rule 2: what nobody has read was not tried; nor was what a bolt could not try (``outages``). A source that is away costs
no attempt, and nothing is given up for it; it is never asked again at once. Nor does a range that is too large to be
read at once, the rest of which is due at once.
Rule 3: a dead letter that cannot be written comes again until it is. One that bolts have got and refuse as often as the
policy allows comes once more, for the checkpoint, which takes it (``refused``).
Rule 4: what can never be read (``BadRecord``), or is rejected (``Reject``), is not tried again, and of a spout that
reads once no record is.

Read before: ``retry``, ``outages``, ``partition_manager``, ``story``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sparkbolt.core.driver.ledger.partition_manager import Live
from sparkbolt.core.model.causes import AWAY, FINAL, NOT_READ, Cause, MessageOutcome
from sparkbolt.core.model.reports import Fail, FailedTree, why
from sparkbolt.core.model.retry import Policies, RetryPolicy
from sparkbolt.core.model.story import TreeNotes, message_text, on_the_way, root_text

AWAY_WAITS = RetryPolicy(max_retries=None, min_backoff=timedelta(seconds=1), max_backoff=timedelta(seconds=30))
"""How a source that is away is asked again where messages are given again at once: each time may take its time, and
everything else waits meanwhile."""
LETTER_WAITS = RetryPolicy(max_retries=None, min_backoff=timedelta(seconds=1), max_backoff=timedelta(seconds=60))
"""How a letter that could not be written comes again: until it is."""


@dataclass(frozen=True)
class SpoutInfo:
    """What the ledger must know of a spout."""

    component: str
    tasks: tuple[int, ...]
    """The numbers of its tasks in the topology."""
    replayable: bool
    """Whether it is a ``PartitionedSpout``: its records can be read again."""
    retry: RetryPolicy | None
    """How what failed is given again; None: its spout is told, and decides."""
    dead_letters: bool = field(default=False, kw_only=True)
    """Whether a message that is given up becomes a dead letter."""
    own: bool = field(default=False, kw_only=True)
    """Whether it is a bolt that starts trees: its tasks give out the sequences of first attempts themselves, keep what
    they emitted, and give it again; the source is ``own_source``."""


@dataclass(frozen=True)
class Terms:
    """What is done with messages whose trees fail: what was decided on some terms stays decided when they change."""

    policies: Policies
    """How what fails is given again."""
    lettered: frozenset[str] = frozenset()
    """The spouts whose messages become dead letters when they are given up."""
    patience_ms: int | None = None
    """For how long a bolt that fails everything is only probed (``outages``); None: nobody looks for outages."""


@dataclass(frozen=True)
class Whose:
    """Whose message a failed tree stands for."""

    component: str
    task: int
    """The index of the task that started the tree."""
    source: str | None
    position: int | None
    """None, as ``source``, where it cannot be given again from a place."""
    away: int = 0
    """How many micro-batches in a row have found the source away."""


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
    """The fate of one failed tree.

    Args:
        fail: who failed it.
        whose: its message.
        live: the entry that read the message, where one did.
        policy: that of the component; None: its spout is told.
        notes: what is known of the tree's way.
        now_ms: the time of the micro-batch that ends the tree.
        lettered: whether what is given up becomes a dead letter.
        forgiven_ms: where the failure costs no attempt, for an outage of a bolt, how long the message waits.
    """
    if live is not None and live.entry.letters is not None:
        return _decide_letter(fail, whose, live, policy, notes, now_ms, lettered, forgiven_ms)
    entry = live.entry if live else None
    attempt, end = entry.attempt if entry else 1, None
    if entry is not None and whose.source is not None and entry.positions is None:
        end = entry.end if fail.cause in NOT_READ else None
        if end is None or whose.position != entry.start:
            attempt = 1  # a range is read again from where nothing could be read: its records are new
    reads_once = entry is not None and entry.once and end is None
    fate, due_ms, counted = MessageOutcome.SPOUT, None, fail.cause not in AWAY
    if policy is not None:
        away, forgiven = fail.cause in AWAY, forgiven_ms is not None
        again = not reads_once and fail.cause not in FINAL and (away or forgiven or policy.allows(attempt))
        counted = not again or not (away or forgiven)
        fate = MessageOutcome.RETRY if again else MessageOutcome.DEAD_LETTER if lettered else MessageOutcome.SET_ASIDE
        if lettered:
            due_ms = now_ms
        if again:
            waits = policy if policy.max_backoff or not away else AWAY_WAITS
            wait_ms = waits.delay_ms(whose.away + 1 if away else attempt, fail.key)
            wait_ms = forgiven_ms if forgiven_ms is not None else 0 if fail.cause == Cause.POSTPONED else wait_ms
            due_ms = now_ms + wait_ms
    return _failed(
        fail, whose, live, notes, now_ms, attempt=attempt, fate=fate, end=end, due_ms=due_ms, counted=counted
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
    """The fate of a dead letter's tree that failed: the letter comes again.

    Unless the topology was started again without dead letters.
    """
    attempt, again = live.entry.attempt, lettered
    waits = LETTER_WAITS if fail.cause == Cause.LETTER else policy or LETTER_WAITS
    wait_ms = max(forgiven_ms or 0, waits.delay_ms(attempt, fail.key))
    fate, due_ms = (MessageOutcome.DEAD_LETTER, now_ms + wait_ms) if again else (MessageOutcome.SET_ASIDE, None)
    counted = not (again and forgiven_ms is not None)
    return _failed(
        fail, whose, live, notes, now_ms, attempt=attempt, fate=fate, due_ms=due_ms, letter=True, counted=counted
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
