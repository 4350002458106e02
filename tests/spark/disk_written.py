"""A topology of a few micro-batches; a program of its own, started by ``test_local_disk``.

python -m tests.spark.disk_written MASTER CHECKPOINT [KEY=VALUE...]
"""

from __future__ import annotations

import sys
from pathlib import Path

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.spouts import TextSpout


class Lengths(BasicBolt):
    """How many lines of each length have come."""

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup, collector):
        length = len(tup["line"])
        self.counts[length] = self.counts.get(length, 0) + 1


def main() -> None:
    master, checkpoint, *settings = sys.argv[1:]
    builder = TopologyBuilder("disk", Config(micro_batch_bytes_max=1024))
    builder.set_spout("lines", TextSpout(Path(__file__)))
    builder.set_bolt("lengths", Lengths(), parallelism=2).fields_grouping("lines", ["line"])
    given = dict(setting.split("=", 1) for setting in settings)
    running = builder.build().start(checkpoint=checkpoint, master=master, settings=given)
    running.await_finished()
    print(f"micro-batches {running.metrics().micro_batches} open {running.metrics().open_trees}", flush=True)
    running.stop()


if __name__ == "__main__":
    main()
