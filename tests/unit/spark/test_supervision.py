"""A query that ends, and the lives of a topology: which are started again, when, and what is told of it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from sparkbolt.errors import CheckpointError, EngineError, SparkboltError, StateError

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError

from sparkbolt.base.exceptions import line_of
from sparkbolt.spark import supervisor as supervisor_module
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.session import JVM_IS_GONE, SESSION_IS_STOPPED, check_usable, why_gone
from tests.unit.spark.lives import NO_WORKER, Lives, NoLock, SparkSaysError, thrown
from tests.unit.spark.lives import start as start


def test_an_open_that_raises_once_after_a_restart_is_not_mistaken_for_another_driver(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(lambda number: ConnectionError("the broker is away") if number == 1 else None)
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running = start(lives)
        lives.await_begun(1).query.end(ValueError("a query may end"))
        again = lives.await_begun(2)
    assert again.coordinator.life == 2
    assert running.failure is None
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "query failed: ValueError: a query may end; it is started again in 0.01 s (1 of 5)",
        "query failed: ConnectionError: the broker is away; it is started again in 0.02 s (2 of 5)",
    ]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_user_code_that_exits_does_not_end_the_supervisor(
    start: Any, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    lives = Lives(lambda number: error if number == 1 else None)
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running = start(lives)
        lives.await_begun(1).query.end(ValueError("a query may end"))
        assert lives.await_begun(2).coordinator.life == 2
    assert running.failure is None
    assert f"query failed: {line_of(error)}; it is started again" in caplog.records[-1].getMessage()


def test_a_takeover_of_the_checkpoint_by_another_driver_is_still_detected(start: Any, tmp_path: Path) -> None:
    lives = Lives()
    running = start(lives)
    life = lives.await_begun(1)
    NoLock(tmp_path).begin_life()
    life.query.end(ValueError("a query may end"))
    running._supervisor._thread.join(30)
    assert "was taken over by another driver (life 1 began, this one is 0)" in running.failure


def test_a_query_stopped_from_outside_is_not_restarted(start: Any) -> None:
    lives = Lives()
    running = start(lives)
    lives.await_begun(1).query.end()
    running._supervisor._thread.join(30)
    assert running.failure.startswith("the query was stopped by somebody else")
    assert len(lives.begun) == 1


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StateError("bolt 'count': attribute 'socket' cannot be kept"), False),
        (CheckpointError("plans/3-0 is missing"), False),
        (EngineError("module 'x' is missing on the executors"), False),
        (SparkboltError("something"), True),
        (ConnectionError("sparkbolt.errors.StateError: a text that only looks like one"), True),
    ],
)
def test_restart_of_a_query_depends_on_the_type_of_error_that_ended_it(
    start: Any, error: Exception, again: bool
) -> None:
    lives = Lives()
    running = start(lives)
    life = lives.await_begun(1)
    life.failure = query_failure(error)
    life.query.end(RuntimeError("whatever Spark made of it"))
    if again:
        lives.await_begun(2)
        assert running.failure is None
    else:
        running._supervisor._thread.join(30)
        assert running.failure == f"{error} (not started again: it would fail again)"


def test_a_python_process_of_spark_that_fails_to_start_costs_no_restart(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives()
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running = start(lives, restarts_max=1)
        for number in range(1, 4):
            lives.await_begun(number).query.end(
                SparkSaysError(thrown("x.StreamingQueryException", "x.Stream", NO_WORKER))
            )
        lives.await_begun(4).query.end(ValueError("a query may end"))
        lives.await_begun(5)
    assert running.failure is None
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split("; ")[1] for line in lines] == [
        "it is started again in 0.01 s (costs no restart)",
        "it is started again in 0.02 s (costs no restart)",
        "it is started again in 0.04 s (costs no restart)",
        "it is started again in 0.01 s (1 of 1)",
    ]
    assert lines[0].startswith(
        "query failed: Spark has waited 10 s in vain for a Python process to start (Python worker"
    )


def test_a_python_process_that_never_starts_is_waited_for_as_long_as_an_outage(start: Any) -> None:
    lives = Lives()
    running = start(lives, outage_patience_secs=0.001)
    lives.await_begun(1).query.end(SparkSaysError(NO_WORKER))
    lives.await_begun(2).query.end(SparkSaysError(NO_WORKER))
    running._supervisor._thread.join(30)
    assert running.failure.endswith("(so for 0.001 s, outage_patience_secs)")
    assert len(lives.begun) == 2


class DeadJvm:
    """What py4j gives when nobody listens any more."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


def stopped(java: Any) -> Any:
    """A session whose JVM lives, and whose context PySpark knows as that."""
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=MagicMock(), _jsc=java))


def context(is_stopped: bool) -> Any:
    """What PySpark knows as a context."""
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: is_stopped))


@pytest.mark.parametrize(
    ("session", "told"),
    [
        (SimpleNamespace(sparkContext=SimpleNamespace(_jvm=DeadJvm(), _jsc=None)), JVM_IS_GONE),
        (stopped(DeadJvm()), JVM_IS_GONE),
        (stopped(None), SESSION_IS_STOPPED),
        (stopped(context(is_stopped=True)), SESSION_IS_STOPPED),
    ],
)
def test_a_dead_jvm_and_a_stopped_session_are_reported_at_once_in_one_sentence(
    start: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, session: Any, told: str
) -> None:
    lives = Lives()
    running = start(lives)
    monkeypatch.setattr(supervisor_module, "why_gone", lambda _: why_gone(session))
    lives.await_begun(1).query.end(Py4JError("An error occurred while calling getBroadcastThreshold"))
    running._supervisor._thread.join(30)
    assert running.failure == told
    assert repr(running).startswith("<RunningTopology 't': failed, ")
    assert running.progress().sentence == "no micro-batch runs"
    assert caplog.records == []
    with pytest.raises(EngineError, match="start the topology again with the same checkpoint"):
        check_usable(session)
    check_usable(stopped(context(is_stopped=False)))
