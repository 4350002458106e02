"""Word count with column bolts.

How many words a second are counted where user code, too, works on whole frames?
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import Options, in_turn, rate_of
from benchmarks.text import Text, zipf_text
from benchmarks.words import bare_loop, warm, word_count
from sparkbolt import ColumnBolt, KeyValueState, Topology

TARGET_MS = 3000
"""Half of that of ``words``, so that the text is more than a few micro-batches."""
LONGER = 2
"""How many times the words that are asked for the text has, for the same reason."""


class SplitColumns(ColumnBolt):
    outputs = ["word"]

    def execute(self, batch, collector):
        words = pc.ascii_split_whitespace(batch["line"])
        collector.emit([pc.list_flatten(words)], anchors=pc.list_parent_indices(words))


class CountColumns(ColumnBolt):
    """Counts each frame by itself, and adds the frames' counts to the durable ones once a micro-batch."""

    dictionaries = ["word"]
    transient = ["parts"]

    def prepare(self, context):
        self.parts: list[pa.Table] = []

    def init_state(self, state: KeyValueState) -> None:
        self.counts = state

    def execute(self, batch, collector):
        words = batch["word"]
        counts = np.bincount(words.indices, minlength=len(words.dictionary))
        self.parts.append(pa.table({"word": words.dictionary, "count": counts}))

    def flush(self) -> None:
        if not self.parts:
            return
        total = pa.concat_tables(self.parts).group_by("word", use_threads=False).aggregate([("count", "sum")])
        self.parts = []
        words = total["word"].to_pylist()
        self.counts.put_many(words, np.array(self.counts.get_many(words, 0)) + total["count_sum"])


def column_bolts(text: Text, *, target_ms: int = TARGET_MS) -> Topology:
    """The word count of ``words`` with column bolts."""
    return word_count(text.path, SplitColumns(), CountColumns(), target_ms=target_ms)


def figures(options: Options) -> Iterator[Figure]:
    """Measure: column bolts and the bare loop, in turn."""
    text = zipf_text(LONGER * options.words)
    warm()
    columns, bare = in_turn(options.rounds, lambda: rate_of(column_bolts(text), text), lambda: bare_loop(text))
    facts = {"words": text.words, "distinct": text.distinct, "micro_batch_target_ms": TARGET_MS}
    yield Figure("columns", "column bolts, tracked", columns, "words/s", notes=facts)
    yield Figure("columns", "a bare loop in one process", bare, "words/s")
    against = ratios(columns, bare)
    yield Figure("columns", "column bolts, tracked, against the bare loop", against, "times", Aim("at least", 2.9))
