"""Pages: where a worker process shows what it is at, and the driver looks.

Which question it answers: how does the driver see, while a micro-batch runs, which task is at which tuple?
Rule 1: under a local master each worker process has a page, a small file that both ends map into memory: the working
thread notes what it begins, and a thread of its own writes twice a second what it sees. Nobody waits for anybody.
Rule 2: on a cluster there is no such memory. There the worker's own thread logs a call that hangs, on its executor,
and the driver knows what Spark's status says.
Rule 3: a page belongs to a process as long as that holds its lock, which the kernel takes back when it dies.

Read before: ``core.worker.activity``.
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

from sparkbolt.core.model.progress import NOTE_BYTES, CallSight, Sight
from sparkbolt.core.worker.activity import ActivityMonitor, Hangs, Looker, sight_of

LOOK_EVERY_SECS = 0.5
PAGE_BYTES = 1 << 16
_LENGTH = struct.Struct("<i")
_LOOK_AT = NOTE_BYTES + _LENGTH.size
_NOT_OF_USERS = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<frozen")
log = logging.getLogger("sparkbolt")


class Page:
    """The page of this process."""

    def __init__(self, directory: str) -> None:
        """Make it.

        Its room is taken at once: a store into a mapped file for which there is none kills the process.

        Raises:
            OSError: the directory is gone, since the driver is; or the disk is full.
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
        """Keep what the working thread is at."""
        self._memory[:NOTE_BYTES] = data

    def keep(self, look: bytes) -> None:
        """Keep what was seen, unless it is too much."""
        if len(look) <= PAGE_BYTES - _LOOK_AT:
            self._memory[NOTE_BYTES : _LOOK_AT + len(look)] = _LENGTH.pack(len(look)) + look

    def remove(self) -> None:
        """Nothing is shown any more; the memory stays, for whoever is writing to it."""
        with suppress(OSError):
            os.unlink(self.path)
        os.close(self._fd)


class LookOut:
    """In a worker process: the thread that looks what the working thread is at."""

    def __init__(self, directory: str | None, who: Callable[[int], tuple[str, int]]) -> None:
        """Begin to look.

        Args:
            directory: of the pages; None where the driver is on another machine.
            who: (component, index) of a task number.
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
            with suppress(RuntimeError):  # what is looked at may change meanwhile
                self._show(self._looker.look(time.monotonic()))

    def _show(self, look: bytes) -> None:
        if self._page is not None:
            self._page.keep(look)
        elif self.directory is None:
            sight = sight_of(self.monitor.doing.pack(), look, time.monotonic())
            for hung in self._hangs.worth({} if sight is None else {"": sight}):
                log.warning("%s", warning(hung, self.who))

    def forked(self) -> LookOut:
        """The same in a forked child, which has none of this process's threads."""
        return LookOut(self.directory, self.who)

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        if self._page is not None:
            self._page.remove()


def warning(sight: Sight, who: Callable[[int], tuple[str, int]]) -> str:
    """What is logged of a call that hangs."""
    if isinstance(sight, CallSight):
        holds_up = "nothing new is read before it returns" if sight.waited_for else "its acks and fails wait for it"
        return f"{sight.sentence()}: {holds_up}; Ctrl-C or stop() leaves it behind"
    return (
        f"{sight.sentence(who)}: its micro-batch is not committed before it returns, and nothing new is read; "
        "Ctrl-C or stop() breaks it off and leaves its trees for replay"
    )


_looking = threading.Lock()


def frames_of_threads() -> dict[int, FrameType]:
    """What each thread of this process is at.

    Python before 3.12 holds a lock of the interpreter's while it makes the dict. Were cyclic garbage collected just
    then, another thread might get its turn, want that lock, and never give the turn back (CPython issue 106883): the
    process would stand still for ever.
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
    """The innermost line of code that is neither ours nor Python's nor an installed library's."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_NOT_OF_USERS) and "site-packages" not in path:
            return f"{os.path.basename(path)}:{frame.f_lineno}, in {frame.f_code.co_name}"
        frame = frame.f_back
    return None


class Pages:
    """The driver's end: looks at the pages of all worker processes of one life."""

    def __init__(self, directory: str) -> None:
        """Workers put their pages into ``directory``, which is made."""
        self.directory = directory
        os.makedirs(directory, 0o700, exist_ok=True)

    def sights(self) -> dict[str, Sight]:
        """By process id, what each process that is alive is seen at."""
        now_s = time.monotonic()
        found = {}
        for name in self._names():
            with suppress(OSError, ValueError, struct.error):
                sight = sight_of(*self._read(name), now_s)
                if sight is not None:
                    found[name] = sight
        return found

    def kill_busy(self) -> int:
        """Kill the processes that are at user code; how many."""
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
            OSError: it is gone, or its process is.
        """
        path = os.path.join(self.directory, name)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            head = os.pread(fd, _LOOK_AT, 0)
            look = os.pread(fd, _LENGTH.unpack_from(head, NOTE_BYTES)[0], _LOOK_AT)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return head[:NOTE_BYTES], look  # somebody holds it: the process lives
            os.unlink(path)
            raise ProcessLookupError(f"process {name} is dead")
        finally:
            os.close(fd)
