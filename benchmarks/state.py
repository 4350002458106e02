"""A micro-batch that touches a thousand keys, of a thousand and of a million.

Does a micro-batch cost what it touches, or what there is?

Three topologies run in one session and take turns of a few seconds, the others deactivated: what is compared is a
tenth of a micro-batch's time, so a machine that becomes slower between two long runs would hide it. The floor that
is subtracted is the time of a micro-batch that touches the one key that there is. Times are means, not medians:
what is spread over micro-batches, such as rewriting buckets, belongs to them.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import Options, in_turn, one_level
from benchmarks.spouts import Numbers
from benchmarks.turns import Contender
from benchmarks.words import WordCount

FEW, MANY = 1_000, 1_000_000
TOUCHED = 1_000
TURN = 10
"""Micro-batches of a turn."""
WARM = 3
"""So many of them are left out, the one that a turn begins in among them."""
TURNS = 6
"""Turns of each contender in a round."""
RESOLUTION_S = 0.01
"""Less above the floor than this is taken as this: it cannot be told from the floor's own noise."""
ENDLESS = 1 << 30


class Touching(Contender):
    """A topology whose micro-batches touch so many of so many keys."""

    def __init__(self, keys: int, touched: int) -> None:
        spout = Numbers(keys, fill=keys, steps=(touched,), cycles=ENDLESS)
        super().__init__(one_level(f"state-{keys}", spout, WordCount()), keys)

    def turn_s(self) -> float:
        """Mean seconds of a micro-batch in one turn."""
        marks = self.turn(TURN - WARM, WARM)
        return statistics.mean(after.at_s - before.at_s for before, after in itertools.pairwise(marks))


def figures(options: Options) -> Iterator[Figure]:
    """Measure: the floor, few keys and many, in turn."""
    contenders = [Touching(1, 1), Touching(FEW, TOUCHED), Touching(MANY, TOUCHED)]
    try:
        rounds = [
            [statistics.median(turns) for turns in in_turn(TURNS, *(each.turn_s for each in contenders))]
            for _ in range(options.rounds)
        ]
    finally:
        for each in contenders:
            each.running.close()
    floors = tuple(floor for floor, _, _ in rounds)
    few = tuple(max(RESOLUTION_S, took - floor) for floor, took, _ in rounds)
    many = tuple(max(RESOLUTION_S, took - floor) for floor, _, took in rounds)
    facts = {"touched": TOUCHED, "micro_batches_a_sample": TURNS * (TURN - WARM)}
    yield Figure("state", "the floor: one key", floors, "s", notes=facts)
    yield Figure("state", f"{TOUCHED:,} of {FEW:,} keys, above the floor", few, "s")
    yield Figure("state", f"{TOUCHED:,} of {MANY:,} keys, above the floor", many, "s")
    yield Figure("state", "a million keys against a thousand", ratios(many, few), "times", Aim("at most", 3))
