"""Throttling: an error that comes a million times is told a few times, and counted every time.

Which question it answers: is this report one too many?
Rule: at most so many reports of one component an interval; the next one that passes says how many did not (Storm's
``topology.max.error.report.per.interval`` and ``topology.error.throttle.interval.secs``). Where none comes, the end of
the interval says it.

Read before: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Throttle:
    """Counts reports by component.

    >>> throttle = Throttle(reports_max=1, interval_secs=10)
    >>> throttle.passes("split", 0.0), throttle.passes("split", 5.0), throttle.passes("split", 11.0)
    (0, None, 1)
    """

    reports_max: int
    interval_secs: float
    _windows: dict[str, list[float]] = field(default_factory=dict)
    """By component: when the interval began, how many reports it has seen, how many were withheld."""

    def passes(self, component: str, mono_s: float) -> int | None:
        """Whether a report may pass: None if not, else how many were withheld since the last that did."""
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
        """Count a report that is not to pass whatever room there is.

        >>> throttle = Throttle(reports_max=5, interval_secs=10)
        >>> throttle.withhold("split", 0.0)
        >>> throttle.passes("split", 1.0)
        1
        """
        self._windows.setdefault(component, [mono_s, 0, 0])[2] += 1

    def ended(self, mono_s: float) -> list[tuple[str, int]]:
        """(component, how many reports were withheld) where an interval is over and nobody has said it yet.

        >>> throttle = Throttle(reports_max=1, interval_secs=10)
        >>> [throttle.passes("split", at) for at in (0.0, 1.0, 2.0)]
        [0, None, None]
        >>> throttle.ended(9.0), throttle.ended(10.5), throttle.ended(11.0)
        ([], [('split', 2)], [])
        """
        found = []
        for component, window in self._windows.items():
            if window[2] and mono_s - window[0] > self.interval_secs:
                found.append((component, int(window[2])))
                window[2] = 0
        return found
