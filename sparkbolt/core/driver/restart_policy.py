"""The restart policy: when a query that failed is started again, and when no more.

Which question it answers: how long is waited before the next start, and when is it given up?
Rule: at most ``restarts_max`` starts within ``restart_window_secs``; the wait doubles with each of them. A failure
that every start would meet again, since it is a mistake in the topology or its checkpoint, is not tried again. One that
came before anything of the topology was asked, on a machine that has too much to do, or since a spout's source is away,
is no start of those; it is tried again for ``outage_patience_secs``.

Time is an argument: ``mono_s`` is a monotonic clock.
Read before: ``config``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkbolt.core.model.config import Config
from sparkbolt.errors import (
    CheckpointError,
    ConfigError,
    EmitError,
    EngineError,
    InvalidTopology,
    SparkboltError,
    SpoutAwayError,
    StateError,
    WorkerStartError,
)

BACKOFF_SECS_MAX = 60.0
"""No wait is longer, however often it doubled."""
HOPELESS = (StateError, EmitError, CheckpointError, ConfigError, EngineError, InvalidTopology)
"""Errors of Sparkbolt that a further start would meet again."""
FREE = (WorkerStartError, SpoutAwayError)
"""Errors that come before anything of the topology has run."""


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

    @property
    def free(self) -> bool:
        """Whether nothing of the topology has run, so that it costs none of its restarts."""
        return self.kind is not None and issubclass(self.kind, FREE)


@dataclass(frozen=True)
class Restart:
    """One more start."""

    number: int
    """The how many-th within the window, or of the free ones in a row, from 1."""
    wait_secs: float
    free: bool = False
    """Whether it counts for nothing."""


@dataclass
class Restarts:
    """The starts of one topology in one driver.

    >>> restarts = Restarts(Config(restarts_max=2))
    >>> restarts.next(100.0)
    Restart(number=1, wait_secs=2.0, free=False)
    >>> restarts.next(103.0)
    Restart(number=2, wait_secs=4.0, free=False)
    >>> restarts.next(104.0, free=True)
    Restart(number=1, wait_secs=2.0, free=True)
    >>> restarts.next(109.0) is None
    True
    >>> restarts.next(109.0 + 600)
    Restart(number=1, wait_secs=2.0, free=False)
    """

    config: Config
    _begun_s: list[float] = field(default_factory=list)
    _free_since_s: float | None = None
    """When the free starts began that follow one another without any success."""
    _free: int = 0

    def next(self, mono_s: float, *, free: bool = False, worked: bool = False) -> Restart | None:
        """The start that follows a failure; None if it is given up.

        Args:
            mono_s: when it failed.
            free: as of ``QueryFailure``.
            worked: whether something was committed since the failure before.
        """
        if worked or self._free_since_s is None:
            self._free_since_s, self._free = mono_s, 0
        if free and self.config.restarts_max:
            if mono_s - self._free_since_s >= self.config.outage_patience_secs:
                return None
            self._free += 1
            return Restart(self._free, self._wait_secs(self._free), free=True)
        since = mono_s - self.config.restart_window_secs
        self._begun_s = [begun for begun in self._begun_s if begun > since]
        if len(self._begun_s) >= self.config.restarts_max:
            return None
        self._begun_s.append(mono_s)
        number = len(self._begun_s)
        return Restart(number, self._wait_secs(number))

    def when(self, restart: Restart) -> str:
        """When a start is, and the how many-th it is."""
        which = "costs no restart" if restart.free else f"{restart.number} of {self.config.restarts_max}"
        return f"in {restart.wait_secs:g} s ({which})"

    def spent(self, failure: QueryFailure) -> str:
        """Why there is no further start after a failure; empty if there never was to be one."""
        if not self.config.restarts_max:
            return ""
        if failure.free:
            return f" (so for {self.config.outage_patience_secs:g} s, outage_patience_secs)"
        return f" (it failed {self.config.restarts_max} times within {self.config.restart_window_secs:g} s before)"

    def _wait_secs(self, number: int) -> float:
        return float(min(BACKOFF_SECS_MAX, self.config.restart_backoff_secs * 2 ** min(number - 1, 60)))
