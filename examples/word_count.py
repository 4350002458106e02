"""Word count over real text: Python's own sources and the licences of this machine, or any files that are given.

    python examples/word_count.py                      # ends by itself, prints the top words
    python examples/word_count.py books/ notes.txt.gz --checkpoint state/word-count

Kill it with ``kill -9`` in the middle and start it again with the same checkpoint: the counts are exact.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path

from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from sparkbolt.spouts import TextSpout

LEADERS = 20
LICENCES = Path("/usr/share/common-licenses")


class SplitSentence(BasicBolt):
    """A line becomes its words."""

    outputs = ["word"]

    def execute(self, tup, collector):
        for word in tup["line"].split():
            collector.emit([word])


class WordCount(BasicBolt):
    """Counts words in a state that writes what was touched; tells whoever ranks them of words that may lead."""

    outputs = {"default": ["word", "count"], "leaders": ["word", "count"]}

    def prepare(self, context):
        self.threshold = 0
        self.leaders = {}

    def init_state(self, state):
        self.counts = state

    def execute(self, tup, collector):
        word = tup["word"]
        count = self.counts.get(word, 0) + 1
        self.counts.put(word, count)
        collector.emit([word, count])
        if count > self.threshold:
            self.leaders[word] = count
            collector.emit([word, count], stream="leaders")

    def flush(self):
        best = heapq.nlargest(LEADERS, self.leaders.items(), key=lambda pair: pair[1])
        self.leaders = dict(best)
        if len(best) == LEADERS:
            self.threshold = best[-1][1]


class TopWords(BasicBolt):
    """Keeps the most frequent words and writes them to a file at the end of each micro-batch."""

    outputs = []

    def __init__(self, path):
        self.path = str(path)

    def prepare(self, context):
        self.ranking = {}

    def execute(self, tup, collector):
        self.ranking[tup["word"]] = tup["count"]
        if len(self.ranking) > 50 * LEADERS:
            self.ranking = dict(Counter(self.ranking).most_common(10 * LEADERS))

    def flush(self):
        temporary = Path(f"{self.path}.tmp")
        temporary.write_text(json.dumps(Counter(self.ranking).most_common(LEADERS)))
        temporary.replace(self.path)


def build(paths: list[str], top: Path) -> Topology:
    """The topology: lines, split, count, top."""
    builder = TopologyBuilder("word-count", Config(message_timeout_secs=60))
    builder.set_spout("lines", TextSpout(paths), parallelism=2)
    builder.set_bolt("split", SplitSentence(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", WordCount(), parallelism=2).fields_grouping("split", ["word"])
    builder.set_bolt("top", TopWords(top)).global_grouping("count", stream="leaders")
    return builder.build()


def text_of_this_machine() -> list[str]:
    """Text that every machine has."""
    sources = [str(Path(sysconfig.get_path("stdlib"), "*.py")), str(Path(sysconfig.get_path("stdlib"), "*", "*.py"))]
    return [*sources, str(LICENCES)] if LICENCES.is_dir() else sources


def main() -> None:
    """Run the topology and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("paths", nargs="*", help="files, directories or globs; default: text of this machine")
    parser.add_argument("--checkpoint", help="a directory for durable state; default: a temporary one")
    parser.add_argument("--master", default="local[2]", help="as of spark-submit (default %(default)s)")
    arguments = parser.parse_args()

    top = Path(arguments.checkpoint or tempfile.mkdtemp(prefix="word-count-"), "top.json")
    top.parent.mkdir(parents=True, exist_ok=True)
    topology = build(arguments.paths or text_of_this_machine(), top.absolute())
    started = time.monotonic()
    metrics = topology.run(checkpoint=arguments.checkpoint, master=arguments.master)
    elapsed = time.monotonic() - started

    lines, count = metrics.components["lines"], metrics.components["count"]
    print("\nThe most frequent words:")
    for word, times in json.loads(top.read_text()) if top.exists() else []:
        print(f"{times:>10,}  {word}")
    print(f"\n{count.executed:,} words in {lines.emitted:,} lines, {elapsed:.1f} s with Spark's start")
    print(f"trees acked {lines.acked:,}, failed {lines.failed:,}, still open {metrics.open_trees:,}")
    print(f"{count.executed / elapsed:,.0f} words per second, Spark's start included")


if __name__ == "__main__":
    main()
