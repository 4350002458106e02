"""Bolts, and a topology, that are fed by Spark's own sources."""

from __future__ import annotations

from typing import Any

from sparkbolt import BasicBolt, Bolt, Config, Topology, TopologyBuilder, bolt
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import SparkSpout


class Fussy(BasicBolt):
    """Passes rows on; refuses rows with ``n`` divisible by 100 always, by 7 at the first attempt it sees."""

    outputs = ["id", "n"]

    def prepare(self, context: Any) -> None:
        self.seen: set[int] = set()

    def execute(self, tup: Any, collector: Any) -> None:
        number = tup["n"]
        if number % 100 == 0:
            raise ValueError(f"{number} is round")
        if number % 7 == 0 and number not in self.seen:
            self.seen.add(number)
            raise ValueError(f"{number} is new")
        collector.emit([tup["id"], number])


class Slow(Bolt):
    """Holds rows until a tick."""

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            self.held.append(tup)
            return
        for held in self.held:
            collector.ack(held)
        self.held.clear()


@bolt(outputs=["source", "values"])
def shown(tup: Any) -> Any:
    """Which spout a tuple came from, and its values in words."""
    yield [tup.source_component, repr(list(tup.values()))]


class Join(Bolt):
    """Emits when it has both halves of an id."""

    outputs = ["id", "left", "right"]

    def prepare(self, context: Any) -> None:
        self.waiting: dict[str, Any] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        key = str(tup[0])
        other = self.waiting.pop(key, None)
        if other is None:
            self.waiting[key] = tup
            return
        left, right = sorted((other, tup), key=lambda one: str(one.source_component))
        collector.emit([key, left[1], right[1]], anchors=[left, right])
        collector.ack(left)
        collector.ack(right)


def build(folder: str, out: str) -> Topology:
    """Rows of JSON files, two files a micro-batch."""
    builder = TopologyBuilder("rows", Config(message_timeout_secs=60, max_attempts=3, compact_every=4))
    schema = "id string, n int"
    rows = SparkSpout(
        lambda spark: spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).json(folder),
        outputs=["id", "n"],
        message_id="id",
    )
    builder.set_spout("rows", rows, parallelism=2)
    builder.set_bolt("fussy", Fussy(), parallelism=2).fields_grouping("rows", ["id"])
    builder.set_bolt("slow", Slow(), tick_tuple_freq_secs=0.5).fields_grouping("rows", ["n"])
    builder.set_bolt("out", JsonLinesBolt(out)).shuffle_grouping("fussy")
    return builder.build()
