"""What user code in the driver raises, or exits with: a line that tells it, and everything else goes on."""

from __future__ import annotations

import logging
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.errors import PrepareError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout

pytest.importorskip("pyspark")

from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.spout_calls import SpoutCalls
from sparkbolt.spark.user_calls import Caller, Calls
from tests.unit.spark.lives import Pass, idle_running, topology


class Leaves(GeneratorSpout):
    """Exits in one of the methods that are called in the driver."""

    def __init__(self, method: str) -> None:
        super().__init__(lambda: [[1], [2]], outputs=["n"])
        self.method = method

    def _may_leave(self, method: str) -> None:
        if self.method == method:
            sys.exit(3)

    def next_ranges(self, progress: Any, budget: int) -> Any:
        self._may_leave("next_ranges")
        return super().next_ranges(progress, budget)

    def finished(self, progress: Any) -> bool:
        self._may_leave("finished")
        return super().finished(progress)

    def on_committed(self, progress: Any) -> None:
        self._may_leave("on_committed")

    def on_sources_changed(self, sources: Any) -> None:
        self._may_leave("on_sources_changed")

    def lag(self) -> Any:
        self._may_leave("lag")
        return {}

    def on_read(self, reads: Any) -> None:
        self._may_leave("on_read")

    def read_bytes(self) -> int:
        return 1

    def prepare(self, context: Any) -> None:
        self._may_leave("prepare")
        super().prepare(context)


class Raises(Leaves):
    """Raises what it also keeps, in one of the methods that are called in the driver."""

    error = ValueError("no such table")

    def _may_leave(self, method: str) -> None:
        if self.method == method:
            raise self.error


@pytest.mark.parametrize("method", ["next_ranges", "finished", "on_committed", "on_sources_changed", "lag", "on_read"])
def test_exception_of_a_spout_in_the_driver_keeps_its_type_and_names_the_spout_and_the_call(method: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Raises(method))
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")

    def run() -> None:
        engine = LocalEngine(builder.build())
        while engine.step() is not None or not engine.coordinator.finished:
            pass

    for _ in range(2):
        with pytest.raises(ValueError, match="no such table") as raised:
            run()
    text = query_failure(raised.value).text
    assert text.startswith(f"ValueError: no such table, raised by {method} of 'numbers', at test_driver_calls.py:")
    assert text.count("raised by") == 1


def test_a_listener_that_raises_or_exits_is_reported_and_the_others_are_still_notified(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = topology()
    engine = LocalEngine(own)
    running = idle_running(own, monkeypatch, engine=engine)
    heard: list[int] = []

    def raising(report: Any) -> None:
        raise KeyError("no such series")

    def leaving(report: Any) -> None:
        sys.exit(3)

    for listener in (raising, leaving, lambda report: heard.append(report.promotion.micro_batch_id)):
        running.on_micro_batch(listener)
    promotion = engine.step()
    assert promotion is not None
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running._promoted(engine.coordinator, promotion)
    assert heard == [0]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(": ", 1)[0].split(".")[-1] for line in lines] == [
        "raising raised KeyError",
        "leaving raised SystemExit",
    ]
    assert all(line.endswith("the topology continues, and calls it again next time") for line in lines)


def test_a_partitioned_spout_with_a_failing_close_does_not_keep_the_others_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed: list[str] = []

    def close(name: str, error: BaseException | None) -> Any:
        def run() -> None:
            closed.append(name)
            if error is not None:
                raise error

        return SimpleNamespace(close=run)

    calls = SpoutCalls(Calls(threading.Condition()))
    errors = {"first": OSError("gone"), "second": SystemExit(1), "third": None}
    for name, error in errors.items():
        calls._spouts[name] = close(name, error)
        calls._callers[name] = Caller(calls._calls, name)
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        calls.close()
    assert closed == ["first", "second", "third"]
    assert [record.getMessage() for record in caplog.records] == [
        "close of spout first raised OSError: gone; it is taken for closed",
        "close of spout second raised SystemExit: 1; it is taken for closed",
    ]


@pytest.mark.parametrize(
    "method", ["next_ranges", "finished", "on_committed", "on_sources_changed", "lag", "on_read", "prepare"]
)
def test_an_exit_in_a_partitioned_spout_is_handled_like_any_other_exception(method: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Leaves(method))
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")

    def run() -> None:
        engine = LocalEngine(builder.build())
        while engine.step() is not None or not engine.coordinator.finished:
            pass

    with pytest.raises((RuntimeError, PrepareError), match=f"{method} of 'numbers' raised SystemExit: 3"):
        run()
