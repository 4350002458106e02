"""A topology that is killed: a program of its own, started by ``test_kill``.

    python -m tests.spark.killed TEXT OUT CHECKPOINT MOMENT

It counts words durably, writes each count idempotently, and holds every line for some micro-batches. ``MOMENT`` says
where the program kills itself with SIGKILL: ``staged:3`` (the ledger's entry of micro-batch 3 is durable, Spark has not
committed), ``committed:3`` (Spark has committed, nothing is promoted), ``promoted:3``, ``planned:3`` (the plan was
given to Spark), ``compacting`` (the snapshot is written, entries are not yet removed), or ``never``.

``outlived:3`` is ``staged:3``, but the JVM outlives the driver: a process that the driver leaves behind keeps the JVM's
standard input open, and its number is printed with the JVM's. ``refused`` waits for the checkpoint's lock for a moment
only.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import sparkbolt
from sparkbolt import Bolt, Config, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import TextSpout
from tests.chaos.moments import plant
from tests.topologies import Count, Split

HELD_MICRO_BATCHES = 2
WINDOW = 70
"""Lines of a window: no number of micro-batches ends with one."""


class Hold(Bolt):
    """Holds each line for some micro-batches; a tick lets go of those that are old enough."""

    def prepare(self, context):
        self.context = context
        self.held = {}

    transient = ("context",)

    def execute(self, tup, collector):
        now = self.context.micro_batch_id
        if not tup.is_tick:
            self.held.setdefault(now, []).append(tup)
        for number in [number for number in self.held if number <= now - HELD_MICRO_BATCHES]:
            for held in self.held.pop(number):
                collector.ack(held)


class Together(WindowedBolt):
    """Which lines were in which window; windows are numbered."""

    outputs = ["window", "lines"]

    def prepare(self, context):
        self.windows = 0

    def execute(self, window, collector):
        self.windows += 1
        collector.emit([self.windows, window.column("offset").to_pylist()])


def build(text: str, out: str) -> Topology:
    """Lines are counted by word, held as a whole, and put into windows."""
    config = Config(message_timeout_secs=600, micro_batch_bytes_max=20_000, compact_every=4)
    builder = TopologyBuilder("killed", config)
    builder.set_spout("lines", TextSpout(text), parallelism=2)
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    builder.set_bolt("hold", Hold(), parallelism=2, tick_tuple_freq_secs=0.5).shuffle_grouping("lines")
    builder.set_bolt("out", JsonLinesBolt(out), parallelism=2).shuffle_grouping("count")
    together = Together().with_tumbling_window(sparkbolt.Count(WINDOW))
    builder.set_bolt("together", together).global_grouping("lines")
    builder.set_bolt("windows", JsonLinesBolt(f"{out}-windows")).shuffle_grouping("together")
    return builder.build()


def leave_a_process_behind() -> None:
    """It has all that the driver has open, but for standard output and error."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    os.dup(gateway.proc.stdin.fileno())  # the one that is known is not left to children
    holder = os.fork()
    if holder == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        signal.alarm(120)  # its end, if nobody ends it before
        signal.pause()
    print(f"holder {holder} jvm {gateway.proc.pid}")


def die() -> None:
    """As a machine dies: no handler, no cleanup."""
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def end(where: str, due: bool) -> None:
    """The moment has come; die, if it is late enough."""
    if due and where == "outlived":
        leave_a_process_behind()
    if due:
        die()


def main() -> None:
    """Run to the end, or to the kill."""
    text, out, checkpoint, moment = sys.argv[1:]
    if moment == "refused":
        from sparkbolt.spark import checkpoint_lock

        checkpoint_lock.LOCK_WAIT_SECS = 1.0
    elif moment != "never":
        where, _, number = moment.partition(":")
        plant("staged" if where == "outlived" else where, lambda reached: end(where, reached >= int(number or 0)))
    running = build(text, out).start(checkpoint=checkpoint, master="local[2]")
    running.await_finished()
    metrics = running.metrics()
    lines = metrics.components["lines"]
    print(f"lines {lines.emitted} acked {lines.acked} failed {lines.failed} open {metrics.open_trees}", flush=True)
    running.stop()


if __name__ == "__main__":
    main()
