"""Windows in the simulator: everything around them goes wrong, and every promise holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, Count, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.sim.subject import subject_of
from sparkbolt.spouts import GeneratorSpout
from tests.sim.test_many_seeds import check

NUMBERS = 100
SECOND = timedelta(seconds=1)
SEEDS = 225
"""Of each shape: more than two thousand in all."""


def numbers() -> Iterator[list[int]]:
    for number in range(NUMBERS):
        yield [number, number % 5, 1000 * number]


class Sum(WindowedBolt):
    """The sum of a window, and one that follows what is new."""

    outputs = ["key", "count", "sum", "new"]

    def prepare(self, context: Any) -> None:
        self.new = 0

    def execute(self, window: Any, collector: Any) -> None:
        self.new += sum(tup["n"] for tup in window.get_new())
        collector.emit([window.key, len(window), sum(tup["n"] for tup in window), self.new])


class Keep(BasicBolt):
    """What came from windows, durably: the simulator compares it with a run without faults."""

    outputs = ["seen"]

    def prepare(self, context: Any) -> None:
        self.seen: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.append(tup.values)
        collector.emit([len(self.seen)])


SHAPES: dict[str, Callable[[], WindowedBolt]] = {
    "count by count": lambda: Sum().with_window(Count(7), slide=Count(3)),
    "tumbling": lambda: Sum().with_tumbling_window(Count(5)),
    "by arrival": lambda: Sum().with_window(4 * SECOND, slide=2 * SECOND),
    "keyed": lambda: Sum().with_window(Count(4), slide=Count(2)).with_key("key"),
    "event time": lambda: Sum().with_window(10 * SECOND, slide=5 * SECOND).with_timestamp_field("at").with_lag(SECOND),
    "event time, keyed": lambda: (
        Sum()
        .with_window(10 * SECOND, slide=5 * SECOND)
        .with_timestamp_field("at")
        .with_lag(30 * SECOND)
        .with_key("key")
    ),
    "event time by count": lambda: Sum().with_window(9 * SECOND, slide=Count(3)).with_timestamp_field("at"),
    "sessions": lambda: Sum().with_session_gap(3 * SECOND).with_timestamp_field("at").with_key("key"),
    "acked on expiry": lambda: Sum().with_window(Count(7), slide=Count(3)).with_ack_on_expiry(),
}


def windows(shape: str) -> Topology:
    builder = TopologyBuilder("windows", Config(message_timeout_secs=30))
    builder.set_spout("numbers", GeneratorSpout(numbers, outputs=["n", "key", "at"], count=NUMBERS))
    builder.set_bolt("sum", SHAPES[shape](), parallelism=2).fields_grouping("numbers", ["key"])
    builder.set_bolt("keep", Keep()).global_grouping("sum")
    return builder.build()


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_keep_every_promise(shape: str) -> None:
    check(subject_of(windows(shape), messages_max=NUMBERS), range(4))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", SHAPES)
def test_windows_keep_every_promise_over_two_thousand_seeds(shape: str) -> None:
    check(subject_of(windows(shape), messages_max=NUMBERS), range(4, SEEDS))
