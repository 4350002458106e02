"""The handle of a topology that runs on Spark: for the user who started it, and for its operators.

Metrics, listeners and ``await_...`` continue to work from life to life (``supervisor``). ``look`` never waits for the
lock longer than the caller allows: after that it returns the numbers of the last micro-batch. A change of settings
applies between a promotion and the next staging. A separate thread carries out a kill; after it, callers that wait for
the topology see that it does not run any more.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkbolt.api.component_state import ComponentState
from sparkbolt.api.components import BoltBase, Spout
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.progress import Progress
from sparkbolt.api.reports import MicroBatchReport
from sparkbolt.api.running import RunningTopology, TelemetrySink
from sparkbolt.api.topology import Topology
from sparkbolt.base.exceptions import line_of
from sparkbolt.control.documents import MemoryDocument
from sparkbolt.control.operable import Places, TopologyView
from sparkbolt.control.presence import Presence
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.ledger.ledger import FailedTree, Promotion, Story
from sparkbolt.driver.ledger.ledger_files import FORMAT_FILE
from sparkbolt.driver.ledger.origin import CopyRole
from sparkbolt.driver.lifecycle import Lifecycle, LifecycleEvent, TopologyState
from sparkbolt.driver.overrides import Overrides
from sparkbolt.errors import EngineError, WrongUseError
from sparkbolt.layout.lane import Lane
from sparkbolt.observe.history import History
from sparkbolt.observe.measurements import Flow, FlowCounts
from sparkbolt.spark import scratch
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.checkpoint_copy import Copying, Place, savepoint_place
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.recording import Recording, now_ms
from sparkbolt.spark.reporter import Reporter
from sparkbolt.spark.spout_threads import threads_of
from sparkbolt.spark.state_reading import StoredState
from sparkbolt.spark.supervisor import Supervisor
from sparkbolt.spark.user_calls import Calls
from sparkbolt.wire.peek import Peek, PeekedTuple
from sparkbolt.worker.state.task_view import with_classes

POLL_SECS = 0.2
SETTLE_SECS = 4.0
"""How long the last micro-batch may still run if every tree is finished, before it is broken off."""
log = logging.getLogger("sparkbolt")


class RunningOnSpark(RunningTopology):
    """A topology that runs on Spark; ``topology.start()`` returns it. It is also the ``Operable`` of the topology."""

    def __init__(
        self,
        topology: Topology,
        lane: Lane,
        spark: SparkSession,
        checkpoint: Checkpoint,
        temporary: str | None,
        open_secs: float | None = None,
        presence: Presence | None = None,
        telemetry: TelemetrySink | None = None,
        before: tuple[Topology, int | None] | None = None,
    ) -> None:
        """Begin a life and open the partitioned spouts; ``start`` begins to process.

        ``topology`` is the declared one; ``before`` is as in ``Supervisor``.
        ``temporary`` is the folder of a checkpoint that is removed at the end, or None. The spouts may take
        ``open_secs`` to open; None means no limit. ``presence`` shows the topology to its operators;
        ``telemetry`` is closed at the end.

        Raises:
            EngineError: a spout cannot be opened.
        """
        self._declared = topology
        self._spark = spark
        self._checkpoint = checkpoint
        self._temporary = temporary
        self._presence = presence
        self._changed = threading.Condition(threading.RLock())
        self._calls = Calls(self._changed)
        self._lifecycle = Lifecycle(topology.name, threading.RLock())
        self._closed = threading.Event()
        """Set when everything that runs for the topology has ended."""
        self._folder: str | None = None
        """The address of the topology's control socket."""
        self._places: Places | None = None
        self._supervisor = Supervisor(
            lane,
            spark,
            checkpoint,
            self._calls,
            self._lifecycle,
            self._promoted,
            lambda *event: self._reporter.note(*event),
            self._reshaped,
            before,
        )
        self._supervisor.begin_first(open_secs)
        counts = self._coordinator.ledger.metrics
        self._recording = Recording(checkpoint.files, counts, lambda: checkpoint.generation.first)
        self._reporter = Reporter(topology.config, self._calls, self._recording, presence, telemetry)
        self._began_after = self._coordinator.ledger.last_promoted
        self._given_up_before = {name: one.given_up for name, one in counts.components.items()}
        self._view = TopologyView(self._lifecycle.state)
        """The numbers as they were seen last."""
        self._flows: Mapping[Flow, FlowCounts] = {}

    def __repr__(self) -> str:
        """The topology's name, its state and its checkpoint."""
        if self.failure is not None:
            state = "failed"
        elif self._calls.stopping.is_set():
            state = "stopped"
        else:
            state = "running" if self.is_running else "not running"
        place = "no checkpoint" if self._temporary is not None else f"checkpoint {self._checkpoint.directory}"
        return f"<RunningTopology {self.topology.name!r}: {state}, {place}>"

    @property
    def _coordinator(self) -> Coordinator:
        return self._supervisor.life.coordinator

    @property
    def lane(self) -> Lane:
        """The topology, laid out."""
        return self._supervisor.lane

    @property
    def topology(self) -> Topology:  # type: ignore[override]  # it changes with a rebalance
        """The topology as it runs."""
        return self._supervisor.lane.topology

    def _reshaped(self, went_back: bool) -> None:
        if self._presence is not None and self._presence.steering is not None:
            if went_back:
                self._presence.steering.forget_rebalance()
            self._presence.steering.describe()

    @property
    def run_id(self) -> str:
        """The id of the current life's query; a restart changes it."""
        return self._supervisor.life.run_id

    @property
    def collected_bytes(self) -> int:
        """How many bytes of frames the driver has collected at the end of the lane, since ``start``."""
        return self._supervisor.collected_bytes

    def start(self) -> None:
        """Begin to process; returns at once.

        Raises:
            EngineError: Spark does not accept the query. After any error everything is ended as by ``close``.
        """
        try:
            with self._changed:
                self._see(self._coordinator)
            self._reporter.replayed(self._coordinator, self._view.metrics)
            if self._presence is not None:
                self._folder = scratch.make("control-")
                self._presence.attach(self, self._folder)
            threads = threads_of(
                self.lane,
                self._supervisor.life.bundle,
                self._coordinator.buffers,
                self._calls,
                self._lifecycle,
                report=lambda failure: self._reporter.spout_raised(self._coordinator.ledger.metrics, failure),
                tell=lambda report: self._reporter.spout_reported(self._coordinator.ledger.metrics, report),
            )
            self._supervisor.start(threads)
            self._recording.start(self.metrics, lambda: self._supervisor.life.query)
        except BaseException as error:
            self.close()
            if isinstance(error, PySparkException | Py4JError):
                raise EngineError(query_failure(error).text) from None
            raise

    def _promoted(self, coordinator: Coordinator, promotion: Promotion) -> None:
        self._see(coordinator)
        self._reporter.promoted(coordinator, promotion, self._view.metrics)
        if self._supervisor.settles(promotion.micro_batch_id) and self._presence is not None:
            steering = self._presence.steering
            if steering is not None:
                steering.settle_rebalance()

    def _see(self, coordinator: Coordinator) -> None:
        """Keep the numbers of this moment, as copies; called under the lock."""
        ledger = coordinator.ledger
        self._flows = dict(ledger.flows)
        self._view = replace(
            self._view,
            metrics=self._metrics_of(coordinator),
            retries=coordinator.retries,
            outages=tuple(self._outages()),
            full=tuple(coordinator.full().values()),
            repeats=coordinator.observed.times.repeats,
        )

    # For users: observing.

    def on_micro_batch(self, listener: Callable[[MicroBatchReport], None]) -> None:
        self._reporter.listeners.add(listener)

    def metrics(self) -> TopologyMetrics:
        with self._changed:
            self._supervisor.life.see_lag()
            return self._metrics_of(self._coordinator)

    def _metrics_of(self, coordinator: Coordinator) -> TopologyMetrics:
        """A copy of the counts, with what spouts have recorded since the last promotion; called under the lock."""
        counts = coordinator.ledger.metrics.copy_for(self.topology.components)
        return self._calls.metrics.show(counts, coordinator.ledger.last_promoted)

    def state(self, component: str, as_of: int | None = None) -> ComponentState:
        return self.stored(as_of).state_of(component, with_classes(vars(sys.modules["__main__"])))

    @property
    def failed(self) -> list[FailedTree]:
        with self._changed:
            return self._coordinator.ledger.failed

    @property
    def given_up(self) -> list[FailedTree]:
        with self._changed:
            return self._coordinator.ledger.given_up

    @property
    def given_up_here(self) -> dict[str, int]:
        with self._changed:
            counts = self._coordinator.ledger.metrics.components
            here = {name: one.given_up - self._given_up_before.get(name, 0) for name, one in counts.items()}
            back = Counter(name for name, number in self._coordinator.given_back if number > self._began_after)
        return {name: count - back[name] for name, count in here.items() if count > back[name]}

    @property
    def dead_letters_directory(self) -> str:
        return self._checkpoint.letters_directory

    @property
    def traced(self) -> list[Story]:
        with self._changed:
            return self._coordinator.ledger.traced

    @property
    def retries(self) -> int:
        with self._changed:
            return self._coordinator.retries

    @property
    def is_running(self) -> bool:
        return self._supervisor.is_alive

    @property
    def failure(self) -> str | None:
        return self._lifecycle.failure

    @property
    def killed(self) -> str | None:
        kill = self._lifecycle.killed
        return kill.why if kill is not None else None

    def exits(self, exit_code: int) -> None:
        if self._presence is not None:
            self._presence.exits(exit_code)

    def progress(self) -> Progress:
        return self._supervisor.progress()

    @property
    def trouble(self) -> str | None:
        spouts = (thread.trouble for thread in self._supervisor.threads)
        return next((trouble for trouble in (self._lifecycle.trouble, *spouts) if trouble is not None), None)

    @property
    def waits_for(self) -> str | None:
        opening = self._lifecycle.opening
        if opening:
            return f"{', '.join(opening)}: open has not returned"
        return None if self._lifecycle.has_run else "Spark has run no micro-batch since the start"

    @property
    def outages(self) -> list[str]:
        with self._changed:
            return self._outages()

    def _outages(self) -> list[str]:
        waits = self._supervisor.life.commit_waits
        bolts = {spec.id: spec.component for spec in self.topology.bolts}
        awaited = {id_: bolt.awaited_in_outage for id_, bolt in bolts.items() if isinstance(bolt, BoltBase)}
        out = self._coordinator.ledger.outages.sentences(now_ms(), awaited)
        return [*out, *([waits] if waits is not None else [])]

    # For operators: observing.

    @property
    def checkpoint(self) -> str | None:
        return None if self._temporary is not None else self._checkpoint.directory

    @property
    def letters_directory(self) -> str | None:
        return self._checkpoint.letters_directory if self._temporary is not None else None

    def places(self) -> Places:
        if self._places is None:
            context = self._spark.sparkContext
            with suppress(Py4JError, OSError, AttributeError):  # the JVM is ending
                self._places = Places(str(context.master), context.uiWebUrl, context.applicationId)
        return self._places or Places()

    def look(self, patience_secs: float) -> TopologyView:
        fresh = self._changed.acquire(timeout=patience_secs) if patience_secs else self._changed.acquire(False)
        if fresh:
            try:
                if patience_secs > 0 and not self._calls.stopping.is_set():
                    try:
                        self._supervisor.life.see_lag()
                    except Exception as error:  # noqa: BLE001  user code; its lag is as it was
                        log.debug("a spout cannot tell its lag: %s", line_of(error))
                self._see(self._coordinator)
            finally:
                self._changed.release()
        state, trouble, waits_for = self._lifecycle.state, self.trouble, self.waits_for
        match state:
            case TopologyState.FAILED:
                why = self.failure
            case TopologyState.KILLED | TopologyState.ENDED:
                why = self.killed
            case TopologyState.RESTARTING:
                why = trouble or self._lifecycle.why_restarted
            case TopologyState.STARTING:
                why = trouble or waits_for
            case _:
                why = trouble
        return replace(
            self._view,
            state=state,
            why=why,
            fresh=fresh,
            progress=self.progress(),
            trouble=trouble,
            waits_for=waits_for,
        )

    def history(self) -> History:
        return self._recording.view()

    def flows(self) -> Mapping[Flow, FlowCounts]:
        return self._flows

    def processes(self) -> list[MemoryDocument]:
        return [
            MemoryDocument(process=kind, host=one.host, pid=one.pid, bytes=one.resident_bytes)
            for kind, one in self._recording.processes()
        ]

    def state_sizes(self) -> dict[str, int]:
        recording = self._recording
        if not recording.state_rows:
            return {}
        return {"rows": recording.state_rows, "memory_bytes": recording.state_bytes}

    def stored(self, as_of: int | None) -> StoredState:
        return StoredState.of(self._checkpoint.directory, as_of, self._spark)

    # Changes.

    def activate(self) -> None:
        self._lifecycle.order(LifecycleEvent.ACTIVATE, "activated")
        self._calls.wake()

    def deactivate(self) -> None:
        self._lifecycle.order(LifecycleEvent.DEACTIVATE, "deactivated")
        self._calls.wake()

    def override(self, overrides: Overrides) -> None:
        with self._changed:
            while self._coordinator.ledger.staged is not None:
                if not self._lifecycle.state.runs:
                    raise self._lifecycle.refusal("changed")
                self._changed.wait(POLL_SECS)
            self._coordinator.override(overrides)

    def plan(self, executors: Mapping[str, int], spark_partitions: int | None) -> list[str]:
        topology = self._declared.rescaled(executors)
        for spec in topology.spouts:
            if isinstance(spec.component, Spout) and spec.parallelism != self.topology.components[spec.id].parallelism:
                raise EngineError(
                    f"spout {spec.id!r} has its queue's connections in threads of this driver: change its parallelism "
                    "where it is declared, and start the topology again"
                )
        started = self._supervisor.transition(topology, spark_partitions)
        started.check_rebalance()
        return [str(step) for step in started.steps]

    def rebalance(self, executors: Mapping[str, int], spark_partitions: int | None, why: str) -> None:
        if not self._supervisor.change(self._declared.rescaled(executors), spark_partitions, why):
            raise self._lifecycle.refusal("rebalanced")

    def savepoint(self, name: str) -> str:
        checkpoint, spark = self._checkpoint, self._spark
        if self.checkpoint is None:
            raise EngineError("the topology was started without a checkpoint: start it with one (--checkpoint DIR)")
        source = Place(checkpoint.directory, lambda: spark)
        target = Place(savepoint_place(checkpoint.directory, name), lambda: spark)
        if target.files.read(FORMAT_FILE) is not None:
            raise WrongUseError(f"there is a savepoint {name!r} already: give this one another name")
        with self._changed:
            ledger = self._coordinator.ledger
            while ledger.staged is not None or self._supervisor.life.machine.promoting:
                if not self._lifecycle.state.runs:
                    raise self._lifecycle.refusal("copied")
                self._changed.wait(POLL_SECS)
                ledger = self._coordinator.ledger
            last = ledger.last_promoted
            held = {f"ledger/{last}.snapshot": ledger.snapshot()}  # all rows of committers are outside by now
        Copying(source, target, CopyRole.SAVEPOINT, last, held).run(log.info)
        return target.directory

    def peek(self, peek: Peek, after: int) -> list[tuple[int, PeekedTuple]]:
        return self._supervisor.peeks.ask(peek, after, time.monotonic())

    def take_letters(self) -> None:
        self._coordinator.returned.is_due = True
        self._calls.wake()

    def read(self, name: str) -> bytes | None:
        return self._checkpoint.files.read(name)

    def write(self, name: str, data: bytes) -> None:
        self._checkpoint.tenure.check()
        self._checkpoint.files.write(name, data)

    def restart(self, why: str) -> None:
        if not self._supervisor.restart(why):
            raise self._lifecycle.refusal("restarted")

    def kill(self, wait_secs: float, why: str) -> None:
        if self._lifecycle.kill(why, time.monotonic() + wait_secs):
            log.warning("topology %r is %s: it ends within %g s", self.topology.name, why, wait_secs)
            threading.Thread(target=self._end_killed, name="sparkbolt-kill", daemon=True).start()

    def _end_killed(self) -> None:
        kill = self._lifecycle.killed
        assert kill is not None
        self._calls.wake()
        try:
            while (left := kill.until_s - time.monotonic()) > 0 and not self.await_drained(min(POLL_SECS, left)):
                pass
        except EngineError as error:
            log.error("topology %r ended before its open trees had finished: %s", self.topology.name, error)
        self.close()

    def stop(self, drain: bool = True, timeout_secs: float | None = None) -> bool:
        if self._calls.has_this_thread:  # ``stop`` would wait for the call in which it is called
            threading.Thread(target=self.stop, args=(drain, timeout_secs), name="sparkbolt-stop").start()
            return False
        if drain:
            self._lifecycle.on(LifecycleEvent.STOP)
            self._calls.wake()
        if drain and self.is_running and self.failure is None:
            limit = self.topology.config.message_timeout_secs if timeout_secs is None else timeout_secs
            try:
                self.await_drained(limit)
            except EngineError:
                log.error("topology %r failed while it was draining: %s", self.topology.name, self.failure)
        self.close()
        return self._coordinator.drained

    def close(self) -> None:
        if self._calls.has_this_thread:
            threading.Thread(target=self.close, name="sparkbolt-close").start()
            return
        self._settle()
        with self._lifecycle.lock:
            first = not self._calls.stopping.is_set()
            self._calls.stopping.set()
            self._lifecycle.on(LifecycleEvent.END)
        if not first:  # another thread ends everything, such as that of a kill from outside
            self._closed.wait(0.0 if self._supervisor.is_current else None)
            return
        try:
            self._end_everything()
        finally:
            self._closed.set()

    def _settle(self) -> None:
        """If every tree is finished, let the micro-batch that runs end, and plan no other: so nothing is left."""
        if not self.is_running or self._supervisor.is_current:
            return
        with self._changed:
            if self._coordinator.only_time_advances:
                self._lifecycle.closes = True
                self._changed.wait_for(lambda: self._coordinator.in_force is None or not self.is_running, SETTLE_SECS)

    def _end_everything(self) -> None:
        self._supervisor.end()
        self._reporter.end()
        if self._presence is not None:
            why = self.failure or self.killed
            self._presence.ended(self._lifecycle.state, why, drained=self._coordinator.drained)
        self._checkpoint.close()
        for folder in (self._folder, self._temporary):
            if folder is not None:
                scratch.remove(folder)

    # Waiting for it.

    def await_idle(self, timeout_secs: float | None = None) -> bool:
        since_s = time.monotonic()
        return self._await(lambda: self._idle_since(since_s), timeout_secs)

    def await_finished(self, timeout_secs: float | None = None) -> bool:
        return self._await(lambda: self._coordinator.finished, timeout_secs)

    def await_drained(self, timeout_secs: float | None = None) -> bool:
        return self._await(lambda: self._coordinator.drained, timeout_secs)

    def _idle_since(self, since_s: float) -> bool:
        """Whether every tree is finished, and spouts were asked after ``since_s`` and had nothing new."""
        coordinator = self._coordinator
        asked_s = coordinator.asked_s
        return coordinator.drained and not coordinator.retries and asked_s is not None and asked_s >= since_s

    def _await(self, condition: Callable[[], bool], timeout_secs: float | None) -> bool:
        until = None if timeout_secs is None else time.monotonic() + timeout_secs
        listeners = self._reporter.listeners
        with self._changed:
            while (self._supervisor.life.machine.promoting and not listeners.is_current) or not condition():
                if self.failure is not None:
                    raise EngineError(self.failure)
                if not self.is_running:
                    why = f": it was {self.killed}" if self.killed is not None else ""
                    raise EngineError(f"topology {self.topology.name!r} is not running{why}")
                left = 0.1 if until is None else min(0.1, until - time.monotonic())
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True
