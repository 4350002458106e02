"""Task stdout: how a line that a task prints reaches the terminal of the driver.

Which question it answers: what does ``print`` do in a bolt, and ``PrintBolt``?
Rule 1: a write is atomic; the lines of several worker processes are never mixed.
Rule 2: printing never fails a tuple: if the driver is gone, lines are dropped.

Under ``local[...]`` each worker's ``sys.stdout`` writes to a named pipe that the driver reads. On a cluster there is
no such pipe, and lines are in the executor's own log, as usual in Spark.
Read before: nothing.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import sys
import threading
import uuid
from collections.abc import Callable

TASK_STDOUT_ENV = "SPARKBOLT_PRINTS"
"""The environment variable that gives worker processes the path of the named pipe."""


class StdoutWriter(io.RawIOBase):
    """The writing end in a worker process."""

    def __init__(self, path: str) -> None:
        """Open the pipe.

        Raises:
            OSError: there is no pipe, or no process reads it.
        """
        super().__init__()
        self._fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # fails at once if no process reads it
        os.set_blocking(self._fd, True)

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write all bytes under a lock: without it a pipe may mix writes of more than 4,096 bytes."""
        left = memoryview(data)
        size = len(left)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                while left:
                    left = left[os.write(self._fd, left) :]
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        except BrokenPipeError:
            pass  # the driver is gone
        return size


def stdout_to_driver() -> None:
    """In a worker process: let ``sys.stdout`` write to the driver's pipe, if there is one; idempotent."""
    path = os.environ.get(TASK_STDOUT_ENV)
    if path is None or isinstance(getattr(getattr(sys.stdout, "buffer", None), "raw", None), StdoutWriter):
        return
    try:
        writer = StdoutWriter(path)
    except OSError:
        return
    buffered = io.BufferedWriter(writer, 1 << 16)  # type: ignore[type-var]
    sys.stdout = io.TextIOWrapper(buffered, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class StdoutReader:
    """The reading end in the driver: a thread that forwards whole lines."""

    def __init__(self, path: str, show: Callable[[str], None]) -> None:
        """Make the pipe and start to read; ``show`` receives one or more whole lines per call."""
        self.path = path
        self.show = show
        os.mkfifo(path, 0o600)
        # Opened for reading and writing, so that no end of file comes when the last writer closes the pipe.
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._marks: dict[str, threading.Event] = {}
        threading.Thread(target=self._read, name="sparkbolt-prints", daemon=True).start()

    def catch_up(self, timeout_secs: float) -> bool:
        """Wait until everything that was written before is shown; False if ``timeout_secs`` expire first."""
        event = threading.Event()
        mark = f"\x1e{uuid.uuid4()}"
        self._marks[mark] = event
        os.write(self._fd, f"{mark}\n".encode())  # so short a write is atomic without a lock
        return event.wait(timeout_secs)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while True:
            text = rest + decoder.decode(os.read(self._fd, 1 << 16))
            *lines, rest = text.split("\n")
            shown: list[str] = []
            for line in lines:
                caught_up = self._marks.pop(line, None)
                if caught_up is None:
                    shown.append(f"{line}\n")
                else:
                    self._show("".join(shown))
                    shown = []
                    caught_up.set()
            self._show("".join(shown))

    def _show(self, text: str) -> None:
        try:
            if text:
                self.show(text)
        except (OSError, ValueError):
            pass  # standard output was closed by its reader
