"""A standalone cluster on this machine, from PySpark's own jars; ``scripts/cluster`` and ``test_cluster`` start it.

A master and some workers, all bound to the loopback address. What they and their drivers are configured with is a
file that only its owner reads, because the secret of Spark's authentication is in it: ``SPARK_CONF_DIR`` names its
folder to every process.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pyspark

HOST = "127.0.0.1"
START_SECS = 60.0
WORKERS = 2
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""As Sparkbolt sets it for a driver: what lives for a minute never wins back what Java's best compiler costs."""
DEFAULTS = f"""\
spark.authenticate true
spark.authenticate.secret {{secret}}
spark.master.rest.enabled false
spark.driver.bindAddress {HOST}
spark.driver.host {HOST}
spark.cores.max {WORKERS}
spark.executor.cores 1
spark.executor.memory 1g
spark.executor.extraJavaOptions {JAVA_OPTIONS}
spark.driver.extraJavaOptions {JAVA_OPTIONS}
"""
_pause = threading.Event()
"""Never set: something to wait for that does not come."""


class Cluster:
    """A master and workers, begun by ``start``; their logs, pids and settings are in one directory."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()
        self.master = ""
        self.pids: dict[str, int] = {}
        self._begun: list[subprocess.Popen[bytes]] = []

    @classmethod
    def load(cls, directory: str | Path) -> Cluster:
        """What an earlier process has started there."""
        cluster = cls(directory)
        known = json.loads((cluster.directory / "cluster.json").read_text())
        cluster.master, cluster.pids = known["master"], known["pids"]
        return cluster

    @property
    def environment(self) -> dict[str, str]:
        """What a driver's environment needs beside its own."""
        return {"SPARK_CONF_DIR": str(self.directory / "conf"), "SPARK_LOCAL_IP": HOST}

    def start(self) -> None:
        """Start the master, then the workers; returns when all of them are registered."""
        shutil.rmtree(self.directory, ignore_errors=True)
        for folder in ("conf", "log", "work", "local"):
            (self.directory / folder).mkdir(parents=True, mode=0o700)
        defaults = self.directory / "conf" / "spark-defaults.conf"
        defaults.touch(mode=0o600)
        defaults.write_text(DEFAULTS.format(secret=secrets.token_hex(32)))
        try:
            ports = ["--host", HOST, "--port", "0", "--webui-port", "0"]
            self._begin("master", ["org.apache.spark.deploy.master.Master", *ports])
            self.master = self._await("master", r"Starting Spark master at (spark://\S+)")
            for number in range(1, WORKERS + 1):
                work = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.directory / "work" / str(number))]
                self._begin(f"worker{number}", ["org.apache.spark.deploy.worker.Worker", *ports, *work, self.master])
            for number in range(1, WORKERS + 1):
                self._await(f"worker{number}", r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise
        known = {"master": self.master, "pids": self.pids}
        (self.directory / "cluster.json").write_text(json.dumps(known))

    def _begin(self, name: str, command: list[str]) -> None:
        home = Path(pyspark.__path__[0])
        # Executors inherit what a worker has: nothing of this process's Python path, or they would find its modules.
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK", "SPARK"))}
        environment = {
            **kept,
            **self.environment,
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
        }
        with (self.directory / "log" / name).open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command],
                env=environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._begun.append(process)
        self.pids[name] = process.pid

    def _await(self, name: str, pattern: str) -> str:
        log = self.directory / "log" / name
        until = time.monotonic() + START_SECS
        while time.monotonic() < until and is_alive(self.pids[name]):
            match = re.search(pattern, log.read_text(errors="replace"))
            if match:
                return match[1]
            _pause.wait(0.05)
        raise RuntimeError(f"the cluster's {name} does not start; its log says:\n{log.read_text()[-2000:]}")

    def executors(self, worker: str) -> list[int]:
        """The pids of the executors that a worker runs."""
        try:
            children = psutil.Process(self.pids[worker]).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [child.pid for child in children if "CoarseGrainedExecutorBackend" in " ".join(cmdline(child))]

    def stop(self) -> None:
        """End all processes, workers first, with whatever runs below them."""
        for name in reversed(list(self.pids)):
            end(self.pids[name])
        for process in self._begun:
            process.wait()


def cmdline(process: psutil.Process) -> list[str]:
    """The words of a process's command; none if it has ended."""
    try:
        words: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return words


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended without being waited for."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end(pid: int) -> None:
    """Kill a process that was started here and all below it."""
    try:
        process = psutil.Process(pid)
        # The pid may be another's by now: all that is started here is Spark's.
        if "org.apache.spark" not in " ".join(cmdline(process)):
            return
        family = [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return
    for member in family:
        try:
            member.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(family, timeout=10)


def main(command: str, directory: str = ".cluster") -> int:
    """What ``scripts/cluster`` does."""
    if command == "start":
        main("stop", directory)
        cluster = Cluster(directory)
        cluster.start()
        settings = " ".join(f"{key}={value}" for key, value in cluster.environment.items())
        print(f"a master and {WORKERS} workers run; logs are in {cluster.directory / 'log'}. To use them:\n")
        print(f"  export {settings}")
        print(f"  sparkbolt run MODULE:TOPOLOGY --master {cluster.master} --checkpoint file://$PWD/state\n")
        return 0
    try:
        cluster = Cluster.load(directory)
    except FileNotFoundError:
        if command == "status":
            print(f"no cluster was started in {directory}")
        return 0
    if command == "stop":
        cluster.stop()
        return 0
    for name, pid in cluster.pids.items():
        print(f"{name:8} {pid:7} {'runs' if is_alive(pid) else 'has ended'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
