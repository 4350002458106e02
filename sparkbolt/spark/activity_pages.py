"""Activity pages: small files in which worker processes show their activity to the driver.

Under a local master each worker maps a page into memory. The working thread notes each activity that it begins; a
second thread observes it and writes its findings twice a second. No thread waits for another. A page belongs to a
process as long as the process holds its lock, which the kernel releases when the process dies.

On a cluster there are no pages: the second thread logs a call that hangs, on its executor, and the driver only knows
Spark's status.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import mmap
import os
import signal
import struct
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from sparkbolt.api.progress import NOTE_BYTES, CallSight, Doing, Sight
from sparkbolt.control.logs import LogFields
from sparkbolt.worker.activity import ActivityMonitor, Hangs, Looker, sight_of

LOOK_EVERY_SECS = 0.5
PAGE_BYTES = 1 << 16
_LENGTH = struct.Struct("<i")
_LOOK_AT = NOTE_BYTES + _LENGTH.size
_NOT_OF_USERS = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<frozen")
log = logging.getLogger("sparkbolt")


class Page:
    """The page of this process."""

    def __init__(self, directory: str) -> None:
        """Make the page.

        Its disk space is allocated at once: a write to a mapped file without disk space kills the process.

        Raises:
            OSError: the directory is gone because the driver has ended, or the disk is full.
        """
        self.path = os.path.join(directory, str(os.getpid()))
        unseen = f"{self.path}.new"
        self._fd = os.open(unseen, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._fd, 0, PAGE_BYTES)
        except OSError:
            os.close(self._fd)
            os.unlink(unseen)
            raise
        self._memory = mmap.mmap(self._fd, PAGE_BYTES)
        os.rename(unseen, self.path)

    def note(self, data: bytes) -> None:
        """Store a note: the current activity of the working thread."""
        self._memory[:NOTE_BYTES] = data

    def keep(self, look: bytes) -> None:
        """Store a look: the findings of the second thread; it is ignored if it does not fit into the page."""
        if len(look) <= PAGE_BYTES - _LOOK_AT:
            self._memory[NOTE_BYTES : _LOOK_AT + len(look)] = _LENGTH.pack(len(look)) + look

    def remove(self) -> None:
        """Remove the file; the memory stays mapped, since another thread may still write to it."""
        with suppress(OSError):
            os.unlink(self.path)
        os.close(self._fd)


class LookOut:
    """In a worker process: the thread that observes the working thread."""

    def __init__(self, directory: str | None, who: Callable[[int], tuple[str, int]]) -> None:
        """Start the thread.

        Args:
            directory: the directory of the pages; None if the driver is on another machine.
            who: returns (component, index) for a task number.
        """
        self.directory = directory
        self.who = who
        self._page: Page | None = None
        if directory is not None:
            with suppress(OSError):
                self._page = Page(directory)
        self.monitor = ActivityMonitor(time.monotonic, self._page.note if self._page is not None else None)
        if self._page is not None:
            self._page.note(self.monitor.doing.pack())
        self._hangs = Hangs()
        working = threading.get_ident()
        self._looker = Looker(self.monitor, lambda: line_of(frames_of_threads().get(working)))
        self._ended = threading.Event()
        threading.Thread(target=self._look, name="sparkbolt-look-out", daemon=True).start()

    def _look(self) -> None:
        seen = -1
        while not self._ended.wait(LOOK_EVERY_SECS):
            doing = self.monitor.doing
            if doing.task == 0 and doing.serial == seen:
                continue  # nothing has happened
            seen = doing.serial
            with suppress(RuntimeError):  # the working thread may change the data during the read
                self._show(self._looker.look(time.monotonic()))

    def _show(self, look: bytes) -> None:
        if self._page is not None:
            self._page.keep(look)
        elif self.directory is None:
            sight = sight_of(self.monitor.doing.pack(), look, time.monotonic())
            for hung in self._hangs.worth({} if sight is None else {"": sight}):
                log.warning("%s", warning(hung, self.who))

    def fields(self) -> LogFields:
        """Which task the process works on, for its log."""
        return fields_of(self.monitor.doing, self.who)

    def forked(self) -> LookOut:
        """A new observer for a forked child, which has none of this process's threads."""
        return LookOut(self.directory, self.who)

    def close(self) -> None:
        """Stop the thread and remove the page."""
        self._ended.set()
        if self._page is not None:
            self._page.remove()


def fields_of(doing: Doing, who: Callable[[int], tuple[str, int]]) -> LogFields:
    """The subject of a log line during this activity; ``who`` returns (component, index) for a task number."""
    if doing.task == 0:
        return {}
    component, task = who(doing.task)
    return {"component": component, "task": task, "micro_batch": doing.micro_batch_id}


def warning(sight: Sight, who: Callable[[int], tuple[str, int]]) -> str:
    """The line that is logged for a call that hangs."""
    if isinstance(sight, CallSight):
        holds_up = "nothing new is read before it returns" if sight.waited_for else "its acks and fails wait for it"
        return f"{sight.sentence()}: {holds_up}; Ctrl-C or stop() leaves it behind"
    return (
        f"{sight.sentence(who)}: its micro-batch is not committed before it returns, and nothing new is read; "
        "Ctrl-C or stop() breaks it off and leaves its trees for replay"
    )


_looking = threading.Lock()


def frames_of_threads() -> dict[int, FrameType]:
    """The current frame of each thread of this process, by thread id.

    Python before 3.12 holds a lock of the interpreter while it makes the dict. If cyclic garbage were collected at that
    moment, another thread could run, wait for that lock, and never release the GIL (CPython issue 106883). The process
    would hang, so the collector is off here.
    """
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


def line_of(frame: FrameType | None) -> str | None:
    """The innermost line of user code: not of Sparkbolt, the standard library or an installed library.

    The frame's thread continues meanwhile, and Python 3.11 has been seen to give a dict for the frame behind one.
    """
    while isinstance(frame, FrameType):
        path = frame.f_code.co_filename
        if not path.startswith(_NOT_OF_USERS) and "site-packages" not in path:
            return f"{os.path.basename(path)}:{frame.f_lineno}, in {frame.f_code.co_name}"
        frame = frame.f_back
    return None


class Pages:
    """The driver's end: reads the pages of all worker processes of one life."""

    def __init__(self, directory: str) -> None:
        """Make ``directory``, in which the workers create their pages."""
        self.directory = directory
        os.makedirs(directory, 0o700, exist_ok=True)

    def sights(self) -> dict[str, Sight]:
        """The current activity of each live process, by process id."""
        now_s = time.monotonic()
        found = {}
        for name in self._names():
            with suppress(OSError, ValueError, struct.error):
                sight = sight_of(*self._read(name), now_s)
                if sight is not None:
                    found[name] = sight
        return found

    def kill_busy(self) -> int:
        """Kill the processes that run user code; returns how many."""
        count = 0
        for name, sight in self.sights().items():
            if sight.busy:
                with suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)
                    count += 1
        return count

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self.directory) if name.isdecimal()]
        except OSError:
            return []

    def _read(self, name: str) -> tuple[bytes, bytes]:
        """The note and the look of a page.

        Raises:
            OSError: the page is gone, or its process is dead.
        """
        path = os.path.join(self.directory, name)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            head = os.pread(fd, _LOOK_AT, 0)
            look = os.pread(fd, _LENGTH.unpack_from(head, NOTE_BYTES)[0], _LOOK_AT)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return head[:NOTE_BYTES], look  # the lock is held, so the process lives
            os.unlink(path)
            raise ProcessLookupError(f"process {name} is dead")
        finally:
            os.close(fd)
