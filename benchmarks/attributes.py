"""The commit of a large Counter in an attribute.

What does a micro-batch pay to keep a ``Counter`` of 400,000 words of which it has touched some, written by its changes,
against pickling it whole each time? Processor time and bytes, without Spark.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import Options
from benchmarks.text import spelling
from sparkbolt.worker.state import large_dicts
from sparkbolt.worker.state.snapshots import DurableAttributes
from sparkbolt.worker.state.task_state import DictStore, TaskState

WORDS = 400_000
TUPLES = 1_000_000
"""Words of a micro-batch, by Zipf's law."""
MICRO_BATCHES = 12


class Bolt:
    """Counts words in an attribute."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()


def commit_of(whole: bool) -> tuple[float, float]:
    """Mean processor time of a commit, in seconds, and mean bytes written."""
    words = [spelling(rank) for rank in range(WORDS)]
    odds = 1 / np.arange(1, WORDS + 1)
    random = np.random.default_rng(1)
    stamps = itertools.count(1)
    store, state, bolt = DictStore(), TaskState(), Bolt()
    durable = DurableAttributes(bolt, "count")
    bolt.counts.update(words)
    took, written = [], []
    with patch.object(large_dicts, "ENTRIES_MIN", 1 << 40 if whole else large_dicts.ENTRIES_MIN):
        for number in range(MICRO_BATCHES):
            state.begin(store)
            if not state.instance_is_current and number:
                durable.restore(state.snapshot(), state)
            ranks, times = np.unique(random.choice(WORDS, TUPLES, p=odds / odds.sum()), return_counts=True)
            for rank, count in zip(ranks.tolist(), times.tolist(), strict=True):
                bolt.counts[words[rank]] += count
            began = time.process_time()
            state.set_snapshot(durable.capture())
            durable.stage_large(state)
            written.append(state.commit(stamps.__next__))
            durable.committed()
            took.append(time.process_time() - began)
    return statistics.mean(took[1:]), statistics.mean(written[1:])  # the first writes all of it


def figures(options: Options) -> Iterator[Figure]:
    """Measure both ways, in turn."""
    rounds = [(commit_of(whole=True), commit_of(whole=False)) for _ in range(options.rounds)]
    whole, changes = ([side[0] for side in rounds], [side[1] for side in rounds])
    facts = {"words": WORDS, "tuples_a_micro_batch": TUPLES}
    yield Figure("attributes", "a commit, pickled whole", tuple(took for took, _ in whole), "s", notes=facts)
    yield Figure("attributes", "a commit, by its changes", tuple(took for took, _ in changes), "s")
    cost = ratios([took for took, _ in changes], [took for took, _ in whole])
    yield Figure("attributes", "time by changes against whole", cost, "times", Aim("at most", 0.7))
    yield Figure("attributes", "bytes, pickled whole", tuple(size for _, size in whole), "bytes")
    size = ratios([size for _, size in changes], [size for _, size in whole])
    yield Figure("attributes", "bytes by changes against whole", size, "times", Aim("at most", 0.7))
