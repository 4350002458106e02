"""The reporter: passes promotions and errors to the log, listeners, telemetry, the history and operators."""

from __future__ import annotations

from sparkbolt.api.config import Config
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.outage import OutageChange, Phase
from sparkbolt.api.reports import ErrorReport, MicroBatchReport
from sparkbolt.api.running import TelemetrySink
from sparkbolt.base.exceptions import reason_of
from sparkbolt.control.logs import LogFields
from sparkbolt.control.presence import Presence
from sparkbolt.control.steering import Steering
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.spark.error_log import ErrorLog
from sparkbolt.spark.recording import Recording, now_ms
from sparkbolt.spark.spout_threads import SpoutFailure
from sparkbolt.spark.user_calls import Calls, Listeners


class Reporter:
    """The receivers of one topology's promotions and errors."""

    def __init__(
        self,
        config: Config,
        calls: Calls,
        recording: Recording,
        presence: Presence | None,
        telemetry: TelemetrySink | None,
    ) -> None:
        """Report to ``recording`` and, if there are any, ``presence`` and ``telemetry``, which is closed at the end."""
        self._calls = calls
        self._error_log = ErrorLog(config)
        self.listeners = Listeners(calls, self._error_log.listener_raised)
        self._recording = recording
        self._presence = presence
        self._telemetry = telemetry
        if telemetry is not None:
            self.listeners.add(telemetry.micro_batch)

    @property
    def _steering(self) -> Steering | None:
        return self._presence.steering if self._presence is not None else None

    def note(self, kind: str, text: str) -> None:
        """Note an event for the topology's operators."""
        if self._steering is not None:
            self._steering.note(kind, text)

    def promoted(self, coordinator: Coordinator, promotion: Promotion, metrics: TopologyMetrics) -> None:
        """Report a promotion; called under the lock, which is released while listeners are called.

        ``metrics`` are a copy of the counts after it.
        """
        self._recording.promoted(coordinator, promotion)
        for report in (report for report in promotion.reports if not report.is_note):
            self._book(report)
        for change in promotion.outages:
            self.note(*_outage_event(change))
        self._tell(coordinator, promotion, metrics, metrics.micro_batch_ms or 0.0)

    def replayed(self, coordinator: Coordinator, metrics: TopologyMetrics) -> None:
        """Report the last promotion of an earlier driver: twice rather than never."""
        if coordinator.ledger.replayed is not None:
            self._tell(coordinator, coordinator.ledger.replayed, metrics, 0.0)

    def _tell(
        self, coordinator: Coordinator, promotion: Promotion, metrics: TopologyMetrics, elapsed_ms: float
    ) -> None:
        self._error_log.promotion(promotion, coordinator.ledger.outages.out())
        self._error_log.full(coordinator.full())
        self.listeners.tell(MicroBatchReport(promotion, metrics, elapsed_ms))

    def spout_reported(self, metrics: TopologyMetrics, report: ErrorReport) -> None:
        """Report an error that a spout in the driver has reported."""
        self._error_log.report(report)
        self._count(metrics, report)

    def spout_raised(self, metrics: TopologyMetrics, failure: SpoutFailure) -> None:
        """Report an exception that a spout in the driver has raised."""
        fields: LogFields = {"component": failure.component, "task": failure.task}
        self._error_log.error(f"{failure.method} of {failure.component}[{failure.task}]", str(failure), fields)
        self._count(metrics, ErrorReport(failure.component, failure.task, *reason_of(failure.error)))

    def _count(self, metrics: TopologyMetrics, report: ErrorReport) -> None:
        self._book(report)
        with self._calls.changed:
            metrics.of(report.component).errors += 1

    def _book(self, report: ErrorReport) -> None:
        if self._steering is not None:
            self._steering.errors.add(report.component, report.task, report.text, report.traceback, now_ms())

    def end(self) -> None:
        """Call no listener any more, and close telemetry and the history."""
        self.listeners.end()
        if self._telemetry is not None:
            try:
                self._telemetry.close()
            except Exception as error:  # noqa: BLE001  any library; the checkpoint must still be closed
                self._error_log.listener_raised(self._telemetry.close, error)
        self._error_log.tell_withheld(at_once=True)
        self._recording.close()


def _outage_event(change: OutageChange) -> tuple[str, str]:
    kind, fails, works = (
        ("spout", "cannot read nearly all of its records", "can read its records again")
        if change.spout
        else ("bolt", "fails nearly everything it gets", "accepts tuples again")
    )
    who = f"{kind} {change.component!r}"
    if change.after is Phase.OUT:
        why = f", most often because of {change.reason!r}" if change.reason else ""
        return "outage", f"{who} {fails}{why}"
    if change.after is Phase.SPENT:
        return "outage", f"{who} still {fails}, after the time of outage_patience_secs"
    return "recovered", f"{who} {works}"
