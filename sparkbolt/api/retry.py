"""Retries: how often a failed message is retried, and after which wait.

A wait depends only on the policy, on the number of the message's failures and on the tree that failed, so replaying the
ledger's log gives the same waits. Prior art: ``KafkaSpoutRetryExponentialBackoff`` of Storm's Kafka spout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from sparkbolt.api.arguments import SHARE, Check, verify_fields, whole
from sparkbolt.base.codec import ROW
from sparkbolt.base.ids import MASK64, mix64
from sparkbolt.errors import ConfigError

_MS = timedelta(milliseconds=1)
_DOUBLINGS_MAX = 62
"""After this many doublings even a wait of 1 ms is longer than any allowed wait."""


WAIT = Check(
    "a timedelta of at least 0, such as timedelta(seconds=5)",
    lambda value: isinstance(value, timedelta) and value >= timedelta(0),
)


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How failed messages are retried: the ``retry`` of a spout, or of a bolt that starts trees.

    After the first failure a message waits ``min_backoff``, after each further one twice as long, at most
    ``max_backoff``. ``jitter`` shortens each wait at random, so that messages that failed together are not retried
    together.

    >>> policy = RetryPolicy(max_retries=5, min_backoff=timedelta(milliseconds=100), jitter=0)
    >>> [policy.delay_ms(failures, key=0) for failures in (1, 2, 3, 12)]
    [100, 200, 400, 30000]
    >>> policy.allows(5), policy.allows(6)
    (True, False)
    """

    JSON = ROW

    max_retries: Annotated[int, whole(0)] | None = None
    """How often a message is retried after its first attempt; 0: never; None: until it is acked."""
    min_backoff: Annotated[timedelta, WAIT] = timedelta(milliseconds=100)
    """The wait after the first failure; 0: each retry is in the next micro-batch."""
    max_backoff: Annotated[timedelta, WAIT] = timedelta(seconds=30)
    """The longest wait."""
    jitter: Annotated[float, SHARE] = 0.1
    """The largest share of a wait, from 0 to 1, by which it is shortened at random."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ConfigError: a value is invalid.
        """
        verify_fields(self)
        if self.max_backoff < self.min_backoff:
            raise ConfigError(f"max_backoff={self.max_backoff}: expected at least min_backoff, {self.min_backoff}")

    def allows(self, failures: int) -> bool:
        """Whether a message that has failed ``failures`` times, at least once, is retried."""
        return self.max_retries is None or failures <= self.max_retries

    def delay_ms(self, failures: int, key: int) -> int:
        """Return how long a message waits before its retry, in milliseconds.

        Args:
            failures: how often it has failed, at least once.
            key: the key of the tree that failed; the jitter is a hash of it, so the same tree always waits equally
                long.
        """
        longest = self.max_backoff // _MS
        wait = min(longest, (self.min_backoff // _MS) << min(failures - 1, _DOUBLINGS_MAX))
        return wait - int(wait * self.jitter * (mix64(mix64(key) + failures) / (MASK64 + 1)))


Policies = Mapping[str, RetryPolicy | None]
"""The policies by component; None: the spout is notified of a failure, and decides."""


DEFAULT = RetryPolicy(
    max_retries=9, min_backoff=timedelta(milliseconds=500), max_backoff=timedelta(minutes=2), jitter=0.1
)
"""The policy if neither ``retry`` nor ``max_attempts`` is set: 10 attempts, spread over about four minutes."""


def at_once(attempts: int) -> RetryPolicy:
    """Return the policy of the setting ``max_attempts``: this many attempts in all, without waits between them.

    >>> at_once(3).allows(2), at_once(3).allows(3), at_once(3).delay_ms(2, key=0)
    (True, False, 0)
    """
    return RetryPolicy(max_retries=attempts - 1, min_backoff=timedelta(0), max_backoff=timedelta(0), jitter=0)


def refused(policy: RetryPolicy | None, attempt: int) -> bool:
    """Whether a dead letter that goes to bolts has failed too often for attempt number ``attempt``."""
    return policy is not None and attempt > 1 and not policy.allows(attempt - 1)
