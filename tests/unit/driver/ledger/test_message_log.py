"""The message log against a model that keeps each position, and its rules one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt.base.ids import split_key, tree_key
from sparkbolt.driver.ledger.message_log import Live, MessageLog
from sparkbolt.driver.ledger.open_trees import RotatingMap
from sparkbolt.driver.ledger.retry_schedule import Retry, RetrySchedule
from sparkbolt.wire.plan import Entry
from tests.hypotheses import examples

TASK = 1
SOURCE = "orders/3"


@dataclass
class Naive:
    """The state of each position by itself."""

    planned: int = 0
    begun: int | None = None
    open: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Position to (tree key, attempt)."""
    waiting: dict[int, tuple[int, int, int | None]] = field(default_factory=dict)
    """Position to (attempt to come, due, end of a range)."""

    def unfinished(self) -> set[int]:
        ranges = (range(at, end or at + 1) for at, (_, _, end) in self.waiting.items())
        return set(self.open).union(*ranges)

    def finished(self) -> int:
        return min([*self.unfinished(), self.planned])

    def done(self) -> list[tuple[int, int]]:
        unfinished, found, start = self.unfinished(), [], None
        for position in range(self.finished(), self.planned + 1):
            inside = position < self.planned and position not in unfinished
            if inside and start is None:
                start = position
            elif not inside and start is not None:
                found.append((start, position))
                start = None
        return found


class World:
    """A log, the map of open trees, and the model; each step is one promotion."""

    def __init__(self) -> None:
        self.retries = RetrySchedule()
        self.log = MessageLog("orders", SOURCE, self.retries)
        self.naive = Naive()
        self.trees = RotatingMap(2)
        self.lives: list[Live] = []
        self.sequence = 0
        self.now_ms = 0

    def read(self, rng: random.Random, start: int, end: int, attempt: int = 1) -> None:
        """A plan with a range is promoted; some of its positions have records, some of these stay open."""
        live = self._admit(Entry(TASK, self.sequence, SOURCE, start, end, attempt))
        for position in range(start, end):
            if rng.random() < 0.5:
                self._open(live, position, 1)
        self.naive.planned = max(self.naive.planned, end)

    def read_again(self, rng: random.Random, retries: list[Retry]) -> None:
        for attempt in {retry.attempt for retry in retries}:
            same = [retry for retry in retries if retry.attempt == attempt and retry.end is None]
            if same:
                positions = tuple(retry.position for retry in same)
                place = Entry(TASK, self.sequence, SOURCE, positions[0], positions[0] + 1, attempt, positions)
                live = self._admit(place)
                for position in positions:
                    if rng.random() < 0.7:
                        self._open(live, position, attempt)
        for retry in retries:
            if retry.end is not None:
                self.read(rng, retry.position, retry.end, retry.attempt)

    def _admit(self, entry: Entry) -> Live:
        live = Live(entry, 0, 0)
        self.log.admit(entry, live)
        self.lives.append(live)
        self.sequence += entry.reserved
        for position in entry.positions or (entry.start,):
            if self.naive.waiting.get(position, (0,))[0] == entry.attempt:
                del self.naive.waiting[position]
        return live

    def _open(self, live: Live, position: int, attempt: int) -> None:
        entry = live.entry
        offset = entry.positions.index(position) if entry.positions is not None else position - entry.start
        key = tree_key(TASK, entry.base + offset)
        self.trees.put(np.array([key], np.uint64), np.array([7], np.uint64), np.zeros(1, np.int32))
        live.unfinished += 1
        self.naive.open[position] = key, attempt

    def finish(self, position: int) -> int:
        key, attempt = self.naive.open.pop(position)
        self.trees.remove(np.array([key], np.uint64))
        sequence = split_key(key)[1]
        [live] = [one for one in self.lives if 0 <= sequence - one.entry.base < one.entry.reserved]
        live.unfinished -= 1
        return attempt

    def fail(self, position: int, due_ms: int, end: int | None = None, away: bool = False) -> None:
        attempt = self.finish(position) + (0 if away else 1)
        self.naive.waiting[position] = attempt, due_ms, end
        self.log.wait(Retry(TASK, SOURCE, position, attempt, end, due_ms), away=away)

    def advance(self) -> int | None:
        return self.log.advance(self.trees)

    def check(self) -> None:
        log, naive = self.log, self.naive
        assert log.planned == naive.planned
        assert log.finished == naive.finished()
        waiting = {retry.position: (retry.attempt, retry.due_ms, retry.end) for retry in self.retries.due(100)}
        assert waiting == naive.waiting
        dues = [retry.due_ms for retry in self.retries.due(100)]
        assert dues == sorted(dues)
        assert self.retries.next_due_ms() == (min(dues) if dues else None)
        due = [retry.due_ms for retry in self.retries.due(100, self.now_ms)]
        assert due == [due_ms for due_ms in dues if due_ms <= self.now_ms]
        view = log.view(self.trees)
        assert (view.planned, view.finished) == (log.planned, log.finished)
        assert (view.waiting, view.open) == (len(naive.waiting), len(naive.open))
        assert view.done(10**6) == naive.done()
        assert view.done(2) == naive.done()[:2]
        again = MessageLog.restore(log.state(), [live for live in self.lives if live.unfinished], RetrySchedule())
        assert (again.state(), again.view(self.trees)) == (log.state(), view)


@settings(max_examples=examples(300), deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 30))
def test_log_agrees_with_a_model_of_single_positions_on_each_position(seed: int, steps: int) -> None:
    rng, world = random.Random(seed), World()
    before = 0
    for _ in range(steps):
        world.now_ms += rng.randint(0, 500)
        ready = [retry for retry in world.retries.due(100, world.now_ms) if rng.random() < 0.8]
        world.read_again(rng, ready)
        if rng.random() < 0.6:
            start = world.naive.planned + (rng.randint(0, 3) if rng.random() < 0.2 else 0)
            world.read(rng, start, start + rng.randint(1, 8))
        for position in list(world.naive.open):
            chance = rng.random()
            if chance < 0.3:
                world.finish(position)
            elif chance < 0.5:
                world.fail(position, world.now_ms + rng.randint(0, 1000), away=rng.random() < 0.2)
        world.advance()
        world.check()
        assert world.log.finished >= before, "what may be committed never goes back"
        before = world.log.finished


def log_of(*states: str) -> World:
    """Ten positions of which some are open: ``o``; all others are done."""
    world = World()
    live = world._admit(Entry(TASK, 0, SOURCE, 0, 10))
    world.naive.planned = 10
    for position, state in enumerate(states[0]):
        if state == "o":
            world._open(live, position, 1)
    world.advance()
    return world


def test_the_position_that_may_be_committed_is_the_first_that_is_not_finished() -> None:
    world = log_of("..o..o....")
    assert world.log.finished == 2
    world.finish(5)
    assert world.advance() is None
    world.finish(2)
    assert world.advance() == 10


def test_waiting_retry_holds_back_only_the_commit() -> None:
    world = log_of("..o.......")
    world.fail(2, due_ms=1000)
    world.advance()
    assert world.log.finished == 2
    assert world.log.takes_more(None)
    assert world.log.done(world.trees, 9) == [(3, 10)]
    assert world.retries.due(9, 999) == []
    assert [retry.position for retry in world.retries.due(9, 1000)] == [2]


def test_retries_are_ordered_by_due_time() -> None:
    world = log_of("oooo......")
    for position, due_ms in ((0, 900), (1, 100), (2, 500), (3, 100)):
        world.fail(position, due_ms)
    world.advance()
    assert [retry.position for retry in world.retries.due(100)] == [1, 3, 2, 0]


def test_a_retry_of_a_plan_that_was_dropped_still_waits() -> None:
    world = log_of("o.........")
    world.fail(0, due_ms=0)
    world.advance()
    assert world.retries.due(9, 0) == world.retries.due(9, 0) == [Retry(TASK, SOURCE, 0, 2)]


@pytest.mark.parametrize(("limit", "more"), [(8, False), (9, True), (None, True)])
def test_no_new_range_begins_further_than_the_limit_beyond_the_finished_position(limit: int | None, more: bool) -> None:
    world = log_of("..o.......")  # 10 are planned, 2 are finished
    assert world.log.takes_more(limit) is more


def test_an_unavailable_source_is_asked_for_nothing_new_until_it_answers() -> None:
    world = log_of("o.........")
    world.fail(0, due_ms=100, end=10, away=True)
    world.advance()
    assert (world.log.away, world.log.takes_more(None)) == (1, False)
    world.now_ms = 100
    world.read_again(random.Random(0), world.retries.due(9, 100))
    for position in list(world.naive.open):
        world.finish(position)
    world.advance()
    assert (world.log.away, world.log.takes_more(None)) == (0, True)


def test_a_source_that_starts_late_reports_progress_up_to_its_start() -> None:
    world = World()
    world.naive.begun = 1000
    world._admit(Entry(TASK, 0, SOURCE, 1000, 1010))
    assert world.advance() == 1010


def test_a_view_looks_up_intervals_on_demand() -> None:
    world = log_of(".o..o.....")
    view = world.log.view(world.trees)
    assert view.done(9) == [(2, 4), (5, 10)]
    assert view.done(1) == [(2, 4)]
    assert view.done(0) == []
