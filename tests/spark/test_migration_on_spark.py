"""Attributes of another version on Spark: a broken migration ends the start, and a mended one loses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, KeyValueState, PartitionedSpout, Range, Topology, TopologyBuilder
from sparkbolt.errors import EngineError

pytestmark = [pytest.mark.spark, pytest.mark.slow]
KEYS = 7


class Numbers(PartitionedSpout):
    """Numbers up to a limit."""

    outputs = ("key",)

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("numbers", 0)
        end = min(self.limit, start + budget)
        return [Range(0, "numbers", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= self.limit

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        return ((position, [f"key {position % KEYS}"]) for position in range(range_.start, range_.end))


class CountInAttribute(BasicBolt):
    outputs = ("key", "count")

    def prepare(self, context: Any) -> None:
        self.counts = Counter[str]()

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["key"]] += 1
        collector.emit([tup["key"], self.counts[tup["key"]]])


class CountInTable(BasicBolt):
    outputs = ("key", "count")
    state_version = 2

    def init_state(self, state: KeyValueState) -> None:
        self.table = state

    def migrate(self, version: int, attributes: dict[str, Any]) -> None:
        for key, count in attributes.pop("counts").items():
            self.table.put(key, count)

    def execute(self, tup: Any, collector: Any) -> None:
        count = self.table.get(tup["key"], 0) + 1
        self.table.put(tup["key"], count)
        collector.emit([tup["key"], count])


class CountBroken(CountInTable):
    def migrate(self, version: int, attributes: dict[str, Any]) -> None:
        attributes.pop("count")


class Show(Bolt):
    """Appends each count to the file of its key."""

    stateless = True

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        with (Path(self.directory) / tup["key"]).open("a") as file:
            file.write(f"{tup['count']}\n")
        collector.ack(tup)


def topology(count: BasicBolt, tasks: int, limit: int, directory: Path) -> Topology:
    builder = TopologyBuilder("migrating")
    builder.set_spout("numbers", Numbers(limit))
    builder.set_bolt("count", count, tasks).fields_grouping("numbers", ["key"])
    builder.set_bolt("show", Show(str(directory))).global_grouping("count")
    return builder.build()


@pytest.mark.parametrize("tasks", [2, 3])
def test_attributes_migrate_and_a_mistake_in_it_ends_the_start_without_a_trace(
    spark: Any, tmp_path: Path, tasks: int
) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    checkpoint = str(tmp_path / "checkpoint")

    def run(count: BasicBolt, tasks: int, limit: int) -> None:
        topology(count, tasks, limit, shown).run(spark=spark, checkpoint=checkpoint, apply=True)

    run(CountInAttribute(), 2, 70)
    with pytest.raises(EngineError, match=r"task \d: its state of version 1 has not changed.*KeyError: 'count'"):
        run(CountBroken(), tasks, 140)
    run(CountInTable(), tasks, 140)
    run(CountInTable(), tasks, 210)
    for key in range(KEYS):
        assert (shown / f"key {key}").read_text().split() == [str(number + 1) for number in range(30)]
