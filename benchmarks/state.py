"""A micro-batch that touches a thousand keys, of a thousand and of a million.

Which question it answers: does a micro-batch cost what it touches, or what there is?

After filling the state, micro-batches that touch 1,000 keys and micro-batches that touch one take turns; the
second kind is the floor that is subtracted.

Read before: ``runs``, ``spouts``.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import Options, in_turn, one_level, run
from benchmarks.spouts import Numbers
from benchmarks.words import WordCount

FEW, MANY = 1_000, 1_000_000
TOUCHED = 1_000
CYCLES = 20
WARM_CYCLES = 5
"""The first micro-batches after the fill are left out."""


def touching_s(keys: int) -> tuple[float, float]:
    """Seconds of a micro-batch that touches ``TOUCHED`` of so many keys, above the floor; and the floor."""
    spout = Numbers(keys, fill=keys, steps=(TOUCHED, 1), cycles=CYCLES + WARM_CYCLES)
    marks = run(one_level("state", spout, WordCount()))[-2 * CYCLES - 1 :]
    took = [(after.done - before.done, after.at_s - before.at_s) for before, after in itertools.pairwise(marks)]
    touching = [seconds for tuples, seconds in took if tuples == TOUCHED]
    floor = [seconds for tuples, seconds in took if tuples == 1]
    return statistics.median(touching) - statistics.median(floor), statistics.median(floor)


def figures(options: Options) -> Iterator[Figure]:
    """Measure: few keys and many, in turn."""
    floors: list[float] = []

    def above_the_floor(keys: int) -> float:
        above, floor = touching_s(keys)
        floors.append(floor)
        return above

    run(one_level("warm", Numbers(FEW, fill=FEW), WordCount()))
    few, many = in_turn(options.rounds, lambda: above_the_floor(FEW), lambda: above_the_floor(MANY))
    facts = {"floor_s": round(statistics.median(floors), 3), "touched": TOUCHED, "micro_batches_of_each_kind": CYCLES}
    yield Figure("state", f"above the floor, {FEW:,} keys", few, "s", notes=facts)
    yield Figure("state", f"above the floor, {MANY:,} keys", many, "s")
    yield Figure("state", "a million keys against a thousand", ratios(many, few), "times", Aim("at most", 3))
