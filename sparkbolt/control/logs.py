"""Logs: the log of a topology, in files with rotation.

The log belongs to one topology and one process, and a second process is refused. ``DIRECTORY/NAME.log`` is written;
older lines are in ``NAME.log.1`` and so on, and the oldest files are removed. Files have mode 0600. If the disk is
full, lines are lost, which is reported once on standard error; the topology runs on.

Every line has a time and, if known, component, task, micro-batch and tree. Further lines of a text are indented, so
that no logged text can look like the head of a line. Engine and users give a log record its fields with ``extra=``:
``component``, ``task``, ``micro_batch`` and ``root``.
"""

from __future__ import annotations

import fcntl
import io
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from logging.handlers import RotatingFileHandler
from types import TracebackType
from typing import Any, Self, TypedDict
from urllib.parse import quote

from sparkbolt.api.story import time_text
from sparkbolt.base.codec import salvage
from sparkbolt.base.tracebacks import lines_of
from sparkbolt.base.words import Word
from sparkbolt.errors import SparkboltError

FILE_BYTES_MAX = 20_000_000
FILES_MAX = 10
TEXT_CHARACTERS_MAX = 200_000
"""A longer text is cut."""
PRINTED = "PRINT"
"""The level of lines that user code prints."""
PRINTED_NUMBER = 25
"""Its number among the levels of ``logging``."""
INDENT = "    "
"""The indent of the further lines of a text."""
ENGINE = "sparkbolt"
"""The logger of the engine."""
_EXPLAINED = ("py4j",)
"""Loggers of libraries whose errors the engine explains itself."""


class LogFormat(Word):
    """How lines are written."""

    TEXT = "text"
    JSON = "json"


class LogFields(TypedDict, total=False):
    """The subject of a line, as ``extra=`` of a log record."""

    component: str
    task: int
    """The task's index within its component."""
    micro_batch: int
    root: str
    """The root of a tree: 16 hexadecimal digits."""


class LogLine(TypedDict):
    """One line of a log; what is unknown is None."""

    time_ms: int
    """Milliseconds since the epoch; 0 if the line has no head, as if something else has written to the file."""
    level: str
    """``DEBUG``, ``INFO``, ``WARNING``, ``ERROR``, ``CRITICAL``, or ``PRINT`` for what user code has printed."""
    topology: str
    component: str | None
    task: int | None
    micro_batch: int | None
    root: str | None
    text: str


class LogInUseError(SparkboltError):
    """Another process writes the log of a topology of the same name into the same directory."""


def log_path(directory: str, topology: str) -> str:
    """The file that a topology's log is written to.

    >>> log_path("/var/log/bolts", "word count")
    '/var/log/bolts/word%20count.log'
    """
    return os.path.join(directory, f"{quote(topology, safe='')}.log")


# The two formats, each with its reader.

_HEAD = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3})Z {2}([A-Z]+) *(?: ([^|\n]*?))? \| (.*)", re.DOTALL)
_ABOUT = re.compile(
    r"(?:(?P<component>\S.*?)(?:\[(?P<task>\d+)\])?(?= |$))??"
    r" ?(?:micro-batch (?P<micro_batch>\d+))? ?(?:root (?P<root>[0-9a-f]{16}))?"
)


def about_text(line: LogLine) -> str:
    """The subject of a line: component and task, micro-batch and tree, if they are known."""
    task = f"[{line['task']}]" if line["task"] is not None else ""
    return " ".join(
        part
        for part in (
            f"{line['component']}{task}" if line["component"] is not None else "",
            f"micro-batch {line['micro_batch']}" if line["micro_batch"] is not None else "",
            f"root {line['root']}" if line["root"] is not None else "",
        )
        if part
    )


def as_text(line: LogLine) -> str:
    """A line as text, with its further lines indented; without a line feed at the end.

    >>> line = LogLine(time_ms=1_767_225_600_123, level="WARNING", topology="words", component="count", task=1,
    ...                micro_batch=7, root=None, text="it hangs")
    >>> as_text(line)
    '2026-01-01 00:00:00.123Z  WARNING  count[1] micro-batch 7 | it hangs'
    """
    about = about_text(line)
    text = f"\n{INDENT}".join(line["text"].split("\n"))
    return f"{time_text(line['time_ms'])}  {line['level']:<7}  {about}{' ' if about else ''}| {text}"


def as_json(line: LogLine) -> str:
    """A line as one JSON object."""
    return json.dumps(line, ensure_ascii=False)


def read_line(topology: str, written: str) -> LogLine | None:
    """The line that ``as_text`` or ``as_json`` has written; None if it is not the head of one."""
    if written.startswith("{"):
        return _read_json(topology, written)
    head = _HEAD.fullmatch(written)
    if head is None:
        return None
    moment = datetime.fromisoformat(f"{head[1]}+00:00")
    about = _ABOUT.fullmatch((head[3] or "").strip())
    found: Mapping[str, str | None] = {} if about is None else about.groupdict()
    task, micro_batch = found.get("task"), found.get("micro_batch")
    return LogLine(
        time_ms=round(moment.timestamp() * 1000),
        level=head[2],
        topology=topology,
        component=found.get("component"),
        task=None if task is None else int(task),
        micro_batch=None if micro_batch is None else int(micro_batch),
        root=found.get("root"),
        text=head[4].replace(f"\n{INDENT}", "\n"),
    )


def _read_json(topology: str, written: str) -> LogLine | None:
    try:
        found = json.loads(written)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("time_ms"), int) or "text" not in found:
        return None
    return salvage(LogLine, {"topology": topology, **found})


class _Formatter(logging.Formatter):
    """Writes log records as lines of a topology's log."""

    def __init__(self, topology: str, form: LogFormat) -> None:
        super().__init__()
        self._topology = topology
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        line = line_of(record, self._topology)
        return as_json(line) if self._form == LogFormat.JSON else as_text(line)


def line_of(record: logging.LogRecord, topology: str) -> LogLine:
    """The line for a log record: with its fields if it has them, and with its traceback."""
    text = record.getMessage()
    if record.name != ENGINE and not record.name.startswith(f"{ENGINE}.") and record.levelname != PRINTED:
        text = f"{record.name}: {text}"
    if record.exc_info and record.exc_info[1] is not None:
        text = f"{text}\n{''.join(lines_of(record.exc_info[1])).rstrip()}"
    if len(text) > TEXT_CHARACTERS_MAX:
        text = f"{text[:TEXT_CHARACTERS_MAX]} ... ({len(text):,} characters, cut)"
    return LogLine(
        time_ms=int(record.created * 1000),
        level=record.levelname,
        topology=str(getattr(record, "topology", None) or topology),
        component=getattr(record, "component", None),
        task=getattr(record, "task", None),
        micro_batch=getattr(record, "micro_batch", None),
        root=getattr(record, "root", None),
        text=text,
    )


class _Files(RotatingFileHandler):
    """The files: only their owner reads them; an error is reported once."""

    def _open(self) -> io.TextIOWrapper:
        return open(  # type: ignore[return-value]
            self.baseFilename,
            self.mode,
            encoding="utf-8",
            errors="backslashreplace",
            opener=lambda path, flags: os.open(path, flags | os.O_CLOEXEC, 0o600),
        )

    said = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; if somebody has removed or moved the file, into a new one of its name."""
        written = self.stream
        if written is not None and self._is_elsewhere(written):
            self.stream = None  # the next write opens it
            with_errors_ignored(written.close)
            with_errors_ignored(lambda: os.makedirs(os.path.dirname(self.baseFilename), mode=0o700, exist_ok=True))
        super().emit(record)

    def _is_elsewhere(self, written: Any) -> bool:
        try:
            return not os.path.samestat(os.stat(self.baseFilename), os.fstat(written.fileno()))
        except OSError:
            return True

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the name is that of ``logging``
        """Report lost lines on the process's own standard error, which may be redirected into this log."""
        if not self.said:
            self.said = True
            text = f"the log {self.baseFilename} cannot be written, and lines are lost: {sys.exc_info()[1]}\n"
            with_errors_ignored(lambda: os.write(2, text.encode()))


def with_errors_ignored(act: Any) -> None:
    """Call ``act``; an OSError of it is of no use to anyone."""
    try:
        act()
    except OSError:
        pass


class _FromOthers(logging.Handler):
    """Takes the warnings of all other loggers, and shows them, too, if ``logging`` would have without it."""

    def __init__(self, log: TopologyLog, files: logging.Handler) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._files = files

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.split(".")[0] in (ENGINE, *_EXPLAINED):
            return  # the engine's own logger has the files as a handler
        self._files.handle(record)
        if logging.lastResort is not None and self._is_alone(record.name):
            with self._log.not_taken():
                logging.lastResort.handle(record)

    def _is_alone(self, name: str) -> bool:
        """Whether no other handler takes the records of a logger."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


_current: TopologyLog | None = None


def current_log() -> TopologyLog | None:
    """The log that this process writes at the moment; None if it writes none."""
    return _current


class TopologyLog:
    """The log of a topology, written by this process while it is open; use it in a ``with`` statement."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        topology: str,
        form: LogFormat = LogFormat.TEXT,
        *,
        bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
    ) -> None:
        """Open the log in ``directory``, which is made if it does not exist; lines are appended.

        Args:
            directory: where the files are.
            topology: the name of the topology, which is that of the files.
            form: text, or one JSON object a line.
            bytes_max: the size at which a new file is begun.
            files_max: how many files are kept.

        Raises:
            LogInUseError: another process writes this log.
            SparkboltError: the directory or the file cannot be written.
        """
        self.directory = os.path.abspath(os.fspath(directory))
        self.topology = topology
        path = log_path(self.directory, topology)
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            self._lock = _lock(f"{path}.lock", topology)
            self._files = _Files(path, maxBytes=bytes_max, backupCount=max(1, files_max - 1), encoding="utf-8")
        except OSError as error:
            raise SparkboltError(
                f"the log of topology {topology!r} cannot be written to {self.directory}: {error.strerror}; name "
                "another directory with --log-dir"
            ) from None
        self._files.setFormatter(_Formatter(topology, LogFormat.of(form)))
        self._others = _FromOthers(self, self._files)
        self._shown = threading.local()

    def __enter__(self) -> Self:
        """Begin to take log records: the engine's, and warnings of all others."""
        global _current
        logging.getLogger(ENGINE).addHandler(self._files)
        logging.getLogger().addHandler(self._others)
        _current = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        global _current
        logging.getLogger(ENGINE).removeHandler(self._files)
        logging.getLogger().removeHandler(self._others)
        _current = None
        self._files.close()
        os.close(self._lock)

    def write(self, level: str, text: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write a line."""
        number = PRINTED_NUMBER if level == PRINTED else logging.getLevelNamesMapping().get(level, logging.INFO)
        given = {"name": ENGINE, "levelname": level, "levelno": number, "msg": "%s", "args": (text,), **(fields or {})}
        self._files.handle(logging.makeLogRecord(given))

    def printed(self, text: str, fields: Mapping[str, Any] | None = None) -> None:
        """Write lines that user code has printed, each as a line of the log."""
        for line in text.removesuffix("\n").split("\n"):
            self.write(PRINTED, line, fields)

    @contextmanager
    def prints_taken(self, *, shown: bool = True) -> Iterator[None]:
        """Inside of the block, log also the output of this process; with ``shown`` it is still printed, too.

        Output inside of ``not_taken`` is only printed.
        """
        if isinstance(sys.stdout, _Lines):  # they are taken already
            yield
            return
        before = sys.stdout, sys.stderr
        out = _Lines(self, before[0] if shown else None)
        sys.stdout = out
        if not shown:
            sys.stderr = _Lines(self, None)
        try:
            yield
        finally:
            if sys.stdout is out:
                sys.stdout = before[0]
            if not shown:
                sys.stderr = before[1]

    @contextmanager
    def not_taken(self) -> Iterator[None]:
        """Inside of the block, do not log this thread's output, since it was logged already."""
        self._shown.only = True
        try:
            yield
        finally:
            self._shown.only = False

    @property
    def takes(self) -> bool:
        """Whether this thread's output is logged."""
        return not getattr(self._shown, "only", False)


class _Lines(io.TextIOBase):
    """A standard output that copies whole lines to a log, and everything at once to another stream, if there is one.

    Each thread has its own unfinished line, so that lines of several threads are not mixed.
    """

    def __init__(self, log: TopologyLog, shown: Any) -> None:
        super().__init__()
        self._log = log
        self._stream = shown
        self._own = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self._stream is not None:
            self._stream.write(text)
        if self._log.takes:
            *lines, rest = (getattr(self._own, "rest", "") + text).split("\n")
            self._own.rest = rest[-TEXT_CHARACTERS_MAX:]
            for line in lines:
                self._log.write(PRINTED, line)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise io.UnsupportedOperation("it is written to a log")
        number: int = self._stream.fileno()
        return number

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(getattr(self._stream, "encoding", None) or "utf-8")


def _lock(path: str, topology: str) -> int:
    """Hold the log's lock until the file is closed.

    Raises:
        LogInUseError: another process has it.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        os.close(lock)
        raise LogInUseError(
            f"process {holder or 'unknown'} writes the log of a topology {topology!r} into {os.path.dirname(path)}: "
            "use another directory for this run with --log-dir"
        ) from None
    except OSError:
        pass  # a file system without locks
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock
