"""Restarts: when a query that failed is started again, and when no more.

Which question it answers: how long is waited before the next start, and when is it given up?
Rule: at most ``restarts_max`` starts within ``restart_window_secs``; the wait doubles with each of them. A failure
that every start would meet again, since it is a mistake in the topology or its checkpoint, is not tried again.

Time is an argument: ``mono_s`` is a monotonic clock.
Read before: ``config``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkbolt.core.config import Config
from sparkbolt.errors import (
    CheckpointError,
    ConfigError,
    EmitError,
    EngineError,
    InvalidTopology,
    SparkboltError,
    StateError,
)

BACKOFF_SECS_MAX = 60.0
"""No wait is longer, however often it doubled."""
HOPELESS = (StateError, EmitError, CheckpointError, ConfigError, EngineError, InvalidTopology)
"""Errors of Sparkbolt that a further start would meet again."""


@dataclass(frozen=True)
class QueryFailure:
    """Why a query ended.

    >>> QueryFailure("bolt 'count': attribute 'socket' cannot be kept", StateError).hopeless
    True
    >>> QueryFailure("ConnectionResetError: by peer").hopeless
    False
    """

    text: str
    """For users: what went wrong, and what to do about it."""
    kind: type[SparkboltError] | None = None
    """The type of the error, if it is one of Sparkbolt's."""

    @property
    def hopeless(self) -> bool:
        """Whether every start would meet it again."""
        return self.kind is not None and issubclass(self.kind, HOPELESS)


@dataclass(frozen=True)
class Restart:
    """One more start."""

    number: int
    """The how many-th within the window, from 1."""
    wait_secs: float


@dataclass
class Restarts:
    """The starts of one topology in one driver.

    >>> restarts = Restarts(Config(restarts_max=2))
    >>> restarts.next(100.0)
    Restart(number=1, wait_secs=2.0)
    >>> restarts.next(103.0)
    Restart(number=2, wait_secs=4.0)
    >>> restarts.next(109.0) is None
    True
    >>> restarts.next(109.0 + 600)
    Restart(number=1, wait_secs=2.0)
    """

    config: Config
    _begun_s: list[float] = field(default_factory=list)

    def next(self, mono_s: float) -> Restart | None:
        """The start that follows a failure at ``mono_s``; None if it is given up."""
        since = mono_s - self.config.restart_window_secs
        self._begun_s = [begun for begun in self._begun_s if begun > since]
        if len(self._begun_s) >= self.config.restarts_max:
            return None
        self._begun_s.append(mono_s)
        number = len(self._begun_s)
        return Restart(number, float(min(BACKOFF_SECS_MAX, self.config.restart_backoff_secs * 2 ** (number - 1))))
