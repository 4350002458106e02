"""Every kind of window in one topology; what they show is written down behind them.

    lines -> parse -> a windowed bolt for each shape -> tally
               |
               +----> arrivals

A line is ``number key milliseconds``; numbers rise from 0, times are out of order by less than the lag. ``arrivals``
writes when each line came, by the micro-batch's clock, and ``tally`` writes each window that it is shown, with its
durable count of those of that shape. ``tests.windows.books`` says whether it is what it must be.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sparkbolt import BasicBolt, Config, Count, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.api.components import PartitionedSpout
from sparkbolt.bolts import JsonLinesBolt

KEYS = 5
PAUSE_EVERY = 40
PAUSE_UNITS = 12
LAG_UNITS = 6
"""The lag of windows in event time; lines are out of order by less."""


@dataclass(frozen=True)
class Shape:
    """A kind of window; durations are in milliseconds."""

    name: str
    length: Count | int | None = None
    slide: Count | int | None = None
    """None: a window for every tuple."""
    gap: int | None = None
    """Of sessions, which have no length."""
    lag: int | None = None
    """None: on arrival."""
    keyed: bool = False
    closed_left: bool = False
    """Whether windows in event time include their start and exclude their end."""

    @property
    def in_event_time(self) -> bool:
        return self.lag is not None

    @property
    def overlaps(self) -> bool:
        """Whether it is certain that each tuple is in some window."""
        slide = self.slide or Count(1)
        if isinstance(slide, Count) and isinstance(self.length, Count):
            return slide.tuples <= self.length.tuples
        if isinstance(slide, int) and isinstance(self.length, int):
            return slide <= self.length
        return False

    def bolt(self) -> WindowedBolt:
        """What shows such windows."""
        windowed = Shown(self)
        if self.gap is not None:
            windowed.with_session_gap(timedelta(milliseconds=self.gap))
        else:
            closed: Any = "left" if self.closed_left else None
            windowed.with_window(_extent(self.length), _extent(self.slide), closed=closed)
        if self.lag is not None:
            windowed.with_timestamp_field("at").with_lag(timedelta(milliseconds=self.lag))
        return windowed.with_key("key") if self.keyed else windowed


def _extent(extent: Any) -> Any:
    return timedelta(milliseconds=extent) if isinstance(extent, int) else extent


def shapes(unit_ms: int) -> dict[str, Shape]:
    """All combinations of length and slide, tumbling, with gaps, sessions, by key; on arrival and in event time."""
    lengths: dict[str, Count | int] = {"count": Count(7), "time": 9 * unit_ms}
    slides = {"count": Count(3), "time": 4 * unit_ms, "every tuple": None}
    found = [Shape(f"{length} by {slide}", lengths[length], slides[slide]) for length in lengths for slide in slides]
    found += [
        Shape("tumbling count", Count(5), Count(5)),
        Shape("tumbling time", 7 * unit_ms, 7 * unit_ms),
        Shape("time with gaps", 3 * unit_ms, 8 * unit_ms),
        Shape("sessions", gap=5 * unit_ms),
        Shape("count by key", Count(4), Count(2), keyed=True),
        Shape("time by key", 8 * unit_ms, 4 * unit_ms, keyed=True),
        Shape("sessions by key", gap=9 * unit_ms, keyed=True),
    ]
    in_event_time = [replace(one, name=f"event time, {one.name}", lag=LAG_UNITS * unit_ms) for one in found]
    for place, one in enumerate(in_event_time):
        if isinstance(one.length, int) and one.gap is None and not isinstance(one.slide, int):
            # So long that no tuple is too old for the first window behind it: windows tell the order of all tuples.
            in_event_time[place] = replace(one, length=4 * PAUSE_UNITS * unit_ms)
    closed_left = [
        replace(one, name=f"{one.name}, closed left", closed_left=True)
        for one in in_event_time
        if one.name in ("event time, count by time", "event time, tumbling time")
    ]
    with_gaps = Shape("count with gaps", Count(3), Count(8))
    return {one.name: one for one in [*found, with_gaps, *in_event_time, *closed_left]}


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Rising stretches as their ends, in the order of the numbers.

    >>> ranges([4, 5, 6, 1, 9])
    [[4, 6], [1, 1], [9, 9]]
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


class Shown(WindowedBolt):
    """Numbers its windows, and says what is in them."""

    outputs = ["shape", "window"]
    transient = ("context",)

    def __init__(self, shape):
        self.shape = shape.name
        self.sums = not shape.keyed

    def prepare(self, context):
        self.context = context
        self.number = 0
        self.sum = 0

    def execute(self, window, collector):
        self.number += 1
        new = window.get_new().column("n").to_pylist() if len(window.get_new()) else []
        if self.sums:
            expired = window.get_expired()
            self.sum += sum(new) - (sum(expired.column("n").to_pylist()) if len(expired) else 0)
        shown = {
            "shape": self.shape,
            "task": self.context.index,
            "number": self.number,
            "key": window.key,
            "end": window.end_ms,
            "of": ranges(window.column("n").to_pylist()),
            "new": ranges(new),
            "sum": self.sum if self.sums else None,
        }
        collector.emit([self.shape, json.dumps(shown)])


class Writing(BasicBolt):
    """Writes rows with the micro-batch, as files: one that runs again replaces its file. Or keeps them, durably."""

    transient = ("context", "rows")

    def __init__(self, directory):
        self.rows = None if directory is None else JsonLinesBolt(directory)

    def prepare(self, context):
        self.context = context
        if self.rows is not None:
            self.rows.prepare(context)
        self.kept = []

    def write(self, row):
        if self.rows is None:
            self.kept.append(row)
        else:
            self.rows.execute(row, None)

    def flush(self):
        if self.rows is not None:
            self.rows.flush()


class Parse(BasicBolt):
    """The parts of a line."""

    outputs = ["n", "key", "at"]
    stateless = True

    def execute(self, tup, collector):
        number, key, at = tup["line"].split()
        collector.emit([int(number), key, int(at)])


class Arrivals(Writing):
    """When each line came."""

    def execute(self, tup, collector):
        now = {"came": self.context.now_ms, "micro_batch": self.context.micro_batch_id}
        self.write({**tup, **now})


class Tally(Writing):
    """Durable counts of the windows of each shape, and of their tuples."""

    def prepare(self, context):
        super().prepare(context)
        self.windows = Counter()
        self.tuples = Counter()

    def execute(self, tup, collector):
        shown = json.loads(tup["window"])
        shape = tup["shape"]
        self.windows[shape] += 1
        self.tuples[shape] += sum(last - first + 1 for first, last in shown["of"])
        self.write({**shown, "count": self.windows[shape], "tuples": self.tuples[shape]})


def topology_of(
    chosen: Sequence[Shape], lines: PartitionedSpout, directory: str | None, config: Config | None = None
) -> Topology:
    """The topology of some shapes over a spout of lines.

    Windows without keys are made by one task, so that lines come to them in their order.

    Args:
        chosen: the shapes.
        lines: emits ``line``.
        directory: rows are written to ``arrivals`` and ``windows`` there; None: both bolts keep theirs.
        config: of the topology.
    """
    builder = TopologyBuilder("windows", config or Config())
    builder.set_spout("lines", lines)
    builder.set_bolt("parse", Parse()).shuffle_grouping("lines")
    builder.set_bolt("arrivals", Arrivals(_inside(directory, "arrivals"))).global_grouping("parse")
    tally = builder.set_bolt("tally", Tally(_inside(directory, "windows")), parallelism=2)
    for place, shape in enumerate(chosen):
        name = f"w{place}"
        declared = builder.set_bolt(name, shape.bolt(), parallelism=2 if shape.keyed else 1)
        if shape.keyed:
            declared.fields_grouping("parse", ["key"])
        else:
            declared.global_grouping("parse")
        tally.fields_grouping(name, ["shape"])
    return builder.build()


def _inside(directory: str | None, name: str) -> str | None:
    return None if directory is None else f"{directory}/{name}"


class Feed:
    """Lines, one after the other: times are a little out of order, and now and then there is a pause."""

    def __init__(self, seed: int, unit_ms: int) -> None:
        self._chance = random.Random(f"lines of {seed}")
        self._unit_ms = unit_ms
        self._now = 1_000_000
        self._number = 0

    def lines(self, count: int) -> list[str]:
        """The next lines."""
        chance, unit, found = self._chance, self._unit_ms, []
        for _ in range(count):
            self._now += PAUSE_UNITS * unit if chance.random() < 1 / PAUSE_EVERY else chance.randrange(unit)
            at = self._now - chance.randrange((LAG_UNITS - 1) * unit)
            if chance.random() < 1 / 4:
                at -= at % unit  # where windows end
            found.append(f"{self._number} k{chance.randrange(KEYS)} {at}")
            self._number += 1
        return found
