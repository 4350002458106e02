"""The ledger with a million open trees.

How many bytes is an open tree, and how many trees a second are opened, completed and moved on in time? No Spark here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Aim, Figure
from benchmarks.runs import Options
from sparkbolt.api.retry import at_once
from sparkbolt.base.ids import U64, tree_key
from sparkbolt.driver.ledger.ledger import Ledger, SpoutInfo
from sparkbolt.wire.acker import judge
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.wire.verdicts import Feedback, Partials

OPEN = 1_000_000
TURNOVER = 250_000
"""Trees that each micro-batch opens, and as many that it completes."""
MICRO_BATCHES = 12
LINE_BYTES = 57
"""Positions between two trees: a position of a text is a byte, and a line has about so many."""
XOR = 5
_TASK = 1


def _keys(first: int, count: int) -> U64:
    spaced = np.arange(first, first + count, dtype=np.uint64) * np.uint64(LINE_BYTES)
    return spaced + np.uint64(tree_key(_TASK, 0))


def _turn(ledger: Ledger, first: int, opened: int, completed: U64) -> float:
    """Stage a micro-batch that opens and completes trees; the seconds that its promotion and a rotation take."""
    number = ledger.last_promoted + 1
    started = _keys(first, opened)
    verdicts = judge(
        [
            Partials(
                init_keys=started,
                init_xors=np.full(opened, XOR, dtype=np.uint64),
                ack_keys=completed,
                ack_xors=np.full(len(completed), XOR, dtype=np.uint64),
            )
        ]
    )
    start, end = first * LINE_BYTES, (first + opened) * LINE_BYTES
    plan = MicroBatchPlan(number, life=0, now_ms=number, entries=(Entry(_TASK, start, "text", start, end),))
    ledger.stage(plan, Feedback(verdicts))
    began = time.perf_counter()
    ledger.promote(number)
    ledger.expire()
    return time.perf_counter() - began


def measure() -> tuple[float, float]:
    """Bytes of an open tree at a million, and trees a second that are applied and rotated."""
    ledger = Ledger([SpoutInfo("lines", (_TASK,), True, at_once(3))], task_owner=lambda task: ("lines", task - _TASK))
    _turn(ledger, 0, OPEN, _keys(0, 0))
    nbytes = ledger.nbytes / ledger.open_trees
    seconds = 0.0
    for step in range(MICRO_BATCHES):
        seconds += _turn(ledger, OPEN + step * TURNOVER, TURNOVER, _keys(step * TURNOVER, TURNOVER))
    assert ledger.open_trees == OPEN, "as many trees are completed as are opened"
    return nbytes, 2 * TURNOVER * MICRO_BATCHES / seconds


def figures(options: Options) -> Iterator[Figure]:
    """Measure: a ledger for each round."""
    nbytes, rates = zip(*(measure() for _ in range(options.rounds)), strict=True)
    facts = {"open_trees": OPEN, "opened_and_completed_a_micro_batch": TURNOVER}
    yield Figure("ledger", "an open tree", nbytes, "bytes", Aim("at most", 28), {"open_trees": OPEN})
    yield Figure("ledger", "apply and rotate", rates, "trees/s", Aim("at least", 5e6), facts)
