"""What outlives a restart: held tuples and their trees, durable attributes, key-value state, the spout's place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.keeping import KEPT, kept


@pytest.fixture(scope="module")
def restarted(begin: Begin) -> Iterator[Engine]:
    """Killed while 0, 2 and 4 were held, and run to its end."""
    with begin(kept) as engine:
        limit = engine.directory / "limit"
        limit.write_text("1")
        engine.until(lambda: engine.of("collected").executed >= 4 - 1)
        assert engine.of("numbers").pending == 1
        engine.restart()
        assert engine.of("numbers").pending == 1
        assert engine.of("numbers").emitted == 1
        limit.write_text(str(KEPT))
        engine.until_finished()
        yield engine


def test_what_was_held_before_a_restart_is_acked_after_it(restarted: Engine) -> None:
    metrics = restarted.of("numbers")
    assert (metrics.acked, metrics.failed, metrics.pending, metrics.late) == (KEPT, 0, 0, 0)
    assert restarted.failed == []


def test_nothing_is_read_again(restarted: Engine) -> None:
    assert restarted.of("numbers").emitted == KEPT


def test_a_held_tuple_emits_again_in_later_micro_batches(restarted: Engine) -> None:
    assert restarted.notes("from-pairs")[:3] == [[0, 1], [1, None], [2, 3]]
    assert len(restarted.notes("from-pairs")) == 2 * (KEPT // 2)


def test_durable_attributes_are_exact_and_transient_ones_begin_anew(restarted: Engine) -> None:
    counts = restarted.notes("from-counting")
    assert [count for count, _ in counts] == list(range(1, KEPT + 1))
    assert counts[1] == [2, 1]


def test_key_value_state_is_exact(restarted: Engine) -> None:
    last: dict[str, int] = {}
    for key, count in restarted.notes("from-remembering"):
        last[key] = last.get(key, 0) + 1
        assert count >= 1
    assert last == {"0": 4, "1": 4, "2": 4}


def test_frames_of_each_source_come_in_order(restarted: Engine) -> None:
    assert restarted.notes("from-in_order") == []
