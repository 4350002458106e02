"""Runs a small topology to its end and lets the JVM go as it likes, so that it can write down which classes it loaded.

Called by scripts/_setup.sh, in an environment that has the JVM do that.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from sparkbolt import BasicBolt, BasicCollector, TopologyBuilder, TopologyContext, Tuple
from sparkbolt.spark.session import make_session
from sparkbolt.spouts import TextSpout


class Lengths(BasicBolt):
    """Counts lines by their length."""

    outputs = ["length", "count"]

    def prepare(self, context: TopologyContext) -> None:
        self.counts: dict[int, int] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        length = len(tup["line"])
        self.counts[length] = self.counts.get(length, 0) + 1
        collector.emit([length, self.counts[length]])


builder = TopologyBuilder("classes")
builder.set_spout("lines", TextSpout(Path(__file__)))
builder.set_bolt("lengths", Lengths(), parallelism=2).fields_grouping("lines", ["line"])
with tempfile.TemporaryDirectory() as directory:
    session = make_session("classes", "local[2,4]")
    running = builder.build().start(spark=session, checkpoint=directory)
    running.await_finished(timeout_secs=300)
    running.stop()
    session.stop()
gateway = SparkContext._gateway
assert gateway is not None
gateway.shutdown()
gateway.proc.stdin.close()
sys.exit(gateway.proc.wait())
