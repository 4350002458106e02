"""Memory that stays bounded: a million open trees, and a bolt that is ten times slower than its spout.

Does the memory of the driver, of the JVM and of Python workers stop to grow?

Resident memory is read from the kernel at each promotion. Of the slow bolt, what counts is the last half of the
run against the first: what is bounded does not grow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from benchmarks.figures import Aim, Figure
from benchmarks.runs import MASTER, TIMEOUT_SECS, Options
from benchmarks.spouts import Numbers
from sparkbolt import BasicBolt, Bolt, Config, Topology, TopologyBuilder
from sparkbolt.api.components import BoltBase

OPEN = 1_000_000
KEPT = 100_000
SLOW_US = 50
"""What the slow bolt takes for a tuple, in microseconds."""
TIMES_SLOWER = 10
QUICK_SECS = 20
ENDLESS = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True)
class Memory:
    """Resident bytes at one moment."""

    at_s: float
    driver: int
    jvm: int
    workers: int
    """Of all Python processes below the JVM; pages that they share count for each of them."""
    done: int = 0
    """Tuples that the bolt had executed."""


def resident(jvm: psutil.Process, done: int = 0) -> Memory:
    """The memory of this process, of its JVM, and of the Python workers below that."""
    workers = 0
    for process in jvm.children(recursive=True):
        try:
            workers += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    own = psutil.Process(os.getpid()).memory_info().rss
    return Memory(time.monotonic(), own, jvm.memory_info().rss, workers, done)


class Forget(Bolt):
    """Never acks, and keeps nothing: trees stay open in the ledger alone."""

    stateless = True

    def execute(self, tup, collector):
        pass


class Keep(Bolt):
    """Never acks, and keeps every tuple, durably."""

    def prepare(self, context):
        self.kept = []

    def execute(self, tup, collector):
        self.kept.append(tup)


class Quick(BasicBolt):
    """Does nothing, so that what is seen is the speed of the spout and of the engine."""

    stateless = True

    def execute(self, tup, collector):
        pass


class Slow(BasicBolt):
    """Takes its time, busy."""

    stateless = True

    def execute(self, tup, collector):
        until = time.perf_counter() + SLOW_US / 1e6
        while time.perf_counter() < until:
            pass


def topology(name: str, bolt: BoltBase, spout: Numbers) -> Topology:
    builder = TopologyBuilder(name, Config(message_timeout_secs=3600))
    builder.set_spout("source", spout)
    builder.set_bolt("count", bolt, parallelism=2, fuse=False).shuffle_grouping("source")
    return builder.build()


def watch(topology: Topology, secs: float, open_trees: int | None = None) -> list[Memory]:
    """Run for a time, or until so many trees are open; the memory from the start on, at each promotion."""
    from pyspark import SparkContext

    running = topology.start(master=MASTER)
    try:
        jvm = psutil.Process(SparkContext._gateway.proc.pid)
        samples = [resident(jvm)]
        running.on_micro_batch(lambda report: samples.append(resident(jvm, report.metrics.of("count").executed)))
        until = time.monotonic() + secs
        while time.monotonic() < until and (open_trees is None or running.metrics().open_trees < open_trees):
            if running.failure is not None:
                raise RuntimeError(running.failure)
            time.sleep(0.25)
        samples.append(resident(jvm, running.metrics().of("count").executed))
    finally:
        running.stop(drain=False)
    return samples


def rate(samples: Sequence[Memory]) -> float:
    """Tuples a second in the second half of a run.

    >>> rate([Memory(0, 1, 1, 1, 0), Memory(1, 1, 1, 1, 5), Memory(2, 1, 1, 1, 25)])
    20.0
    """
    middle = next(s for s in samples if s.at_s >= (samples[0].at_s + samples[-1].at_s) / 2)
    return (samples[-1].done - middle.done) / (samples[-1].at_s - middle.at_s)


def grown(samples: Sequence[Memory]) -> dict[str, float]:
    """Of each process the most memory in the second half against the most in the first.

    >>> grown([Memory(0, 1, 1, 1), Memory(1, 2, 2, 2), Memory(3, 2, 1, 3), Memory(4, 2, 2, 2)])
    {'driver': 1.0, 'jvm': 1.0, 'workers': 1.5}
    """
    middle = (samples[0].at_s + samples[-1].at_s) / 2
    halves = [s for s in samples if s.at_s <= middle], [s for s in samples if s.at_s > middle]
    return {
        of: max(getattr(s, of) for s in halves[1]) / max(getattr(s, of) for s in halves[0])
        for of in ("driver", "jvm", "workers")
    }


def peaks(samples: Sequence[Memory]) -> dict[str, str]:
    """The most memory of each kind of process, for people."""
    return {of: f"{max(getattr(s, of) for s in samples) / MIB:.0f} MiB" for of in ("driver", "jvm", "workers")}


def figures(options: Options) -> Iterator[Figure]:
    """Measure: open trees, kept tuples, then the slow bolt for ``options.secs``."""
    for name, bolt, count in (("open", Forget(), OPEN), ("kept", Keep(), KEPT)):
        spout = Numbers(count, fill=count)
        samples = watch(topology(f"memory-{name}", bolt, spout), TIMEOUT_SECS, open_trees=count)
        more = (samples[-1].driver - samples[0].driver) / count
        text = f"driver, per tree of {count:,} {name}"
        yield Figure("memory", text, (more,), "bytes", Aim("at most", 500), peaks(samples))
    quick = watch(topology("memory-quick", Quick(), Numbers(1000, fill=ENDLESS)), QUICK_SECS)
    samples = watch(topology("memory-slow", Slow(), Numbers(1000, fill=ENDLESS)), options.secs)
    slower = rate(quick) / rate(samples)
    text = "time of a tuple with the slow bolt against one that does nothing"
    yield Figure("memory", text, (slower,), "times", Aim("at least", TIMES_SLOWER))
    for of, ratio in grown(samples).items():
        text = f"{of}, a slow bolt, second half against first"
        yield Figure("memory", text, (ratio,), "times", Aim("at most", 1.25), {**peaks(samples), "secs": options.secs})
