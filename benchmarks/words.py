"""Word count with class bolts and with streams, and what tracking costs.

How many words a second does api.md's word count count on two cores, with its counts durable and every line tracked; are
streams as fast as class bolts; and how much faster would it be untracked?
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import PARALLELISM, Mark, Options, in_turn, rate_of, run
from benchmarks.text import WORDS_A_LINE, Text, zipf_text
from benchmarks.turns import Contender
from sparkbolt import BasicBolt, Config, KeyValueState, Topology, TopologyBuilder
from sparkbolt.spouts import TextSpout

if TYPE_CHECKING:  # `since` runs this with earlier versions, whose modules have other names
    from sparkbolt.api.components import BoltBase

TARGET_MS = 6000
"""What the word counts set ``micro_batch_target_ms`` to: what is sought is how much they do, not how soon."""
DEFAULT_TARGET_MS = Config().micro_batch_target_ms
VOCABULARY = 400_000
"""Distinct words of the text that is counted with the default ``micro_batch_target_ms``."""
FIRST_BUDGET = 2 << 20
"""Bytes of the first micro-batch: so much that the size settles within the first third of the text."""
BARE_WORDS = 4_000_000
BARE_MIN = 0.55
"""How much of the bare loop's words a second is wanted, although two processes do the work: it does next to nothing."""
STREAMS_MIN = 0.95
"""How much of the speed of class bolts streams should have."""
WARM_WORDS = 2_000_000
TURN_BYTES = 6 << 20
"""Of a micro-batch, where tracking takes turns with none: 1.1 million words."""
TURN_WORDS = 5_000_000
"""A turn takes at most so many words: two micro-batches that count, one before, and one that is on its way."""
WORDS_MIN = 4 * TURN_WORDS
"""Of which the start takes a part, before turns begin."""


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


def word_count(
    path: Path,
    split: BoltBase,
    count: BoltBase,
    *,
    tracked: bool = True,
    transactional: bool = False,
    target_ms: int = TARGET_MS,
    bytes_max: int = Config().micro_batch_bytes_max,
) -> Topology:
    """A word count of a file: spout, ``split``, and ``count`` behind a fields grouping."""
    config = Config(
        micro_batch_target_ms=target_ms,
        micro_batch_bytes_max=bytes_max,
        message_timeout_secs=120,
        acker_tasks=None if tracked else 0,
        transactional=transactional,
    )
    builder = TopologyBuilder("word-count", config)
    spout = TextSpout(path)
    spout.first_budget = FIRST_BUDGET
    builder.set_spout("lines", spout, parallelism=PARALLELISM)
    builder.set_bolt("split", split, parallelism=PARALLELISM).shuffle_grouping("lines")
    builder.set_bolt("count", count, parallelism=PARALLELISM).fields_grouping("split", ["word"])
    return builder.build()


def class_bolts(text: Text, *, tracked: bool = True, target_ms: int = TARGET_MS) -> Topology:
    """api.md's word count."""
    return word_count(text.path, SplitSentence(), WordCount(), tracked=tracked, target_ms=target_ms)


def by_streams(text: Text) -> Topology:
    """api.md's word count with streams as functions, with the settings of ``class_bolts``."""
    builder = TopologyBuilder("word-count", word_count(text.path, SplitSentence(), WordCount()).config)
    spout = TextSpout(text.path)
    spout.first_budget = FIRST_BUDGET
    lines = builder.stream(spout, name="lines", parallelism=PARALLELISM)
    lines.flat_map(lambda tup: tup.line.split(), outputs=["word"], name="split").key_by("word").count(name="count")
    return builder.build()


def warm() -> None:
    """Start Spark and let its compiler see a word count; what is measured comes after."""
    run(class_bolts(zipf_text(WARM_WORDS)))


def bare_loop(text: Text) -> float:
    """Words a second of one process that does nothing but split and count: the machine's speed, now."""
    counts: Counter[str] = Counter()
    words = min(text.words, BARE_WORDS)
    began = time.perf_counter()
    with text.path.open() as file:
        for line in itertools.islice(file, words // WORDS_A_LINE):
            for word in line.split():
                counts[word] += 1
    return counts.total() / (time.perf_counter() - began)


def figures(options: Options) -> Iterator[Figure]:
    """Measure: tracked, with the default target, and the bare loop, in turn; then what tracking costs."""
    if options.words < WORDS_MIN:
        raise ValueError(
            f"{options.words:,} words are too few for turns of {TURN_WORDS:,}: give {WORDS_MIN:,} at least"
        )
    text, large = zipf_text(options.words), zipf_text(options.words, ranks=VOCABULARY)
    warm()
    bare, with_acks, streamed, bare_large, by_default, by_half = in_turn(
        options.rounds,
        lambda: bare_loop(text),
        lambda: rate_of(class_bolts(text), text),
        lambda: rate_of(by_streams(text), text),
        lambda: bare_loop(large),
        lambda: rate_of(class_bolts(large, target_ms=DEFAULT_TARGET_MS), large),
        lambda: rate_of(class_bolts(large, target_ms=DEFAULT_TARGET_MS // 2), large),
    )
    facts = {"words": text.words, "distinct": text.distinct, "micro_batch_target_ms": TARGET_MS}
    yield Figure("words", "class bolts, tracked", with_acks, "words/s", notes=facts)
    yield Figure("words", "a bare loop in one process", bare, "words/s")
    against = ratios(with_acks, bare)
    yield Figure("words", "class bolts, tracked, against the bare loop", against, "times", Aim("at least", BARE_MIN))
    yield Figure("words", "streams, tracked", streamed, "words/s")
    against = ratios(streamed, with_acks)
    yield Figure("words", "streams against class bolts", against, "times", Aim("at least", STREAMS_MIN))
    facts = {"words": large.words, "distinct": large.distinct, "micro_batch_target_ms": DEFAULT_TARGET_MS}
    yield Figure("words", "the same with the default target", by_default, "words/s", notes=facts)
    yield Figure("words", "a bare loop over that text", bare_large, "words/s")
    against = ratios(by_default, bare_large)
    yield Figure("words", "the default target against that loop", against, "times", Aim("at least", BARE_MIN))
    yield Figure("words", "half of the default target against that loop", ratios(by_half, bare_large), "times")
    with_acks, without = zip(*(turn for _ in range(options.rounds) for turn in tracking_s(text)), strict=True)
    yield Figure("words", "a million words with tracking", with_acks, "s", notes={"micro_batch_bytes_max": TURN_BYTES})
    yield Figure("words", "a million words, acker_tasks=0", without, "s")
    cost = ratios(with_acks, without)
    yield Figure("words", "time with tracking against without", cost, "times", Aim("at most", 1.1))


def tracking_s(text: Text) -> list[tuple[float, ...]]:
    """For each turn, of which there are as many as the text has: seconds of a million words with tracking, and without.

    Raises:
        RuntimeError: a topology makes no progress, or the text is too short.
    """
    sizes: dict[str, Any] = {"target_ms": 600_000, "bytes_max": TURN_BYTES}
    topologies = [word_count(text.path, SplitSentence(), WordCount(), tracked=yes, **sizes) for yes in (True, False)]
    contenders: list[Contender] = []
    turns: list[tuple[float, ...]] = []
    try:
        contenders.extend(Contender(topology, TURN_WORDS) for topology in topologies)
        while max(contender.done for contender in contenders) + 2 * TURN_WORDS < text.words:
            turns.append(tuple(_million_s(contender.turn(2, left_out=1)) for contender in contenders))
    finally:
        for contender in contenders:
            contender.running.close()
    if not turns:
        raise RuntimeError(f"{text.words} words are too few for turns: give more --words")
    return turns


def _million_s(marks: Sequence[Mark]) -> float:
    return (marks[-1].at_s - marks[0].at_s) / (marks[-1].done - marks[0].done) * 1e6
