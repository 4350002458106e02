"""SpoutThread: what becomes of the errors of a spout that lives in the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt import Spout
from sparkbolt.core.acker import Report
from sparkbolt.core.components import TopologyContext
from sparkbolt.core.config import Config
from sparkbolt.core.desk import Desk
from sparkbolt.core.emission import Output

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


class Acked(Spout):
    """Is told of one ack, during which a new life begins."""

    outputs = ["n"]

    def __init__(self, begin_life: Callable[[], None]) -> None:
        self.begin_life = begin_life
        self.acks: list[Any] = []
        self.heard = threading.Event()

    def next_tuple(self, collector: Any) -> None: ...

    def ack(self, message_id: Any) -> None:
        self.acks.append(message_id)
        if message_id == "first":
            self.begin_life()
        else:
            self.heard.set()


def test_a_spout_hears_of_an_ack_once_though_a_new_life_begins_meanwhile() -> None:
    from sparkbolt.spark.spout_threads import SpoutThread

    lock = threading.Condition(threading.RLock())
    old, new = Desk(1, 10), Desk(1, 10)
    old.acks.extend(["first", "second"])

    def begin_life() -> None:
        with lock:
            new.take_over(old)
            thread.go_on_with({1: new})

    spout = Acked(begin_life)
    context = TopologyContext("t", "acked", 0, 1, 1, Config())
    thread = SpoutThread(
        spout, context, Output("acked", []), old, lock, tracked=True, report=lambda *_: None, tell=lambda _: None
    )
    thread.start()
    assert spout.heard.wait(10)
    thread.close()
    assert spout.acks == ["first", "second"]
    assert new.idle
