"""The supervisor: begins the lives of a topology, one after the other, and restarts a query that fails.

Rule 1: only the checkpoint counts. After a query has failed a new life begins, which loads its ledger from the log as
after a crash; only the threads of spouts stay, with their connections.
Rule 2: a query that fails is restarted as long as the restart policy allows it; a restart that was requested does not
count.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from sparkbolt.api.keyed_state import refusal
from sparkbolt.api.progress import Progress, Sight
from sparkbolt.api.reports import QueryFailure
from sparkbolt.api.topology import Topology
from sparkbolt.control.peeks import Peeks
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.ledger.agreement import InletSources
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.lifecycle import Lifecycle
from sparkbolt.driver.restart_policy import Restarts
from sparkbolt.driver.transition import Continuation, transition
from sparkbolt.errors import EngineError, SpoutOpenError
from sparkbolt.layout.lane import Lane
from sparkbolt.spark.activity_pages import fields_of, warning
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.life import Life
from sparkbolt.spark.session import cores_of, why_gone
from sparkbolt.spark.spout_threads import SpoutThread, close_all
from sparkbolt.spark.user_calls import Calls, NotReturned
from sparkbolt.worker.activity import Hangs

PASSING_POLL_SECS = 1
CHANGE_WAIT_SECS = 60.0
"""How long a change of shape waits for the end of the running micro-batch, before it is aborted and runs anew."""
LOOK_OUT_SECS = 1.0
log = logging.getLogger("sparkbolt")


class Supervisor:
    """The lives of one topology in this driver, and the thread that waits for the end of each."""

    life: Life
    """The current life; ``begin_first`` sets it."""

    def __init__(
        self,
        lane: Lane,
        spark: SparkSession,
        checkpoint: Checkpoint,
        calls: Calls,
        lifecycle: Lifecycle,
        tell: Callable[[Coordinator, Promotion], None],
        note: Callable[[str, str], None],
        reshaped: Callable[[bool], None] = lambda _: None,
        before: tuple[Topology, int | None] | None = None,
    ) -> None:
        """Prepare; nothing begins yet.

        Args:
            lane: the topology, laid out.
            spark: the topology's own session.
            checkpoint: the topology's checkpoint, locked.
            calls: the user calls of the topology.
            lifecycle: the state of the topology.
            tell: as in ``Life``.
            note: called with the kind and the text of each event that operators should see.
            reshaped: called when ``lane`` has changed; with True if it is the one before, since a change failed.
            before: the shape to go back to, if ``lane`` has one that nothing is committed with; None: there is none.
        """
        self.lane = lane
        """The topology, laid out as the current life runs it."""
        self._wanted: tuple[Topology, int | None] | None = None
        """The shape with which the next life begins; None: with the present one."""
        self._before = before
        """The shape before the last change, while nothing was committed in the new one."""
        self._spark = spark
        self._checkpoint = checkpoint
        self._calls = calls
        self._lifecycle = lifecycle
        self._tell = tell
        self._note = note
        self._reshaped = reshaped
        self.peeks = Peeks()
        self._restarts = Restarts(lane.topology.config)
        self._collected_before = 0
        self.threads: list[SpoutThread] = []
        """The tasks of each ``Spout``."""
        self._thread = threading.Thread(target=self._run, name="sparkbolt-supervisor", daemon=True)

    # The first life.

    def begin_first(self, open_secs: float | None) -> None:
        """Begin the first life of this driver; if a spout cannot be opened, this is retried like a failed query.

        The spouts may take ``open_secs``; None means no limit.

        Raises:
            EngineError: a spout cannot be opened.
        """
        calls = self._calls
        threading.Thread(target=self._look_out, name="sparkbolt-hangs", daemon=True).start()
        calls.ended_s = time.monotonic() + (math.inf if open_secs is None else open_secs)
        try:
            self.life = self._first_life()
        except BaseException:
            calls.break_off()
            raise
        calls.ended_s = math.inf

    def _first_life(self) -> Life:
        calls, failed = self._calls, None
        while failed is None or time.monotonic() < calls.ended_s:
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
                calls.stopping.wait(min(restart.wait_secs, max(0.0, calls.ended_s - time.monotonic())))
        raise EngineError(f"{failed} (until its time was over)") from failed

    def _new_life(self) -> Life:
        return Life(self.lane, self._spark, self._checkpoint, self._calls, self._lifecycle, self._tell, self.peeks)

    def start(self, threads: Sequence[SpoutThread]) -> None:
        """Begin to process, with the tasks of each ``Spout``; returns at once."""
        self._lifecycle.opening += [thread.name for thread in threads]
        for thread in threads:
            thread.start()
            self.threads.append(thread)
        self.life.start()
        self._thread.start()

    # The lives that follow.

    def _run(self) -> None:
        """Wait for the query to end, and restart it as long as the restart policy allows it."""
        failure = self._await_end()
        while not self._calls.stopping.is_set():
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
        if self._goes_back(failure):
            return True
        worked, hopeless = self.life.machine.promoted, failure.hopeless or self._lifecycle.failure is not None
        restart = None if hopeless else self._restarts.next(time.monotonic(), free=failure.free, worked=worked)
        if restart is None:
            why = " (not started again: it would fail again)" if failure.hopeless else self._restarts.spent(failure)
            self._fail(failure.text + why)
            return False
        self._lifecycle.restart(self.life.coordinator.life, failure.text, ordered=False)
        log.error("query failed: %s; it is started again %s", failure.text, self._restarts.when(restart))
        self._note("restarted", f"its query failed: {failure.text}")
        return not self._calls.stopping.wait(restart.wait_secs)

    def _await_end(self) -> QueryFailure | None:
        """Wait for the end of the query; returns why it failed, or None if it was stopped here for another life."""
        life = self.life
        assert life.query is not None
        try:
            while life.passing and not self._calls.stopping.is_set():
                if life.query.awaitTermination(PASSING_POLL_SECS):
                    break
                if life.machine.promoted:
                    life.stop_query()
                    return None
            life.query.awaitTermination()
        except Exception as error:  # noqa: BLE001  the query's own failure, or py4j's when the JVM is gone
            return None if self._restarts_on_order(life) else life.failure or query_failure(error)
        if self._restarts_on_order(life):
            return None
        return QueryFailure("the query was stopped by somebody else: was the Spark session stopped?", EngineError)

    def _restarts_on_order(self, life: Life) -> bool:
        return self._lifecycle.restarts_on_order(life.coordinator.life)

    def _fail(self, failure: str) -> None:
        self._lifecycle.fail(failure)
        self._calls.wake()

    def _begin_again(self) -> None:
        """Begin a new life from the checkpoint; the spouts' threads continue with its spout buffers."""
        old = self.life
        self._checkpoint.tenure.check()  # otherwise two drivers would take over from each other again and again
        old.promote_what_is_committed()
        old.end()
        if self._wanted is not None:
            self._reshape(*self._wanted, went_back=self._before is None)
        life = self._new_life()
        with self._calls.changed:
            life.coordinator.take_over(old.coordinator)
            for thread in self.threads:
                thread.go_on_with(life.coordinator.buffers[thread.number])
            self._collected_before += old.collected_bytes
            self.life = life
        life.start()
        if self._calls.stopping.is_set() or self._restarts_on_order(life):
            life.stop_query()  # the stop was requested before the query existed

    # Changes of shape.

    def transition(self, topology: Topology, spark_partitions: int | None) -> Continuation:
        """How the topology would go on with another shape, after the last micro-batch that is committed."""
        checkpoint = self._checkpoint
        known = topology, cores_of(self._spark), checkpoint.generations, checkpoint.last_commit(), refusal
        inlets = InletSources.read(checkpoint.files, checkpoint.generations)
        return transition(*known, spark_partitions=spark_partitions, inlets=inlets)

    def change(self, topology: Topology, spark_partitions: int | None, why: str) -> bool:
        """Go on with another shape, behind the running micro-batch; False if this is refused."""
        with self._calls.changed:
            until_s = time.monotonic() + CHANGE_WAIT_SECS
            while self.life.machine.running is not None and time.monotonic() < until_s:
                self._calls.changed.wait(0.05)
            partitions = self._checkpoint.generation.placement["spark_partitions"]
            self._wanted, self._before = (topology, spark_partitions), (self.lane.topology, partitions)
        if self.restart(why):
            return True
        self._wanted = self._before = None
        return False

    def settles(self, micro_batch_id: int) -> bool:
        """Whether a promoted micro-batch is the first one after a change, from which there is no way back."""
        if self._before is None or self._wanted is not None or micro_batch_id < self._checkpoint.generation.base:
            return False
        self._before = None
        return True

    def _reshape(self, topology: Topology, spark_partitions: int | None, *, went_back: bool) -> None:
        """Begin a generation with this shape, or go on with it after a change that failed."""
        started = self.transition(topology, spark_partitions)
        self._checkpoint.keep(started.generations)
        self.lane, self._wanted = started.lane, None
        self._spark.conf.set("spark.sql.shuffle.partitions", str(self.lane.spark_partitions))
        self._reshaped(went_back)

    def _goes_back(self, failure: QueryFailure) -> bool:
        """Whether the topology goes on with the shape before, since its state could not be moved to the new one."""
        checkpoint, before = self._checkpoint, self._before
        if before is None or not failure.hopeless or checkpoint.last_commit() >= checkpoint.generation.base:
            return False
        self._wanted, self._before = before, None
        text = f"{failure.text}; the topology goes on with the tasks that it had"
        log.error("topology %r cannot be rebalanced: %s", self.lane.topology.name, text)
        self._note("rebalance failed", text)
        self._lifecycle.restart(self.life.coordinator.life, failure.text, ordered=False)
        return True

    def restart(self, why: str) -> bool:
        """End the current life, so that another one begins; False if this is refused."""
        life = self.life
        if not self._lifecycle.restart(life.coordinator.life, why, ordered=True):
            return False
        log.warning("topology %r is %s: its query ends, and begins again", self.lane.topology.name, why)
        life.stop_query()
        return True

    # Observing.

    @property
    def is_alive(self) -> bool:
        """Whether a query runs, or will be restarted."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the current thread is the supervisor's."""
        return threading.current_thread() is self._thread

    @property
    def collected_bytes(self) -> int:
        """How many bytes of frames the driver has collected at the end of the lane, over all lives."""
        return self._collected_before + self.life.collected_bytes

    def progress(self) -> Progress:
        """The progress of the running, uncommitted micro-batch, and the calls that have not returned."""
        failed = self._lifecycle.failure is not None
        progress = Progress(levels=len(self.lane.levels)) if failed else self.life.progress()
        return progress.with_calls([*self._calls.sights().values()])

    def _sights(self) -> Mapping[str, Sight]:
        works = {} if self._thread.ident is None else self.life.sights()
        return {**self._calls.sights(), **works}

    def _look_out(self) -> None:
        """Log the calls of user code that do not return."""
        hangs, who = Hangs(), self.lane.topology.task_owner
        while not self._calls.stopping.wait(LOOK_OUT_SECS):
            for sight in hangs.worth(self._sights()):
                log.warning("%s", warning(sight, who), extra=fields_of(sight.doing, who))

    def end(self) -> None:
        """Stop the query, and end the current life, the spouts' threads and the supervisor's."""
        self._calls.break_off()
        self.life.stop_query()
        while self._thread.is_alive() and not self.is_current:
            self._thread.join(1.0)
            self.life.stop_query()
        close_all(self.threads)
        self.life.end()
