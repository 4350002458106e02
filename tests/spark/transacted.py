"""A bank whose program is killed: started by ``test_transactions``.

    python -m tests.spark.transacted SOURCE TRANSFERS OUT CHECKPOINT MOMENT TRANSACTIONAL

Each line is a transfer, ``number source target amount``. ``SOURCE`` is ``text`` for a file that a spout of ours reads,
``spark`` for a directory of files that Spark reads, one in each micro-batch, and shuffles. The source is debited before
the target is credited. The credit of each 50th transfer fails at its first attempt, that of each 97th at every attempt.
What was credited goes to a file, by a committer. ``MOMENT`` says where the program kills itself with SIGKILL:
``aborted:2`` (what failed in micro-batch 2 is durable, it has not run again yet), ``repeated:2`` (it has run again,
nothing is staged), ``committing:2`` (Spark has committed it, its rows are not outside yet), ``outside:2`` (they are,
which is not noted yet), one of ``tests.chaos.moments``, or ``never``. It prints how long executions took.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path

from sparkbolt import BasicBolt, Bolt, Committer, Config, RetryPolicy, Topology, TopologyBuilder
from sparkbolt.core.driver.effects import Write
from sparkbolt.core.driver.transaction import Transaction
from sparkbolt.spark.commit_calls import CommitCalls
from sparkbolt.spark.life import Life
from sparkbolt.spouts import SparkSpout, TextSpout
from tests.chaos.moments import MOMENTS, plant

FAILS_ONCE, FAILS_ALWAYS = 50, 97


class Parse(BasicBolt):
    """A transfer of a line."""

    outputs = ["number", "source", "target", "amount"]
    stateless = True

    def execute(self, tup, collector):
        number, source, target, amount = tup["line"].split()
        collector.emit([int(number), source, target, int(amount)])


class Debit(Bolt):
    """Takes the amount from the source."""

    outputs = ["number", "source", "paid", "target", "amount"]

    def prepare(self, context):
        self.paid = {}

    def execute(self, tup, collector):
        paid = self.paid[tup["source"]] = self.paid.get(tup["source"], 0) + tup["amount"]
        collector.emit([tup["number"], tup["source"], paid, tup["target"], tup["amount"]], anchors=[tup])
        collector.ack(tup)


class Credit(Bolt):
    """Gives the amount to the target, before it finds out that it cannot."""

    outputs = ["number", "source", "paid", "target", "got", "amount"]

    def prepare(self, context):
        self.got = {}

    def execute(self, tup, collector):
        number, target = tup["number"], tup["target"]
        got = self.got[target] = self.got.get(target, 0) + tup["amount"]
        if number % FAILS_ALWAYS == 0 or (number % FAILS_ONCE == 0 and tup.attempt == 1):
            raise ValueError(f"account {target} cannot be credited now")
        collector.emit([number, tup["source"], tup["paid"], target, got, tup["amount"]], anchors=[tup])
        collector.ack(tup)


class Statement(Committer):
    """Appends what was credited to a file, with the txid in each line; a txid that is there already is skipped."""

    def __init__(self, path):
        self.path = path

    def begin(self, context):
        path = Path(self.path)
        lines = path.read_text().splitlines() if path.exists() else []
        self.there = max((json.loads(line)["txid"] for line in lines), default=0)

    def commit(self, txid, rows):
        assert rows, txid
        if txid <= self.there:
            return
        with Path(self.path).open("a") as file:  # a kill at one of the moments leaves it whole
            file.writelines(json.dumps({"txid": txid, **row}) + "\n" for row in rows)


def shuffled(spark, transfers):
    """The lines of a directory, as a stream whose rows come in any order."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(transfers).withColumnRenamed("value", "line")
    return lines.repartition(3, "line")


def build(source: str, transfers: str, out: str, *, transactional: bool) -> Topology:
    """Debit, then credit, then a file."""
    retry = RetryPolicy(max_retries=2)
    config = Config(transactional=transactional, micro_batch_bytes_max=8_000, compact_every=3, retry=retry)
    builder = TopologyBuilder("bank", config)
    from_spark = SparkSpout(lambda spark: shuffled(spark, transfers), outputs=["line"])
    builder.set_spout("lines", TextSpout(transfers) if source == "text" else from_spark, parallelism=2)
    builder.set_bolt("parse", Parse(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("debit", Debit(), parallelism=2).fields_grouping("parse", ["source"])
    builder.set_bolt("credit", Credit(), parallelism=2).fields_grouping("debit", ["target"])
    builder.set_bolt("out", Statement(out), parallelism=2).shuffle_grouping("credit")
    return builder.build()


def die() -> None:
    """As a machine dies: no handler, no cleanup."""
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run to the end, or to the kill."""
    source, transfers, out, checkpoint, moment, transactional = sys.argv[1:]
    where, _, number = moment.partition(":")
    if where in MOMENTS:
        plant(where, lambda reached: die() if reached >= int(number or 0) else None)
    judge, settle, collected, perform = Transaction.judge, Transaction.settle, Life._collected, Life._perform
    call = CommitCalls.__call__
    first, repeats, execution, reached = [], [], [0], [0]

    def judged(self, plan, feedback):
        reached[0] = plan.micro_batch_id
        return judge(self, plan, feedback)

    def performed(self, effect):
        result = perform(self, effect)
        is_abort = isinstance(effect, Write) and effect.name.startswith("aborts/")
        if where == "aborted" and is_abort and reached[0] >= int(number):
            die()
        return result

    def settled(self, feedback):
        if where == "repeated" and self.repeats and reached[0] >= int(number):
            die()
        execution[0] = -1
        settle(self, feedback)

    def called(self, component, txid, rows):
        if where == "committing" and txid >= int(number):
            die()
        call(self, component, txid, rows)
        if where == "outside" and txid >= int(number):
            die()

    def timed(self, frame):
        execution[0] += 1
        began = time.perf_counter()
        feedback = collected(self, frame)
        (repeats if execution[0] else first).append((time.perf_counter() - began) * 1000)
        return feedback

    if transactional == "True":
        execution[0] = -1
        Transaction.judge, Transaction.settle, Life._collected = judged, settled, timed
        CommitCalls.__call__, Life._perform = called, performed
    topology = build(source, transfers, out, transactional=transactional == "True")
    running = topology.start(checkpoint=checkpoint, master="local[2]")
    if source == "text":
        running.await_finished()
    else:
        running.await_idle()
    metrics = running.metrics()
    lines = metrics.components["lines"]
    said = {"acked": lines.acked, "failed": lines.failed, "aside": lines.set_aside, "open": metrics.open_trees}
    if repeats:
        said |= {"first_ms": statistics.median(first), "repeat_ms": statistics.median(repeats), "repeats": len(repeats)}
    print(json.dumps(said), flush=True)
    running.stop()


if __name__ == "__main__":
    main()
