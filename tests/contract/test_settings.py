"""Settings that change what is promised: no ackers, and stopping at an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.topologies import without_ackers


@pytest.fixture(scope="module")
def idle(begin: Begin) -> Iterator[Engine]:
    with begin(without_ackers) as engine:
        engine.await_all(
            {
                "all numbers are tried": lambda: engine.of("tries").executed == 10,
                "the queue is acked": lambda: len(engine.notes("queue")) == 4,
            }
        )
        yield engine


def test_without_ackers_nothing_is_tracked_and_a_spout_gets_acks_at_once(idle: Engine) -> None:
    assert sorted(map(tuple, idle.notes("queue"))) == [("ack", n) for n in range(4)]
    assert idle.failed == []
    assert (idle.of("tries").executed, idle.of("tries").failed) == (10, 7)
    assert idle.of("numbers").pending == 0


def test_an_exception_stops_the_topology_where_on_error_says_so(idle: Engine) -> None:
    idle.begin_phase()
    with pytest.raises(Exception, match=r"'raises' raised.*, and its on_error is 'stop': .*ValueError: three"):
        idle.until(idle.finished)
    assert idle.of("last").emitted < 100
