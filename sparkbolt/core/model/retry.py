"""Retries: how often a message that failed is given again, and after which wait.

Which question it answers: after so many failures, is there another attempt, and when?
Rule 1: a wait depends on the policy, on how often the message has failed, and on the tree that failed, and on nothing
else: replaying the ledger's log gives the same waits.
Rule 2: a wait holds up nobody but the message that failed.
Rule 3: what nobody has said anything of is tried for minutes (``DEFAULT``): most dependencies that go away come back.

Prior art: ``KafkaSpoutRetryExponentialBackoff`` of Storm's Kafka spout, whose waits double from the first failure on.
Read before: ``ids``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sparkbolt.core.base.ids import MASK64, mix64
from sparkbolt.errors import ConfigError

_MS = timedelta(milliseconds=1)
_DOUBLINGS_MAX = 62
"""After so many even a millisecond has become longer than any wait that is allowed."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How a message that failed is given again: the ``retry`` of a spout, or of a bolt that starts trees.

    The first failure waits ``min_backoff``, each further one twice as long, at most ``max_backoff``; ``jitter``
    shortens each wait by chance, so that what failed together does not come back together.

    >>> policy = RetryPolicy(max_retries=5, min_backoff=timedelta(milliseconds=100), jitter=0)
    >>> [policy.delay_ms(failures, key=0) for failures in (1, 2, 3, 12)]
    [100, 200, 400, 30000]
    >>> policy.allows(5), policy.allows(6)
    (True, False)
    """

    max_retries: int | None = None
    """How often a message is given again after its first attempt; 0: never; None: until it is acked."""
    min_backoff: timedelta = timedelta(milliseconds=100)
    """The wait after the first failure; 0: it is given again with the next micro-batch, each time."""
    max_backoff: timedelta = timedelta(seconds=30)
    """The longest wait."""
    jitter: float = 0.1
    """The share of a wait, from 0 to 1, that chance may take away."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ConfigError: a number is out of range; the message names it.
        """
        retries, jitter = self.max_retries, self.jitter
        if retries is not None and not _is_number(retries, int, least=0):
            raise ConfigError(f"RetryPolicy: max_retries is {retries!r}, expected an int of at least 0, or None")
        for name in ("min_backoff", "max_backoff"):
            value = getattr(self, name)
            if not isinstance(value, timedelta) or value < timedelta(0):
                raise ConfigError(
                    f"RetryPolicy: {name} is {value!r}, expected a timedelta of at least 0: did you mean "
                    "timedelta(seconds=...)?"
                )
        if self.max_backoff < self.min_backoff:
            raise ConfigError(
                f"RetryPolicy: max_backoff is {self.max_backoff}, expected at least min_backoff, {self.min_backoff}"
            )
        if not _is_number(jitter, (int, float), least=0) or jitter > 1:
            raise ConfigError(f"RetryPolicy: jitter is {jitter!r}, expected a share from 0 to 1")

    def allows(self, failures: int) -> bool:
        """Whether a message that has failed so often, at least once, is given again."""
        return self.max_retries is None or failures <= self.max_retries

    def delay_ms(self, failures: int, key: int) -> int:
        """How long a message waits, in milliseconds, before it is given again.

        Args:
            failures: how often it has failed, at least once.
            key: of the tree that failed; chance is drawn from it, so the same tree always waits as long.
        """
        longest = self.max_backoff // _MS
        wait = min(longest, (self.min_backoff // _MS) << min(failures - 1, _DOUBLINGS_MAX))
        return wait - int(wait * self.jitter * (mix64(mix64(key) + failures) / (MASK64 + 1)))

    def to_json(self) -> list[Any]:
        """The policy as a list of numbers; waits are in microseconds."""
        one = timedelta(microseconds=1)
        return [self.max_retries, self.min_backoff // one, self.max_backoff // one, self.jitter]

    @classmethod
    def from_json(cls, value: list[Any]) -> RetryPolicy:
        """The inverse of ``to_json``."""
        retries, least, longest, jitter = value
        return cls(
            max_retries=retries,
            min_backoff=timedelta(microseconds=least),
            max_backoff=timedelta(microseconds=longest),
            jitter=jitter,
        )


def _is_number(value: object, kind: Any, least: int) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and value >= least


Policies = Mapping[str, RetryPolicy | None]
"""By component; None: its spout is told of a failure, and decides."""


DEFAULT = RetryPolicy(
    max_retries=9, min_backoff=timedelta(milliseconds=500), max_backoff=timedelta(minutes=2), jitter=0.1
)
"""Where neither ``retry`` nor ``max_attempts`` says anything: 10 attempts, spread over about four minutes."""


def at_once(attempts: int) -> RetryPolicy:
    """What the setting ``max_attempts`` says: so many attempts in all, without a wait between them.

    >>> at_once(3).allows(2), at_once(3).allows(3), at_once(3).delay_ms(2, key=0)
    (True, False, 0)
    """
    return RetryPolicy(max_retries=attempts - 1, min_backoff=timedelta(0), max_backoff=timedelta(0), jitter=0)


def refused(policy: RetryPolicy | None, attempt: int) -> bool:
    """Whether a dead letter that goes to bolts was refused too often for another ``attempt`` of that."""
    return policy is not None and attempt > 1 and not policy.allows(attempt - 1)
