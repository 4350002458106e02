"""A word count as users start it: ``sparkbolt run word_count:topology``."""

from __future__ import annotations

from pathlib import Path

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.spouts import TextSpout


class Split(BasicBolt):
    """One tuple for each word of a line."""

    outputs = ["word"]
    stateless = True

    def execute(self, tup, collector):
        for word in tup["line"].split():
            collector.emit([word])


class Count(BasicBolt):
    """How often each word has come."""

    outputs = ["word", "count"]

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup, collector):
        self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1
        collector.emit([tup["word"], self.counts[tup["word"]]])


builder = TopologyBuilder("words")
builder.set_spout("lines", TextSpout(Path(__file__)))
builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
topology = builder.build()
