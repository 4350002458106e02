"""Word count with class bolts, and what tracking costs.

Which question it answers: how many words a second does api.md's word count count on two cores, with its counts
durable and every line tracked; and how much faster would it be untracked?

Read before: ``runs``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import TARGET_MS, Run, in_turn, run
from benchmarks.text import Text, zipf_text
from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from sparkbolt.core.state import KeyValueState
from sparkbolt.spouts import TextSpout

PARALLELISM = 2
FIRST_BUDGET = 2 << 20
"""Bytes of the first micro-batch: so much that the size settles within the first third of the text."""


class SplitSentence(BasicBolt):
    outputs = ["word"]

    def execute(self, tup, collector):
        for word in tup["line"].split():
            collector.emit([word])


class WordCount(BasicBolt):
    outputs = ["word", "count"]

    def init_state(self, state: KeyValueState) -> None:
        self.counts = state

    def execute(self, tup, collector):
        word = tup["word"]
        count = self.counts.get(word, 0) + 1
        self.counts.put(word, count)
        collector.emit([word, count])


def word_count(path: Path, split: object, count: object, *, tracked: bool = True) -> Topology:
    """A word count of a file: spout, ``split``, and ``count`` behind a fields grouping."""
    config = Config(micro_batch_target_ms=TARGET_MS, message_timeout_secs=120, acker_tasks=None if tracked else 0)
    builder = TopologyBuilder("word-count", config)
    spout = TextSpout(path)
    spout.first_budget = FIRST_BUDGET
    builder.set_spout("lines", spout, parallelism=PARALLELISM)
    builder.set_bolt("split", split, parallelism=PARALLELISM).shuffle_grouping("lines")
    builder.set_bolt("count", count, parallelism=PARALLELISM).fields_grouping("split", ["word"])
    return builder.build()


def bare_loop(path: Path, words: int) -> float:
    """Words a second of one core that does nothing but split and count: the machine's speed, now."""
    counts: Counter[str] = Counter()
    began = time.perf_counter()
    left = words
    with path.open() as file:
        for line in file:
            for word in line.split():
                counts[word] += 1
            left -= len(line.split())
            if left <= 0:
                break
    return (words - left) / (time.perf_counter() - began)


def counted(result: Run, text: Text) -> Run:
    """The run, if it counted every word once.

    Raises:
        RuntimeError: it did not.
    """
    executed = result.metrics.of(result.component).executed
    if executed != text.words:
        raise RuntimeError(f"{result.component!r} executed {executed} words, the text has {text.words}")
    return result


def figures(words: int, rounds: int) -> Iterator[Figure]:
    """Measure: tracked, untracked, and the bare loop, in turn."""
    text = zipf_text(words)
    warm = zipf_text(min(words, 2_000_000))
    run(word_count(warm.path, SplitSentence(), WordCount()), "count")
    runs: list[Run] = []

    def rate(tracked: bool) -> float:
        runs.append(counted(run(word_count(text.path, SplitSentence(), WordCount(), tracked=tracked), "count"), text))
        return runs[-1].rate

    with_acks, without, bare = in_turn(
        rounds, lambda: rate(True), lambda: rate(False), lambda: bare_loop(text.path, min(words, 4_000_000))
    )
    facts = {
        "words": text.words,
        "distinct": text.distinct,
        "micro_batch_target_ms": TARGET_MS,
        "micro_batch_s": round(runs[0].micro_batch_s, 2),
    }
    yield Figure("words", "class bolts, tracked", with_acks, "words/s", Aim("at least", 1.3e6), facts)
    yield Figure("words", "class bolts, acker_tasks=0", without, "words/s")
    yield Figure("words", "time with tracking against without", ratios(without, with_acks), "times", Aim("at most", 1.1))
    yield Figure("words", "a bare loop in one process", bare, "words/s")
    yield Figure("words", "class bolts, tracked, against the bare loop", ratios(with_acks, bare), "times")
