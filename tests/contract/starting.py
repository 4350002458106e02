"""Bolts that start trees of their own, and topologies that track nothing or stop themselves."""

from __future__ import annotations

from typing import Any

from sparkbolt import (
    BasicBolt,
    Bolt,
    Direct,
    TopologyBuilder,
)
from tests.contract.parts import Messages, Queue, note
from tests.contract.tracking import Moody, Tries


class Gathers(Bolt):
    """Acks numbers as they come, and starts a tree for each with the next tick."""

    outputs = {"default": ["n"], "direct": Direct(["n"])}
    starts_trees = True
    transient = ["target"]

    def prepare(self, context: Any) -> None:
        self.numbers: list[int] = []
        [self.target] = context.component_tasks("behind")

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            self.numbers.append(tup["n"])
            collector.ack(tup)
            return
        for n in self.numbers:
            if n % 2:
                collector.emit_direct(self.target, [n], stream="direct")
            else:
                collector.emit([n])
        self.numbers = []


BEHIND = {
    0: ["ack"],
    1: ["fail", "raise", "ack"],
    2: ["raise", "fail", "raise"],
    3: ["never", "ack"],
    4: ["never", "never", "never"],
}
"""What is done with each attempt at a number, by its remainder."""


class Behind(Bolt):
    """Notes every attempt, and does what ``BEHIND`` says."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        n = tup["n"]
        note(self.directory, "behind", n, tup.attempt)
        what = BEHIND[n % len(BEHIND)][tup.attempt - 1]
        if what == "raise":
            raise ValueError("on purpose")
        if what == "fail":
            collector.fail(tup, "not now")
        elif what == "ack":
            collector.ack(tup)


STARTED = 20


def starting(builder: TopologyBuilder, directory: str) -> None:
    """Add a bolt that starts trees: of half of the numbers in phase 0, then of the others."""
    builder.set_spout("sown", Messages(directory, STARTED, limits=[STARTED // 2]))
    gathers = builder.set_bolt("gathers", Gathers(), parallelism=2, tick_tuple_freq_secs=1, max_attempts=3)
    gathers.fields_grouping("sown", ["n"])
    behind = builder.set_bolt("behind", Behind(directory)).global_grouping("gathers")
    behind.direct_grouping("gathers", stream="direct")


def untracked(builder: TopologyBuilder, directory: str) -> None:
    """Add lines for a topology without ackers."""
    builder.set_spout("numbers", Messages(directory, 10))
    builder.set_spout("queue", Queue(directory, 4, in_phase=0))
    builder.set_bolt("tries", Tries(directory)).fields_grouping("numbers", ["n"])
    builder.set_bolt("moody", Moody(directory)).fields_grouping("queue", ["n"])


class Raises(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] == 3:
            raise ValueError("three")


def stops(builder: TopologyBuilder, directory: str) -> None:
    """Add a bolt that stops the topology, in phase 1."""
    builder.set_spout("last", Messages(directory, 100, per_micro_batch=2, limits=[0]))
    builder.set_bolt("raises", Raises(), on_error="stop").global_grouping("last")
