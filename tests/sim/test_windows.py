"""Windows in the simulator: everything around them goes wrong, and every promise holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, Count, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.sim.checkers import acks
from sparkbolt.sim.checkers.base import Checker
from sparkbolt.sim.checkers.states import content_of
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.subject import subject_of
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.windows import CountEvictionPolicy, CountTriggerPolicy
from tests.sim.seeds import block
from tests.sim.test_many_seeds import check
from tests.windows import changing
from tests.windows.books import check_rows
from tests.windows.shapes import Feed, shapes, topology_of

pytestmark = pytest.mark.slow

NUMBERS = 100
SECOND = timedelta(seconds=1)
SEEDS = 50


def numbers() -> Iterator[list[int]]:
    for number in range(NUMBERS):
        yield [number, number % 5, 1000 * number]


UNIT_MS = 100
KINDS = shapes(UNIT_MS)
LINES = 60
KIND_SEEDS = 2_000 // len(KINDS) + 1


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
        self.seen.append(list(tup.values()))
        collector.emit([len(self.seen)])


SHAPES: dict[str, Callable[[], WindowedBolt]] = {
    "acked on expiry": lambda: Sum().with_window(Count(7), slide=Count(3)).with_ack_on_expiry(),
    "acked on expiry, between timers": lambda: Sum().with_window(Count(3), slide=5 * SECOND).with_ack_on_expiry(),
    "acked on expiry, by key in event time": lambda: (
        Sum()
        .with_window(10 * SECOND, slide=5 * SECOND)
        .with_timestamp_field("at")
        .with_lag(SECOND)
        .with_key("key")
        .with_ack_on_expiry()
    ),
    "larger than memory": lambda: (
        Sum().with_window(60 * SECOND, slide=5 * SECOND).with_timestamp_field("at").with_max_events_in_memory(5)
    ),
    "ids that were seen": lambda: Sum().with_window(Count(7), slide=Count(3)).with_message_id_field("n"),
    "policies of one's own": lambda: Sum().with_policies(CountEvictionPolicy(5), CountTriggerPolicy(2)),
}
"""What ``KINDS`` has not."""


def windows(shape: str) -> Topology:
    builder = TopologyBuilder("windows", Config(message_timeout_secs=30))
    builder.set_spout("numbers", GeneratorSpout(numbers, outputs=["n", "key", "at"], count=NUMBERS))
    builder.set_bolt("sum", SHAPES[shape](), parallelism=2).fields_grouping("numbers", ["key"])
    builder.set_bolt("keep", Keep()).global_grouping("sum")
    return builder.build()


class WindowsAreRight(Checker):
    """Each window was shown to a durable bolt once, with what a model recomputes from all lines."""

    promise = "windows are right"

    def ended(self, driver: Driver) -> None:
        """Compare the rows that the two bolts keep."""
        if driver.ledger.metrics.of("w0").failed or driver.ledger.metrics.of("lines").failed:
            self.broken("a tree failed, which no fault explains")
        arrivals, shown = (self._kept(name) for name in ("arrivals", "tally"))
        shape = KINDS[self.facts.subject.topology.name]
        found = check_rows(arrivals, shown, [shape], exact=True)
        if len(arrivals) != LINES:
            self.broken(f"{len(arrivals)} lines came, of {LINES}")
        for text in (*found.wrong, *found.lacking):
            self.broken(text)

    def _kept(self, component: str) -> list[dict[str, Any]]:
        lane = self.facts.subject.lane
        stores = [self.facts.stores.get(lane.dests[task]) for task in lane.topology.tasks(component)]
        found = [content_of(store, self.facts.subject.environment.namespace) for store in stores if store]
        return [row for content in found for row in content.attributes["kept"]]


def lines() -> Iterator[list[str]]:
    for line in Feed(1, UNIT_MS).lines(LINES):
        yield [line]


def of_kind(name: str) -> Topology:
    spout = GeneratorSpout(lines, outputs=["line"], count=LINES)
    return replace(topology_of([KINDS[name]], spout, None), name=name)


def check_kind(name: str, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "PROMISES", (*acks.PROMISES, WindowsAreRight))
    check(subject_of(of_kind(name), messages_max=LINES), seeds)


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_window_is_emitted_once_and_none_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kind(name, range(2), monkeypatch)


@pytest.mark.campaign
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_window_is_right_over_many_seeds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kind(name, block(2 + KIND_SEEDS, 2), monkeypatch)


@pytest.mark.parametrize("shape", SHAPES)
def test_windows_keep_every_promise(shape: str) -> None:
    check(subject_of(windows(shape), messages_max=NUMBERS), range(4))


@pytest.mark.campaign
@pytest.mark.parametrize("shape", SHAPES)
def test_windows_keep_every_promise_over_many_seeds(shape: str) -> None:
    check(subject_of(windows(shape), messages_max=NUMBERS), block(SEEDS, 4))


@pytest.mark.campaign
@pytest.mark.parametrize("lag", [None, 3 * UNIT_MS], ids=["on arrival", "in event time"])
@pytest.mark.parametrize("keyed", [False, True], ids=["no key", "by key"])
def test_windows_that_change_again_and_again_are_right_over_many_seeds(lag: int | None, keyed: bool) -> None:
    for seed in block(400, 100):
        assert list(changing.wrong_in(changing.run(seed, changing.shapes_of(lag, keyed=keyed)))) == [], f"seed {seed}"
