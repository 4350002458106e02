"""Operated: a running topology on Spark, as those see it who operate it from outside.

Rule 1: ``look`` never waits for the lock longer than it is told: the numbers are then those of the last micro-batch.
Rule 2: a change of settings applies between a promotion and the next staging, never in between.
Rule 3: a kill is carried out by a thread of its own. Whoever waits for the topology sees that it does not run any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.outage import OutageChange, Phase
from sparkbolt.api.reports import ErrorReport, Promotion
from sparkbolt.base.exceptions import line_of
from sparkbolt.control.documents import MemoryDocument, TopologyState
from sparkbolt.control.operable import Places, TopologyView
from sparkbolt.control.steering import Steering
from sparkbolt.driver.overrides import Overrides
from sparkbolt.errors import EngineError
from sparkbolt.layout.lane import Lane
from sparkbolt.observe.history import History
from sparkbolt.observe.measurements import Flow, FlowCounts
from sparkbolt.spark.recording import now_ms

if TYPE_CHECKING:
    from sparkbolt.spark.running import RunningOnSpark

KILL_POLL_SECS = 0.2
log = logging.getLogger("sparkbolt")


class Operated:
    """The ``Operable`` of a ``RunningOnSpark``."""

    def __init__(self, running: RunningOnSpark) -> None:
        """Show ``running``, which is just being made."""
        self._running = running
        self._places: Places | None = None
        self._metrics = TopologyMetrics()
        self._flows: dict[Flow, FlowCounts] = {}
        self._retries = 0
        self._outages: tuple[str, ...] = ()

    # What is shown.

    @property
    def lane(self) -> Lane:
        """The topology, laid out."""
        return self._running.lane

    @property
    def checkpoint(self) -> str | None:
        """The path or URL of the checkpoint; None if it is temporary."""
        return None if self._running._temporary is not None else self._running._checkpoint.directory

    @property
    def letters_directory(self) -> str | None:
        """The directory of dead letters, if it is not in the checkpoint."""
        return self._running.dead_letters_directory if self._running._temporary is not None else None

    def places(self) -> Places:
        """Where it runs; Spark is asked once."""
        if self._places is None:
            context = self._running._spark.sparkContext
            with suppress(Py4JError, OSError, AttributeError):  # the JVM is ending
                self._places = Places(str(context.master), context.uiWebUrl, context.applicationId)
        return self._places or Places()

    def promoted(self, metrics: TopologyMetrics) -> None:
        """Keep the numbers of a promotion; called under the lock, with a copy that nobody changes."""
        self._metrics = metrics
        self._flows = dict(self._running._coordinator.ledger.flows)
        self._retries = self._running._coordinator.retries

    def look(self, patience_secs: float) -> TopologyView:
        """What it shows now; with patience, spouts are asked for their lag, too."""
        running = self._running
        fresh = running._changed.acquire(timeout=patience_secs) if patience_secs else running._changed.acquire(False)
        if fresh:
            try:
                self._see(ask_spouts=patience_secs > 0 and not running._stopping.is_set())
            finally:
                running._changed.release()
        state, why = self._state()
        return TopologyView(
            state=state,
            why=why,
            metrics=self._metrics,
            fresh=fresh,
            retries=self._retries,
            progress=running.progress(),
            outages=self._outages,
            trouble=running.trouble,
            waits_for=running.waits_for,
        )

    def _see(self, *, ask_spouts: bool) -> None:
        coordinator = self._running._coordinator
        metrics = coordinator.ledger.metrics
        if ask_spouts:
            try:
                metrics.see_sources(coordinator.spouts)
            except Exception as error:  # noqa: BLE001  user code; its lag is as it was
                log.debug("a spout cannot tell its lag: %s", line_of(error))
        self._metrics = metrics.copy_for(self._running.topology.components)
        self._flows = dict(coordinator.ledger.flows)
        self._retries = coordinator.retries
        self._outages = tuple(coordinator.ledger.outages.sentences(now_ms()))

    def _state(self) -> tuple[TopologyState, str | None]:
        running, lifecycle = self._running, self._running._lifecycle
        state = running._notice_state()
        match state:
            case TopologyState.FAILED:
                return state, lifecycle.failure
            case TopologyState.KILLED | TopologyState.ENDED:
                return state, running.killed
            case TopologyState.RESTARTING:
                return state, running.trouble or lifecycle.why_restarted
            case TopologyState.STARTING:
                return state, running.trouble or running.waits_for
        return state, running.trouble

    def history(self) -> History | None:
        """The history as it is now."""
        return self._running.recording.view()

    def flows(self) -> Mapping[Flow, FlowCounts]:
        """The counts by task and stream, as of the last micro-batch that was promoted."""
        return self._flows

    def processes(self) -> list[MemoryDocument]:
        """The memory of the processes that are known."""
        return [
            MemoryDocument(process=kind, host=one.host, pid=one.pid, bytes=one.resident_bytes)
            for kind, one in self._running.recording.processes()
        ]

    def state_sizes(self) -> dict[str, int]:
        """Spark's state stores, as its last progress told."""
        recording = self._running.recording
        if not recording.state_rows:
            return {}
        return {"rows": recording.state_rows, "memory_bytes": recording.state_bytes}

    # What is noted.

    def note_promotion(self, steering: Steering, promotion: Promotion) -> None:
        """Note the errors and outages of a promotion."""
        time_ms = now_ms()
        for report in (report for report in promotion.reports if not report.is_note):
            steering.errors.add(report.component, report.task, report.text, report.traceback, time_ms)
        for change in promotion.outages:
            steering.note(*_outage_event(change))

    def note_error(self, steering: Steering, report: ErrorReport) -> None:
        """Note an error of a spout in the driver."""
        steering.errors.add(report.component, report.task, report.text, report.traceback, now_ms())

    # What is changed.

    def set_active(self, active: bool) -> None:
        """Let spouts emit, or stop them from emitting."""
        if active:
            self._running.activate()
        else:
            self._running.deactivate()

    def override(self, overrides: Overrides) -> None:
        """Let changed settings apply, as soon as nothing is staged."""
        running = self._running
        with running._changed:
            while running._coordinator.ledger.staged is not None:
                running._lifecycle.refuse_if_stopped("changed")
                running._changed.wait(KILL_POLL_SECS)
            running._coordinator.override(overrides)

    def read(self, name: str) -> bytes | None:
        """A file of the checkpoint."""
        return self._running._checkpoint.files.read(name)

    def write(self, name: str, data: bytes) -> None:
        """Make a file of the checkpoint durable, if no other driver has taken it over."""
        self._running._checkpoint.check_life()
        self._running._checkpoint.files.write(name, data)

    def restart(self, why: str) -> None:
        """End the query; the supervisor begins another life."""
        running, life = self._running, self._running._life
        if not running._lifecycle.on_restart(life, why, asked=True):
            raise running._lifecycle.refusal("restarted")
        log.warning("topology %r is %s: its query ends, and begins again", running.topology.name, why)
        life.stop_query()

    def kill(self, wait_secs: float, why: str) -> None:
        """Stop the spouts, let open trees finish for at most ``wait_secs``, and end; returns at once."""
        running = self._running
        if running._lifecycle.on_kill(why, time.monotonic() + wait_secs):
            log.warning("topology %r is %s: it ends within %g s", running.topology.name, why, wait_secs)
            threading.Thread(target=self._end_killed, name="sparkbolt-kill", daemon=True).start()

    def _end_killed(self) -> None:
        running, kill = self._running, self._running._lifecycle.kill
        assert kill is not None
        running._set_active(False)
        try:
            while time.monotonic() < kill.until_s:
                if running.await_drained(min(KILL_POLL_SECS, max(0.0, kill.until_s - time.monotonic()))):
                    break
        except EngineError as error:
            log.error("topology %r ended before its open trees had finished: %s", running.topology.name, error)
        running.close()


def _outage_event(change: OutageChange) -> tuple[str, str]:
    kind, fails, works = (
        ("spout", "cannot read nearly all of its records", "can read its records again")
        if change.spout
        else ("bolt", "fails nearly everything it gets", "takes tuples again")
    )
    who = f"{kind} {change.component!r}"
    if change.after is Phase.OUT:
        why = f", most often because of {change.reason!r}" if change.reason else ""
        return "outage", f"{who} {fails}{why}"
    if change.after is Phase.SPENT:
        return "outage", f"{who} still {fails}, and patience is used up"
    return "recovered", f"{who} {works}"
