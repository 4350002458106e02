"""Task stdout: brings the lines that a task prints to the terminal of the driver.

Under ``local[...]`` each worker's ``sys.stdout`` writes to a named pipe that the driver reads. A write is atomic, so
that the lines of several workers are never mixed; if the driver is gone, lines are dropped and no tuple fails. On a
cluster there is no such pipe, and lines are in the executor's own log, as usual in Spark. The engine's warnings in
workers, and their other log records if the driver writes a log to files, use the pipe too.

In the pipe, a record separator (ASCII 30) and a JSON object are on a line before the lines of a write, and name the
task that wrote them; with ``text`` the line is a log record itself.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import json
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sparkbolt.base.throttle import Throttle
from sparkbolt.control.logs import ENGINE, LogFields, current_log, line_of

TASK_STDOUT_ENV = "SPARKBOLT_PRINTS"
"""The environment variable that gives worker processes the path of the named pipe."""
TASK_LOG_ENV = "SPARKBOLT_TASK_LOG"
"""The environment variable that lets worker processes send the log records of all loggers, not of the engine's only."""
WARNINGS_MAX, WARNINGS_SECS = 5, 60.0
"""So many of the engine's warnings in tasks of one component are shown in so many seconds; a log has them all."""
engine_log = logging.getLogger(ENGINE)
_MARK = "\x1e{"
_NOBODY: LogFields = {}


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
        self._at_start = True
        self.who: Callable[[], LogFields] = lambda: _NOBODY
        """Returns which task this process works on."""

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write all bytes under a lock: without it a pipe may mix writes of more than 4,096 bytes."""
        whole = bytes(data)
        self._send(self._mark() + whole if self._at_start else whole)
        self._at_start = whole.endswith(b"\n")
        return len(whole)

    def record(self, record: logging.LogRecord) -> None:
        """Send a log record."""
        line = line_of(record, "")
        said = {"level": line["level"], "text": line["text"], **self.who()}
        about = {name: line[name] for name in LogFields.__annotations__ if line[name] is not None}  # type: ignore[literal-required]
        own = {"engine": True} if _is_of_engine(record) else {}
        self._send(f"\x1e{json.dumps({**said, **about, **own})}\n".encode())

    def _mark(self) -> bytes:
        return f"\x1e{json.dumps(self.who())}\n".encode()

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                while left:
                    left = left[os.write(self._fd, left) :]
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        except BrokenPipeError:
            pass  # the driver is gone


class _RecordsToDriver(logging.Handler):
    """Sends log records to the driver, and warnings to standard error, as ``logging`` does without a handler."""

    def __init__(self, writer: StdoutWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or _is_of_engine(record):
            self._writer.record(record)
        alone = logging.getLogger().handlers in ([], [self])
        if alone and logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)


def _is_of_engine(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] == ENGINE


def stdout_to_driver(who: Callable[[], LogFields] | None = None) -> None:
    """In a worker process: let ``sys.stdout`` write to the driver's pipe, if there is one; idempotent.

    ``who`` returns which task this process works on; it is called for each line.
    """
    path = os.environ.get(TASK_STDOUT_ENV)
    known = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(known, StdoutWriter):
        known.who = who or known.who
        return
    if path is None:
        return
    try:
        writer = StdoutWriter(path)
    except OSError:
        return
    buffered = io.BufferedWriter(writer, 1 << 16)  # type: ignore[type-var]
    sys.stdout = io.TextIOWrapper(buffered, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    writer.who = who or writer.who
    logging.getLogger("" if os.environ.get(TASK_LOG_ENV) else ENGINE).addHandler(_RecordsToDriver(writer))


class StdoutReader:
    """The reading end in the driver: a thread that forwards whole lines."""

    def __init__(self, path: str, show: Callable[[str], None]) -> None:
        """Make the pipe and start to read; ``show`` receives one or more whole lines per call."""
        self.path = path
        self.show = show
        os.mkfifo(path, 0o600)
        # Opened for reading and writing, so that there is no end of file when the last writer closes the pipe.
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._marks: dict[str, threading.Event] = {}
        self._who: Mapping[str, Any] = {}
        """The task that has printed the next lines."""
        self._warnings = Throttle(WARNINGS_MAX, WARNINGS_SECS)
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
                said = _said(line) if line.startswith(_MARK) else None
                if caught_up is None and said is None:
                    shown.append(f"{line}\n")
                    continue
                self._show("".join(shown))
                shown = []
                if caught_up is not None:
                    caught_up.set()
                elif said is not None:
                    self._heard(said)
            self._show("".join(shown))

    def _heard(self, said: Mapping[str, Any]) -> None:
        fields = {name: said[name] for name in LogFields.__annotations__ if name in said}
        if "text" not in said:
            self._who = fields
            return
        level, text, log = str(said.get("level", "INFO")), str(said["text"]), current_log()
        number = logging.getLevelNamesMapping().get(level, logging.INFO)
        shown = bool(said.get("engine")) and number >= logging.WARNING and engine_log.isEnabledFor(number)
        if shown and self._warnings.passes(str(fields.get("component")), time.monotonic()) is not None:
            engine_log.log(number, "%s", text, extra=fields)
        elif log is not None:
            log.write(level, text, fields)

    def _show(self, text: str) -> None:
        if not text:
            return
        log = current_log()
        try:
            if log is None:
                self.show(text)
            else:
                log.printed(text, self._who)
                with log.not_taken():
                    self.show(text)
        except (OSError, ValueError):
            pass  # standard output was closed by its reader


def _said(line: str) -> Mapping[str, Any] | None:
    """The content of a marked line; None if a task has printed it."""
    try:
        found = json.loads(line[1:])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
