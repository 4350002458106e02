"""Due queues against a list that is sorted at each look."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.driver.ledger.due_queue import FEW, DueQueue
from tests.unit.growth import assert_flat, calls_of


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
def test_it_has_what_a_sorted_list_of_what_counts_has(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    gone: set[int] = set()
    queue = DueQueue[int](lambda item: item not in gone)
    naive: list[tuple[int, int]] = []
    item = 0
    for _ in range(steps):
        for _ in range(rng.choice((0, 1, 3, FEW + 5))):
            due_ms = rng.randrange(100)
            queue.put(due_ms, item)
            naive.append((due_ms, item))
            item += 1
        gone |= {one for _, one in naive if rng.random() < 0.2}
        naive = sorted(pair for pair in naive if pair[1] not in gone)
        now_ms = rng.randrange(100)
        assert list(queue.due(now_ms)) == [one for due_ms, one in naive if due_ms <= now_ms]
        assert list(queue.due()) == [one for _, one in naive]
        assert queue.next_due_ms() == (naive[0][0] if naive else None)
        if rng.random() < 0.5:
            first = naive.pop(0)[1] if naive and naive[0][0] <= now_ms else None
            assert queue.take(now_ms) == first
    assert len(queue) >= len(naive)


def test_a_look_costs_what_it_finds() -> None:
    def look(count: int) -> int:
        queue = DueQueue[int](lambda item: True)
        for item in range(count):
            queue.put(item, item)
        list(queue.due(9))
        return calls_of(lambda: (list(queue.due(9)), queue.next_due_ms(), queue.take(0)))

    assert_flat(look, 100)
