"""How long a topology pauses for a rebalance, by how many keys it has.

From the request on, how long does it take until the topology counts again, when each key may get another task?
Each size has a process of its own: ``python -m benchmarks.scale_rebalance KEYS`` prints the seconds.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import Figure
from benchmarks.runs import MASTER, TIMEOUT_SECS
from sparkbolt import BasicBolt, Config, KeyValueState, PartitionedSpout, Range, Topology, TopologyBuilder

KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
BEFORE, AFTER = 2, 3
LATER = 200
"""How many numbers a micro-batch has once each key was seen."""


class EachKeyOnce(PartitionedSpout):
    """Each key once, then a few of them again and again."""

    outputs = ["key"]

    def __init__(self, keys: int) -> None:
        """Emit so many keys."""
        self.keys = keys

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Read as much as the rate allows, and little once each key was read."""
        start = progress.get("keys", 0)
        end = min(start + budget, self.keys) if start < self.keys else start + LATER
        return [Range(0, "keys", start, end)]

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Never."""
        return False

    def read(self, range_: Range) -> Iterator[tuple[int, list[str]]]:
        """Keys are texts."""
        for number in range(range_.start, range_.end):
            yield number, [f"word{number % self.keys}"]


class Seen(BasicBolt):
    """Counts each key."""

    def init_state(self, state: KeyValueState) -> None:
        """Store it."""
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        """Count."""
        self.counts.put(tup["key"], self.counts.get(tup["key"], 0) + 1)


def topology(keys: int) -> Topology:
    """Counts of so many keys."""
    builder = TopologyBuilder("rebalanced", Config(message_timeout_secs=600, micro_batch_target_ms=2000))
    builder.set_spout("keys", EachKeyOnce(keys))
    builder.set_bolt("count", Seen(), BEFORE).fields_grouping("keys", ["key"])
    return builder.build()


def pause_s(keys: int) -> float:
    """From the request to the first promotion with the new number of tasks, in seconds.

    Raises:
        RuntimeError: it does not get there.
    """
    promoted = threading.Condition()
    last = 0.0

    def note(report: Any) -> None:
        nonlocal last
        with promoted:
            last = time.perf_counter()
            promoted.notify_all()

    with tempfile.TemporaryDirectory(prefix="sparkbolt-scale-", ignore_cleanup_errors=True) as directory:
        running: Any = topology(keys).start(master=MASTER, checkpoint=f"file://{directory}")
        running.on_micro_batch(note)
        try:
            until = time.monotonic() + TIMEOUT_SECS
            with promoted:
                while running.metrics().of("keys").acked < keys + 3 * LATER and time.monotonic() < until:
                    promoted.wait(1.0)
            began = time.perf_counter()
            running.rebalance({"count": AFTER}, None, "rebalanced by a benchmark")
            with promoted:
                while len(running.lane.topology.tasks("count")) != AFTER or last < began:
                    promoted.wait(1.0)
                    if running.failure is not None or time.monotonic() > until:
                        raise RuntimeError(f"no rebalance of {keys} keys: {running.failure}")
                return last - began
        finally:
            running.close()


def figures() -> Iterator[Figure]:
    """Measure, one process after the other."""
    for keys in KEYS:
        command = [sys.executable, "-m", "benchmarks.scale_rebalance", str(keys)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * TIMEOUT_SECS)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        secs = float(done.stdout.split()[-1])
        yield Figure("scale", f"the pause of a rebalance, {keys} keys, Spark", (secs,), "s")


if __name__ == "__main__":
    logging.getLogger("py4j").setLevel(logging.ERROR)
    print(pause_s(int(sys.argv[1])))
