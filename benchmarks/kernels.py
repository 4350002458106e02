"""What the compiled kernels save.

How much processor time does the word count take in one process and without Spark, with the kernels of
``sparkbolt[fast]`` and in pure Python? So nothing else counts: neither Spark, nor the waiting of processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from benchmarks.columns import CountColumns, SplitColumns
from benchmarks.fast import fast
from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import Options, in_turn
from benchmarks.text import Text, zipf_text
from benchmarks.words import SplitSentence, WordCount, word_count
from sparkbolt import bolt
from sparkbolt.api.components import BoltBase
from sparkbolt.sim.engine import LocalEngine

WORDS = 2_000_000
"""Of each round, at most."""


@bolt(outputs=["word"])
def split(tup):
    for word in tup["line"].split():
        yield [word]


def nanoseconds(text: Text, splits: BoltBase, counts: BoltBase, *, compiled: bool) -> float:
    """The processor time of a word count, in nanoseconds a word."""
    with fast(compiled):
        engine = LocalEngine(word_count(text.path, splits, counts), now_ms=1_800_000_000_000)
        began = time.process_time()
        while engine.step() is not None:
            engine.now_ms += 6000
        took = time.process_time() - began
        done = engine.ledger.metrics.of("count").executed
    if done != text.words:
        raise RuntimeError(f"counted {done} words, the text has {text.words}")
    return took / text.words * 1e9


SHAPES: dict[str, tuple[BoltBase, BoltBase]] = {
    "class bolts": (SplitSentence(), WordCount()),
    "a function that splits": (split, WordCount()),
    "column bolts": (SplitColumns(), CountColumns()),
}


def figures(options: Options) -> Iterator[Figure]:
    """Measure each shape with the kernels and without, in turn."""
    text = zipf_text(min(options.words, WORDS))
    for name, bolts in SHAPES.items():
        python, compiled = in_turn(
            options.rounds,
            partial(nanoseconds, text, *bolts, compiled=False),
            partial(nanoseconds, text, *bolts, compiled=True),
        )
        yield Figure("kernels", f"{name}, in Python", python, "ns/word", notes={"words": text.words})
        yield Figure("kernels", f"{name}, compiled", compiled, "ns/word")
        aim = Aim("at most", 0.7) if name == "class bolts" else None
        yield Figure("kernels", f"{name}, compiled against Python", ratios(compiled, python), "times", aim)
