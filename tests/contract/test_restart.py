"""What goes on over a restart, on each engine: state, held tuples, open windows, retries, and a tuple's trouble.

One topology runs all parts to their end over two restarts, once for each engine; each test looks at one part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.contract import poisoned
from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.keeping import KEPT
from tests.contract.poisoned import COUNT, TROUBLE
from tests.contract.retrying import (
    ALWAYS,
    AWAY,
    LOGGED,
    LOOSE,
    PER_MICRO_BATCH,
    QUEUED,
    TWICE,
    UNCOMMITTED_MAX,
    UNREADABLE,
)
from tests.contract.topologies import restarted
from tests.contract.windowed import EIGHT, FILED, SIX, WINDOWED, WINDOWED_FIRST


@pytest.fixture(scope="module")
def ended(begin: Begin) -> Iterator[Engine]:
    """Two restarts: amid the windows, then while a tuple is held, windows are open and a message waits."""
    with begin(restarted) as engine:
        engine.await_all({"windows have closed": lambda: engine.of("measured").acked >= WINDOWED // 4})
        engine.restart()
        engine.begin_phase()
        engine.await_all(
            {
                "a number is held": lambda: engine.of("collected").executed >= 3,
                "half of the poison is read": lambda: finished_of(engine, "messages") == COUNT // 2,
                "the queue is empty": lambda: len(engine.notes("queue")) == poisoned.QUEUED,
                "the first windows of the example closed": lambda: engine.of("example-windows").executed >= 3,
                "the first windows of all shapes closed": lambda: engine.of("measured").emitted == WINDOWED_FIRST,
            }
        )
        engine.begin_phase()
        engine.await_all({"a message waits for its retry": lambda: engine.of("log").waiting > 0})
        engine.restart()
        engine.begin_phase()
        engine.await_all({"every part ends": engine.finished})
        yield engine


def finished_of(engine: Engine, spout: str) -> int:
    counts = engine.of(spout)
    return counts.acked + counts.failed


@pytest.mark.slow
def test_every_part_finishes(ended: Engine) -> None:
    assert ended.missed == [], (ended.metrics(), ended.failed)


# State and held tuples.


def test_tuple_held_before_a_restart_is_acked_after_it(ended: Engine) -> None:
    before, after = (counts["numbers"] for counts in ended.restarts[1])
    assert (before.pending, after.pending, after.emitted) == (1, 1, 1)
    metrics = ended.of("numbers")
    assert (metrics.acked, metrics.failed, metrics.pending, metrics.late) == (KEPT, 0, 0, 0)
    assert ended.failures_of("numbers") == {}


def test_nothing_is_read_again(ended: Engine) -> None:
    assert ended.of("numbers").emitted == KEPT


def test_a_held_tuple_emits_again_in_later_micro_batches(ended: Engine) -> None:
    assert ended.notes("from-pairs")[:3] == [[0, 1], [1, None], [2, 3]]
    assert len(ended.notes("from-pairs")) == 2 * (KEPT // 2)


def test_durable_attributes_are_restored_exactly_and_transient_ones_are_reset(ended: Engine) -> None:
    counts = ended.notes("from-counting")
    assert [count for count, _ in counts] == list(range(1, KEPT + 1))
    assert counts[1] == [2, 1]


def test_key_value_state_is_exact(ended: Engine) -> None:
    last: dict[str, int] = {}
    for key, count in ended.notes("from-remembering"):
        last[key] = last.get(key, 0) + 1
        assert count >= 1
    assert last == {"0": 4, "1": 4, "2": 4}


def test_frames_of_each_source_arrive_in_order(ended: Engine) -> None:
    assert ended.notes("from-in_order") == []


# A tuple that is trouble.


def test_each_bad_message_fails_alone_and_has_a_story(ended: Engine) -> None:
    failed = ended.failures_of("messages")
    assert {position: tree.fail.cause for position, tree in failed.items()} == {
        n: how for n, (how, _) in TROUBLE.items()
    }
    assert "ValueError: no such user" in failed[3].story
    assert "reading it back raises TypeError: TwoArgumentsError" in failed[15].story
    assert "tuple_bytes_max" in failed[23].story
    assert "attribute 'things'" in failed[27].story


def test_all_other_messages_are_acked_and_arrive_once(ended: Engine) -> None:
    good = [n for n in range(COUNT) if n not in TROUBLE]
    assert ended.of("messages").acked == len(good)
    seen = [n for [n] in ended.notes("seen") if n < 1000]
    assert [n for n in sorted(seen) if n in good] == good


def test_queue_record_that_cannot_be_sent_fails_alone(ended: Engine) -> None:
    bad = {3, 6, 9}
    said = set(map(tuple, ended.notes("queue")))  # it begins anew after the restart
    assert said == {("fail" if n in bad else "ack", n) for n in range(poisoned.QUEUED)}


# Retries.


def attempts_of(engine: Engine, name: str, number: int) -> dict[int, int]:
    """Attempt to the time of the micro-batch that made it."""
    return {attempt: now_ms for n, attempt, now_ms in engine.notes(name) if n == number}


def test_every_message_is_acked_or_given_up_whatever_dependency_it_waited_for(ended: Engine) -> None:
    log = ended.of("log")
    assert (log.acked, log.given_up, log.pending, log.waiting) == (LOGGED - 2, 2, 0, 0)
    assert {n for n, _, _ in ended.notes("tries-log")} == set(range(LOGGED)) - {UNREADABLE}
    assert ended.notes("told")[-1] == [LOGGED, LOGGED, 0, 0, []]


@pytest.mark.parametrize(("name", "spout"), [("tries-log", "log"), ("tries-inbox", "inbox")])
def test_each_wait_is_as_long_as_the_policy_says_and_the_attempt_is_on_the_tuple(
    ended: Engine, name: str, spout: str
) -> None:
    times = attempts_of(ended, name, TWICE)
    assert list(times) == [1, 2, 3]
    waits = [later - before for before, later in pairwise(times.values())]
    assert waits[0] >= 300
    assert waits[1] >= 600


def test_a_message_is_given_up_after_its_retries_and_an_unreadable_one_at_once(ended: Engine) -> None:
    assert list(attempts_of(ended, "tries-log", ALWAYS)) == [1, 2, 3, 4]
    trees = [tree for tree in ended.failed if tree.component == "log"]
    outcomes = [(tree.position, tree.attempt) for tree in trees if tree.outcome == "dead_letter"]
    assert sorted(outcomes) == [(UNREADABLE, 1), (ALWAYS, 4)]


def test_waiting_messages_stop_planning_only_at_the_limit_on_uncommitted_ones(ended: Engine) -> None:
    told = ended.notes("told")
    assert any(waiting and planned >= 2 * PER_MICRO_BATCH for planned, _, waiting, _, _ in told)
    assert all(planned - finished < UNCOMMITTED_MAX + PER_MICRO_BATCH for planned, finished, *_ in told)
    assert any(done for *_, done in told), "what is done beyond the first unfinished position is told"


def test_an_unavailable_source_is_asked_again_and_nothing_is_lost_or_given_up(ended: Engine) -> None:
    away = [tree for tree in ended.failed if tree.fail.cause == "away"]
    assert {(tree.position, tree.outcome, tree.attempt) for tree in away} == {(AWAY, "retry", 1)}
    assert len(ended.notes("away")) == 2
    assert {tree.fail.reason for tree in away} == {f"numbers is unavailable from {AWAY} on: nobody answers"}
    assert ended.of("log").errors >= 2
    assert attempts_of(ended, "tries-log", AWAY)


def test_a_spout_with_a_policy_gets_a_failure_once_when_it_is_given_up(ended: Engine) -> None:
    heard = Counter(map(tuple, ended.notes("heard")))
    given_up = {ALWAYS} & set(range(QUEUED))
    assert heard == Counter(("fail" if n in given_up else "ack", n) for n in range(QUEUED))
    assert ended.of("inbox").retried == 2 + 3


def test_untracked_records_are_read_and_neither_acked_nor_failed(ended: Engine) -> None:
    loose = ended.of("loose")
    assert (loose.emitted, loose.acked, loose.failed, loose.pending) == (LOOSE, 0, 0, 0)
    assert {n for n, _, _ in ended.notes("tries-loose")} == set(range(LOOSE))


# Windows.


STORMS_WINDOWS = [
    ["123", SIX + 10_000],
    ["1234", SIX + 20_000],
    ["45", SIX + 30_000],
    ["56", SIX + 40_000],
    ["6", SIX + 50_000],
    ["789", EIGHT + 30_000],
]


def test_storms_worked_example_gives_exactly_its_six_windows(ended: Engine) -> None:
    assert sorted(ended.notes("example-windows"), key=lambda window: window[1]) == STORMS_WINDOWS
    counts = ended.of("example")
    assert (counts.windows, counts.window_tuples, counts.late_tuples) == (6, 15, 0)
    assert counts.watermark_ms == EIGHT + 34_000
    assert ended.of("events").acked == 10


def of_numbers(numbers: list[int]) -> list[int]:
    return [len(numbers), sum(numbers), min(numbers), max(numbers)]


def blocks(engine: Engine, shape: str) -> list[list[Any]]:
    """The distinct windows of a shape in their order: what was given again counts once."""
    found = {tuple(block[:5]): block for name, block in engine.notes("windows") if name == shape}
    return [block for _, block in sorted(found.items())]


def test_windows_by_count_neither_miss_nor_repeat_a_tuple_across_a_restart(ended: Engine) -> None:
    seen = blocks(ended, "count")
    assert [block[0] for block in seen] == list(range(1, WINDOWED // 200 + 1))
    ends = range(200, WINDOWED + 1, 200)
    assert [block[1:5] for block in seen] == [of_numbers(list(range(max(0, end - 300), end))) for end in ends]


@pytest.mark.parametrize("shape", ["time", "mixed"])
def test_windows_in_event_time_neither_miss_nor_repeat_a_tuple_across_a_restart(ended: Engine, shape: str) -> None:
    seen = blocks(ended, shape)
    for place, (number, *numbers) in enumerate(block[:5] for block in seen):
        end = 200 * place if shape == "time" else 200 * (place + 1) - 1
        assert number == place + 1
        assert numbers == of_numbers(list(range(max(0, end - 299), end + 1)))
    assert len(seen) >= WINDOWED // 200 - 1


def test_each_key_keeps_its_windows_across_a_restart(ended: Engine) -> None:
    found: dict[int, list[list[int]]] = {}
    for block in blocks(ended, "keyed"):
        found.setdefault(block[5], []).append(block[1:5])
    for key in range(7):
        own = list(range(key, WINDOWED, 7))
        whole = [own[first : first + 100] for first in range(0, len(own) - 99, 100)]
        assert found[key] == [of_numbers(numbers) for numbers in whole]


def test_no_line_of_files_read_together_is_late_across_a_restart(ended: Engine) -> None:
    assert ended.of("files-by-sensor").late_tuples == 0
    found = {tuple(block[1:]) for name, block in ended.notes("windows") if name == "files"}
    whole = [of_numbers(list(range(first, first + 10))) for first in range(0, FILED - 10, 10)]
    assert {(*numbers, sensor) for numbers in whole for sensor in range(4)} <= found
    assert {count for count, *_ in found} == {10}
