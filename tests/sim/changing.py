"""A topology with everything that a change must carry over: counts, held tuples, windows, retries and dead letters."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import Any

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

KEYS, TOTAL = 13, 400
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
