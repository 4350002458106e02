"""Rolling top words: each task ranks its own words, and one task merges the rankings, once a second.

    python examples/rolling_top_words.py              # Python's sources, read for ever; end it with Ctrl-C
    python examples/rolling_top_words.py --for 20

Tick tuples tell bolts that time has passed. Rankings are emitted unanchored: a lost ranking is replaced a second
later, so nobody need track it.
"""

from __future__ import annotations

import argparse
import itertools
import sysconfig
import time
from collections import Counter, deque
from pathlib import Path

from sparkbolt import Bolt, Config, TopologyBuilder, bolt
from sparkbolt.bolts import PrintBolt
from sparkbolt.spouts import GeneratorSpout

RANKS = 5
SECONDS = 9


def lines():
    """The lines of the standard library, over and over."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    for file in itertools.cycle(files):
        for line in file.read_text(errors="replace").splitlines():
            yield [line]


@bolt(outputs=["word"])
def split(tup):
    """A line becomes its words."""
    for word in tup["line"].split():
        if word.isalpha():
            yield [word]


class RollingCount(Bolt):
    """Counts the words of the last seconds; a slot of its window ends with each tick."""

    outputs = ["word", "count"]

    def prepare(self, context):
        self.slots = deque([Counter()], maxlen=SECONDS)

    def execute(self, tup, collector):
        if not tup.is_tick:
            self.slots[-1][tup["word"]] += 1
            collector.ack(tup)
            return
        total = sum(self.slots, Counter())
        for word, count in total.most_common(RANKS):
            collector.emit([word, count])
        self.slots.append(Counter())


class Merge(Bolt):
    """Merges the rankings of all tasks into one, on each tick."""

    outputs = ["ranking"]

    def prepare(self, context):
        self.known = {}

    def execute(self, tup, collector):
        if not tup.is_tick:
            self.known[tup["word"]] = tup["count"]
            collector.ack(tup)
            return
        best = sorted(self.known.items(), key=lambda pair: -pair[1])[:RANKS]
        if best:
            collector.emit([", ".join(f"{word} {count}" for word, count in best)])
        self.known.clear()


def build():
    """The topology: lines, split, count, merge, print."""
    builder = TopologyBuilder("rolling-top-words", Config(max_spout_pending=5000))
    builder.set_spout("lines", GeneratorSpout(lines, outputs=["line"], count=10**9))
    builder.set_bolt("split", split).shuffle_grouping("lines")
    builder.set_bolt("count", RollingCount(), parallelism=2, tick_tuple_freq_secs=1).fields_grouping("split", ["word"])
    builder.set_bolt("merge", Merge(), tick_tuple_freq_secs=1).global_grouping("count")
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("merge")
    return builder.build()


topology = build()


def main():
    """Run for ever, or for some seconds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--for", dest="secs", type=float, help="stop after so many seconds")
    arguments = parser.parse_args()
    if arguments.secs is None:
        topology.run()
        return
    running = topology.start(master="local[2]")
    time.sleep(arguments.secs)
    running.stop()


if __name__ == "__main__":
    main()
