"""Throttling: an error that occurs a million times is reported a few times, and counted every time.

The limits are Storm's ``topology.max.error.report.per.interval`` and ``topology.error.throttle.interval.secs``.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Throttle:
    """Counts reports by component, and decides which of them pass.

    >>> throttle = Throttle(reports_max=1, interval_secs=10)
    >>> throttle.passes("split", 0.0), throttle.passes("split", 5.0), throttle.passes("split", 11.0)
    (0, None, 1)
    """

    reports_max: int
    interval_secs: float
    _windows: dict[str, list[float]] = field(default_factory=dict)
    """By component: when the interval began (seconds), how many reports passed in it, how many were withheld."""

    def passes(self, component: str, mono_s: float) -> int | None:
        """Decide whether a report passes at ``mono_s`` (seconds of a monotonic clock).

        Returns:
            None if it must be withheld; else the number of reports withheld since the last one that passed.
        """
        window = self._windows.setdefault(component, [mono_s, 0, 0])
        if mono_s - window[0] > self.interval_secs:
            window[0], window[1] = mono_s, 0
        if window[1] >= self.reports_max:
            window[2] += 1
            return None
        window[1] += 1
        withheld, window[2] = int(window[2]), 0
        return withheld

    def withhold(self, component: str, mono_s: float) -> None:
        """Count a report as withheld, even if the interval's limit is not reached.

        >>> throttle = Throttle(reports_max=5, interval_secs=10)
        >>> throttle.withhold("split", 0.0)
        >>> throttle.passes("split", 1.0)
        1
        """
        self._windows.setdefault(component, [mono_s, 0, 0])[2] += 1

    def ended(self, mono_s: float) -> list[tuple[str, int]]:
        """Return (component, withheld reports) for each interval that has ended, if they are not reported yet.

        A number is returned once.

        >>> throttle = Throttle(reports_max=1, interval_secs=10)
        >>> [throttle.passes("split", at) for at in (0.0, 1.0, 2.0)]
        [0, None, None]
        >>> throttle.ended(9.0), throttle.ended(10.5), throttle.ended(11.0)
        ([], [('split', 2)], [])
        """
        numbers = []
        for component, window in self._windows.items():
            if window[2] and mono_s - window[0] > self.interval_secs:
                numbers.append((component, int(window[2])))
                window[2] = 0
        return numbers
