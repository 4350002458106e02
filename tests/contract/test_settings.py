"""Settings that change what is promised: no ackers, and stopping at an error."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Begin
from tests.contract.starting import stops, untracked


def test_without_ackers_nothing_is_tracked_and_a_spout_hears_acks_at_once(begin: Begin) -> None:
    with begin(untracked) as engine:
        engine.until_finished()
        assert sorted(map(tuple, engine.notes("queue"))) == [("ack", n) for n in range(4)]
        assert engine.failed == []
        assert engine.of("tries").executed == 10
        assert engine.of("tries").failed == 7
        assert engine.of("numbers").pending == 0


def test_an_exception_stops_the_topology_where_on_error_says_so(begin: Begin) -> None:
    with begin(stops) as engine:
        with pytest.raises(Exception, match=r"'raises' raised, and its on_error is 'stop': .*ValueError: three"):
            engine.until_finished()
        assert engine.of("numbers").emitted < 100
