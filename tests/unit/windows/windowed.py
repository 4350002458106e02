"""A windowed bolt in a topology without Spark: what the tests of windows have in common."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sparkbolt import Config, Spout, TopologyBuilder, WindowedBolt
from sparkbolt.api.topology import Topology
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows import (
    TupleWindow,
    WindowCollector,
)

SECOND = timedelta(seconds=1)


def secs(count: float) -> timedelta:
    return timedelta(seconds=count)


class Source(Spout):
    outputs = {"default": ["name", "at", "user"], "other": ["at", "name", "user"]}

    def next_tuple(self, collector: Any) -> None: ...


class Show(WindowedBolt):
    outputs = ["names", "new", "expired", "start", "end", "key"]

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        parts = (window, window.get_new(), window.get_expired())
        names = ["".join(tup["name"] for tup in part) for part in parts]
        collector.emit([*names, window.start_ms, window.end_ms, window.key])


def topology(windowed: WindowedBolt, other: bool = False, **settings: Any) -> Topology:
    builder = TopologyBuilder("windows", Config(**settings))
    builder.set_spout("source", Source())
    declarer = builder.set_bolt("show", windowed).global_grouping("source")
    if other:
        declarer.global_grouping("source", "other")
    return builder.build()


class Run:
    """A driver with short words for what these tests do."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver

    def feed(self, name: str, at: Any = None, user: Any = "u", stream: str = "default") -> None:
        values = {"name": name, "at": at, "user": user}
        self.driver.feed("source", values, message_id=name, stream=stream)

    def shown(self, column: int = 0) -> list[Any]:
        return [values[column] for values in self.driver.emitted("show")]


def clock(hours: int, minutes: int, seconds: int) -> datetime:
    return datetime(2026, 3, 1, hours, minutes, seconds, tzinfo=UTC)
