"""Windowed bolts: Storm's example, and windows that are open over a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from sparkbolt import (
    BasicBolt,
    Count,
    Range,
    TopologyBuilder,
    Tuple,
    WindowedBolt,
)
from sparkbolt.spouts import JsonLinesSpout
from sparkbolt.windows import TupleWindow, WindowCollector
from tests.contract.parts import Messages, note

EXAMPLE_FIRST = ((3, "1"), (5, "2"), (7, "3"), (18, "4"), (26, "5"), (36, "6"))
EXAMPLE_SECOND = ((25, "7"), (26, "8"), (27, "9"), (39, "X"))
SIX, EIGHT = 6 * 3_600_000, 8 * 3_600_000
EXAMPLE_EVENTS = [(name, SIX + 1000 * second) for second, name in EXAMPLE_FIRST]
EXAMPLE_EVENTS += [(name, EIGHT + 1000 * second) for second, name in EXAMPLE_SECOND]


class Events(Messages):
    """``EXAMPLE_EVENTS``: the first six in phases 1 and 2, then the others."""

    outputs = ["name", "at"]

    def __init__(self, directory: str) -> None:
        super().__init__(directory, len(EXAMPLE_EVENTS), limits=[0, len(EXAMPLE_FIRST), len(EXAMPLE_FIRST)])

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position in range(range_.start, range_.end):
            yield position, EXAMPLE_EVENTS[position]


class Example(WindowedBolt):
    """Notes its windows."""

    outputs = ["names", "end"]

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        collector.emit(["".join(tup["name"] for tup in window), window.end_ms])


class Blocks(WindowedBolt):
    """The numbers of a window as (count, sum, least, greatest), and where the last one ended."""

    outputs = ["shape", "block"]

    def __init__(self, shape: str) -> None:
        self.shape = shape
        self.windows = 0

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        self.windows += 1
        numbers = window.column("n")
        least, greatest = pc.min_max(numbers).values()
        block = [self.windows, len(window), pc.sum(numbers).as_py(), least.as_py(), greatest.as_py(), window.key]
        collector.emit([self.shape, block])


class Windows(BasicBolt):
    """Notes each window that it gets, under a name."""

    stateless = True
    outputs = []

    def __init__(self, directory: str, name: str) -> None:
        self.directory = directory
        self.name = name

    def execute(self, tup: Tuple, collector: Any) -> None:
        note(self.directory, self.name, *tup.values())


def storms_example(builder: TopologyBuilder, directory: str) -> None:
    """Add Storm's worked example of windows: 6:00:03 to 8:00:39."""
    windowed = Example().with_window(timedelta(seconds=20), slide=timedelta(seconds=10)).with_timestamp_field("at")
    windowed.with_lag(timedelta(seconds=5)).with_watermark_interval(timedelta(milliseconds=500))
    builder.set_spout("events", Events(directory))
    builder.set_bolt("example", windowed).global_grouping("events")
    builder.set_bolt("example-windows", Windows(directory, "example-windows")).shuffle_grouping("example")


class Keyed(Messages):
    """``Messages`` with a key, which has a window of its own."""

    outputs = ["n", "key", "at"]

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position, _ in super().read(range_):
            yield position, [position, position % 7, 1000 * position]


WINDOWED, WINDOWED_FIRST = 4_000, 2_500
FILED = 50
"""How many lines each of four files has, one for each sensor."""


def windows_kept(builder: TopologyBuilder, directory: str) -> None:
    """Add windows of several kinds over numbers: the first ones until phase 3."""
    second = timedelta(seconds=1)
    shapes = {
        "count": Blocks("count").with_window(Count(300), slide=Count(200)),
        "time": Blocks("time").with_window(300 * second, slide=200 * second).with_timestamp_field("at"),
        "mixed": Blocks("mixed").with_window(300 * second, slide=Count(200)).with_timestamp_field("at"),
        "keyed": Blocks("keyed").with_tumbling_window(Count(100)).with_key("key"),
    }
    builder.set_spout("measured", Keyed(directory, WINDOWED, per_micro_batch=100, limits=[WINDOWED_FIRST] * 3))
    sink = builder.set_bolt("windows", Windows(directory, "windows"))
    for name, windowed in shapes.items():
        if windowed.own_window.in_event_time:
            windowed.with_watermark_interval(timedelta(milliseconds=1))
        builder.set_bolt(name, windowed).global_grouping("measured")
        sink.shuffle_grouping(name)
    for sensor in range(4):
        lines = (json.dumps({"n": n, "sensor": sensor, "at": 1000 * (n + 1)}) for n in range(FILED))
        Path(directory, f"sensor-{sensor}.json").write_text("\n".join(lines))
    files = JsonLinesSpout(f"{directory}/sensor-*.json", outputs=["n", "sensor", "at"])
    builder.set_spout("files", files, max_spout_pending=4)
    days = Blocks("files").with_tumbling_window(10 * second).with_timestamp_field("at").with_key("sensor")
    days.with_watermark_interval(timedelta(milliseconds=1))
    builder.set_bolt("files-by-sensor", days, parallelism=2).fields_grouping("files", ["sensor"])
    sink.shuffle_grouping("files-by-sensor")
