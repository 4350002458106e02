"""What a bolt rejects, or fails too often, is a letter of the checkpoint."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from sparkbolt import Reject
from tests.unit.outages import MICRO_BATCH_MS, WORLD, Log, Run, topology
from tests.unit.outages import _new_world as _new_world

pytestmark = pytest.mark.slow


def test_rejected_tuple_becomes_a_dead_letter_at_once() -> None:
    WORLD.bad = lambda n: Reject(f"{n} is no order") if n % 10 == 3 else None
    run = Run(topology(Log(100)))
    run.to_the_end()
    assert run.engine.now_ms < 1000
    assert Counter(n for _, n in WORLD.asked) == dict.fromkeys(range(100), 1)
    assert run.phases == []
    assert {letter.position for letter in run.letters} == set(range(3, 100, 10))
    assert [(one.cause, one.reason) for one in run.letters[0].attempts] == [("rejected", "3 is no order")]


def test_a_bolt_that_rejects_everything_is_not_out() -> None:
    WORLD.bad = lambda n: Reject("no order")
    run = Run(topology(Log(3000, first_budget=500)))
    run.to_the_end()
    assert (run.phases, run.counts.dead_letters) == ([], 3000)


def test_ten_attempts_over_minutes_are_made_by_default() -> None:
    WORLD.bad = lambda n: ValueError("no 7") if n == 7 else None
    run = Run(topology(Log(10)))
    run.to_the_end()
    [letter] = run.letters
    assert letter.attempts_in_all == 10
    waits = [later.started_ms - before.ended_ms for before, later in pairwise(letter.attempts)]
    for place, wait in enumerate(waits):
        assert 0.9 * min(500 * 2**place, 120_000) <= wait <= min(500 * 2**place, 120_000) + MICRO_BATCH_MS
    assert 200_000 < run.engine.now_ms < 260_000


def test_a_letter_that_is_too_long_is_kept_without_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkbolt.worker.dead_letter_reader.HANDED_OVER_BYTES_MAX", 2000)
    long = Log(5, read=lambda range_: ((n, ["y" * 5000 if n == 2 else n]) for n in range(range_.start, range_.end)))
    WORLD.bad = lambda n: Reject("no order")
    run = Run(topology(long))
    run.to_the_end()
    assert run.counts.dead_letters == 5
    assert {letter.position for letter in run.letters} == set(range(5)), "what did not fit came with a later plan"
    [cut] = [letter for letter in run.letters if letter.position == 2]
    assert cut.tuples == ()
    assert "its values are left out: the letter would have" in cut.note
