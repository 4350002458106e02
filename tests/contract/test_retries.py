"""Retries on both engines: after their waits, over a restart, beside what is new, and told of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.contract.conftest import Begin
from tests.contract.engines import Engine
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
    retrying,
)


@pytest.fixture(scope="module")
def ended(begin: Begin) -> Iterator[Engine]:
    """A restart while something waits to be given again; the inbox begins behind it."""
    with begin(retrying) as engine:
        engine.until(lambda: engine.of("log").waiting > 0)
        engine.restart()
        (engine.directory / "go").touch()
        engine.until_finished()
        yield engine


def attempts_of(engine: Engine, name: str, number: int) -> dict[int, int]:
    """Attempt to the time of the micro-batch that made it."""
    return {attempt: now_ms for n, attempt, now_ms in engine.notes(name) if n == number}


def test_every_message_is_acked_or_given_up_whatever_it_waited_for(ended: Engine) -> None:
    log = ended.of("log")
    assert (log.acked, log.set_aside, log.pending, log.waiting) == (LOGGED - 2, 2, 0, 0)
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


def test_a_message_is_given_up_after_its_retries_and_what_is_unreadable_at_once(ended: Engine) -> None:
    assert list(attempts_of(ended, "tries-log", ALWAYS)) == [1, 2, 3, 4]
    outcomes = [(tree.position, tree.attempt) for tree in ended.failed if tree.outcome == "dead_letter" and tree.source]
    assert sorted(outcomes) == [(UNREADABLE, 1), (ALWAYS, 4)]


def test_what_waits_stops_nothing_but_for_the_limit_on_what_is_uncommitted(ended: Engine) -> None:
    told = ended.notes("told")
    assert any(waiting and planned >= 2 * PER_MICRO_BATCH for planned, _, waiting, _, _ in told)
    assert all(planned - finished < UNCOMMITTED_MAX + PER_MICRO_BATCH for planned, finished, *_ in told)
    assert any(done for *_, done in told), "what is done beyond the first unfinished position is told"


def test_a_source_that_is_away_is_asked_again_and_nothing_is_lost_or_given_up(ended: Engine) -> None:
    away = [tree for tree in ended.failed if tree.fail.cause == "away"]
    assert {(tree.position, tree.outcome, tree.attempt) for tree in away} == {(AWAY, "retry", 1)}
    assert len(ended.notes("away")) == 2
    assert {tree.fail.reason for tree in away} == {f"numbers is away, from {AWAY} on: nobody answers"}
    assert ended.of("log").errors >= 2
    assert attempts_of(ended, "tries-log", AWAY)


def test_a_spout_with_a_policy_hears_of_a_failure_once_when_it_is_given_up(ended: Engine) -> None:
    heard = Counter(map(tuple, ended.notes("heard")))
    given_up = {ALWAYS} & set(range(QUEUED))
    assert heard == Counter(("fail" if n in given_up else "ack", n) for n in range(QUEUED))
    assert ended.of("inbox").retried == 2 + 3


def test_untracked_records_are_read_and_nobody_hears_of_them(ended: Engine) -> None:
    loose = ended.of("loose")
    assert (loose.emitted, loose.acked, loose.failed, loose.pending) == (LOOSE, 0, 0, 0)
    assert {n for n, _, _ in ended.notes("tries-loose")} == set(range(LOOSE))
