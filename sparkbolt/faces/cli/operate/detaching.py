"""Detaching: ``sparkbolt run --detach``.

The topology runs in a process and a session of its own, without a terminal, so that neither a closed terminal nor
Ctrl-C there reaches it; SIGTERM ends it as Ctrl-C ends ``run``. The command waits on a pipe until the topology is up,
has failed or has finished. The log goes to files; output that does not come from Python, such as a crash of the
interpreter, is in ``NAME.out``.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sparkbolt.control.documents import TopologyState
from sparkbolt.control.home import Home, default_home, safe
from sparkbolt.control.log_reading import last_lines
from sparkbolt.control.logs import LogFormat, LogLine, TopologyLog, as_text, current_log
from sparkbolt.control.processes import this_process
from sparkbolt.errors import SparkboltError
from sparkbolt.faces.cli.display import Display, PlainLines
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED, EXIT_GIVEN_UP, EXIT_TIME_OVER, RunEnd
from sparkbolt.faces.cli.texts import plain

if TYPE_CHECKING:
    from sparkbolt.api.running import RunningTopology
    from sparkbolt.api.topology import Topology
    from sparkbolt.faces.cli.program import RunOutcome

READY_ENV = "SPARKBOLT_READY"
"""In the environment of a detached process: the file descriptor to which it writes the result of its start."""
UP_SECS_MAX = 300.0
"""How long it is waited until a topology is up."""
LISTED_SECS = 5.0
"""How long it is waited until the home knows that a topology is up."""
LISTED_POLL_SECS = 0.1
LINES_SHOWN = 15
"""How many lines of its log are shown if it has failed."""
LOGS_MAX = 100
"""How many logs of detached topologies are kept: the newest."""
_OWN_OPTIONS = ("--detach", "--log-dir")


def start_detached(topology: Topology, given: Sequence[str], log_dir: str | None, log_format: LogFormat) -> int:
    """Start a topology in a separate process, wait until it is up or has failed, and report which.

    Args:
        topology: the topology.
        given: the arguments of this command.
        log_dir: where its log goes; None: a new directory in the home.
        log_format: the format of its log.

    Returns:
        0 if it is up; its exit code if it has ended already; 4 if it is not up yet.
    """
    directory = os.path.abspath(log_dir) if log_dir is not None else log_directory(topology.name)
    with TopologyLog(directory, topology.name, log_format) as log:  # the child cannot report these refusals
        directory = log.directory
    listening, telling = os.pipe()
    out = os.path.join(directory, f"{quote(topology.name, safe='')}.out")
    began_ms = time.time_ns() // 1_000_000
    printed = os.path.getsize(out) if os.path.exists(out) else 0
    child = _start([*without(given, _OWN_OPTIONS), f"--log-dir={directory}"], out, telling)
    os.close(telling)
    name = plain(topology.name)
    print(f"{name}: starting as process {child.pid}, its log is in {directory}", flush=True)
    try:
        said = await_word(listening, UP_SECS_MAX)
    except KeyboardInterrupt:
        print(f"{name} is still starting: `sparkbolt list` shows it, `kill {child.pid}` ends it")
        raise
    finally:
        os.close(listening)
    if said is None:
        print(f"{name} is not up after {UP_SECS_MAX:.0f} s and is still starting: `sparkbolt tail {name}` shows why")
        return EXIT_TIME_OVER
    word, _, text = said.partition(" ")
    if word == "up":
        known = _listed(child.pid)
        print(f"{name} is up{known}; `sparkbolt tail {name} -f` shows its log, `sparkbolt kill {name}` ends it")
        return EXIT_FINISHED
    code = child.wait()
    if word == RunEnd.FINISHED and code in (EXIT_FINISHED, EXIT_GIVEN_UP):
        given_up = f"; messages were given up: `sparkbolt tail {name}` shows which" if code == EXIT_GIVEN_UP else ""
        print(f"{name} has finished already, {text}{given_up}")
        return code
    lines = [one for one in last_lines(directory, topology.name, last=LINES_SHOWN) if one["time_ms"] >= began_ms]
    _show_end(topology.name, lines, out, printed, code)
    return code if code > 0 else EXIT_FAILED


def _listed(pid: int) -> str:
    """Wait until ``sparkbolt list`` shows that a process is up, and return what else its user has to know."""
    until = time.monotonic() + LISTED_SECS
    host, entry = this_process().host, None
    with suppress(SparkboltError):  # a home that cannot be read stops no topology
        home = Home()
        while True:
            entry = next((one for one in home.entries() if (one["pid"], one["host"]) == (pid, host)), None)
            if entry is None or entry["state"] != TopologyState.STARTING or time.monotonic() >= until:
                break
            time.sleep(LISTED_POLL_SECS)
    if entry is None or entry["state"] != TopologyState.INACTIVE:
        return ""
    return f", but {plain(entry['verdict']['text'])} (`sparkbolt activate {plain(entry['name'])}` starts its spouts)"


def _start(arguments: Sequence[str], out: str, telling: int) -> subprocess.Popen[bytes]:
    """Start the process; it outlives this one."""
    output = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "sparkbolt", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(telling,),
            env={**os.environ, READY_ENV: str(telling)},
        )
    finally:
        os.close(output)


def _show_end(name: str, lines: Sequence[LogLine], out: str, printed: int, code: int) -> None:
    """Show the end of what this start has logged, and printed from a byte of ``out`` on."""
    how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    print(f"sparkbolt: {plain(name)} did not come up ({how}); the end of its log:", file=sys.stderr)
    for line in lines:
        print(f"  {plain(as_text(line))}", file=sys.stderr)
    with suppress(OSError):
        for raw in Path(out).read_bytes()[printed:].decode("utf-8", "replace").splitlines()[-LINES_SHOWN:]:
            print(f"  {plain(raw)}", file=sys.stderr)


def await_word(pipe: int, timeout_secs: float) -> str | None:
    """The message of a detached process: ``up``, ``finished``, ``stopped`` or ``failed``, and a text.

    It is empty if the process has died, and None if there is no message in time.
    """
    until, said = time.monotonic() + timeout_secs, b""
    while b"\n" not in said:
        left = until - time.monotonic()
        readable, _, _ = select.select([pipe], [], [], max(0.0, left))
        if not readable:
            return None
        data = os.read(pipe, 4096)
        if not data:
            break
        said += data
    return said.decode("utf-8", "replace").strip()


def without(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Arguments without options; those that are not ``--detach`` take their value with them.

    >>> without(["run", "a:b", "--detach", "--log-dir", "x", "--log-dir=y", "--for", "3s"], ("--detach", "--log-dir"))
    ['run', 'a:b', '--for', '3s']
    """
    found: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in options:
            skip = argument != "--detach"
        elif argument.partition("=")[0] not in options:
            found.append(argument)
    return found


def log_directory(name: str) -> str:
    """A new directory for the log of a detached topology, in the home if that is on this machine.

    Old ones are removed.
    """
    home = default_home()
    local = home.removeprefix("file://") if home.startswith("file:///") else home
    if "://" in local:
        local = os.path.expanduser("~/.local/state/sparkbolt")
    logs = os.path.join(os.path.abspath(local), "logs")
    _remove_old(logs)
    return os.path.join(logs, f"{safe(name)}-{time.time_ns() // 1_000_000_000}-{os.getpid()}")


def _remove_old(logs: str) -> None:
    """Keep the newest ``LOGS_MAX`` logs, and those that are still written."""
    with suppress(OSError):
        known = sorted((entry for entry in os.scandir(logs) if entry.is_dir()), key=lambda one: -_written(one.path))
        for entry in known[LOGS_MAX:]:
            if time.time() - _written(entry.path) > 86_400:
                shutil.rmtree(entry.path, ignore_errors=True)


def _written(directory: str) -> float:
    """When a log was written to last."""
    return max((entry.stat().st_mtime for entry in os.scandir(directory)), default=os.stat(directory).st_mtime)


@contextmanager
def ready(display: Display) -> Iterator[Display]:
    """In a detached process, a display that logs and reports the result of the start; otherwise ``display``."""
    told, log = os.environ.pop(READY_ENV, None), current_log()
    if told is None or log is None:
        yield display
        return
    os.set_inheritable(int(told), False)
    detached = Detached(log, int(told))
    try:
        with log.prints_taken(shown=False):
            yield detached
    except BaseException as error:
        log.write("ERROR", f"{type(error).__name__}: {error}")
        raise
    finally:
        detached.tell(RunEnd.FAILED, "")


class Detached(PlainLines):
    """Writes its lines to the log, and reports once the result of the start."""

    logs = True

    def __init__(self, log: TopologyLog, telling: int) -> None:
        """Report to the file descriptor ``telling``, and close it."""
        super().__init__()
        self._log = log
        self._level = "INFO"
        self._telling: int | None = telling

    def look(self, running: RunningTopology) -> None:
        """Report that the topology is up."""
        super().look(running)
        if self.waits_for is None and self._telling is not None and running.trouble is None:
            self.tell("up", "")

    def summary(self, outcome: RunOutcome) -> None:
        """Report how it ended, if it was never up."""
        self._level = "ERROR" if outcome.kind == RunEnd.FAILED else "INFO"
        super().summary(outcome)
        self.tell(outcome.kind, f"after {outcome.elapsed_s:.1f} s")

    def printed(self, text: str) -> None:
        """Nothing: lines that tasks print are in the log already."""

    def say(self, line: str) -> None:
        """Write a line to the log."""
        self._log.write(self._level, line)

    def tell(self, word: str, text: Any) -> None:
        """Report the result of the start; only the first report counts."""
        telling, self._telling = self._telling, None
        if telling is not None:
            with suppress(OSError):
                os.write(telling, f"{word} {text}\n".encode())
            os.close(telling)
