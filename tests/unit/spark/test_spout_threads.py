"""SpoutThread: what becomes of the errors of a spout that lives in the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt import Spout
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.driver.lifecycle import Lifecycle
from sparkbolt.driver.spout_buffer import SpoutBuffer
from sparkbolt.worker.emissions import Output

pytest.importorskip("pyspark")

from sparkbolt.spark.spout_threads import close_all
from sparkbolt.spark.user_calls import Calls


class Blocking(Spout):
    """Its ``next_tuple`` returns when it is let."""

    outputs = ["n"]

    def __init__(self, called: threading.Event, let: threading.Event, closed: list[str]) -> None:
        self.called, self.let, self.closed = called, let, closed

    def next_tuple(self, collector: Any) -> None:
        self.called.set()
        self.let.wait(60)

    def close(self) -> None:
        self.closed.append("closed")


def test_spouts_stop_concurrently_and_one_that_hangs_delays_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from sparkbolt.spark.spout_threads import SpoutThread

    hangs, lets = threading.Event(), threading.Event()
    lets.set()
    closed: list[str] = []
    threads, called = [], []
    for number, let in ((0, hangs), (1, lets)):
        called.append(threading.Event())
        context = TopologyContext("t", "spout", number, 2, number + 1, Config())
        spout = Blocking(called[-1], let, closed)
        buffer, lock = SpoutBuffer(number + 1, 10), threading.Condition(threading.RLock())
        thread = SpoutThread(
            spout,
            context,
            Output("spout", []),
            buffer,
            Calls(lock),
            Lifecycle(),
            tracked=True,
            report=lambda _: None,
            tell=lambda _: None,
        )
        threads.append(thread)
        thread.start()
    assert all(event.wait(60) for event in called)
    close_all(threads, wait_secs=0)
    said = "next_tuple of spout spout[0] has not returned for 0 s: it is left behind, and the spout is not closed"
    assert said in [record.getMessage() for record in caplog.records]
    close_all(threads[1:], wait_secs=60)
    assert closed == ["closed"], "the first hangs still"
    hangs.set()
    close_all(threads, wait_secs=60)
    assert closed == ["closed", "closed"]


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


def test_a_spout_gets_an_ack_once_even_if_a_new_life_begins_meanwhile() -> None:
    from sparkbolt.spark.spout_threads import SpoutThread

    lock = threading.Condition(threading.RLock())
    old, new = SpoutBuffer(1, 10), SpoutBuffer(1, 10)
    old.acks.extend(["first", "second"])

    def begin_life() -> None:
        with lock:
            new.take_over(old)
            thread.go_on_with(new)

    spout = Acked(begin_life)
    context = TopologyContext("t", "acked", 0, 1, 1, Config())
    thread = SpoutThread(
        spout,
        context,
        Output("acked", []),
        old,
        Calls(lock),
        Lifecycle(),
        tracked=True,
        report=lambda *_: None,
        tell=lambda _: None,
    )
    thread.start()
    assert spout.heard.wait(10)
    close_all([thread])
    assert spout.acks == ["first", "second"]
    assert new.idle


class Broken(Spout):
    """Raises wherever it is called, once each, in ways that end threads; then it is done."""

    outputs = ["n"]

    def __init__(self) -> None:
        self.raised: list[str] = []
        self.works = threading.Event()

    def once(self, what: str, error: BaseException) -> None:
        if what not in self.raised:
            self.raised.append(what)
            raise error

    def open(self, context: TopologyContext) -> None:
        self.once("open", SystemExit(3))

    def activate(self) -> None:
        self.once("activate", KeyboardInterrupt())

    def next_tuple(self, collector: Any) -> None:
        self.once("next_tuple", SystemExit("enough"))
        self.works.set()

    @property
    def exhausted(self) -> bool:
        self.once("exhausted", ZeroDivisionError("no share"))
        return self.works.is_set()


def test_any_exception_of_a_spout_is_reported_and_its_thread_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparkbolt.spark import spout_threads
    from sparkbolt.spark.spout_threads import SpoutFailure, SpoutThread

    monkeypatch.setattr(spout_threads, "PAUSE_SECS_MIN", 0.01)
    failures: list[SpoutFailure] = []
    spout, buffer = Broken(), SpoutBuffer(1, 10)
    lock = threading.Condition(threading.RLock())
    context = TopologyContext("t", "a spout[1]", 2, 1, 1, Config())
    output = Output("a spout[1]", [])
    thread = SpoutThread(
        spout,
        context,
        output,
        buffer,
        Calls(lock),
        Lifecycle(),
        tracked=True,
        report=failures.append,
        tell=lambda _: None,
    )
    thread.start()
    assert spout.works.wait(30)
    close_all([thread])
    assert {(one.component, one.task) for one in failures} == {("a spout[1]", 2)}
    assert [str(one) for one in failures] == [
        "open of spout a spout[1][2] raised SystemExit: 3; it is called again after a pause",
        "activate of spout a spout[1][2] raised KeyboardInterrupt; it is called again after a pause",
        "exhausted of spout a spout[1][2] raised ZeroDivisionError: no share; it is called again after a pause",
        "next_tuple of spout a spout[1][2] raised SystemExit: enough; it is called again after a pause",
    ]
