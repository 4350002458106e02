"""The JVM: started apart from the terminal, with its noise in a file.

Which question it answers: where does what Spark and its Python workers write go, and which signals reach them?
Rule 1: the JVM and its children are in a session of their own: neither Ctrl-C nor a signal to the driver's process
group reaches them. They end when the driver does, because their standard input ends.
Rule 2: what they write to standard output and error goes to a file, which has an upper size. It is a file and not a
pipe, so that they never block and never write into a broken pipe, whatever becomes of the driver.
Rule 3: what tasks print comes back to the driver through a named pipe, by whole lines, and is not mixed with noise.

Read before: ``scratch``.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j import java_gateway

from sparkbolt.spark import scratch
from sparkbolt.spark.task_stdout import TASK_STDOUT_ENV, StdoutReader

LOG_ENV = "SPARKBOLT_SPARK_LOG"
"""``-``: Spark's noise goes to standard error; a path: to that file; not set: to a temporary file."""
LOG_BYTES_MAX = 16 << 20
"""Above this size the log is moved to ``<name>.1`` and begins anew."""
LOG_CHECK_SECS = 5.0


class _OwnLog:
    """``logging`` as py4j sees it: what py4j would tell the root logger is told by a logger of its own, in a whisper.

    ``logging.exception`` sets up the root logger of a program that has none: what is logged by us would come twice.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(logging, name)

    def exception(self, message: str) -> None:
        """An error that py4j raises besides."""
        logging.getLogger("py4j.java_gateway").debug(message, exc_info=True)


def quieten_py4j() -> None:
    """Keep tracebacks of py4j to its own log; whoever called it is raised the error, and says what it means."""
    vars(java_gateway)["logging"] = _OwnLog()


class JvmOutput:
    """What the JVM of this process writes: its log, and what tasks print."""

    def __init__(self) -> None:
        """Make the log and the named pipe; nothing is started yet."""
        self._directory = scratch.make()
        self._kept = False
        self._ended = threading.Event()
        self.log_path: str | None = None
        """Where Spark's log is; None if it goes to standard error, or if the JVM was not started here."""
        self.prints = StdoutReader(f"{self._directory}/prints", write_to_stdout)
        atexit.register(self._end)

    def environment(self) -> dict[str, str]:
        """What Python workers on this machine must know."""
        return {f"spark.executorEnv.{TASK_STDOUT_ENV}": self.prints.path}

    def popen_arguments(self) -> dict[str, Any]:
        """How the JVM's process is to be started."""
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
        """Do not remove the log at the end, because somebody was told where it is; its path."""
        self._kept = True
        scratch.keep(self._directory)
        return self.log_path

    def _bound(self) -> None:
        assert self.log_path is not None
        while not self._ended.wait(LOG_CHECK_SECS):
            bound_file(self.log_path)

    def _end(self) -> None:
        self._ended.set()
        if not self._kept:
            scratch.remove(self._directory)


def bound_file(path: str, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Copy a file that has grown too large to ``<path>.1`` and empty it; whoever appends to it goes on."""
    try:
        if os.path.getsize(path) > bytes_max:
            shutil.copyfile(path, f"{path}.1")
            os.truncate(path, 0)
    except OSError:
        pass  # a disk that is full or a file that was removed: the log is not worth an error


def write_to_stdout(text: str) -> None:
    """Where printed lines go unless somebody shows them differently."""
    sys.stdout.write(text)
    sys.stdout.flush()


_output: JvmOutput | None = None


def jvm_output() -> JvmOutput:
    """The output of the JVM that this process starts, made on first use."""
    global _output
    if _output is None:
        _output = JvmOutput()
    return _output


def keep_log() -> str | None:
    """The path of Spark's log, to be named in a message; None if there is none of ours."""
    return None if _output is None else _output.keep_log()


def show_prints(show: Callable[[str], None] | None) -> None:
    """Have ``show`` called with each line that a task prints, from a thread of its own; None: standard output."""
    jvm_output().prints.show = write_to_stdout if show is None else show


def await_prints(timeout_secs: float = 5.0) -> bool:
    """Wait until everything that tasks have printed so far was shown; False if the time is over first."""
    return True if _output is None else _output.prints.catch_up(timeout_secs)
