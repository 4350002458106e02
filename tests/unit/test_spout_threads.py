"""SpoutThread: what becomes of the errors of a spout that lives in the driver."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sparkbolt import Spout
from sparkbolt.core.acker import Report
from sparkbolt.core.collectors import Output
from sparkbolt.core.components import TopologyContext
from sparkbolt.core.config import Config
from sparkbolt.core.desk import Desk

pytest.importorskip("pyspark")


class Grumbler(Spout):
    """Reports an error with its first tuple, reports and raises with its second call, then is done."""

    outputs = ["n"]

    def open(self, context: TopologyContext) -> None:
        self.calls = 0

    def next_tuple(self, collector: Any) -> None:
        self.calls += 1
        if self.calls == 1:
            collector.report_error("half a message")
        elif self.calls == 2:
            collector.report_error(ValueError("another"))
            raise RuntimeError("and now this")

    @property
    def exhausted(self) -> bool:
        return self.calls > 2


def test_what_a_spout_reports_is_told_and_not_kept() -> None:
    from sparkbolt.spark.spout_threads import SpoutThread

    told: list[Report] = []
    raised: list[str] = []
    both = threading.Event()

    def report(what: str, error: BaseException) -> None:
        raised.append(f"{what}: {error}")
        both.set()

    output = Output("grumbler", [])
    context = TopologyContext("t", "grumbler", 0, 1, 1, Config())
    lock = threading.Condition(threading.RLock())
    thread = SpoutThread(Grumbler(), context, output, Desk(1, 10), lock, tracked=True, report=report, tell=told.append)
    thread.start()
    assert both.wait(10)
    thread.close()
    assert told == [Report("grumbler", 0, "half a message"), Report("grumbler", 0, "another")]
    assert raised == ["next_tuple of spout grumbler[0]: and now this"]
    assert not output.errors
