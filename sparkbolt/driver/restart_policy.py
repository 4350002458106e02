"""The restart policy: when a failed query is started again, and when it is not.

There are at most ``restarts_max`` starts within ``restart_window_secs``; the wait doubles with each of them. Time is an
argument: ``mono_s`` is a monotonic clock, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkbolt.api.config import Config
from sparkbolt.api.reports import QueryFailure

BACKOFF_SECS_MAX = 60.0
"""The longest wait, in seconds."""


@dataclass(frozen=True)
class Restart:
    """One more start."""

    number: int
    """Its number within the window, or among consecutive free starts, from 1."""
    wait_secs: float
    free: bool = False
    """Whether it does not count as one of ``restarts_max``."""


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
    """When the current series of free starts without a commit began, on the monotonic clock."""
    _free: int = 0

    def next(self, mono_s: float, *, free: bool = False, worked: bool = False) -> Restart | None:
        """The start that follows a failure; None if there is no further start.

        Args:
            mono_s: the time of the failure.
            free: as in ``QueryFailure``.
            worked: whether anything was committed since the previous failure.
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
        """When the start happens, and its number, in words."""
        which = "costs no restart" if restart.free else f"{restart.number} of {self.config.restarts_max}"
        return f"in {restart.wait_secs:g} s ({which})"

    def spent(self, failure: QueryFailure) -> str:
        """Why there is no further start after a failure; empty if restarts are not allowed at all."""
        if not self.config.restarts_max:
            return ""
        if failure.free:
            return f" (so for {self.config.outage_patience_secs:g} s, outage_patience_secs)"
        return f" (it failed {self.config.restarts_max} times within {self.config.restart_window_secs:g} s before)"

    def _wait_secs(self, number: int) -> float:
        return float(min(BACKOFF_SECS_MAX, self.config.restart_backoff_secs * 2 ** min(number - 1, 60)))
