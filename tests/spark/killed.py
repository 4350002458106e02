"""A program that runs topologies side by side, and kills itself when each has reached a moment of its own.

    python -m tests.spark.killed DIRECTORY [--outlived] [--refused] [--tasks N] TOPOLOGY[=MOMENT[@COUNT]] ...

``TOPOLOGY`` is one of ``killed_topology.KINDS``. ``MOMENT`` is one of ``tests.chaos.moments``, or ``lettered``: the
ledger's entry of a micro-batch that has written a dead letter is durable. ``@2`` means the second time in this run.
A topology that reaches its moment waits there for the others; then the program kills itself with SIGKILL. A topology
with the moment ``anywhere`` dies wherever it is. Without moments the program runs to the end and prints its counts.

``--outlived``: the JVM outlives the driver, because a process that the driver leaves behind keeps the JVM's standard
input open. ``--tasks``: how many tasks the bolts that count by key have now; their state was made with another number.
``--refused``: the program waits only one second for the lock of a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import traceback
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from sparkbolt.spark.session import make_session
from tests.chaos.moments import plant
from tests.spark.killed_topology import KINDS, build

POLL_SECS = 1.0


class Aims:
    """Which topologies have come to the moments at which the program is to die."""

    def __init__(self, directory: str, moments: dict[str, str], *, outlived: bool) -> None:
        self.waiting: dict[str, int] = {}
        """By topology: the micro-batch that has come to its moment."""
        self.moments = moments
        self._outlived = outlived
        self._lock = threading.Lock()
        self._letters = {name: _size(Path(directory, name, "letters.jsonl")) for name in moments}
        self._directory = directory
        self._left: dict[str, int] = {}
        for name, moment in moments.items():
            where, _, count = moment.partition("@")
            self._left[name] = int(count or 1)
            lettered = where == "lettered"
            plant(
                "staged" if lettered else where,
                lambda number, name=name, lettered=lettered: self._reached(name, number, lettered=lettered),
                name,
            )

    def _reached(self, name: str, number: int, *, lettered: bool) -> None:
        """Wait for the others; the last one kills the program."""
        if lettered and _size(Path(self._directory, name, "letters.jsonl")) == self._letters[name]:
            return
        with self._lock:
            self._left[name] -= 1
            if self._left[name]:
                return
            self.waiting[name] = number
            if self.waiting.keys() == self.moments.keys():
                if self._outlived:
                    leave_a_process_behind()
                print(json.dumps({"killed": self.waiting}), flush=True)
                die()
        threading.Event().wait()

    def check(self, ended: set[str]) -> None:
        """End the program with a sentence if its death would never come."""
        missing = self.moments.keys() - self.waiting.keys()
        if missing and missing <= ended:
            print(f"{sorted(missing)} ended before they came to their moments {self.moments}", flush=True)
            os._exit(4)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def leave_a_process_behind() -> None:
    """It has all that the driver has open, but for standard output and error."""
    gateway: Any = SparkContext._gateway
    os.dup(gateway.proc.stdin.fileno())  # the one that is known is not left to children
    holder = os.fork()
    if holder == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        signal.alarm(600)  # its end, if nobody ends it before
        signal.pause()
    print(json.dumps({"holder": holder, "jvm": gateway.proc.pid}))


def die() -> None:
    """As a machine dies: no handler, no cleanup."""
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def await_end(name: str, running: Any) -> str:
    """Wait until a topology has processed everything; a folder that Spark reads is never exhausted."""
    running.await_idle() if KINDS[name].spark else running.await_finished()
    return name


def await_all(runs: dict[str, Any], aims: Aims) -> None:
    """Wait in threads, since a topology that waits at its moment holds its lock."""
    with ThreadPoolExecutor(len(runs)) as pool:
        ends = [pool.submit(await_end, name, running) for name, running in runs.items()]
        try:
            pending = set(ends)
            while pending:
                done, pending = wait(ends, POLL_SECS, FIRST_EXCEPTION)
                aims.check({end.result() for end in done})
        except BaseException:  # noqa: BLE001  printed, and the end of the program
            traceback.print_exc()
            os._exit(1)  # the others may wait forever


def main() -> None:
    """Run to the end, or to the kill."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("topologies", nargs="+")
    parser.add_argument("--outlived", action="store_true")
    parser.add_argument("--refused", action="store_true")
    parser.add_argument("--tasks", type=int, default=2)
    asked = parser.parse_args()
    if asked.refused:
        from sparkbolt.spark import checkpoint_lock

        checkpoint_lock.LOCK_WAIT_SECS = 1.0
    named = [topology.partition("=") for topology in asked.topologies]
    moments = {name: moment for name, _, moment in named if moment not in ("", "anywhere")}
    aims = Aims(asked.directory, moments, outlived=asked.outlived)
    spark = make_session("killed", "local[2]")
    runs = {
        name: build(name, asked.directory, asked.tasks).start(
            spark=spark, checkpoint=f"{asked.directory}/{name}/checkpoint", apply=True
        )
        for name, _, _ in named
    }
    await_all(runs, aims)
    said: dict[str, Any] = {}
    for name, running in runs.items():
        metrics = running.metrics()
        said[name] = {spout: asdict(metrics.components[spout]) for spout in ("lines", "transfers")}
        said[name]["open"] = metrics.open_trees
        running.stop()
    print(json.dumps(said, default=str), flush=True)


if __name__ == "__main__":
    main()
