"""Seeds a second of the simulator.

How many seeds of the word count of 200 lines, with faults on, do two processes run in a second? No Spark here.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Aim, Figure
from benchmarks.runs import Options
from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from sparkbolt.sim.subject import MESSAGES_MAX
from sparkbolt.sim.subprocess_runner import SimulatingProcess
from sparkbolt.spouts import TextSpout

LINES = 200
WORKERS = 2
SEEDS = 1000
"""Of each worker, and each round."""
WARM_UP = 20
TEXT = ("to be or not to be", "that is the question", "whether it is nobler in the mind to suffer")


class Split(BasicBolt):
    outputs = ["word"]

    def execute(self, tup, collector):
        for word in tup["line"].split():
            collector.emit([word])


class Count(BasicBolt):
    outputs = ["word", "count"]

    def prepare(self, context):
        self.counts = Counter()

    def execute(self, tup, collector):
        self.counts[tup["word"]] += 1
        collector.emit([tup["word"], self.counts[tup["word"]]])


def word_count(directory: Path) -> Topology:
    """The word count of the front page, over 200 lines."""
    text = directory / "lines.txt"
    text.write_text("".join(TEXT[number % len(TEXT)] + "\n" for number in range(LINES)))
    builder = TopologyBuilder("word-count", Config(message_timeout_secs=30))
    builder.set_spout("lines", TextSpout(str(text)), parallelism=2)
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    return builder.build()


def measure(processes: list[SimulatingProcess], first: int, seeds: int) -> tuple[float, int]:
    """(seconds that the slowest process took, micro-batches of all).

    Raises:
        RuntimeError: a seed broke a promise, or a process could not go on.
    """
    began = time.perf_counter()
    for place, process in enumerate(processes):
        process.ask("seeds", first + place * seeds, first + (place + 1) * seeds)
    micro_batches = 0
    for process in processes:
        answer = process.answer()
        if answer is None or answer[2] is not None:
            raise RuntimeError(process.failure or answer[2].story)
        micro_batches += answer[1]
    return time.perf_counter() - began, micro_batches


def figures(options: Options) -> Iterator[Figure]:
    """Measure: the same processes in each round, other seeds."""
    with tempfile.TemporaryDirectory() as directory:
        topology = word_count(Path(directory))
        processes = [SimulatingProcess(topology, None, MESSAGES_MAX, hash_seed=place + 1) for place in range(WORKERS)]
        try:
            measure(processes, 0, WARM_UP)
            runs = [measure(processes, (turn + 1) * WORKERS * SEEDS, SEEDS) for turn in range(options.rounds)]
        finally:
            for process in processes:
                process.close()
    rates = tuple(WORKERS * SEEDS / seconds for seconds, _ in runs)
    facts = {"lines": LINES, "workers": WORKERS, "micro_batches_a_seed": runs[0][1] / (WORKERS * SEEDS)}
    yield Figure("simulate", "word count of 200 lines, faults on", rates, "seeds/s", Aim("at least", 200), facts)
