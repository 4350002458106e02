"""Running: the object that a user holds while a topology runs, and the supervisor that restarts failed queries.

Rule 1: only the checkpoint counts. After a query has failed a new life begins, which loads its ledger from the log as
after a crash; only the threads of spouts stay, with their connections.
Rule 2: metrics, listeners and ``await_...`` continue to work from life to life.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping

import cloudpickle
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparkbolt.api.components import Spout
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.progress import Progress, Sight
from sparkbolt.api.reports import ErrorReport, MicroBatchReport, QueryFailure
from sparkbolt.api.running import RunningTopology, TelemetrySink
from sparkbolt.api.topology import Topology
from sparkbolt.base.exceptions import reason_of
from sparkbolt.control.logs import LogFields
from sparkbolt.control.presence import Presence
from sparkbolt.control.steering import Steering
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.ledger.ledger import FailedTree, Promotion, Story
from sparkbolt.driver.lifecycle import LifecycleEvent, TopologyState
from sparkbolt.driver.machine import DriverMachine
from sparkbolt.driver.restart_policy import Restarts
from sparkbolt.errors import EngineError, SpoutOpenError
from sparkbolt.layout.lane import Lane
from sparkbolt.spark import scratch
from sparkbolt.spark.activity_pages import fields_of, warning
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.error_log import ErrorLog
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.life import Life
from sparkbolt.spark.operated import Operated
from sparkbolt.spark.recording import Recording, now_ms
from sparkbolt.spark.session import why_gone
from sparkbolt.spark.shared_lifecycle import SharedLifecycle
from sparkbolt.spark.spout_threads import SpoutFailure, SpoutThread, close_all
from sparkbolt.spark.user_calls import Calls, Listeners, NotReturned
from sparkbolt.worker.activity import Hangs
from sparkbolt.worker.routing import routes_of
from sparkbolt.worker.tuple_batch import Output
from sparkbolt.worker.worker import context_of

PASSING_POLL_SECS = 1
LOOK_OUT_SECS = 1.0
log = logging.getLogger("sparkbolt")


class RunningOnSpark(RunningTopology):
    """A topology that runs on Spark; ``topology.start()`` returns it."""

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
    ) -> None:
        """Begin a life and open the partitioned spouts; ``start`` begins to process.

        ``temporary`` is the folder of a checkpoint that is removed at the end, or None. The spouts may take
        ``open_secs`` to open; None means no limit. ``presence`` shows the topology to those who operate it;
        ``telemetry`` is closed at the end.

        Raises:
            EngineError: a spout cannot be opened.
        """
        self.topology = topology
        self.lane = lane
        self._spark = spark
        self._checkpoint = checkpoint
        self._temporary = temporary
        self._changed = threading.Condition(threading.RLock())
        self._calls = Calls(self._changed)
        self._error_log = ErrorLog(topology.config)
        self._listeners = Listeners(self._calls, self._error_log.listener_raised)
        self._telemetry = telemetry
        if telemetry is not None:
            self._listeners.add(telemetry.micro_batch)
        self._restarts = Restarts(topology.config)
        self._collected_before = 0
        self._lifecycle = SharedLifecycle(topology.name)
        """The state of the topology."""
        self._stopping = self._lifecycle.stopping
        self._closed = threading.Event()
        self._presence = presence
        self._folder: str | None = None
        """Where the socket is by which the topology is operated."""
        self._operated = Operated(self)
        self._sights: list[Callable[[], Mapping[str, Sight]]] = [self._calls.sights]
        """Functions that return the calls of user code that have not returned."""
        self._hangs = Hangs()
        threading.Thread(target=self._look_out, name="sparkbolt-hangs", daemon=True).start()
        self._calls.ended_s = time.monotonic() + (math.inf if open_secs is None else open_secs)
        try:
            self._life = self._first_life()
        except BaseException:
            self._stopping.set()
            raise
        self._calls.ended_s = math.inf
        self.recording = Recording(checkpoint.files, self._coordinator.ledger.metrics)
        """The history of the topology."""
        self._aside_before = {name: one.set_aside for name, one in self._coordinator.ledger.metrics.components.items()}
        self._threads: list[SpoutThread] = []
        self._supervisor = threading.Thread(target=self._supervise, name="sparkbolt-supervisor", daemon=True)

    def _first_life(self) -> Life:
        """Begin the first life of this driver; if a spout cannot be opened, this is retried like a failed query.

        Raises:
            EngineError: a spout cannot be opened.
        """
        failed: SpoutOpenError | None = None
        while failed is None or time.monotonic() < self._calls.ended_s:
            try:
                return self._new_life()
            except NotReturned:
                if failed is None:
                    raise
            except SpoutOpenError as error:
                failed, failure = error, query_failure(error)
                restart = self._restarts.next(time.monotonic(), free=failure.free)
                if restart is None:
                    raise EngineError(f"{error}{self._restarts.spent(failure)}") from error
                log.error("%s; it is tried again %s", error, self._restarts.when(restart))
                self._stopping.wait(min(restart.wait_secs, max(0.0, self._calls.ended_s - time.monotonic())))
        raise EngineError(f"{failed} (until its time was over)") from failed

    def _new_life(self) -> Life:
        return Life(self.lane, self._spark, self._checkpoint, self._calls, self._tell)

    def _make_threads(self) -> list[SpoutThread]:
        threads = []
        for spec in self.topology.spouts:
            if isinstance(spec.component, Spout):
                for number in self.topology.tasks(spec.id):
                    spout = cloudpickle.loads(self._life.bundle.components[spec.id])
                    output = Output(spec.id, routes_of(self.topology, spec.id, frozenset(), number))
                    thread = SpoutThread(
                        spout,
                        context_of(self.lane, number, checkpoint_id=self._life.bundle.checkpoint_id),
                        output,
                        self._coordinator.buffers[number],
                        self._changed,
                        tracked=self.lane.tracked,
                        report=self._spout_raised,
                        tell=self._spout_reported,
                        calls=self._calls,
                    )
                    threads.append(thread)
        return threads

    def __repr__(self) -> str:
        """The topology's name, its state and its checkpoint."""
        if self.failure is not None:
            state = "failed"
        elif self._stopping.is_set():
            state = "stopped"
        else:
            state = "running" if self.is_running else "not running"
        place = "no checkpoint" if self._temporary is not None else f"checkpoint {self._checkpoint.directory}"
        return f"<RunningTopology {self.topology.name!r}: {state}, {place}>"

    @property
    def _coordinator(self) -> Coordinator:
        return self._life.coordinator

    @property
    def run_id(self) -> str:
        """The id of the current life's query; a restart changes it."""
        return self._life.run_id

    @property
    def collected_bytes(self) -> int:
        """How many bytes of frames the driver has collected at the end of the lane, since ``start``."""
        return self._collected_before + self._life.collected_bytes

    def start(self) -> None:
        """Begin to process; returns at once.

        Raises:
            EngineError: Spark does not accept the query. After any error everything is ended as by ``close``.
        """
        try:
            if self._coordinator.ledger.replayed is not None:  # logged and traced twice rather than never
                self._tell_of(self._coordinator, self._coordinator.ledger.replayed, 0.0)
            if self._presence is not None:
                self._folder = scratch.make("control-")
                self._presence.attach(self._operated, self._folder)
            for thread in self._make_threads():
                thread.set_active(self._coordinator.active)
                thread.start()
                self._threads.append(thread)
            self._life.start()
            self._supervisor.start()
            self.recording.start(self.metrics, lambda: self._life.query)
        except BaseException as error:
            self.close()
            if isinstance(error, PySparkException | Py4JError):
                raise EngineError(query_failure(error).text) from None
            raise
        self._sights.append(lambda: self._life.sights())

    # The supervisor.

    def _supervise(self) -> None:
        """Wait for the query to end, and restart it as long as the restart policy allows it."""
        failure = self._await_end()
        while not self._stopping.is_set():
            if failure is not None and not self._wait_to_begin_again(failure):
                return
            try:
                self._begin_again()
            except BaseException as error:  # noqa: BLE001  a full disk, a lost JVM, user code: one more failure
                failure = query_failure(error)
                continue
            failure = self._await_end()

    def _wait_to_begin_again(self, failure: QueryFailure) -> bool:
        """After a failure: wait for the time that the restart policy demands; False if the query is not restarted."""
        gone = why_gone(self._spark)
        if gone is not None:  # the errors of Spark or py4j would add nothing useful
            self._fail(gone)
            return False
        worked, hopeless = self._life.machine.promoted, failure.hopeless or self.failure is not None
        restart = None if hopeless else self._restarts.next(time.monotonic(), free=failure.free, worked=worked)
        if restart is None:
            why = " (not started again: it would fail again)" if failure.hopeless else self._restarts.spent(failure)
            self._fail(failure.text + why)
            return False
        self._lifecycle.on_restart(self._life, failure.text, asked=False)
        log.error("query failed: %s; it is started again %s", failure.text, self._restarts.when(restart))
        self._note("restarted", f"its query failed: {failure.text}")
        return not self._stopping.wait(restart.wait_secs)

    def _await_end(self) -> QueryFailure | None:
        """Wait for the end of the query; returns why it failed, or None if it was stopped here for another life."""
        life = self._life
        assert life.query is not None
        try:
            while life.passing and not self._stopping.is_set() and not life.query.awaitTermination(PASSING_POLL_SECS):
                if life.machine.promoted:
                    life.stop_query()
                    return None
            life.query.awaitTermination()
        except Exception as error:  # noqa: BLE001  the query's own failure, or py4j's when the JVM is gone
            return None if self._lifecycle.restarts_on_order(life) else life.failure or query_failure(error)
        if self._lifecycle.restarts_on_order(life):
            return None
        return QueryFailure("the query was stopped by somebody else: was the Spark session stopped?", EngineError)

    def _fail(self, failure: str) -> None:
        with self._changed:
            self._lifecycle.on_failure(failure)
            self._changed.notify_all()

    def _begin_again(self) -> None:
        """Begin a new life from the checkpoint; the spouts' threads continue with its spout buffers."""
        old = self._life
        self._checkpoint.check_life()  # otherwise two drivers would take over from each other again and again
        old.promote_what_is_committed()
        old.end()
        life = self._new_life()
        with self._changed:
            life.coordinator.take_over(old.coordinator)
            for thread in self._threads:
                thread.go_on_with(life.coordinator.buffers)
            self._collected_before += old.collected_bytes
            self._life = life
        life.start()
        if self._stopping.is_set() or self._lifecycle.restarts_on_order(life):
            life.stop_query()  # who wanted it to stop looked for it before it existed

    # Reports to users.

    def progress(self) -> Progress:
        """How far the running, uncommitted micro-batch has come; may be called at any time."""
        found = Progress(levels=len(self.lane.levels)) if self.failure is not None else self._life.progress()
        return found.with_calls([*self._calls.sights().values()])

    def _look_out(self) -> None:
        """Log the calls of user code that do not return."""
        while not self._stopping.wait(LOOK_OUT_SECS):
            sights = {name: sight for tell in self._sights for name, sight in tell().items()}
            for sight in self._hangs.worth(sights):
                who = self.topology.task_owner
                log.warning("%s", warning(sight, who), extra=fields_of(sight.doing, who))

    def _tell(self, machine: DriverMachine, promotion: Promotion) -> None:
        coordinator = machine.coordinator
        self.recording.promoted(coordinator, promotion)
        if machine.failure is not None:
            self._lifecycle.on_failure(machine.failure)
        if self._steering is not None:
            self._operated.note_promotion(self._steering, promotion)
        self._tell_of(coordinator, promotion, coordinator.ledger.metrics.micro_batch_ms or 0.0)

    def _tell_of(self, coordinator: Coordinator, promotion: Promotion, elapsed_ms: float) -> None:
        self._error_log.promotion(promotion, coordinator.ledger.outages.out())
        metrics = coordinator.ledger.metrics.copy_for(self.topology.components)
        self._operated.promoted(metrics)
        self._listeners.tell(MicroBatchReport(promotion, metrics, elapsed_ms))

    @property
    def _steering(self) -> Steering | None:
        return self._presence.steering if self._presence is not None else None

    def _note(self, kind: str, text: str) -> None:
        if self._steering is not None:
            self._steering.note(kind, text)

    def _spout_reported(self, report: ErrorReport) -> None:
        self._error_log.report(report)
        if self._steering is not None:
            self._operated.note_error(self._steering, report)
        with self._changed:
            self._coordinator.ledger.metrics.of(report.component).errors += 1

    def _spout_raised(self, failure: SpoutFailure) -> None:
        fields: LogFields = {"component": failure.component, "task": failure.task}
        self._error_log.error(f"{failure.method} of {failure.component}[{failure.task}]", str(failure), fields)
        if self._steering is not None:
            report = ErrorReport(failure.component, failure.task, *reason_of(failure.error))
            self._operated.note_error(self._steering, report)
        with self._changed:
            self._coordinator.ledger.metrics.of(failure.component).errors += 1

    def on_micro_batch(self, listener: Callable[[MicroBatchReport], None]) -> None:
        """Call ``listener`` after each promotion, in the thread of the listeners; the engine waits for it.

        If it raises, the error is logged and the topology goes on; it is called again after the next promotion.
        """
        self._listeners.add(listener)

    def metrics(self) -> TopologyMetrics:
        """A copy of the counters of all components: totals since the first start with this checkpoint."""
        with self._changed:
            self._coordinator.ledger.metrics.see_sources(self._coordinator.spouts)
            return self._coordinator.ledger.metrics.copy_for(self.topology.components)

    @property
    def set_aside(self) -> list[FailedTree]:
        """The newest trees that were set aside, with their stories."""
        with self._changed:
            return self._coordinator.ledger.set_aside

    @property
    def dead_letters_directory(self) -> str:
        """The directory of the dead letters of spouts that do not set ``dead_letters``; ``sparkbolt dlq`` reads it.

        It is made with the first dead letter. If the user has named a checkpoint, it is in the checkpoint.
        """
        return self._checkpoint.letters_directory

    @property
    def set_aside_here(self) -> dict[str, int]:
        """How many messages of each spout were set aside since ``start``; only spouts with at least one."""
        with self._changed:
            counts = self._coordinator.ledger.metrics.components
            found = {name: one.set_aside - self._aside_before.get(name, 0) for name, one in counts.items()}
        return {name: count for name, count in found.items() if count}

    @property
    def failed(self) -> list[FailedTree]:
        """The newest trees that failed, with their stories, also those whose messages were retried."""
        with self._changed:
            return self._coordinator.ledger.failed

    @property
    def traced(self) -> list[Story]:
        """The stories of the newest trees that were traced and acked."""
        with self._changed:
            return self._coordinator.ledger.traced

    # Control.

    @property
    def is_running(self) -> bool:
        """Whether the query runs, or will be restarted."""
        return self._supervisor.is_alive()

    @property
    def failure(self) -> str | None:
        """Why the topology failed, in a sentence; None if it did not fail, or will be restarted."""
        return self._lifecycle.failure

    @property
    def killed(self) -> str | None:
        """Who has killed the topology from outside, as in "killed by alice"; None if nobody has."""
        kill = self._lifecycle.kill
        return kill.why if kill is not None else None

    def exits(self, exit_code: int) -> None:
        """Tell those who operate the topology with which exit code its process ends."""
        if self._presence is not None:
            self._presence.exits(exit_code)

    @property
    def trouble(self) -> str | None:
        """Why the topology does not run properly at the moment, in a sentence; None if it does.

        The reasons are: the topology failed; its query failed, and the new life has done nothing yet; a spout cannot
        be opened.
        """
        if self.failure is not None:
            return self.failure
        if self._begins_again and not self._lifecycle.asked_to_restart:
            return f"its query failed and is being started again: {self._lifecycle.why_restarted}"
        return next((thread.trouble for thread in self._threads if thread.trouble is not None), None)

    @property
    def waits_for(self) -> str | None:
        """What the topology waits for before it is up, in a sentence; None once it is up.

        It is up when all spouts are open, and Spark runs its first micro-batch or was told that there is nothing to do.
        """
        closed = [thread.name for thread in self._threads if not thread.opened]
        if closed:
            return f"{', '.join(closed)}: open has not returned"
        runs = self._life.progress().micro_batch_id is not None or self._coordinator.ledger.staged is not None
        if not self._life_works and not runs:
            return "Spark has run no micro-batch since the start"
        return None

    @property
    def outages(self) -> list[str]:
        """A sentence for each bolt that is out at the moment: for how long, why, and when it is tried next.

        A commit that waits for its target is among them.
        """
        with self._changed:
            waits = self._life.commit_waits
            return [*self._coordinator.ledger.outages.sentences(now_ms()), *([waits] if waits is not None else [])]

    @property
    def _life_works(self) -> bool:
        return self._life.machine.works

    @property
    def _begins_again(self) -> bool:
        """Whether a life has ended, and the one that follows has done nothing yet."""
        ended = self._lifecycle.restarted
        return ended is not None and (ended is self._life or not self._life_works)

    def _notice_state(self) -> TopologyState:
        """The state, as it is by now: whether the topology works, and its spouts emit, is seen when it is asked for."""
        lifecycle, state = self._lifecycle, self._lifecycle.state
        if state is TopologyState.STARTING:
            works = self.waits_for is None
        else:
            works = state is TopologyState.RESTARTING and not self._begins_again
        if works:
            lifecycle.on(LifecycleEvent.WORKS)
        if not self._coordinator.active:
            lifecycle.on(LifecycleEvent.DEACTIVATE)
        return lifecycle.state

    def activate(self) -> None:
        """Let spouts emit again.

        Raises:
            EngineError: the topology was stopped, or is ending.
        """
        self._lifecycle.order(LifecycleEvent.ACTIVATE, "activated")
        self._set_active(True)

    def deactivate(self) -> None:
        """Stop spouts from emitting; trees in flight are still processed.

        Raises:
            EngineError: the topology was stopped.
        """
        self._lifecycle.order(LifecycleEvent.DEACTIVATE, "deactivated")
        self._set_active(False)

    def _set_active(self, active: bool) -> None:
        with self._changed:
            self._coordinator.active = active
            self._changed.notify_all()
        for thread in self._threads:
            thread.set_active(active)

    def await_idle(self, timeout_secs: float | None = None) -> bool:
        """Wait until every tree is finished and spouts have nothing new; False if ``timeout_secs`` expire first."""
        since_s = time.monotonic()
        return self._await(lambda: self._idle_since(since_s), timeout_secs)

    def await_finished(self, timeout_secs: float | None = None) -> bool:
        """Wait until all spouts are exhausted and every tree is finished; False if ``timeout_secs`` expire first."""
        return self._await(lambda: self._coordinator.finished, timeout_secs)

    def await_drained(self, timeout_secs: float | None = None) -> bool:
        """Wait until no tree is open and spouts have received every verdict; False if ``timeout_secs`` expire first."""
        return self._await(lambda: self._coordinator.drained, timeout_secs)

    @property
    def retries(self) -> int:
        """How many messages wait for a retry."""
        with self._changed:
            return self._coordinator.retries

    def _idle_since(self, since_s: float) -> bool:
        """Whether every tree is finished, and spouts were asked after ``since_s`` and had nothing new."""
        coordinator = self._coordinator
        asked_s = coordinator.asked_s
        return coordinator.drained and not coordinator.retries and asked_s is not None and asked_s >= since_s

    def _await(self, condition: Callable[[], bool], timeout_secs: float | None) -> bool:
        until = None if timeout_secs is None else time.monotonic() + timeout_secs
        with self._changed:
            while (self._life.machine.promoting and not self._listeners.is_current) or not condition():
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

    def stop(self, drain: bool = True, timeout_secs: float | None = None) -> bool:
        """Stop as ``RunningTopology.stop`` says: spouts emit no new tuples, and then everything is ended."""
        if self._calls.has_this_thread:  # ``stop`` would wait for the call in which it is called
            threading.Thread(target=self.stop, args=(drain, timeout_secs), name="sparkbolt-stop").start()
            return False
        if drain:
            self._lifecycle.on(LifecycleEvent.STOP)
        self._set_active(False)
        if drain and self.is_running and self.failure is None:
            limit = self.topology.config.message_timeout_secs if timeout_secs is None else timeout_secs
            try:
                self.await_drained(limit)
            except EngineError:
                log.error("topology %r failed while it was draining: %s", self.topology.name, self.failure)
        drained = self._coordinator.drained
        self.close()
        return drained

    def close(self) -> None:
        """End everything that runs for the topology."""
        if self._calls.has_this_thread:
            threading.Thread(target=self.close, name="sparkbolt-close").start()
            return
        if not self._lifecycle.end():  # another thread ends everything, such as that of a kill from outside
            self._closed.wait(0.0 if threading.current_thread() is self._supervisor else None)
            return
        try:
            self._end_everything()
        finally:
            self._closed.set()

    def _end_everything(self) -> None:
        self._calls.break_off()
        self._life.stop_query()
        while self._supervisor.is_alive() and threading.current_thread() is not self._supervisor:
            self._supervisor.join(1.0)
            self._life.stop_query()
        close_all(self._threads)
        self._life.end()
        self._listeners.end()
        if self._telemetry is not None:
            try:
                self._telemetry.close()
            except Exception as error:  # noqa: BLE001  any library; the checkpoint must be closed all the same
                self._error_log.listener_raised(self._telemetry.close, error)
        self._error_log.tell_withheld(at_once=True)
        self.recording.close()
        if self._presence is not None:
            why = self.failure or self.killed
            self._presence.ended(self._lifecycle.state, why, drained=self._coordinator.drained)
        self._checkpoint.close()
        for folder in (self._folder, self._temporary):
            if folder is not None:
                scratch.remove(folder)
