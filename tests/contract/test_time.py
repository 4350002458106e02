"""Time: tick tuples, timeouts, and trees that get their time anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.keeping import TIMEOUT_SECS, timed


@pytest.fixture(scope="module")
def ended(begin: Begin) -> Iterator[Engine]:
    with begin(timed) as engine:
        engine.until_finished()
        yield engine


def test_a_tree_that_nobody_acks_times_out_and_its_story_says_who_holds_it(ended: Engine) -> None:
    tree = ended.failures_of("numbers")[0]
    assert tree.fail.cause == "timeout"
    assert "held by waits[0]" in tree.story
    assert float(tree.fail.reason.split("after ")[1].split(" s")[0]) >= TIMEOUT_SECS


def test_a_tree_whose_time_is_reset_lives_longer_than_the_timeout(ended: Engine) -> None:
    assert list(ended.failures_of("numbers")) == [0]
    assert ended.of("numbers").acked == 1


def test_ticks_come_at_their_times(ended: Engine) -> None:
    ticks = [now_ms for [now_ms] in ended.notes("from-waits")]
    assert len(ticks) >= 2
    # A tick may come late, and the one behind it in time; but none comes before its time.
    for first, earlier in enumerate(ticks):
        assert all(later - earlier > 1000 * periods for periods, later in enumerate(ticks[first + 1 :]))
