"""What Spark costs by shape: tasks of a bolt, levels, executors. Small runs.

What do a small micro-batch and a text cost on Spark, by how many tasks a bolt has, how many levels there are, and how
many executors? There are more tasks than cores here: what is seen is the price, and no gain.

A process can have one JVM with one master, so each master gets a process of its own:
``python -m benchmarks.scale_spark MASTER NAME SIZE...`` prints one JSON object a line.
"""

from __future__ import annotations

import itertools
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from benchmarks.figures import Aim, Figure
from benchmarks.runs import MASTER, TIMEOUT_SECS
from benchmarks.scale_growth import LINEAR, growth
from benchmarks.scale_topologies import chain, with_tasks
from benchmarks.spouts import Numbers
from benchmarks.text import zipf_text
from benchmarks.words import SplitSentence, WordCount
from sparkbolt import Config, Topology, TopologyBuilder
from sparkbolt.spouts import TextSpout

SMALL = 10
MICRO_BATCHES, WARM = 14, 5
TEXT_WORDS = 1_000_000
TASKS = (2, 20, 200)
TEXT_TASKS = (2, 6, 20)
"""With 200, a micro-batch has 40,000 frames, and takes minutes."""
LEVELS = (3, 10, 30)
EXECUTORS = (2, 4, 8)
EXECUTOR_MB = 1024


def text(tasks: int) -> Topology:
    """A word count of a text whose bolts have so many tasks."""
    builder = TopologyBuilder("scale", Config(message_timeout_secs=120, micro_batch_target_ms=2000))
    builder.set_spout("source", TextSpout(zipf_text(TEXT_WORDS).path), parallelism=2)
    builder.set_bolt("split", SplitSentence(), parallelism=tasks, fuse=False).shuffle_grouping("source")
    builder.set_bolt("count", WordCount(), parallelism=tasks).fields_grouping("split", ["word"])
    return builder.build()


def few() -> Numbers:
    """Ten tuples a micro-batch."""
    return Numbers(SMALL + 1, fill=0, steps=(SMALL,), cycles=MICRO_BATCHES)


def run(topology: Topology, master: str) -> tuple[list[float], float]:
    """When each micro-batch was promoted, and how long all took from the first on; in seconds.

    Raises:
        RuntimeError: it did not end, or a tree failed.
    """
    ends: list[float] = []
    with tempfile.TemporaryDirectory(prefix="sparkbolt-scale-", ignore_cleanup_errors=True) as directory:
        running = topology.start(master=master, checkpoint=f"file://{directory}")
        running.on_micro_batch(lambda report: ends.append(time.perf_counter()))
        try:
            if not running.await_finished(TIMEOUT_SECS):
                raise RuntimeError(f"{topology.name!r} did not finish: {running.failure}")
            failed = [name for name, counts in running.metrics().components.items() if counts.failed]
        finally:
            running.close()
    if failed:
        raise RuntimeError(f"{topology.name!r} failed trees of {failed}")
    return ends, ends[-1] - ends[0]


def small_s(topology: Topology, master: str) -> float:
    """The median time of a small micro-batch, in seconds."""
    ends, _ = run(topology, master)
    return statistics.median(after - before for before, after in itertools.pairwise(ends[WARM:MICRO_BATCHES]))


def words_s(tasks: int, master: str) -> float:
    """Seconds for a million words of a text, from the first promotion on, which is small."""
    _, secs = run(text(tasks), master)
    return secs / TEXT_WORDS * 1e6


def measured(master: str, name: str, size: int) -> float:
    """One measurement in this process."""
    if name == "text":
        return words_s(size, master)
    return small_s(with_tasks(size, few()) if name == "tasks" else chain(size, few()), master)


def asked(master: str, name: str, sizes: Sequence[int]) -> dict[int, float]:
    """The measurements of a process with that master; where there are several, the first is made twice, to warm up."""
    chosen = sizes if len(sizes) == 1 else (sizes[0], *sizes)
    command = [sys.executable, "-m", "benchmarks.scale_spark", master, name, *map(str, chosen)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return {int(size): secs for size, secs in map(json.loads, done.stdout.splitlines())}


def _grown(name: str, what: str, found: dict[int, float]) -> Iterator[Figure]:
    for size, secs in found.items():
        yield Figure("scale", f"{name}, {size} {what}, Spark", (secs,), "s")
    yield Figure("scale", f"{name}, growth by {what}, Spark", (growth(found),), "", Aim("at most", LINEAR))


def figures() -> Iterator[Figure]:
    """Measure, one process after the other."""
    yield from _grown("a small micro-batch", "tasks of each bolt", asked(MASTER, "tasks", TASKS))
    yield from _grown("a million words", "tasks of each bolt", asked(MASTER, "text", TEXT_TASKS))
    yield from _grown("a small micro-batch", "levels", asked(MASTER, "levels", LEVELS))
    alone = asked(MASTER, "tasks", (8,))[8]
    yield Figure("scale", "a small micro-batch, two threads of one JVM", (alone,), "s")
    found = {}
    for count in EXECUTORS:
        found[count] = asked(f"local-cluster[{count},1,{EXECUTOR_MB}]", "tasks", (8,))[8]
    yield from _grown("a small micro-batch", "executors", found)


def main() -> None:
    """Measure as the command line says."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    master, name, *sizes = sys.argv[1:]
    for size in map(int, sizes):
        print(json.dumps([size, measured(master, name, size)]), flush=True)


if __name__ == "__main__":
    main()
