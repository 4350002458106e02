"""Everything that may change in a topology that has lived, twenty times in one life, against one model.

Counts, windows, held tuples, retries and dead letters live through more and fewer tasks, other ids, bolts that come and
go, longer windows and migrated attributes, and the driver dies at some step of each change.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from sparkbolt import (
    BasicBolt,
    Bolt,
    Config,
    PartitionedSpout,
    Range,
    Reject,
    RetryPolicy,
    Topology,
    TopologyBuilder,
    WindowedBolt,
)
from sparkbolt.errors import InvariantError, StateError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.worker.state.division import moved_stores
from sparkbolt.worker.state.task_state import DictStore
from tests.sim.seeds import block

KEYS, TOTAL, ROUNDS = 13, 400, 20
START_MS = 1_700_000_000_000


class Numbered(PartitionedSpout):
    """Numbers with their keys; number n is of second n."""

    outputs = ["k", "n", "at"]

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("n", 0)
        return [Range(0, "n", start, min(TOTAL, start + 6))] if start < TOTAL else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("n", 0) == TOTAL

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for n in range(range_.start, range_.end):
            yield n, [n % KEYS, n, START_MS + 1000 * n]


class CountTable(BasicBolt):
    """Counts in its key-value state and in an attribute, whose name changes with its version."""

    outputs = ["k", "count", "also"]
    keyed = True

    def init_state(self, state: Any) -> None:
        self.table = state

    def migrate(self, version: int, attributes: dict[str, Any]) -> dict[str, Any]:
        attributes[f"counts_{self.state_version}"] = attributes.pop(f"counts_{version}", Counter())
        return attributes

    def execute(self, tup: Any, collector: Any) -> None:
        counts = vars(self).setdefault(f"counts_{self.state_version}", Counter())
        counts[tup["k"]] += 1
        self.table.put(tup["k"], self.table.get(tup["k"], 0) + 1)
        collector.emit([tup["k"], self.table.get(tup["k"]), counts[tup["k"]]])


@cache
def count_table(version: int) -> BasicBolt:
    """The bolt as its class is in a version."""
    made: BasicBolt = type("CountTable", (CountTable,), {"state_version": version})()
    return made


class HoldFour(Bolt):
    """Acks the tuples of a key four at a time."""

    outputs = ["ns"]
    keyed = ["held"]

    def prepare(self, context: Any) -> None:
        self.held: dict[int, list[Any]] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        held = self.held.setdefault(tup["k"], [])
        held.append(tup)
        if len(held) == 4:
            collector.emit([[one["n"] for one in held]], anchors=list(held))
            for one in self.held.pop(tup["k"]):
                collector.ack(one)


class ShowNumbers(WindowedBolt):
    outputs = ["ns"]

    def execute(self, window: Any, collector: Any) -> None:
        collector.emit([[tup["n"] for tup in window.get()]])


class PickyAndFlaky(BasicBolt):
    """Rejects some numbers for ever, and others at their first attempts."""

    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] % 17 == 0:
            raise Reject("never")
        if tup["n"] % 5 == 0 and tup.attempt < 3:
            raise ValueError("not yet")
        collector.emit([tup["n"]])


@dataclass(frozen=True)
class Shape:
    tasks: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(("count", "hold", "windows", "picky"), 2))
    named: str = "count"
    known_as: str | None = None
    extra: int = 0
    length: int = 4
    version: int = 1

    def changed(self, chance: random.Random) -> Shape:
        match chance.choice(["tasks", "tasks", "name", "extra", "length", "version"]):
            case "tasks":
                name = chance.choice(sorted(self.tasks))
                return replace(self, tasks={**self.tasks, name: chance.choice([1, 2, 3, 5])})
            case "name":
                return replace(self, named=f"count{chance.randrange(10**6)}", known_as=self.named)
            case "extra":
                return replace(self, extra=0 if self.extra else chance.randrange(1, 10**6))
            case "length":
                return replace(self, length=self.length + chance.choice([2, 5]))
            case _:
                return replace(self, version=self.version + 1)

    def topology(self) -> Topology:
        builder = TopologyBuilder("rounds", Config(message_timeout_secs=10**6))
        builder.set_spout("numbers", Numbered())
        builder.set_spout("again", Numbered(), retry=RetryPolicy(max_retries=5, min_backoff=timedelta(seconds=1)))
        count = builder.set_bolt(self.named, count_table(self.version), self.tasks["count"], renamed_from=self.known_as)
        count.fields_grouping("numbers", ["k"])
        builder.set_bolt("hold", HoldFour(), self.tasks["hold"]).fields_grouping("numbers", ["k"])
        windows = ShowNumbers().with_tumbling_window(timedelta(seconds=self.length)).with_timestamp_field("at")
        windows = windows.with_lag(timedelta(seconds=60)).with_key("k")
        builder.set_bolt("windows", windows, self.tasks["windows"]).fields_grouping("numbers", ["k"])
        builder.set_bolt("picky", PickyAndFlaky(), self.tasks["picky"]).shuffle_grouping("again")
        if self.extra:
            extra = builder.set_bolt(f"extra{self.extra}", count_table(1), 2)
            extra.fields_grouping("numbers", ["k"])
        return builder.build()


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


@pytest.mark.campaign
def test_twenty_changes_with_deaths_lose_and_invent_nothing_over_many_seeds() -> None:
    for seed in block(60, 3):
        test_twenty_changes_with_deaths_lose_and_invent_nothing(seed)
