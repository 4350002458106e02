"""One server process of the tests: a folder, ports on loopback, and a life that ends with its starter.

Rule 1: a server never outlives the process that started it, however that one ends: the kernel kills it
(``PR_SET_PDEATHSIG``, set by ``leash``). It follows the *thread* that called ``start``, so that is the main thread.
Rule 2: what ``start`` returns from answers questions; an open port alone is no proof of that.
Rule 3: after ``kill`` (SIGKILL) ``start`` brings back the same server: the same address, the same data.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

START_SECS_MAX = 60.0
STOP_SECS_MAX = 20.0
HOST = "127.0.0.1"
LEASH = Path(__file__).parent / "leash.py"

# Below the ports that the kernel gives to clients (32768 and up): one of those may hold the port of a server that is
# away for a moment, and a client that tries such a port again and again may even connect to itself.
_PORTS = (20_000, 32_000)
_given: set[int] = set()


def free_port() -> int:
    """A port on loopback that nobody listens on and that was not given before in this process."""
    while True:
        port = random.randrange(*_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port


def need(command: str, package: str) -> str:
    """The path of a command, or an error that says what to install."""
    found = shutil.which(command)
    if found is None:
        raise RuntimeError(f"the tests need {command}: apt-get install {package}, or run them by scripts/services")
    return found


class Server(ABC):
    """A server in ``directory``: ``start()`` and ``stop()``, or a ``with`` block."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients find it; the same after a restart."""

    @abstractmethod
    def prepare(self) -> None:
        """Write its files before the first start."""

    @abstractmethod
    def command(self) -> tuple[list[str], dict[str, str]]:
        """What to run, and what to add to the environment."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it answers a question now; may raise OSError for no."""

    def start(self) -> Self:
        """Start it and wait until it answers; at most ``START_SECS_MAX`` seconds."""
        self.launch()
        return self.wait()

    def launch(self) -> None:
        """Start it without waiting, so that several may start at once; then call ``wait``."""
        assert self.process is None, f"{self} runs already"
        assert threading.current_thread() is threading.main_thread(), "a server ends with the thread that starts it"
        if not self.directory.exists() or not any(self.directory.iterdir()):
            self.directory.mkdir(parents=True, exist_ok=True)
            self.prepare()
        command, environment = self.command()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-SE", str(LEASH), str(os.getpid()), *command],
                cwd=self.directory,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it
            )

    def wait(self) -> Self:
        until = time.monotonic() + START_SECS_MAX
        while not self._answers():
            assert self.process is not None
            code = self.process.poll()
            if code is not None or time.monotonic() > until:
                self.kill()
                why = f"ended with exit code {code}" if code is not None else f"did not answer for {START_SECS_MAX} s"
                raise RuntimeError(f"{self} {why}; the end of {self.log}:\n{self.log_end()}")
            threading.Event().wait(0.05)
        return self

    def _answers(self) -> bool:
        try:
            return self.answers()
        except OSError:
            return False

    def kill(self) -> None:
        """As a power cut ends it: SIGKILL. ``start`` again finds what it had made durable."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As its administrator ends it: SIGTERM, and SIGKILL when it takes too long."""
        self._end(signal.SIGTERM)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the block run while it does not answer: SIGSTOP, and SIGCONT at the end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def log_end(self, chars: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-chars:] if self.log.exists() else "(nothing)"

    def __str__(self) -> str:
        return f"{type(self).__name__} at {self.address}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
