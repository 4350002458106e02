"""A micro-batch that touches a thousand keys, of a thousand and of a million.

Which question it answers: does a micro-batch cost what it touches, or what there is?

The floor that is subtracted is the time of a micro-batch that touches the one key that there is. Times are means,
not medians, of many micro-batches: what is spread over them, such as rewriting buckets, belongs to them.

Read before: ``runs``, ``spouts``.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import Options, in_turn, one_level, run
from benchmarks.spouts import Numbers
from benchmarks.words import WordCount

FEW, MANY = 1_000, 1_000_000
TOUCHED = 1_000
MICRO_BATCHES = 40
WARM = 10
"""So many micro-batches after the state was filled are left out."""


def micro_batch_s(keys: int, touched: int) -> float:
    """Seconds of a micro-batch that touches so many of so many keys."""
    spout = Numbers(keys, fill=keys, steps=(touched,), cycles=MICRO_BATCHES + WARM)
    marks = run(one_level("state", spout, WordCount()))[-MICRO_BATCHES - 1 :]
    assert marks[-1].done - marks[0].done == MICRO_BATCHES * touched, "the fill is left out"
    return (marks[-1].at_s - marks[0].at_s) / MICRO_BATCHES


def figures(options: Options) -> Iterator[Figure]:
    """Measure: the floor, few keys and many, in turn."""
    run(one_level("warm", Numbers(FEW, fill=FEW), WordCount()))
    floors, few, many = in_turn(
        options.rounds,
        lambda: micro_batch_s(1, 1),
        lambda: micro_batch_s(FEW, TOUCHED),
        lambda: micro_batch_s(MANY, TOUCHED),
    )
    facts = {"touched": TOUCHED, "micro_batches": MICRO_BATCHES}
    few_above = [took - floor for took, floor in zip(few, floors, strict=True)]
    many_above = [took - floor for took, floor in zip(many, floors, strict=True)]
    yield Figure("state", "the floor: one key", floors, "s")
    yield Figure("state", f"{TOUCHED:,} of {FEW:,} keys, above the floor", tuple(few_above), "s", notes=facts)
    yield Figure("state", f"{TOUCHED:,} of {MANY:,} keys, above the floor", tuple(many_above), "s", notes=facts)
    against = ratios(many_above, few_above)
    yield Figure("state", "a million keys against a thousand", against, "times", Aim("at most", 3))
