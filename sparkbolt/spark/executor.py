"""Executor: the objects that a Python worker process on an executor keeps from one micro-batch to the next.

A process has one ``Worker``, for one run; the worker of another run is cleaned up. Cyclic garbage is collected between
stages, never while a stage runs: with the collector on, a bolt that splits lines takes five times as long.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import platform
import resource
import secrets
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa

from sparkbolt.base.exceptions import end_if_forked, line_of, own_process
from sparkbolt.errors import EngineError, check
from sparkbolt.layout.lane import Lane
from sparkbolt.observe.measurements import Process
from sparkbolt.spark import program_modules
from sparkbolt.spark.activity_pages import LookOut
from sparkbolt.spark.failure_text import errors_carried
from sparkbolt.spark.job_bundle import JobBundle
from sparkbolt.spark.peek_calls import announced_peeks
from sparkbolt.spark.task_stdout import stdout_to_driver
from sparkbolt.worker.activity import ActivityMonitor
from sparkbolt.worker.environment import (
    WorkerEnvironment,
    become_main,
    environment_of,
    main_definitions,
    pickled_components,
    pickled_definitions,
)
from sparkbolt.worker.routing import Row
from sparkbolt.worker.worker import Worker

ARROW_SCHEMA = pa.schema([("dest", pa.int32()), ("frame", pa.binary())])
BATCH_BYTES_MAX = 1 << 20
"""After this many bytes of frames a new Arrow batch begins. The JVM copies a batch as a whole, and takes new memory for
a large one."""
ARROW_BYTES_MAX = (1 << 31) - 1
"""Arrow's offsets into a binary column have 32 bits."""
FULL_COLLECTION_EVERY = 64
_workers: dict[str, Worker] = {}
_look_outs: dict[str, LookOut] = {}
_stages_run = 0
log = logging.getLogger("sparkbolt")


def packed(lane: Lane, run: str, path: Sequence[str] = (), checkpoint_id: str = "") -> JobBundle:
    """The job bundle of a lane.

    Args:
        lane: the topology, laid out.
        run: the id of the run.
        path: the driver's module search path, if the executors are on its machine.
        checkpoint_id: the id of the topology's checkpoint.
    """
    return JobBundle(
        run=run,
        lane=cloudpickle.dumps(lane),
        components=pickled_components(lane),
        namespace=pickled_definitions(main_definitions()),
        path=tuple(path),
        modules=program_modules.at_start(),
        checkpoint_id=checkpoint_id,
    )


def worker_of(bundle: JobBundle) -> Worker:
    """The worker of this process for a job bundle; it is made on first use.

    Raises:
        EngineError: a module that a component needs cannot be imported here.
    """
    worker = _workers.get(bundle.run)
    if worker is None:
        for old in list(_workers):
            _close(_workers.pop(old))
            _look_outs.pop(old).close()
        sys.path.extend(entry for entry in bundle.path if entry not in sys.path)
        forgotten = program_modules.renew(bundle.modules, is_local=bool(bundle.path))
        if forgotten:
            log.info("%d modules of the program are imported again, since a file has changed", len(forgotten))
        stdout_to_driver()
        environment = _environment(bundle)
        look_out = _look_outs[bundle.run] = LookOut(bundle.pages, environment.lane.topology.task_owner)
        stdout_to_driver(look_out.fields)
        worker = _workers[bundle.run] = Worker(environment, monitor=look_out.monitor)
        gc.collect()
        gc.freeze()
    worker.peeks = announced_peeks()
    return worker


def _environment(bundle: JobBundle) -> WorkerEnvironment:
    try:
        lane = cloudpickle.loads(bundle.lane)
        namespace = cloudpickle.loads(bundle.namespace)
        become_main(namespace)
        for component in bundle.components.values():
            cloudpickle.loads(component)
    except ModuleNotFoundError as error:
        raise EngineError(
            f"module {error.name!r} is missing on the executors: install it there, or send it with "
            f"py_files=[...] (sparkbolt run --py-files)"
        ) from error
    environment = environment_of(
        lane,
        stamps=lambda: secrets.randbits(63) + 1,
        clock=time.monotonic,
        wall_ms=lambda: time.time() * 1000,
        process=lambda: process_of(os.getpid()),
        components=bundle.components,
        namespace=namespace,
        debug=logging.getLogger("sparkbolt.debug").warning,
    )
    environment.checkpoint_id = bundle.checkpoint_id
    environment.lock = threading.Lock()
    return environment


def process_of(pid: int | None) -> Process | None:
    """A process of this machine and its resident memory; None if it is gone, or the system does not report it."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return None
    return None if pid is None else Process(platform.node(), pid, pages * resource.getpagesize())


@contextmanager
def staged() -> Iterator[None]:
    """Run a stage without cyclic garbage collection, and collect afterwards; Sparkbolt's errors leave it as data."""
    global _stages_run
    gc.disable()
    own_process()
    process = os.getpid()
    try:
        with errors_carried():
            yield
    finally:
        end_if_forked(process)
        _stages_run += 1
        _collect(full=_stages_run % FULL_COLLECTION_EVERY == 0)


def _collect(*, full: bool) -> None:
    """Collect cyclic garbage, and hide the rest from PySpark's own ``gc.collect()`` after each spark_task.

    PySpark's collection is a full one, which would scan all cached state each time.
    """
    if full:
        gc.unfreeze()
    gc.collect(2 if full else 1)
    gc.freeze()


def activity_of_child(worker: Worker) -> ActivityMonitor | None:
    """In a forked child of this process: a monitor that shows the child's activity on its own page."""
    look_out = next((known for known in _look_outs.values() if known.monitor is worker.monitor), None)
    return None if look_out is None else look_out.forked().monitor


def _close(worker: Worker) -> None:
    """Clean up a worker that is not needed any more; an error of user code is logged, and stops no other run."""
    try:
        worker.close()
    except Exception as error:  # noqa: BLE001  user code may raise anything
        log.error("the end of a worker: %s", line_of(error))


@atexit.register
def _close_all() -> None:
    for worker in _workers.values():
        _close(worker)
    for look_out in _look_outs.values():
        look_out.close()


def batches_of(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches of (dest: int32, frame: binary).

    A batch ends with the row that brings it to ``BATCH_BYTES_MAX`` bytes, and before one that would bring it over
    ``ARROW_BYTES_MAX``.
    """
    for part in _parts_of(rows):
        yield _batch_of(part)


def _parts_of(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows in order, split by ``batches_of``; no part is empty.

    >>> [len(part) for part in _parts_of([(1, bytes(600_000))] * 5)]
    [2, 2, 1]
    """
    start = size = 0
    for stop, (_, frame) in enumerate(rows, start=1):
        if start < stop - 1 and size + len(frame) > ARROW_BYTES_MAX:
            yield rows[start : stop - 1]
            start, size = stop - 1, 0
        size += len(frame)
        if size >= BATCH_BYTES_MAX:
            yield rows[start:stop]
            start, size = stop, 0
    if start < len(rows):
        yield rows[start:]


def _batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    dests = pa.array([dest for dest, _ in rows], type=pa.int32())
    # In one piece and of the right size at once: Arrow's own way appends frame after frame, which takes twice as long.
    ends = np.cumsum([0, *(len(frame) for _, frame in rows)])
    check(int(ends[-1]) <= ARROW_BYTES_MAX, "a frame is larger than 2 GiB")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(frame for _, frame in rows))]
    frames = pa.Array.from_buffers(pa.binary(), len(rows), buffers)
    return pa.RecordBatch.from_arrays([dests, frames], schema=ARROW_SCHEMA)


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[int, Any]]:
    """The rows (dest, frame) of an Arrow batch; the frames share its memory."""
    for dest, frame in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
        yield dest, frame.as_buffer()
