"""The retry schedule against a list that is sorted at each look."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.api.retry import at_once
from sparkbolt.base.ids import empty_u64
from sparkbolt.driver.ledger.messages import Messages
from sparkbolt.driver.ledger.open_trees import RotatingMap
from sparkbolt.driver.ledger.outcomes import SpoutInfo
from sparkbolt.driver.ledger.retry_schedule import FEW, LogName, Retry, RetrySchedule
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from tests.unit.growth import assert_flat, calls_of

LOGS: tuple[LogName, ...] = (("lines", "a"), ("lines", "b"), ("orders", "a"))


def retry_of(log: LogName, position: int, due_ms: int, letter: str | None = None, end: int | None = None) -> Retry:
    return Retry(1, log[1], position, 2, end, due_ms, letter)


def entry_of(retry: Retry) -> Entry:
    letters = None if retry.letter is None else (retry.letter,)
    return Entry(1, 0, retry.source, retry.position, retry.position + 1, 2, (retry.position,), letters=letters)


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
def test_retry_schedule_equals_a_sorted_list_of_waiting_retries(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    schedule = RetrySchedule()
    naive: dict[tuple[LogName, int], tuple[int, Retry]] = {}
    for step in range(steps):
        for number in range(rng.choice((0, 1, 3, FEW + 5))):
            log, position = rng.choice(LOGS), rng.randrange(200)
            retry = retry_of(log, position, rng.randrange(100), rng.choice((None, None, "{}")))
            schedule.put(log, retry)
            naive[log, position] = step * 1000 + number, retry
        for log, position in [place for place in naive if rng.random() < 0.2]:
            assert schedule.take(log, entry_of(naive.pop((log, position))[1])) == [position]
        due = sorted((one.due_ms, log, put, one.position) for (log, _), (put, one) in naive.items())
        now_ms = rng.randrange(100)
        found = [one.position for one in schedule.due(10**6, now_ms)]
        assert found == [position for due_ms, _, _, position in due if due_ms <= now_ms]
        assert [one.position for one in schedule.due(5)] == [position for _, _, _, position in due][:5]
        assert schedule.next_due_ms() == min((due_ms for due_ms, _, _, _ in due), default=None)
        components = [log[0] for log, _ in naive]
        assert schedule.counts() == {name: components.count(name) for name in set(components)}
        assert len(schedule) == len(naive)


def test_an_entry_takes_only_the_retries_of_its_attempt_that_it_reads() -> None:
    log, schedule = LOGS[0], RetrySchedule()
    schedule.put(log, retry_of(log, 7, 0, letter="{}"))
    for letters, attempt in ((None, 2), (("{}",), 3)):
        assert schedule.take(log, Entry(1, 0, "a", 7, 8, attempt, (7,), letters=letters)) == []
    assert schedule.take(log, Entry(1, 0, "a", 7, 8, 2, (7,), letters=("{}",))) == [7]
    assert schedule.due(9) == []


def test_a_limit_for_a_component_applies_to_its_retries_and_not_to_dead_letters() -> None:
    schedule = RetrySchedule()
    for position, log in enumerate(2 * LOGS):
        schedule.put(log, retry_of(log, position, position))
        schedule.put(log, retry_of(log, 10 + position, position, letter="{}"))
    found = schedule.due(99, 9, {"lines": 1})
    assert [one.position for one in found if one.letter is None] == [0, 2, 5]
    assert len([one for one in found if one.letter is not None]) == 6
    schedule.put(LOGS[0], retry_of(LOGS[0], 50, 0, end=90))
    assert [one.position for one in schedule.due(99, 0, {"lines": 2, "orders": 0}) if one.letter is None] == [0, 50]
    assert schedule.unread() == {LOGS[0]}


def test_a_retry_is_not_due_before_the_next_probe_of_its_component_but_a_dead_letter_is() -> None:
    schedule = RetrySchedule()
    schedule.put(LOGS[0], retry_of(LOGS[0], 1, 100))
    assert (schedule.next_due_ms(), schedule.next_due_ms({"lines": 900}), schedule.next_due_ms({"x": 900})) == (
        100,
        900,
        100,
    )
    schedule.put(LOGS[0], retry_of(LOGS[0], 2, 300, letter="{}"))
    assert schedule.next_due_ms({"lines": 900}) == 300


def test_forgetting_a_log_removes_its_waiting_retries() -> None:
    schedule = RetrySchedule()
    for log in LOGS:
        schedule.put(log, retry_of(log, 1, 0))
    schedule.forget(LOGS[1])
    assert schedule.of(LOGS[1]) == {}
    assert [one.source for one in schedule.due(9)] == ["a", "a"]


def test_the_cost_of_a_lookup_of_due_retries_depends_only_on_what_is_due() -> None:
    def look(count: int) -> int:
        schedule = RetrySchedule()
        for position in range(count):
            schedule.put(LOGS[0], retry_of(LOGS[0], position, position))
        schedule.due(99, 9)
        return calls_of(lambda: (schedule.due(99, 9), schedule.next_due_ms()))

    assert_flat(look, 100)


def test_a_plan_of_a_dead_life_takes_nothing_from_the_buffer_of_a_spout() -> None:
    messages = Messages([SpoutInfo("jobs", (1,), False, at_once(3))], task_owner=lambda task: ("jobs", 0))
    before = Messages([SpoutInfo("jobs", (1,), False, at_once(3))], task_owner=lambda task: ("jobs", 0))
    messages.take_over(before, RotatingMap(2), {1: [5]})
    plan = MicroBatchPlan(0, life=1, now_ms=0, entries=(Entry(1, 9, None, 5, 6, 1, (5,)),))
    messages.admit(plan, empty_u64(), life=2)
    assert [retry.position for retry in messages.retries.due(9)] == [5]
    messages.admit(plan, empty_u64(), life=1)
    assert messages.retries.due(9) == []
