"""What a transactional topology costs.

How many words a second does a word count do with ``transactional=True`` against without, if no record fails, and if
some do at their first attempt in both?
Rule: what counts is what is committed, so the executions that were aborted only take time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import TIMEOUT_SECS, Options, in_turn, start, steady_rate
from benchmarks.text import Text, zipf_text
from benchmarks.words import SplitSentence, WordCount, warm, word_count

WORDS = 20_000_000
"""Of each run, at most."""
ONE_IN = (10_000, 1_000, 100)
"""One record of so many fails at its first attempt."""


class FailsAtFirst(SplitSentence):
    """Splits lines; one of ``one_in``, by its content, fails at its first attempt."""

    stateless = True  # fused with the spout, as SplitSentence

    def __init__(self, one_in: int) -> None:
        self.one_in = one_in

    def execute(self, tup, collector):
        if tup.attempt == 1 and zlib.crc32(tup["line"].encode()) % self.one_in == 0:
            raise ValueError("not at first")
        super().execute(tup, collector)


def committed_rate(text: Text, *, transactional: bool, one_in: int = 0) -> float:
    """Words a second that are committed, in the steady middle.

    Raises:
        RuntimeError: it did not finish, or a word was not counted exactly once.
    """
    split = FailsAtFirst(one_in) if one_in else SplitSentence()
    running, marks = start(word_count(text.path, split, WordCount(), transactional=transactional))
    try:
        if not running.await_finished(TIMEOUT_SECS):
            raise RuntimeError(f"it did not finish within {TIMEOUT_SECS} s")
        done = running.metrics().of("count").acked
    finally:
        running.close()
    if done != text.words:
        raise RuntimeError(f"{done} words were counted, the text has {text.words}")
    return steady_rate(marks)


def figures(options: Options) -> Iterator[Figure]:
    """Measure: not transactional, transactional, and with shares of records that fail, in turn."""
    text = zipf_text(min(options.words, WORDS))
    warm()
    contenders: list[Callable[[], float]] = [
        partial(committed_rate, text, transactional=False),
        partial(committed_rate, text, transactional=True),
        *(
            partial(committed_rate, text, transactional=transactional, one_in=one_in)
            for one_in in ONE_IN
            for transactional in (False, True)
        ),
    ]
    plain, exact, *failing = in_turn(options.rounds, *contenders)
    yield Figure("transactions", "words without transactions", plain, "words/s", notes={"words": text.words})
    yield Figure("transactions", "words with transactions", exact, "words/s")
    cost = ratios(plain, exact)
    yield Figure("transactions", "time with transactions against without", cost, "times", Aim("at most", 1.03))
    for place, one_in in enumerate(ONE_IN):
        without, repeated = failing[2 * place : 2 * place + 2]
        share = f"{100 / one_in:g} % of the records fail once"
        yield Figure("transactions", f"the same if {share}", ratios(without, repeated), "times")
        yield Figure("transactions", f"time if {share}, against none", ratios(plain, repeated), "times")
