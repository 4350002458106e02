"""The topology of the campaign: a diamond with held tuples and durable counts.

    lines -> split -> count
      |        |
      |        +----> join
      +-> hold -------^

A line is ``key word word ...``. Its tree is finished when each of its words is counted and its two paths have met in
``join``, which holds whichever comes first; ``hold`` keeps a line for some micro-batches before it lets it go on.
``count`` and ``join`` write what they find themselves: a level less is a second less at each start.
"""

from __future__ import annotations

from collections import Counter

from sparkbolt import BasicBolt, Bolt, Config, Topology, TopologyBuilder
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import TextSpout

HELD_MICRO_BATCHES = 2


class Writing:
    """Rows of a bolt's own, written with the micro-batch: one that runs again replaces its file."""

    transient = ("rows",)

    def __init__(self, directory):
        self.rows = JsonLinesBolt(directory)

    def prepare(self, context):
        self.rows.prepare(context)

    def write(self, **row):
        self.rows.execute(row, None)

    def flush(self):
        self.rows.flush()


class SplitAndMeasure(BasicBolt):
    """The words of a line, and how many there are."""

    outputs = {"default": ["word"], "sizes": ["key", "words"]}

    def execute(self, tup, collector):
        key, *words = tup["line"].split()
        for word in words:
            collector.emit([word])
        collector.emit([key, len(words)], stream="sizes")


class CountAndWrite(Writing, BasicBolt):
    """Durable counts, each of them written once."""

    def prepare(self, context):
        super().prepare(context)
        self.counts = Counter()

    def execute(self, tup, collector):
        word = tup["word"]
        self.counts[word] += 1
        self.write(word=word, count=self.counts[word])


class Hold(Bolt):
    """Holds each line for some micro-batches; a tick lets go of those that are old enough."""

    outputs = ["key", "words"]
    transient = ("context",)

    def prepare(self, context):
        self.context = context
        self.held = {}

    def execute(self, tup, collector):
        now = self.context.micro_batch_id
        if not tup.is_tick:
            self.held.setdefault(now, []).append(tup)
        for number in [number for number in self.held if number <= now - HELD_MICRO_BATCHES]:
            for held in self.held.pop(number):
                collector.emit([held["line"].split()[0], 0], anchors=[held])
                collector.ack(held)


class Join(Writing, Bolt):
    """Holds the first of a line's two tuples until the second is there."""

    def prepare(self, context):
        super().prepare(context)
        self.waiting = {}

    def execute(self, tup, collector):
        other = self.waiting.pop(tup["key"], None)
        if other is None:
            self.waiting[tup["key"]] = tup
            return
        self.write(key=tup["key"], words=tup["words"] + other["words"])
        collector.ack(other)
        collector.ack(tup)


def build(directory: str) -> Topology:
    """The diamond over the files of ``directory/text``, which grow; small micro-batches, frequent compaction."""
    config = Config(
        message_timeout_secs=600,
        micro_batch_bytes_max=8_000,
        compact_every=4,
        restarts_max=1000,
        restart_backoff_secs=0.1,
    )
    builder = TopologyBuilder("diamond", config)
    builder.set_spout("lines", TextSpout(f"{directory}/text", follow=True), parallelism=2)
    builder.set_bolt("split", SplitAndMeasure(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", CountAndWrite(f"{directory}/counts"), parallelism=2).fields_grouping("split", ["word"])
    builder.set_bolt("hold", Hold(), parallelism=2, tick_tuple_freq_secs=0.5).shuffle_grouping("lines")
    join = builder.set_bolt("join", Join(f"{directory}/joined"), parallelism=2)
    join.fields_grouping("split", ["key"], stream="sizes").fields_grouping("hold", ["key"])
    return builder.build()
