"""The word count of ``word_count.py`` with streams as functions: each operator is a bolt.

    python examples/word_count_streams.py              # ends by itself, prints the top words
    python examples/word_count_streams.py books/ notes.txt.gz --checkpoint state/word-count-streams

Compare it with ``word_count.py``: the bolts have the same names, and the counts are as exact after a ``kill -9``.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path

from sparkbolt import BasicBolt, Topology, TopologyBuilder
from sparkbolt.spouts import TextSpout

LEADERS = 20


class TopWords(BasicBolt):
    """Writes the most frequent words to a file at the end of each micro-batch; a class bolt, in the same chain."""

    outputs = []

    def __init__(self, path):
        self.path = str(path)

    def prepare(self, context):
        self.ranking = {}

    def execute(self, tup, collector):
        self.ranking[tup.word] = tup.count

    def flush(self):
        self.ranking = dict(Counter(self.ranking).most_common(LEADERS))
        temporary = Path(f"{self.path}.tmp")
        temporary.write_text(json.dumps(list(self.ranking.items())))
        temporary.replace(self.path)


def build(paths: list[str], top: Path) -> Topology:
    """The topology: lines, split, count, frequent, top."""
    builder = TopologyBuilder("word-count-streams")
    lines = builder.stream(TextSpout(paths), name="lines", parallelism=2)
    words = lines.flat_map(lambda tup: tup.line.split(), outputs=["word"], name="split")
    counts = words.key_by("word").count(into="count", name="count")
    counts.filter(lambda tup: tup.count > 100, name="frequent").to(TopWords(top), name="top", parallelism=1)
    return builder.build()


def main() -> None:
    """Run the topology and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    stdlib = str(Path(sysconfig.get_path("stdlib"), "*.py"))
    parser.add_argument("paths", nargs="*", default=[stdlib], help="files, directories or globs; default: Python's own")
    parser.add_argument("--checkpoint", help="a directory for durable state; default: a temporary one")
    parser.add_argument("--master", default="local[2]", help="as of spark-submit (default %(default)s)")
    arguments = parser.parse_args()

    top = Path(arguments.checkpoint or tempfile.mkdtemp(prefix="word-count-"), "top.json")
    top.parent.mkdir(parents=True, exist_ok=True)
    metrics = build(arguments.paths, top.absolute()).run(checkpoint=arguments.checkpoint, master=arguments.master)
    print("\nThe most frequent words:")
    for word, times in json.loads(top.read_text()) if top.exists() else []:
        print(f"{times:>10,}  {word}")
    print(f"\n{metrics.components['count'].executed:,} words in {metrics.components['lines'].emitted:,} lines")


if __name__ == "__main__":
    main()
