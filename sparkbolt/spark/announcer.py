"""The announcer: which errors of user code reach the log, and how often.

Which question it answers: what does somebody read who looks at the log alone?
Rule: nothing is given up, and no source is away, in silence; what comes by the thousands is told a few times an
interval, with how many were not shown.

Read before: ``core.throttle``.
"""

from __future__ import annotations

import logging
import threading
import time

from sparkbolt.core.acker import Report
from sparkbolt.core.config import Config
from sparkbolt.core.failures import line_of
from sparkbolt.core.fates import POSTPONED, FailedTree
from sparkbolt.core.promotion import Promotion
from sparkbolt.core.throttle import Throttle

log = logging.getLogger("sparkbolt")


class Announcer:
    """Logs what a topology has to tell; may be called from any thread."""

    def __init__(self, config: Config) -> None:
        """As often as the topology's configuration allows."""
        interval_secs = config.error_throttle_interval_secs
        self._lock = threading.Lock()
        self._reports = Throttle(config.max_error_report_per_interval, interval_secs)
        self._absences = Throttle(1, interval_secs)

    def report(self, report: Report) -> None:
        """Somebody reported an error."""
        self._log_some(logging.WARNING, report.component, f"{report.component}[{report.task}] reported: {report.text}")

    def promotion(self, promotion: Promotion) -> None:
        """What has become known with a promotion."""
        for report in promotion.reports:
            self.report(report)
        for tree in promotion.failed:
            if tree.fate == "set_aside":
                log.error("set aside after %d attempt(s): %s", tree.attempt, tree.story)
            if tree.fate == "dead_letter":
                text = f"given up after {tree.attempt} attempt(s), a dead letter is written: {tree.story}"
                self._log_some(logging.WARNING, f"given up by {tree.component}", text)
            if tree.fail.cause == "away":
                self._away(tree)
            if tree.fail.cause == POSTPONED:
                text = (
                    f"{tree.component}: {tree.fail.reason}; that is with the next micro-batch, and nothing new before"
                )
                self._log_some(logging.WARNING, f"postponed by {tree.component}", text)
        for tree in promotion.letters_failed:
            text = f"no dead letter yet, the next try is in {_wait_secs(tree):.1f} s: {tree.story}"
            self._log_some(logging.ERROR, f"dead letters of {tree.component}", text)

    def listener_raised(self, listener: object, error: BaseException) -> None:
        """A listener of ``on_micro_batch`` raised."""
        name = getattr(listener, "__qualname__", type(listener).__qualname__)
        text = f"listener {name} raised {line_of(error)}; the topology goes on, and it is called again next time"
        self._log_some(logging.ERROR, f"listener {name}", text)

    def _away(self, tree: FailedTree) -> None:
        with self._lock:
            passes = self._absences.passes(f"{tree.component}/{tree.source}", time.monotonic()) is not None
        if passes:
            log.error(
                "%s: %s; it is asked again %.1f s later, for nothing new, until it is there",
                tree.component,
                tree.fail.reason,
                _wait_secs(tree),
            )

    def _log_some(self, level: int, who: str, text: str) -> None:
        with self._lock:
            withheld = self._reports.passes(who, time.monotonic())
        if withheld is not None:
            more = f" ({withheld} more were not shown)" if withheld else ""
            log.log(level, "%s%s", text, more)


def _wait_secs(tree: FailedTree) -> float:
    return ((tree.due_ms or 0) - (tree.ended_ms or 0)) / 1000
