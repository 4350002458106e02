"""Decides when to connect again after a failure, and how often to log the reason."""

from __future__ import annotations

import logging
from time import monotonic

from sparkbolt.base.throttle import Throttle

log = logging.getLogger(__name__)

BACKOFF_SECS_MIN = 0.1
TELL_SECS = 60.0
"""The same problem is logged once per this many seconds; the next line counts the suppressed ones."""


class Backoff:
    """The pauses between attempts to connect: 0.1 s, then twice as long each time."""

    def __init__(self, name: str, secs_max: float) -> None:
        """Begin with the shortest pause.

        Args:
            name: the name of the server in the log.
            secs_max: the longest pause.
        """
        self._name, self._secs_max = name, secs_max
        self._throttle = Throttle(1, TELL_SECS)
        self.secs = BACKOFF_SECS_MIN
        """The next pause."""

    def failed(self, reason: str) -> float:
        """Log why an attempt failed or a connection was lost; return the pause before the next attempt."""
        pause, self.secs = self.secs, min(2 * self.secs, self._secs_max)
        suppressed = self._throttle.passes(reason, monotonic())
        if suppressed is not None:
            more = f" (and {suppressed} times before)" if suppressed else ""
            log.warning("%s: %s%s; next attempt in %.1f s", self._name, reason, more, pause)
        return pause

    def connected(self) -> None:
        """Begin with the shortest pause again."""
        self.secs = BACKOFF_SECS_MIN
