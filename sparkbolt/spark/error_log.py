"""Error log: decides which errors of user code are logged, and how often.

Every kind of trouble is logged: messages that are given up, unavailable sources, bolts that are unavailable. Repeated
errors are logged a few times per interval, and then once with the number of the withheld ones. A line has the fields of
``control.logs`` that name its component, task and tree.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.config import Config
from sparkbolt.api.outage import PROBE_WAITS, OutageChange, Phase
from sparkbolt.api.reports import ErrorReport, FailedTree, Promotion
from sparkbolt.api.story import root_text
from sparkbolt.base.exceptions import line_of
from sparkbolt.base.throttle import Throttle
from sparkbolt.base.tracebacks import place_in
from sparkbolt.control.logs import LogFields
from sparkbolt.spark.user_calls import name_of

REPORTS_OF_A_PROBE_MAX = 2
"""How many errors of a bolt that is out are logged per micro-batch; the others are withheld, since they repeat."""
log = logging.getLogger("sparkbolt")


class ErrorLog:
    """Logs the errors of a topology; its methods may be called from any thread."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the limits from the topology's configuration; ``clock`` returns monotonic seconds."""
        self._patience_secs = config.outage_patience_secs
        self._interval_secs = config.error_throttle_interval_secs
        self._clock = clock
        self._lock = threading.Lock()
        self._reports = Throttle(config.max_error_report_per_interval, self._interval_secs)
        self._absences = Throttle(1, self._interval_secs)
        self._last: dict[str, tuple[int, str, LogFields]] = {}
        """The level, the text and the fields of the last withheld report, by its origin."""
        self._notes: set[str] = set()
        """The notes that were logged."""
        self._full: set[str] = set()
        """The components whose wait for ``max_spout_pending`` was logged."""

    def report(self, report: ErrorReport, micro_batch_id: int | None = None) -> None:
        """Log an error that a component reported or raised, unless the interval's limit is reached."""
        self._log_some(logging.WARNING, report.component, _report_text(report), _report_fields(report, micro_batch_id))

    def error(self, who: str, text: str, fields: LogFields | None = None) -> None:
        """Log an error that may repeat soon; ``who`` names its origin, for which the limit per interval counts."""
        self._log_some(logging.ERROR, who, text, fields or {})

    def promotion(self, promotion: Promotion, out: Collection[str] = ()) -> None:
        """Log the events of a promotion; ``out`` are the bolts that are out after it."""
        for change in promotion.outages:
            log.log(
                *_change_line(change, self._patience_secs),
                extra={"component": change.component, "micro_batch": promotion.micro_batch_id},
            )
        told: Counter[str] = Counter()
        for report in promotion.reports:
            if report.is_note:
                self._note(report)
                continue
            told[report.component] += 1
            if report.component in out and told[report.component] > REPORTS_OF_A_PROBE_MAX:
                fields = _report_fields(report, promotion.micro_batch_id)
                self._withhold(logging.WARNING, report.component, _report_text(report), fields)
            else:
                self.report(report, promotion.micro_batch_id)
        for tree in promotion.failed:
            if tree.outcome == MessageOutcome.GIVEN_UP:
                text = f"given up after {tree.attempt} attempt(s): {tree.story}"
                self._log_some(logging.ERROR, f"no letter by {tree.component}", text, _tree_fields(tree))
            if tree.outcome == MessageOutcome.DEAD_LETTER:
                text = f"given up after {tree.attempt} attempt(s), a dead letter is written: {tree.story}"
                self._log_some(logging.WARNING, f"given up by {tree.component}", text, _tree_fields(tree))
            if tree.fail.cause == Cause.AWAY:
                self._away(tree)
            if tree.fail.cause == Cause.POSTPONED:
                text = f"{tree.component}: {tree.fail.reason}; the next micro-batch reads it, before anything new"
                self._log_some(logging.WARNING, f"postponed by {tree.component}", text, _tree_fields(tree))
        for tree in promotion.letters_failed:
            text = f"no dead letter yet, the next try is in {_wait_secs(tree):.1f} s: {tree.story}"
            self._log_some(logging.ERROR, f"dead letters of {tree.component}", text, _tree_fields(tree))
        self.tell_withheld()

    def full(self, waits: Mapping[str, str]) -> None:
        """Log once for each component that it waits for ``max_spout_pending``; ``waits`` are sentences by component."""
        with self._lock:
            new = [component for component in waits if component not in self._full]
            self._full.update(new)
        for component in new:
            log.warning("%s", waits[component], extra={"component": component})

    def listener_raised(self, listener: object, error: BaseException) -> None:
        """Log that a listener of ``on_micro_batch`` raised."""
        name = name_of(listener)
        text = f"listener {name} raised {line_of(error)}; the topology continues, and calls it again next time"
        self._log_some(logging.ERROR, f"listener {name}", text, {})

    def _note(self, report: ErrorReport) -> None:
        with self._lock:
            is_new = report.text not in self._notes
            self._notes.add(report.text)
        if is_new:
            log.warning("%s", report.text, extra=_report_fields(report, None))

    def _away(self, tree: FailedTree) -> None:
        with self._lock:
            passes = self._absences.passes(f"{tree.component}/{tree.source}", self._clock()) is not None
        if passes:
            log.error(
                "%s: %s; the next try is in %.1f s, and nothing new is read from it until it answers",
                tree.component,
                tree.fail.reason,
                _wait_secs(tree),
                extra=_tree_fields(tree),
            )

    def _log_some(self, level: int, who: str, text: str, fields: LogFields) -> None:
        with self._lock:
            withheld = self._reports.passes(who, self._clock())
            if withheld is None:
                self._last[who] = level, text, fields
        if withheld is not None:
            log.log(level, "%s%s", text, self._more(withheld), extra=fields)

    def _withhold(self, level: int, who: str, text: str, fields: LogFields) -> None:
        with self._lock:
            self._reports.withhold(who, self._clock())
            self._last[who] = level, text, fields

    def tell_withheld(self, *, at_once: bool = False) -> None:
        """Log how many reports were withheld in each interval that has ended; ``at_once`` ends all of them."""
        with self._lock:
            ended = self._reports.ended(float("inf") if at_once else self._clock())
        for who, withheld in ended:
            level, text, fields = self._last.pop(who)
            log.log(level, "%s%s", text, self._more(withheld - 1), extra=fields)

    def _more(self, withheld: int) -> str:
        return f" (and {withheld:,} more like it in the last {self._interval_secs:g} s)" if withheld > 0 else ""


def _report_text(report: ErrorReport) -> str:
    place = place_in(report.traceback)
    return f"{report.component}[{report.task}] reported: {report.text.removesuffix(place)}{place}"


def _report_fields(report: ErrorReport, micro_batch_id: int | None) -> LogFields:
    fields: LogFields = {"component": report.component, "task": report.task}
    if micro_batch_id is not None:
        fields["micro_batch"] = micro_batch_id
    return fields


def _tree_fields(tree: FailedTree) -> LogFields:
    """Of the task that failed the tree."""
    fail = tree.fail
    return {
        "component": fail.component,
        "task": fail.task,
        "micro_batch": fail.micro_batch_id,
        "root": root_text(tree.key),
    }


def _change_line(change: OutageChange, patience_secs: float) -> tuple[int, str]:
    """The level and the text of the line for a change: a bolt is out, its patience is used up, or it works again."""
    outage, bolt = change.outage, change.component
    if change.spout:
        return _spout_line(change, patience_secs)
    most = (
        f", most often because of {change.reason!r} ({change.reasons:,} of {change.failures:,})"
        if change.reason
        else ""
    )
    longest = PROBE_WAITS.max_backoff.total_seconds()
    slowly = (
        f"it now gets only about {outage.probe_tuples} messages at a time, with waits of up to {longest:g} s between "
        "them. These messages use up no attempts. Everything continues at full speed as soon as it accepts some of them"
    )
    if change.after is Phase.OUT and change.away:
        return logging.ERROR, f"bolt {bolt!r} says that it is unavailable{most}: {slowly}"
    if change.after is Phase.OUT:
        return logging.ERROR, (
            f"bolt {bolt!r} fails nearly everything it gets, {outage.raised:,} tuples in {outage.micro_batches} "
            f"micro-batches{most}. Either something that it needs is unavailable, or the bolt has a mistake: {slowly}, "
            f"or after {patience_secs:g} s (outage_patience_secs), when failures count as attempts again"
        )
    if change.after is Phase.SPENT:
        return logging.ERROR, (
            f"bolt {bolt!r} still fails nearly everything it gets{most}, after {patience_secs:g} s "
            "(outage_patience_secs): its spouts continue at full speed, its failures count as attempts again, and "
            "messages without attempts left are given up"
        )
    lasted = (change.now_ms - outage.since_ms) / 1000
    return logging.WARNING, (
        f"bolt {bolt!r} accepts tuples again, after {lasted:.1f} s and {outage.probes + 1} probe(s): its spouts "
        "continue at full speed"
    )


def _spout_line(change: OutageChange, patience_secs: float) -> tuple[int, str]:
    """``_change_line`` for a spout."""
    outage, who = change.outage, f"spout {change.component!r}"
    most = f", most often because of {change.reason!r}" if change.reason else ""
    longest = PROBE_WAITS.max_backoff.total_seconds()
    if change.after is Phase.OUT:
        return logging.ERROR, (
            f"{who} cannot read nearly all of its records, {outage.raised:,} in {outage.micro_batches} micro-batches"
            f"{most}: is its decoder the right one? It now reads only about {outage.probe_tuples} records at a time, "
            f"with waits of up to {longest:g} s between them, and gives up none of them. It reads at full speed as "
            f"soon as it can read some of them, or after {patience_secs:g} s (outage_patience_secs), when unreadable "
            "records are given up"
        )
    if change.after is Phase.SPENT:
        return logging.ERROR, (
            f"{who} still cannot read nearly all of its records{most}, after {patience_secs:g} s "
            "(outage_patience_secs): it reads at full speed, and unreadable records are given up"
        )
    lasted = (change.now_ms - outage.since_ms) / 1000
    return logging.WARNING, f"{who} can read its records again, after {lasted:.1f} s: it reads at full speed"


def _wait_secs(tree: FailedTree) -> float:
    return ((tree.due_ms or 0) - (tree.ended_ms or 0)) / 1000
