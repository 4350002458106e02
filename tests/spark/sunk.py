"""A topology with every sink that writes tables or files, and that is killed: started by ``test_sinks``.

    python -m tests.spark.sunk NUMBERS OUT CHECKPOINT MOMENT TRANSACTIONAL

Each line is a number. ``check`` fails each 50th at its first attempt, and each 97th at every attempt, after the sinks
have got it. ``MOMENT`` says where the program kills itself with SIGKILL: one of ``tests.chaos.moments`` with the number
of a micro-batch, ``before:table:3`` (the rows of micro-batch 3 are about to be committed by component ``table``),
``written:table:3`` (they are outside, and the checkpoint does not know it), or ``never``.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from sparkbolt import BasicBolt, Config, RetryPolicy, Topology, TopologyBuilder
from sparkbolt.bolts import DeltaBolt, IcebergBolt, JsonLinesBolt, ParquetBolt, SparkSink
from sparkbolt.spark.commit_calls import CommitCalls
from sparkbolt.spouts import TextSpout
from tests.chaos.moments import MOMENTS, plant
from tests.docs.pages import recipe

FAILS_ONCE, FAILS_ALWAYS = 50, 97
SCHEMA = "number long not null, name string"


class Parse(BasicBolt):
    """A number of a line, and its name."""

    outputs = ["number", "name"]
    stateless = True

    def execute(self, tup, collector):
        collector.emit([int(tup["line"]), f"name {tup['line']}"])


class Check(BasicBolt):
    """Refuses some numbers when it is too late for sinks that do not wait."""

    outputs = ["number"]
    stateless = True

    def execute(self, tup, collector):
        number = tup["number"]
        if number % FAILS_ALWAYS == 0 or (number % FAILS_ONCE == 0 and tup.attempt == 1):
            raise ValueError(f"{number} is refused")
        collector.emit([number])


def build(numbers: str, out: str, *, transactional: bool) -> Topology:
    """The numbers go to all sinks, and beside them to ``check``."""
    config = Config(
        transactional=transactional, micro_batch_bytes_max=1_500, compact_every=3, retry=RetryPolicy(max_retries=2)
    )
    builder = TopologyBuilder("sinks", config)
    builder.set_spout("lines", TextSpout(numbers), parallelism=2)
    builder.set_bolt("parse", Parse(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("check", Check(), parallelism=2).fields_grouping("parse", ["number"])
    builder.set_bolt("json", JsonLinesBolt(f"{out}/json"), parallelism=2).shuffle_grouping("parse")
    parquet = ParquetBolt(f"{out}/parquet", schema=SCHEMA)
    builder.set_bolt("parquet", parquet, parallelism=2).shuffle_grouping("parse")
    write_folders = recipe("docs/sinks.md", "write_folders.py")["WriteFolders"]
    folder = SparkSink("parse", write_folders(f"{out}/folder"), schema=SCHEMA)
    builder.set_bolt("folder", folder, parallelism=2)
    table = DeltaBolt(f"{out}/delta", schema=SCHEMA)
    builder.set_bolt("table", table, parallelism=2).shuffle_grouping("parse")
    lake = {"type": "sql", "uri": f"sqlite:///{out}/catalog.db", "warehouse": f"file://{out}/lake"}
    iceberg = IcebergBolt("shop.numbers", properties=lake, schema=SCHEMA)
    builder.set_bolt("iceberg", iceberg, parallelism=2).shuffle_grouping("parse")
    return builder.build()


def die() -> None:
    """As a machine dies: no handler, no cleanup."""
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run to the end, or to the kill."""
    numbers, out, checkpoint, moment, transactional = sys.argv[1:]
    where, *rest = moment.split(":")
    if where in MOMENTS:
        plant(where, lambda reached: die() if reached >= int(rest[0]) else None)
    commit = CommitCalls._commit

    def committed(self, component, txid, rows):
        here = rest and component == rest[0] and txid >= int(rest[1])
        if here and where == "before":
            die()
        commit(self, component, txid, rows)
        if here and where == "written":
            die()

    if where in ("before", "written"):
        CommitCalls._commit = committed
    running = build(numbers, out, transactional=transactional == "True").start(checkpoint=checkpoint, master="local[2]")
    running.await_finished()
    metrics = running.metrics()
    lines = metrics.components["lines"]
    print(json.dumps({"acked": lines.acked, "aside": lines.set_aside, "open": metrics.open_trees}), flush=True)
    running.stop()


if __name__ == "__main__":
    main()
