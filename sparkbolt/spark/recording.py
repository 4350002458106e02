"""Recording: keeps the history of a running topology in its checkpoint.

Promotions only add to memory; a separate thread measures processes, asks Spark for its durations, and writes files. A
history that cannot be written is logged once and tried again; the topology runs on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.reports import Promotion
from sparkbolt.base.exceptions import line_of
from sparkbolt.base.file_access import Files
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.observe.history import History
from sparkbolt.observe.measurements import Process
from sparkbolt.observe.recorder import Recorder
from sparkbolt.spark.executor import process_of

BEAT_SECS = 5.0
"""How often processes are measured, and files written that are due."""
SEEN_SECS = 120.0
"""A worker process that reported nothing for so long is not counted."""
log = logging.getLogger("sparkbolt")


class Recording:
    """The history of one running topology, over all its lives in this process."""

    def __init__(self, files: Files, metrics: TopologyMetrics, first: Callable[[], int] = lambda: 0) -> None:
        """Load the history of the checkpoint.

        Args:
            files: the checkpoint's.
            metrics: the ledger's counts so far.
            first: returns the micro-batch that is Spark's number 0 now.
        """
        self._files = files
        self._first = first
        self._lock = threading.Lock()
        try:
            self.history = History.load(files)
        except OSError as error:
            log.warning("the history cannot be read (%s): a new one begins", error)
            self.history = History()
        self.recorder = Recorder(self.history, metrics, now_ms())
        self._workers: dict[tuple[str, int], tuple[int, float]] = {}
        """By (host, pid) of each worker: its memory in bytes, and when it was seen."""
        self.state_rows = self.state_bytes = 0
        """Spark's state stores, from its last progress report."""
        self._spark_seen = -1
        self._failed = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, metrics: Callable[[], TopologyMetrics], query: Callable[[], StreamingQuery | None]) -> None:
        """Begin to write; ``metrics`` returns the counters of now, ``query`` the query of the current life."""
        self._thread = threading.Thread(target=self._run, args=(metrics, query), name="sparkbolt-history", daemon=True)
        self._thread.start()

    def promoted(self, coordinator: Coordinator, promotion: Promotion) -> None:
        """Record a promotion; called while the topology's lock is held."""
        seen_s = time.monotonic()
        observed = coordinator.observed
        observed.times.promoted_ms = time.time() * 1000
        with self._lock:
            for process, size in observed.measured.processes.items():
                self._workers[process] = size, seen_s
            self.recorder.promoted(promotion, coordinator.ledger.metrics, observed)

    def view(self) -> History:
        """The history as it is now, for readers."""
        with self._lock:
            return self.history.view()

    def processes(self) -> list[tuple[str, Process]]:
        """(``driver``, ``jvm`` or ``worker``; the process) for each process that is known."""
        found = [("driver", process_of(os.getpid())), ("jvm", process_of(jvm_pid()))]
        since_s = time.monotonic() - SEEN_SECS
        with self._lock:
            self._workers = {key: one for key, one in self._workers.items() if one[1] >= since_s}
            found += [("worker", Process(*key, size)) for key, (size, _) in self._workers.items()]
        return [(kind, process) for kind, process in found if process is not None]

    def close(self) -> None:
        """Write everything that is pending, and stop writing."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(BEAT_SECS)
        self._write(all_rings=True)

    def _run(self, metrics: Callable[[], TopologyMetrics], query: Callable[[], StreamingQuery | None]) -> None:
        while not self._ended.wait(BEAT_SECS):
            try:
                self._beat(metrics(), query())
                self._write()
            except Exception as error:  # noqa: BLE001  no error of the history fails a topology
                self._warn(error)

    def _beat(self, metrics: TopologyMetrics, query: StreamingQuery | None) -> None:
        memory: dict[str, float] = {}
        for kind, process in self.processes():
            name = "workers" if kind == "worker" else kind
            memory[name] = memory.get(name, 0) + process.resident_bytes
        with self._lock:
            self.recorder.beat(metrics, memory, now_ms())
        if query is not None:
            with suppress(Py4JError, OSError):  # the JVM is ending
                self._ask_spark(query)

    def _ask_spark(self, query: StreamingQuery) -> None:
        """Note Spark's own durations of the micro-batches since the last time, and the size of its state."""
        for progress in query.recentProgress:
            number = self._first() + progress.batchId
            if number > self._spark_seen:
                self._spark_seen = number
                with self._lock:
                    self.history.spark_took(number, _floats(progress.durationMs))
                if progress.stateOperators:
                    self.state_rows = sum(one.numRowsTotal for one in progress.stateOperators)
                    self.state_bytes = sum(one.memoryUsedBytes for one in progress.stateOperators)

    def _write(self, *, all_rings: bool = False) -> None:
        now = now_ms()
        with self._lock:
            files = self.history.changed_files(now, all_rings=all_rings)
            old = self.history.old_files(now)
        left = dict(files)
        try:
            for name, data in files.items():
                self._files.write(name, data)
                del left[name]
            for name in old:
                self._files.remove(name)
            self._failed = self._failed and not files  # without files nothing was tried
        except Exception as error:  # noqa: BLE001  Hadoop's errors are py4j's
            with self._lock:
                self.history.not_written(left)
            self._warn(error)

    def _warn(self, error: BaseException) -> None:
        if not self._failed:
            log.warning("the history cannot be written (%s): it is tried again", line_of(error))
        self._failed = True


def _floats(durations: Mapping[str, int]) -> dict[str, float]:
    return {name: float(value) for name, value in durations.items()}


def jvm_pid() -> int | None:
    """The process id of the JVM, if this process has started it."""
    process = getattr(SparkContext._gateway, "proc", None)
    return None if process is None else int(process.pid)


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
