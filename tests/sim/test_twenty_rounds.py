"""Everything that may change in a topology that has lived, twenty times in one life, against one model.

Counts, windows, held tuples, retries and dead letters live through more and fewer tasks, other ids, bolts that come and
go, longer windows and migrated attributes, and the driver dies at some step of each change.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sparkbolt.errors import InvariantError, StateError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.windows.realignment import Handover
from sparkbolt.worker.state.division import moved_stores
from sparkbolt.worker.state.task_state import DictStore
from tests.sim.changing import KEYS, START_MS, TOTAL, Shape
from tests.sim.seeds import block

ROUNDS = 20


class Life:
    """A life with changes, and all that its bolts emitted in micro-batches that count."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.shape = Shape()
        self.emitted: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._new: list[tuple[str, tuple[Any, ...]]] = []
        self.engine = LocalEngine(self.shape.topology(), seed=seed, now_ms=START_MS, capture=self._capture)

    def _capture(self, component: str, index: int, stream: str, columns: Sequence[Any]) -> None:
        if stream == "default":
            base = "count" if component.startswith("count") else component
            self._new += [(base, row) for row in zip(*columns, strict=True)]

    def step(self) -> bool:
        self.engine.now_ms += self.chance.choice([300, 1000, 3000])
        self._new.clear()
        went = self.engine.step() is not None
        for component, row in self._new:
            self.emitted[component].append(row)
        if went:  # what is committed knows the ids of today
            self.shape = replace(self.shape, known_as=None)
        return went

    def dies_before_the_commit(self) -> None:
        """Run a micro-batch that nothing commits: its files stay, and its state does not."""
        before = {dest: DictStore(store) for dest, store in self.engine.stores.items()}
        end = self.engine.perform_all(self.engine.machine.next_offset())
        if end is not None:
            self.engine.run_until_staged(end)
        self.engine.stores = before

    def change(self) -> None:
        before, after = self.shape, self.shape.changed(self.chance)
        how = self.chance.choice(["cleanly", "in a micro-batch", "at once", "in the first one", "back and forth"])
        if how == "in a micro-batch":
            self.dies_before_the_commit()
        self.engine.restart(after.topology())
        if how == "at once":
            self.engine.restart()
        elif how == "in the first one":
            self.dies_before_the_commit()
            self.engine.restart(after.topology())
        elif how == "back and forth":
            self.dies_before_the_commit()
            self.engine.restart(before.topology())
            self.engine.restart(after.topology())
        self.shape = after
        assert self.step() or self.engine.coordinator.drained

    def run(self) -> None:
        for _ in range(ROUNDS):
            for _ in range(self.chance.randrange(1, 4)):
                self.step()
            self.change()
        idle = 0
        while idle < 5:
            idle = 0 if self.step() else idle + 1
            self.engine.now_ms += 5000

    def check(self) -> None:
        each = Counter(n % KEYS for n in range(TOTAL))
        counts = [(key, n, n) for key in each for n in range(1, each[key] + 1)]
        assert sorted(self.emitted["count"]) == sorted(counts)
        held = [n for (ns,) in self.emitted["hold"] for n in ns]
        assert len(held) == len(set(held)) == sum(count - count % 4 for count in each.values())
        shown = [n for (ns,) in self.emitted["windows"] for n in ns]
        assert len(shown) == len(set(shown)), "a tuple is in two windows"
        assert set(shown) >= set(range(TOTAL - 61 - 2 * self.shape.length)), "a window was forgotten"
        passed = [n for (n,) in self.emitted["picky"]]
        assert sorted(passed) == [n for n in range(TOTAL) if n % 17]
        metrics = self.engine.ledger.metrics
        assert metrics.of("numbers").acked == len(held)
        assert (metrics.of("again").acked, metrics.of("again").given_up) == (len(passed), TOTAL - len(passed))
        assert self.engine.ledger.open_trees == TOTAL - len(held)


@pytest.mark.parametrize("seed", range(3))
def test_twenty_changes_with_deaths_lose_and_invent_nothing(seed: int) -> None:
    life = Life(seed)
    try:
        life.run()
        life.check()
    finally:
        life.engine.close()


def test_a_move_that_forgets_the_state_of_a_task_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(*arguments: Any) -> dict[int, DictStore]:
        stores = moved_stores(*arguments)
        return {dest: store for dest, store in stores.items() if dest != min(stores)}

    monkeypatch.setattr("sparkbolt.sim.engine.moved_stores", forgets)
    with pytest.raises((AssertionError, StateError, InvariantError)):
        test_twenty_changes_with_deaths_lose_and_invent_nothing(0)


def test_a_window_that_forgets_what_it_has_shown_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handover, "used", property(lambda self: np.zeros(len(self.times), dtype=bool)))
    with pytest.raises(AssertionError, match="a tuple is in two windows"):
        test_twenty_changes_with_deaths_lose_and_invent_nothing(0)


@pytest.mark.campaign
def test_twenty_changes_with_deaths_lose_and_invent_nothing_over_many_seeds() -> None:
    for seed in block(60, 3):
        test_twenty_changes_with_deaths_lose_and_invent_nothing(seed)
