"""JVM: starts Spark's JVM in its own session, apart from the terminal, with its output in a log file.

Neither Ctrl-C nor a signal to the driver's process group reaches the JVM and its children. They end with the driver,
because their standard input is closed then. Their output goes to a file of limited size and not to a pipe, so that they
never block or write to a broken pipe. Lines that tasks print arrive in the driver through a named pipe, whole and not
mixed with Spark's log.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j import java_gateway

from sparkbolt.control.logs import current_log
from sparkbolt.spark import scratch
from sparkbolt.spark.segment_files import FOLDER_ENV
from sparkbolt.spark.task_stdout import TASK_LOG_ENV, TASK_STDOUT_ENV, StdoutReader
from sparkbolt.spark.versions import number_of

LOG_ENV = "SPARKBOLT_SPARK_LOG"
"""Where Spark's log goes: ``-`` means standard error, a path means that file; not set means a temporary file."""
LOG_BYTES_MAX = 16 << 20
"""Above this size the log is copied to ``<name>.1`` and emptied."""
LOG_CHECK_SECS = 5.0
LOG_END_BYTES = 256 << 10
"""So much of a log's end is read to find out why something has just failed."""
UNIX_SOCKETS_FROM = (4, 3)
"""The first version of Spark on which Unix sockets were tried; older ones speak TCP."""
SOCKET_PATH_BYTES_MAX = 103
"""A Unix socket's path may have 107 bytes on Linux, and 103 on macOS."""
SOCKET_NAME_BYTES = len("/.00000000-0000-0000-0000-000000000000.sock")


class _OwnLog:
    """``logging`` as py4j sees it: its exceptions go to py4j's own logger at level DEBUG, not to the root logger.

    ``logging.exception`` configures the root logger of a program that has not done so; then Sparkbolt's own log lines
    would appear twice.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(logging, name)

    def exception(self, message: str) -> None:
        """Log an error that py4j also raises."""
        logging.getLogger("py4j.java_gateway").debug(message, exc_info=True)


def quieten_py4j() -> None:
    """Send py4j's tracebacks to its own logger; the caller also receives the error, and explains it to the user."""
    vars(java_gateway)["logging"] = _OwnLog()


class JvmOutput:
    """The output of this process's JVM: its log, and the lines that tasks print."""

    def __init__(self) -> None:
        """Make the named pipe, and a folder for segments; nothing is started yet."""
        self._directory = scratch.make()
        self.segments = f"{self._directory}/segments"
        """The folder in which workers find one another's segments, one folder for each run."""
        os.mkdir(self.segments, mode=0o700)
        self._kept = False
        self._ended = threading.Event()
        self.log_path: str | None = None
        """The path of Spark's log; None if it goes to standard error, or if this process did not start the JVM."""
        self.prints = StdoutReader(f"{self._directory}/prints", write_to_stdout)
        atexit.register(self._end)

    def environment(self) -> dict[str, str]:
        """The Spark settings by which the JVM and Python workers on this machine reach one another and this process.

        Workers get the path of the named pipe, and of a folder for segments that they share; if this process writes a
        log to files, they also send their log records, and not only the engine's warnings.
        """
        records = {f"spark.executorEnv.{TASK_LOG_ENV}": "1"} if current_log() is not None else {}
        paths = {TASK_STDOUT_ENV: self.prints.path, FOLDER_ENV: self.segments}
        return {f"spark.executorEnv.{name}": path for name, path in paths.items()} | records | self._sockets()

    def _sockets(self) -> dict[str, str]:
        """The Spark settings by which the JVM and Python workers talk over Unix sockets in this process's own folder.

        Over TCP there are gaps of 40 ms in a small micro-batch (``scripts/bench budget``): a second small write seems
        to wait until the first is acknowledged. Spark itself has turned that off for state alone (SPARK-51667).
        """
        if number_of(pyspark.__version__) < UNIX_SOCKETS_FROM:
            return {}
        if len(os.fsencode(self._directory)) + SOCKET_NAME_BYTES > SOCKET_PATH_BYTES_MAX:
            return {}
        return {
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": self._directory,
        }

    def popen_arguments(self) -> dict[str, Any]:
        """The arguments of ``Popen`` for the JVM's process; the log is opened here."""
        arguments: dict[str, Any] = {"start_new_session": True}
        given = os.environ.get(LOG_ENV, "")
        if given != "-":
            self.log_path = os.path.abspath(given) if given else f"{self._directory}/spark.log"
            Path(self.log_path).parent.mkdir(parents=True, exist_ok=True)
            log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            atexit.register(os.close, log)
            arguments.update(stdout=log, stderr=log)
            threading.Thread(target=self._bound, name="sparkbolt-log", daemon=True).start()
        return arguments

    def keep_log(self) -> str | None:
        """Keep the log after the end of this process, because a message names it; returns its path."""
        self._kept = True
        scratch.keep(self._directory)
        return self.log_path

    def _bound(self) -> None:
        assert self.log_path is not None
        while not self._ended.wait(LOG_CHECK_SECS):
            bound_file(self.log_path)

    def _end(self) -> None:
        self._ended.set()
        shutil.rmtree(self.segments, ignore_errors=True)  # it may hold users' data, and only the log stays
        if not self._kept:
            scratch.remove(self._directory)


def bound_file(path: str, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Copy a file of more than ``bytes_max`` to ``<path>.1`` and empty it; processes that append to it go on."""
    try:
        if os.path.getsize(path) > bytes_max:
            shutil.copyfile(path, f"{path}.1")
            os.truncate(path, 0)
    except OSError:
        pass  # the disk is full or the file was removed: no error of the log matters


def write_to_stdout(text: str) -> None:
    """Write printed lines to standard output: the default of ``show_prints``."""
    sys.stdout.write(text)
    sys.stdout.flush()


_output: JvmOutput | None = None


def jvm_output() -> JvmOutput:
    """The output of the JVM that this process starts; it is made on first use."""
    global _output
    if _output is None:
        _output = JvmOutput()
    return _output


def begin_segments(run: str) -> None:
    """Make the folder in which workers of a run find one another's segments; without it they do without."""
    if _output is not None:
        with suppress(OSError):
            os.mkdir(f"{_output.segments}/{run}", mode=0o700)


def end_segments(run: str) -> None:
    """Remove that folder. First it gets another name, so that no worker that still runs writes into it meanwhile."""
    if _output is not None:
        with suppress(OSError):
            os.rename(f"{_output.segments}/{run}", f"{_output.segments}/{run}.ended")
        shutil.rmtree(f"{_output.segments}/{run}.ended", ignore_errors=True)


def keep_log() -> str | None:
    """Keep Spark's log and return its path, for a message; None if this process has no log file."""
    return None if _output is None else _output.keep_log()


def log_says(words: str) -> bool:
    """Whether the end of Spark's log has these words; False if this process has no log file."""
    path = None if _output is None else _output.log_path
    if path is None:
        return False
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - LOG_END_BYTES))
            return words.encode() in file.read(LOG_END_BYTES)
    except OSError:
        return False


def show_prints(show: Callable[[str], None] | None) -> None:
    """Call ``show`` with the lines that tasks print, from a separate thread; None means standard output."""
    jvm_output().prints.show = write_to_stdout if show is None else show


def await_prints(timeout_secs: float = 5.0) -> bool:
    """Wait until all lines that tasks have printed so far are shown; False if ``timeout_secs`` expire first."""
    return True if _output is None else _output.prints.catch_up(timeout_secs)
