"""One tree at a time: deliveries that only one part of their ids tells apart, all of them held.

If two of them had the same edge, the edges would cancel, and the tree would be acked too early.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from sparkbolt import AsyncBolt, Bolt, ColumnBolt, Config, Grouping, Spout, TopologyBuilder
from sparkbolt.testing import TopologyTestDriver

pytestmark = pytest.mark.slow


class Emits(Bolt):
    """Emits (message ids) anchored in one of many ways, and acks all its inputs."""

    outputs = ["of"]

    def __init__(self, way: str) -> None:
        self.way = way
        self.kept: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] == "last":
            for kept in self.kept:
                collector.ack(kept)
            return
        self.kept.append(tup)
        getattr(self, self.way)(tup, collector)

    def _emit(self, collector: Any, *anchors: Any) -> None:
        collector.emit([sorted({anchor["n"] for anchor in anchors})], anchors=list(anchors))

    def twice(self, tup: Any, collector: Any) -> None:
        self._emit(collector, tup)
        self._emit(collector, tup)

    def the_first_in_each_micro_batch(self, tup: Any, collector: Any) -> None:
        self._emit(collector, self.kept[0])

    def the_first_twice(self, tup: Any, collector: Any) -> None:
        if tup is not self.kept[0]:
            self._emit(collector, self.kept[0])
            self._emit(collector, self.kept[0])

    def one_tuple_twice(self, tup: Any, collector: Any) -> None:
        self._emit(collector, tup, tup)
        self._emit(collector, tup, tup)

    def alone_and_with_another(self, tup: Any, collector: Any) -> None:
        self._emit(collector, tup)
        self._emit(collector, tup, self.kept[0])
        self._emit(collector, self.kept[0], tup)

    def rows_in_any_order(self, tup: Any, collector: Any) -> None:
        for kept in (tup, self.kept[0], tup, *reversed(self.kept)):
            self._emit(collector, kept)

    def rows_in_any_order_and_pairs(self, tup: Any, collector: Any) -> None:
        self.rows_in_any_order(tup, collector)
        self._emit(collector, tup, self.kept[0])


class Interleaved(AsyncBolt):
    """Emits twice for each tuple; others emit in between."""

    outputs = ["of"]

    async def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] != "last":
            collector.emit([[tup["n"]]])
            await asyncio.sleep(0)
            collector.emit([[tup["n"]]])


class Blocks(ColumnBolt):
    """Emits several blocks of columns, each with rows in any order."""

    outputs = ["of"]

    def execute(self, batch: Any, collector: Any) -> None:
        names = batch["n"].to_pylist()
        rows = [row for row, name in enumerate(names) if name != "last"]
        for parents in ([*rows, *rows], rows[::-1], rows):
            if parents:
                collector.emit([[[names[row]] for row in parents]], anchors=parents)


class Holds(Bolt):
    """Holds what it gets; with each tuple of ``go`` it acks one, the oldest or the newest."""

    outputs = ["of"]

    def __init__(self, place: int) -> None:
        self.place = place

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.source_component != "go":
            self.held.append(tup)
        elif self.held:
            done = self.held.pop(self.place)
            collector.emit([done["of"]])
            collector.ack(done)


WAYS = [name for name in vars(Emits) if not name.startswith("_") and name not in ("outputs", "execute")]
EMITTERS = {**{way: Emits(way) for way in WAYS}, "interleaved": Interleaved(), "blocks": Blocks()}


class ByFeeding(Spout):
    outputs = ["n"]

    def next_tuple(self, collector: Any) -> None: ...


class AllTwice(Grouping):
    """Each task, two times."""

    def prepare(self, context: Any, stream: str, targets: Sequence[int]) -> None:
        self.targets = [*targets, *targets]

    def choose_tasks(self, sender_task: int, values: list[Any]) -> Sequence[int]:
        return self.targets


@pytest.mark.parametrize("place", [0, -1], ids=["oldest first", "newest first"])
@pytest.mark.parametrize("grouping", ["global", "all twice"])
@pytest.mark.parametrize("together", [True, False], ids=["one micro-batch", "a micro-batch each"])
@pytest.mark.parametrize("way", EMITTERS)
def test_no_two_deliveries_cancel_each_other(way: str, together: bool, grouping: str, place: int) -> None:
    builder = TopologyBuilder("one", Config(enable_message_timeouts=False))
    builder.set_spout("m", ByFeeding())
    builder.set_spout("go", ByFeeding())
    builder.set_bolt("emits", EMITTERS[way]).global_grouping("m")
    holds = builder.set_bolt("holds", Holds(place)).global_grouping("go")
    holds.grouping("emits", AllTwice()) if grouping == "all twice" else holds.global_grouping("emits")
    with TopologyTestDriver(builder.build()) as driver:
        for number in range(3):
            driver.feed("m", [str(number)], message_id=str(number))
            if not together:
                driver.run_until_idle()
        driver.feed("m", ["last"])
        driver.run_until_idle()
        waiting = Counter(
            number
            for [of] in driver.emitted("emits")
            for number in of
            for _ in range(2 if grouping == "all twice" else 1)
        )
        while True:
            done = {str(number) for number in range(3)} - set(waiting)
            assert set(driver.acked("m")) == done
            if len(done) == 3:
                break
            before = len(driver.emitted("holds"))
            driver.feed("go", ["go"])
            driver.run_until_idle()
            [[of]] = driver.emitted("holds")[before:]
            waiting -= Counter(of)
