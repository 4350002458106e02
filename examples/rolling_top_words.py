"""Rolling top words: each task ranks its own words, and one task merges the rankings, once a second.

    python examples/rolling_top_words.py              # Python's sources, read for ever; end it with Ctrl-C
    python examples/rolling_top_words.py --for 20

Each task has a window of the last nine seconds that slides every second. A window's words are durable, and a ranking
is given again until the task that merges has it.
"""

from __future__ import annotations

import argparse
import itertools
import sysconfig
import time
from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc

from sparkbolt import BasicBolt, Config, TopologyBuilder, WindowedBolt, bolt
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


class RollingCount(WindowedBolt):
    """The most frequent words of the last seconds, of those that this task gets."""

    outputs = ["end", "ranking"]

    def execute(self, window, collector):
        counts = pc.value_counts(window.column("word")).to_pylist()
        best = sorted(((entry["counts"], entry["values"]) for entry in counts), reverse=True)[:RANKS]
        collector.emit([window.end_ms, best])


class Merge(BasicBolt):
    """Merges the rankings of all tasks that end in the same second."""

    outputs = ["ranking"]

    def prepare(self, context):
        self.second = 0
        self.known = []

    def execute(self, tup, collector):
        second = tup["end"] // 1000
        if second > self.second:
            if self.known:
                best = sorted(self.known, reverse=True)[:RANKS]
                collector.emit([", ".join(f"{word} {count}" for count, word in best)])
            self.second, self.known = second, []
        self.known += tup["ranking"]


def build():
    """The topology: lines, split, count, merge, print."""
    builder = TopologyBuilder("rolling-top-words", Config(max_spout_pending=5000))
    builder.set_spout("lines", GeneratorSpout(lines, outputs=["line"], count=10**9))
    builder.set_bolt("split", split).shuffle_grouping("lines")
    count = RollingCount().with_window(timedelta(seconds=SECONDS), slide=timedelta(seconds=1))
    builder.set_bolt("count", count, parallelism=2).fields_grouping("split", ["word"])
    builder.set_bolt("merge", Merge()).global_grouping("count")
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
