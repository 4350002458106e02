"""Crash shield: lets a worker survive a tuple that kills its process.

Rule 1: the first attempt of a spark_task runs in the worker itself. Every further attempt runs in forked children,
which note their current activity in shared memory. When a child dies, the activity that it noted last is isolated
(``worker.crash_isolation``), and a new child does the same work without it.
Rule 2: a child has its own instances and changes nothing that belongs to the worker. It asks the worker for values of
Spark's state store, and it returns its writes with its rows; the worker writes them.
Rule 3: a child dies with its worker, so that no two attempts of one spark_task run at the same time.
Rule 4: user code may close the files of a child, so that the child cannot send to its worker any more. Such a child
exits before it notes its next activity, so that the activity that closed the files is blamed.

After a child ran, the instances that the worker has kept are stale. The worker detects this: the child's writes have
changed the stamps of the state (``worker.state.task_state``).
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeAlias

import cloudpickle
from pyspark import TaskContext

from sparkbolt.base.exceptions import own_process
from sparkbolt.errors import EngineError
from sparkbolt.spark.executor import activity_of_child
from sparkbolt.worker.crash_isolation import PLACE_BYTES, Crashes, Watch, WorkPlace
from sparkbolt.worker.routing import Row
from sparkbolt.worker.state.segments import SegmentStore
from sparkbolt.worker.worker import Worker

StoreOf: TypeAlias = Callable[[int], SegmentStore | None]
Work: TypeAlias = Callable[[Worker, StoreOf], list[Row]]
"""A piece of work: a function of a worker and of its tasks' stores (by dest) that returns rows."""

END_WAIT_SECS = 10.0
"""How long a child may take to clean up after it has sent its rows; then it is killed."""
POLL_SECS = 1.0
CLOSED = b"\1"
"""A child whose files were closed writes it after its place in the shared memory."""
_PR_SET_PDEATHSIG = 1
log = logging.getLogger("sparkbolt")


class Dead(Exception):  # noqa: N818  an outcome
    """The child died before it had sent its result."""

    def __init__(self, place: WorkPlace, how: str) -> None:
        """Store the ``place`` that the child noted last, and ``how`` it ended: a signal or an exit code."""
        super().__init__(how)
        self.place = place
        self.how = how


@dataclass(frozen=True)
class Task:
    """The work of a child."""

    worker: Worker
    work: Work
    store_of: StoreOf
    """The worker's stores; a child only checks which of them exist."""
    crashes: Crashes


class StagedStore:
    """A task's segments in a child: reads ask the worker, writes are collected for it."""

    def __init__(self, ask: Callable[[str, Any], Any]) -> None:
        """Read with ``ask(verb, key)``."""
        self._ask = ask
        self.writes: dict[str, bytes | None] = {}
        """The collected writes by key; None deletes the key."""

    def get(self, key: str) -> bytes | None:
        """The value of a key, or None."""
        if key in self.writes:
            return self.writes[key]
        found: bytes | None = self._ask("get", key)
        return found

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self.writes[key] = bytes(value)

    def delete(self, key: str) -> None:
        """Remove a key if it exists."""
        self.writes[key] = None

    def keys(self) -> Iterable[str]:
        """All keys."""
        known = {*self._ask("keys", None), *self.writes}
        return [key for key in known if self.writes.get(key, b"") is not None]


def is_repeated() -> bool:
    """Whether this spark_task was tried before; then its work may have killed a worker."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def shielded(worker: Worker, work: Work, store_of: StoreOf = lambda _: None) -> list[Row]:
    """Do a piece of work and return its rows; in forked children if it may have killed a worker before.

    Args:
        worker: the worker of this process.
        work: the function to run; it gets this worker, or in a child a worker of the child.
        store_of: returns the durable segments of the tasks at a dest, or None if they have none.

    Raises:
        EngineError: children die in an activity that cannot be isolated, or too many children die.
        Exception: any exception that ``work`` raises.
    """
    if not is_repeated():
        return work(worker, store_of)
    crashes = Crashes(worker.lane.topology.task_owner)
    while True:
        try:
            rows, writes = _in_child(worker, work, store_of, crashes)
        except Dead as dead:
            crashes.add(dead.place, dead.how)
            component, index = crashes.who(dead.place.task)
            log.error("%s[%d] killed its worker (%s); the work begins again without that", component, index, dead.how)
            continue
        for dest, changes in writes.items():
            _write(store_of(dest), changes)
        return rows


def _write(store: SegmentStore | None, changes: dict[str, bytes | None]) -> None:
    assert store is not None
    for key, value in changes.items():
        store.delete(key) if value is None else store.put(key, value)


def _in_child(
    worker: Worker, work: Work, store_of: StoreOf, crashes: Crashes
) -> tuple[list[Row], dict[int, dict[str, bytes | None]]]:
    """Run the work in one child; returns its rows and its writes by dest.

    Raises:
        Dead: the child died.
        Exception: any exception that the work raised in the child.
    """
    ours, its = Pipe()
    with ours, mmap.mmap(-1, PLACE_BYTES + len(CLOSED)) as memory:
        memory[:PLACE_BYTES] = WorkPlace().pack()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about threads: these are libraries' own
            pid = os.fork()
        if pid == 0:
            _live(its, parent, memory, Task(worker, work, store_of, crashes))
        its.close()
        wait_secs = 0.0
        try:
            outcome, *rest = _serve(ours, pid, store_of)
            wait_secs = END_WAIT_SECS
        finally:
            status = _end(pid, wait_secs)
        if outcome == "dead":
            closed = memory[PLACE_BYTES:] == CLOSED
            raise Dead(WorkPlace.unpack(memory[:PLACE_BYTES]), "closed its files" if closed else _how(status))
    if outcome == "raised":
        raise cloudpickle.loads(rest[0])
    rows, writes = rest
    return rows, writes


def _serve(connection: Connection, pid: int, store_of: StoreOf) -> tuple[Any, ...]:
    """Answer a child's requests until it sends its result or is dead; returns the result, or ``("dead",)``."""
    while True:
        try:
            while not connection.poll(POLL_SECS):  # a process that user code has forked may hold the pipe open
                gone = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
                if gone and not connection.poll():
                    return ("dead",)
            said: tuple[Any, ...] = connection.recv()
        except (EOFError, ConnectionResetError):
            return ("dead",)
        if said[0] != "ask":
            return said
        _, dest, verb, key = said
        store = store_of(dest)
        assert store is not None
        answer = store.get(key) if verb == "get" else list(store.keys())
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return ("dead",)


def _end(pid: int, wait_secs: float) -> int:
    """Wait for a child to exit, and kill it after ``wait_secs``; returns its exit code, negative for a signal."""
    until = time.monotonic() + wait_secs
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.002)


def _how(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


# In the child.


def _live(connection: Connection, parent: int, memory: mmap.mmap, task: Task) -> NoReturn:
    """The life of a child, from the fork to its exit."""
    code = 1
    try:
        own_process()
        _die_with(parent)
        own, said = _attempt(connection, memory, task)
        connection.send(said)
        memory[:PLACE_BYTES] = WorkPlace().pack()
        own.close()
    except SystemExit as leaving:  # user code that calls ``sys.exit`` ends the child, as a crash does
        code = leaving.code if isinstance(leaving.code, int) else 1
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _attempt(connection: Connection, memory: mmap.mmap, task: Task) -> tuple[Worker, tuple[Any, ...]]:
    """Do the work with a new worker; returns this worker and the message for the parent process."""
    stores: dict[int, StagedStore] = {}

    def store_of(dest: int) -> StagedStore | None:
        if task.store_of(dest) is None:
            return None

        def ask(verb: str, key: Any) -> Any:
            connection.send(("ask", dest, verb, key))
            return connection.recv()

        return stores.setdefault(dest, StagedStore(ask))

    pipe = _file_of(connection)

    def note(place: bytes) -> None:
        if _file_of(connection) != pipe:
            memory[PLACE_BYTES:] = CLOSED
            os._exit(1)
        memory[:PLACE_BYTES] = place

    own = Worker(task.worker.environment, Watch(task.crashes, note), activity_of_child(task.worker))
    try:
        rows = [(dest, bytes(frame)) for dest, frame in task.work(own, store_of)]
    except Exception as error:  # noqa: BLE001  sent to the worker, which raises it
        return own, ("raised", _pickled(error))
    return own, ("rows", rows, {dest: store.writes for dest, store in stores.items()})


def _file_of(connection: Connection) -> tuple[int, int] | None:
    """(device, inode) of the file that a connection's descriptor refers to; None if the descriptor was closed."""
    try:
        status = os.fstat(connection.fileno())
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _pickled(error: Exception) -> bytes:
    try:
        data = cloudpickle.dumps(error)
        cloudpickle.loads(data)
        return bytes(data)
    except Exception:  # noqa: BLE001  an exception may refuse to be pickled in any way
        return bytes(cloudpickle.dumps(EngineError(f"{type(error).__name__}: {error}")))


def _die_with(parent: int) -> None:
    """On Linux: let the kernel kill this process with its parent, and first of all processes if memory runs out."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
