"""Trees that a bolt starts: kept over a restart, given again when they fail or time out, acked once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.starting import BEHIND, STARTED, starting

EACH = STARTED // len(BEHIND)
ACKED = sum(actions[-1] == "ack" for actions in BEHIND.values()) * EACH
SET_ASIDE = STARTED - ACKED


@pytest.fixture(scope="module")
def ended(begin: Begin) -> Iterator[Engine]:
    """Half of the numbers, a restart while trees of them are open, then the others."""
    with begin(starting) as engine:
        limit = engine.directory / "limit"
        limit.write_text(str(STARTED // 2))
        engine.until(lambda: engine.of("gathers").pending > 0)
        engine.restart()
        assert engine.of("gathers").pending + engine.of("gathers").failed > 0
        limit.write_text(str(STARTED))
        engine.until(lambda: engine.of("gathers").acked + engine.of("gathers").set_aside == 2 * STARTED)
        engine.until_finished()
        yield engine


def test_each_value_is_acked_once_or_set_aside(ended: Engine) -> None:
    metrics = ended.of("gathers")
    assert (metrics.acked - STARTED, metrics.set_aside, metrics.pending) == (ACKED, SET_ASIDE, 0)
    assert ended.of("numbers").acked == STARTED, "the spout's trees end where the bolt has them"


def test_a_failed_value_is_given_again_until_it_is_acked_up_to_the_limit(ended: Engine) -> None:
    expected = {(n, i + 1) for n in range(STARTED) for i in range(len(BEHIND[n % len(BEHIND)]))}
    attempts = Counter(map(tuple, ended.notes("behind")))
    assert set(attempts) == expected
    again = [attempt for attempt, times in attempts.items() if times > 1]
    assert len(again) <= STARTED // 2, "notes of a micro-batch that ran again, at the restart"


def test_a_value_that_is_given_up_has_a_story(ended: Engine) -> None:
    trees = [tree for tree in ended.failed if tree.component == "gathers" and tree.fate == "set_aside"]
    assert {tree.attempt for tree in trees} == {3}
    assert Counter(tree.fail.cause for tree in trees) == {"exception": EACH, "timeout": EACH}
    assert all("attempt 3; " in tree.story for tree in trees)
    assert all("held by behind[0]" in tree.story for tree in trees if tree.fail.cause == "timeout")


def test_no_tree_is_heard_of_after_its_end(ended: Engine) -> None:
    assert ended.of("gathers").late == 0
