"""A driver of the campaign: the victim's process, its events, and the processes below it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil

from tests.spark.cluster import cmdline, is_alive

ROOT = Path(__file__).parents[2]
PLANNER = "python_streaming_source_runner"
DAEMON = "sparkbolt.spark.daemon"


class Driver:
    """One run of the program that is killed; it waits for ``go`` when its Spark session is there."""

    def __init__(self, directory: Path, number: int, topology: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SPARKBOLT_SPARK_LOG": str(directory / "logs" / f"spark-{number}.log"),
            "SPARK_LOCAL_DIRS": str(directory / "tmp"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(directory / "tmp"),
        }
        self.log = directory / "logs" / f"driver-{number}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.victim", str(directory), topology],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.pid = self._process.pid
        self.jvm: int | None = None
        self._workers: dict[int, psutil.Process] = {}
        """All that were ever seen: those of a daemon that was killed go on, and are below nobody then."""
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                self.jvm = event["jvm"]
            self._events.put(event)
        self._process.stdout.close()
        self._events.put({"event": "ended", "code": self._process.wait()})

    def order(self, text: str) -> None:
        """A line for the program's standard input; nothing if the program is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()
        except OSError:
            pass

    def next_event(self, timeout_secs: float) -> dict[str, Any] | None:
        """What happens next; None if nothing does in time. After the end always ``ended``."""
        try:
            event = self._events.get(timeout=max(0.0, timeout_secs))
        except queue.Empty:
            return None
        if event["event"] == "ended":
            self._events.put(event)
        return event

    def victims(self, kind: str) -> list[int]:
        """The pids that a kind of victim has now, oldest first."""
        if kind == "driver":
            return [self.pid]
        if kind == "jvm":
            return [] if self.jvm is None else [self.jvm]
        try:
            below = psutil.Process(self.jvm).children(recursive=True)
            daemons = [process for process in below if DAEMON in cmdline(process)]
            if kind == "planner":
                return [process.pid for process in below if PLANNER in " ".join(cmdline(process))]
            parents = {process.pid for process in daemons}
            if kind == "daemon":
                self.victims("worker")
                return [process.pid for process in daemons if process.ppid() not in parents]
            # A worker is forked from the daemon and so has its command.
            self._workers.update((process.pid, process) for process in daemons if process.ppid() in parents)
            return [pid for pid, process in self._workers.items() if process.is_running() and is_alive(pid)]
        except psutil.NoSuchProcess:
            return []

    def close(self) -> None:
        """Kill the program if it is still there."""
        if self._process.poll() is None:
            # The thread that reads may be just taking note of its end.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass  # what was written last has nobody to read it

    def outlived(self, timeout_secs: float) -> bool:
        """Whether the JVM is still there some time after its driver has ended; it is killed then."""
        if self.jvm is None or not is_alive(self.jvm):
            return False
        try:
            process = psutil.Process(self.jvm)
            process.wait(timeout_secs)
        except psutil.NoSuchProcess:
            return False
        except psutil.TimeoutExpired:
            process.kill()
            return True
        return False
