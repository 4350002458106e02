"""What is given up is told by an ERROR line, also where a driver died between the commit and the telling."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.reports import ErrorReport, Fail, FailedTree, Promotion
from sparkbolt.api.story import root_text
from sparkbolt.control.logs import LogFields
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spark.error_log import ErrorLog
from sparkbolt.spouts import GeneratorSpout
from tests.unit.spark.lives import idle_running

pytest.importorskip("pyspark")


class Grim(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        raise ValueError("never")


def test_next_driver_reports_messages_given_up_in_the_last_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", GeneratorSpout(lambda: [[1]], outputs=["n"]), max_attempts=1, dead_letters="log:")
    builder.set_bolt("grim", Grim()).shuffle_grouping("numbers")
    topology = builder.build()
    engine = LocalEngine(topology)
    assert engine.step() is not None
    engine.restart()  # whatever was promoted before, this driver has told nobody

    running = idle_running(topology, monkeypatch, engine=engine)
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running.start()
    running._supervisor.end()
    running._recording.close()  # a thread that would warn in the tests behind this one
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("given up after 1 attempt(s): ")
    assert "ValueError: never" in line


def test_a_line_has_fields_that_say_whom_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    error_log = ErrorLog(Config(max_error_report_per_interval=1), lambda: 0.0)
    fail = Fail(7, "check", 1, Cause.EXCEPTION, "ValueError: no", 12)
    tree = FailedTree(7, "lines", 0, "a.txt", 4, 3, fail, MessageOutcome.GIVEN_UP, "its story")
    reports = [ErrorReport("check", 1, "ValueError: no"), ErrorReport("check", 0, "ValueError: never")]
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        error_log.promotion(Promotion(12, failed=[tree], reports=reports))
        error_log.tell_withheld(at_once=True)
    fields = [[vars(record).get(name) for name in LogFields.__annotations__] for record in caplog.records]
    assert fields == [["check", 1, 12, None], ["check", 1, 12, root_text(7)], ["check", 0, 12, None]]


def announced(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_repeated_error_lines_are_logged_a_few_times_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [100.0]
    error_log = ErrorLog(Config(max_error_report_per_interval=2, error_throttle_interval_secs=10), lambda: now_s[0])
    for number in range(415):
        error_log.error("queue[0]", f"queue[0] raised ConnectionError: {number}")
        now_s[0] += 0.01
    assert announced(caplog) == ["queue[0] raised ConnectionError: 0", "queue[0] raised ConnectionError: 1"]
    error_log.tell_withheld()
    assert len(announced(caplog)) == 2, "the interval is not over"
    now_s[0] += 10
    error_log.tell_withheld()
    error_log.tell_withheld()
    told = "queue[0] raised ConnectionError: 414 (and 412 more like it in the last 10 s)"
    assert announced(caplog)[2:] == [told]


@pytest.mark.slow
def test_an_outage_is_one_line_with_the_most_frequent_cause_and_the_next_step(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fickle(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            raise ConnectionError(f"db-{tup['n'] % 2}:5432 refused") if tup["n"] % 50 else KeyError("rare")

    builder = TopologyBuilder("t", Config(outage_patience_secs=20, max_attempts=4))
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(800)), outputs=["n"]))
    builder.set_bolt("fickle", Fickle()).shuffle_grouping("numbers")
    topology = builder.build()
    engine, error_log = LocalEngine(topology), ErrorLog(topology.config)
    while not engine.coordinator.finished:
        engine.now_ms += 250
        promotion = engine.step()
        if promotion is not None:
            error_log.promotion(promotion)
        else:
            engine.now_ms = max(engine.now_ms, engine.next_due_ms() or 0)
    out, spent = [line for line in announced(caplog) if line.startswith("bolt ")]
    assert "bolt 'fickle' fails nearly everything it gets, " in out
    assert "most often because of 'ConnectionError: db-1:5432 refused' (" in out
    assert "it now gets only about 10 messages at a time, with waits of up to 30 s" in out
    assert "after 20 s (outage_patience_secs), when failures count as attempts again" in out
    assert "messages without attempts left are given up" in spent


def test_a_wait_for_max_spout_pending_is_logged_once_for_each_component(caplog: pytest.LogCaptureFixture) -> None:
    error_log = ErrorLog(Config())
    for waits in ({"a": "a waits"}, {}, {"a": "a waits longer", "b": "b waits"}):
        error_log.full(waits)
    assert [record.getMessage() for record in caplog.records] == ["a waits", "b waits"]
