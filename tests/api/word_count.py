"""The word count that users see first."""

from collections import Counter

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.spouts import TextSpout


class SplitSentence(BasicBolt):
    outputs = ["word"]

    def execute(self, tup, collector):
        for word in tup["line"].split():
            collector.emit([word])


class WordCount(BasicBolt):
    outputs = ["word", "count"]

    def prepare(self, context):
        self.counts = Counter()

    def execute(self, tup, collector):
        word = tup["word"]
        self.counts[word] += 1
        collector.emit([word, self.counts[word]])


builder = TopologyBuilder("word-count", Config(message_timeout_secs=30, max_spout_pending=100_000))
builder.set_spout("lines", TextSpout("books/*.txt"), parallelism=2)
builder.set_bolt("split", SplitSentence(), parallelism=2).shuffle_grouping("lines")
builder.set_bolt("count", WordCount(), parallelism=2).fields_grouping("split", ["word"])
topology = builder.build()

if __name__ == "__main__":
    topology.run()
