"""The crash shield: how a worker outlives a tuple that kills its process.

Which question it answers: a Python worker died, and Spark runs its spark_task again; who dies this time?
Rule 1: a spark_task's first attempt runs in the worker itself; a further one runs in forked children, which note
in shared memory where they are. When one dies, what it was at is isolated (``core.worker.crash_isolation``), and a new
child does the same work without it.
Rule 2: a child has instances of its own and touches nothing that belongs to the worker: it asks for what it needs
of Spark's state store, and what it would write comes back with its rows, to be written by the worker.
Rule 3: a child dies with its worker, so that no two attempts of one spark_task run at the same time.
Rule 4: a child that cannot speak to its worker any more, since user code has closed its files, dies before it moves on,
so that what has closed them is what it was at.

What instances the worker has kept are stale after a child ran, and are known to be: the stamps of the state that
the child's rows brought say so (``core.state.task_state``, rule 2).
Read before: ``core.worker.crash_isolation``, ``executor``.
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

from sparkbolt.core.base.exceptions import own_process
from sparkbolt.core.state.segments import SegmentStore
from sparkbolt.core.worker.crash_isolation import PLACE_BYTES, Crashes, Watch, WorkPlace
from sparkbolt.core.worker.results import Row
from sparkbolt.core.worker.worker import Worker
from sparkbolt.errors import EngineError
from sparkbolt.spark.executor import activity_of_child

StoreOf: TypeAlias = Callable[[int], SegmentStore | None]
Work: TypeAlias = Callable[[Worker, StoreOf], list[Row]]
"""A piece of work: with the instances of a worker and the stores of tasks (by dest) it gives rows."""

END_WAIT_SECS = 10.0
"""How long a child that has delivered its rows may take to clean up before it is killed."""
POLL_SECS = 1.0
CLOSED = b"\1"
"""Noted behind the place by a child whose files were closed."""
_PR_SET_PDEATHSIG = 1
log = logging.getLogger("sparkbolt")


class Dead(Exception):  # noqa: N818  an outcome
    """The child died before it had delivered anything."""

    def __init__(self, place: WorkPlace, how: str) -> None:
        """It noted ``place`` last; ``how`` says by what it ended."""
        super().__init__(how)
        self.place = place
        self.how = how


@dataclass(frozen=True)
class Task:
    """What a child is to do."""

    worker: Worker
    work: Work
    store_of: StoreOf
    """As the worker has them: a child only sees which there are."""
    crashes: Crashes


class StagedStore:
    """A task's segments as a child sees them: reads ask the worker, writes wait for it."""

    def __init__(self, ask: Callable[[str, Any], Any]) -> None:
        """Ask with (verb, key)."""
        self._ask = ask
        self.writes: dict[str, bytes | None] = {}
        """What is to be put; None: to be deleted."""

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
        """Remove a key that may or may not be there."""
        self.writes[key] = None

    def keys(self) -> Iterable[str]:
        """All keys."""
        known = {*self._ask("keys", None), *self.writes}
        return [key for key in known if self.writes.get(key, b"") is not None]


def is_repeated() -> bool:
    """Whether this spark_task was tried before, so that whatever it runs may have killed its worker."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def shielded(worker: Worker, work: Work, store_of: StoreOf = lambda _: None) -> list[Row]:
    """Do a piece of work; in children, if it may have killed a worker before.

    Args:
        worker: this process's.
        work: called with it, or in a child with another one.
        store_of: the durable segments of a task, by its dest.

    Raises:
        EngineError: children die in what is no tuple's fault, or too many do.
        Exception: whatever ``work`` raises.
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
    """One child's attempt at the work: its rows, and what it would have written, by dest.

    Raises:
        Dead: it died.
    """
    ours, its = Pipe()
    with ours, mmap.mmap(-1, PLACE_BYTES + len(CLOSED)) as memory:
        memory[:PLACE_BYTES] = WorkPlace().pack()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads: libraries' own, which outlive a fork
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
    """Answer a child's questions until it has delivered, or is dead."""
    while True:
        try:
            while not connection.poll(POLL_SECS):  # whatever user code has forked may hold the pipe open
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
    """Wait for a child, and kill it when it takes too long; its exit code, negative for a signal."""
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
    """What a child does, from the fork to its end."""
    code = 1
    try:
        own_process()
        _die_with(parent)
        own, said = _attempt(connection, memory, task)
        connection.send(said)
        memory[:PLACE_BYTES] = WorkPlace().pack()
        own.close()
    except SystemExit as leaving:  # in user code this is one more way to die
        code = leaving.code if isinstance(leaving.code, int) else 1
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _attempt(connection: Connection, memory: mmap.mmap, task: Task) -> tuple[Worker, tuple[Any, ...]]:
    """Do the work with instances of its own: they, and what is to be said to the worker."""
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
    except Exception as error:  # noqa: BLE001  handed on to the worker, which raises it
        return own, ("raised", _pickled(error))
    return own, ("rows", rows, {dest: store.writes for dest, store in stores.items()})


def _file_of(connection: Connection) -> tuple[int, int] | None:
    """What is open under the number of a connection; None: nothing is, somebody has closed it."""
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
    """Have the kernel kill this process with its parent, and before any other where memory runs out (Linux)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
