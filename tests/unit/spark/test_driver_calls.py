"""What user code in the driver raises, or exits with: a line that tells it, and everything else goes on."""

from __future__ import annotations

import logging
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import Spout, TopologyBuilder
from sparkbolt.errors import PrepareError, SpoutOpenError
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout

pytest.importorskip("pyspark")

from sparkbolt.spark import life as life_module
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.running import RunningOnSpark
from sparkbolt.spark.spout_threads import SpoutFailure
from sparkbolt.spark.user_calls import Calls
from tests.unit.poison import ClasslessError
from tests.unit.spark.lives import Pass, in_memory, topology


class LeavesOpen(GeneratorSpout):
    def open(self, context: Any) -> None:
        sys.exit(3)


class RaisesInOpen(GeneratorSpout):
    def open(self, context: Any) -> None:
        raise ClasslessError


@pytest.mark.parametrize(("kind", "said"), [(LeavesOpen, "SystemExit: 3"), (RaisesInOpen, "ClasslessError")])
def test_a_partitioned_spout_that_exits_in_open_or_raises_is_one_that_cannot_be_opened(kind: Any, said: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", kind(lambda: [[1]], outputs=["n"]))
    lane = lay_out(builder.build(), 2)
    life = object.__new__(life_module.Life)
    life.lane, life.topology = lane, lane.topology
    life.bundle = life_module.packed(lane, "run")
    life._calls = Calls(threading.Condition())
    with pytest.raises(SpoutOpenError, match=rf"spout 'numbers' could not be opened: .*{said}"):
        life._open_spouts({})


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


@pytest.mark.parametrize(
    "method", ["next_ranges", "finished", "on_committed", "on_sources_changed", "lag", "on_read", "prepare"]
)
def test_a_partitioned_spout_that_exits_raises_as_any_other_exception(method: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Leaves(method))
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")

    def run() -> None:
        engine = LocalEngine(builder.build())
        while engine.step() is not None or not engine.coordinator.finished:
            pass

    with pytest.raises((RuntimeError, PrepareError), match=f"{method} of 'numbers' raised SystemExit: 3"):
        run()


class Raises(Leaves):
    """Raises what it also keeps, in one of the methods that are called in the driver."""

    error = ValueError("no such table")

    def _may_leave(self, method: str) -> None:
        if self.method == method:
            raise self.error


@pytest.mark.parametrize("method", ["next_ranges", "finished", "on_committed", "on_sources_changed", "lag", "on_read"])
def test_what_a_spout_raises_in_the_driver_keeps_its_type_and_says_whose_it_is_and_where(method: str) -> None:
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


def test_a_listener_that_raises_or_exits_is_told_and_the_others_hear(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = topology()
    engine = LocalEngine(own)
    life = SimpleNamespace(coordinator=engine.coordinator)
    monkeypatch.setattr(RunningOnSpark, "_new_life", lambda running: life)
    monkeypatch.setattr(RunningOnSpark, "_make_threads", lambda running: [])
    running = RunningOnSpark(own, lay_out(own, 2), None, in_memory(), None)  # type: ignore[arg-type]
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
        running._tell(engine.machine, promotion)
    assert heard == [0]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(": ", 1)[0].split(".")[-1] for line in lines] == [
        "raising raised KeyError",
        "leaving raised SystemExit",
    ]
    assert all(line.endswith("the topology goes on, and it is called again next time") for line in lines)


def test_a_partitioned_spout_whose_close_raises_does_not_keep_the_others_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed: list[str] = []

    def close(name: str, error: BaseException | None) -> SimpleNamespace:
        def run() -> None:
            closed.append(name)
            if error is not None:
                raise error

        return SimpleNamespace(close=run)

    spouts: Any = {
        "first": close("first", OSError("gone")),
        "second": close("second", SystemExit(1)),
        "third": close("third", None),
    }
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        life_module.close_spouts(spouts)
    assert closed == ["first", "second", "third"]
    assert [record.getMessage() for record in caplog.records] == [
        "close of spout first raised OSError: gone; it is taken for closed",
        "close of spout second raised SystemExit: 1; it is taken for closed",
    ]


@pytest.mark.parametrize("name", ["a spout", "a[0]", "of x[1] y"])
def test_an_error_is_counted_for_the_component_that_raised_whatever_its_id(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = topology(name)
    life = SimpleNamespace(coordinator=LocalEngine(own).coordinator)
    monkeypatch.setattr(RunningOnSpark, "_new_life", lambda running: life)
    monkeypatch.setattr(RunningOnSpark, "_make_threads", lambda running: [])
    running = RunningOnSpark(own, lay_out(own, 2), None, in_memory(), None)  # type: ignore[arg-type]
    running._spout_raised(SpoutFailure(name, 0, "next_tuple", ValueError("x")))
    assert {id_: counts.errors for id_, counts in running.metrics().components.items() if counts.errors} == {name: 1}


class Leaving(Spout):
    """Raises and exits where it can, and emits one tuple in the end."""

    outputs = ["n"]

    def open(self, context: Any) -> None:
        self.calls = 0
        self.asked = 0

    def next_tuple(self, collector: Any) -> None:
        self.calls += 1
        if self.calls == 1:
            sys.exit("enough")
        if self.calls == 2:
            collector.emit([7], message_id=7)

    @property
    def exhausted(self) -> bool:
        self.asked += 1
        if self.asked == 2:
            raise ZeroDivisionError("no share")
        return self.calls > 1


def test_a_spout_without_a_thread_goes_on_too_whatever_it_raises() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("leaving", Leaving())
    builder.set_bolt("pass", Pass()).shuffle_grouping("leaving")
    engine = LocalEngine(builder.build())
    for _ in range(5):
        engine.step()
    assert engine.ledger.metrics.of("leaving").acked == 1
    assert [report.text for report in engine.reports()] == [
        "next_tuple raised SystemExit: enough",
        "exhausted raised ZeroDivisionError: no share",
    ]
