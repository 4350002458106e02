"""One tuple's trouble is that tuple's trouble, and the query lives, after a restart too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.poisoned import COUNT, QUEUED, TROUBLE, poisoned


@pytest.fixture(scope="module")
def troubled(begin: Begin) -> Iterator[Engine]:
    """Restarted behind half of the trouble, and run to its end."""
    with begin(poisoned) as engine:
        limit = engine.directory / "limit"
        limit.write_text(str(COUNT // 2))
        engine.until(lambda: engine.of("messages").acked + engine.of("messages").failed == COUNT // 2)
        engine.until(lambda: len(engine.notes("queue")) == QUEUED)
        engine.restart()
        limit.write_text(str(COUNT))
        engine.until(lambda: engine.of("messages").acked + engine.of("messages").failed == COUNT)
        yield engine


def test_each_message_that_is_trouble_fails_alone_with_its_story(troubled: Engine) -> None:
    failed = troubled.failures_of("messages")
    assert {position: tree.fail.cause for position, tree in failed.items()} == {
        n: how for n, (how, _) in TROUBLE.items()
    }
    assert "ValueError: no such user" in failed[3].story
    assert "reading it back raises TypeError: TwoArgumentsError" in failed[15].story
    assert "tuple_bytes_max" in failed[23].story
    assert "attribute 'things'" in failed[27].story


def test_all_others_are_acked_and_come_through_once(troubled: Engine) -> None:
    good = [n for n in range(COUNT) if n not in TROUBLE]
    assert troubled.of("messages").acked == len(good)
    seen = [n for [n] in troubled.notes("seen") if n < 1000]
    assert [n for n in sorted(seen) if n in good] == good


def test_what_a_queue_gives_and_cannot_travel_fails_alone(troubled: Engine) -> None:
    bad = {3, 6, 9}
    said = set(map(tuple, troubled.notes("queue")))  # it begins anew after the restart
    assert said == {("fail" if n in bad else "ack", n) for n in range(QUEUED)}
