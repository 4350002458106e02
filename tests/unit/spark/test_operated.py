"""A topology that is operated from outside: killed, restarted, and what it shows meanwhile; without Spark."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from sparkbolt.control.documents import TopologyState
from sparkbolt.errors import EngineError
from tests.unit.spark.lives import Lives, idle_running, topology
from tests.unit.spark.lives import start as start


def test_a_requested_restart_begins_another_life_and_is_no_failure(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives()
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        running = start(lives, restarts_max=0)
        lives.await_begun(1)
        running.restart("restarted by alice")
        assert lives.await_begun(2).coordinator.life == 1
        lives.begun[1].machine.promoted = True
        running.restart("restarted by alice")
        assert lives.await_begun(3).coordinator.life == 2
    assert running.failure is None
    assert "query failed" not in caplog.text
    assert caplog.text.count("restarted by alice") == 2


def test_a_query_that_fails_while_it_is_asked_to_restart_is_no_failure(start: Any) -> None:
    lives = Lives()
    running = start(lives, restarts_max=0)
    life = lives.await_begun(1)
    life.stop_query = lambda: life.query.end(ValueError("a job was cancelled"))
    running.restart("restarted by alice")
    lives.await_begun(2)
    assert running.failure is None


def test_a_killed_topology_drains_and_ends_and_its_waiters_are_notified(start: Any) -> None:
    lives = Lives()
    running = start(lives)
    lives.await_begun(1).coordinator.finished = False
    running.kill(30, "killed by alice")
    assert running._closed.wait(30)
    assert not running.is_running
    assert running.killed == "killed by alice"
    with pytest.raises(EngineError, match="topology 't' is not running: it was killed by alice"):
        running.await_finished()
    with pytest.raises(EngineError, match="was stopped"):
        running.restart("restarted by bob")


def test_a_second_kill_may_only_shorten_the_time(start: Any) -> None:
    lives = Lives()
    running = start(lives)
    life = lives.await_begun(1)
    life.coordinator.drained = False
    running.kill(1000, "killed by alice")
    assert running.look(0.0).state == TopologyState.KILLED
    with pytest.raises(EngineError, match="topology 't' was killed and is ending"):
        running.activate()
    running.kill(2000, "killed by bob")
    running.kill(0, "killed by bob")
    assert running._closed.wait(30)
    assert running.killed == "killed by alice"
    assert running.stop(drain=False) is False


def test_a_stopped_topology_drains_and_is_not_activated_again(start: Any) -> None:
    lives = Lives()
    running = start(lives)
    life = lives.await_begun(1)
    life.coordinator.drained = False
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    with running._changed:
        assert running._changed.wait_for(lambda: not running._lifecycle.emits, 30)
    view = running.look(0.0)
    assert (view.state, view.why) == (TopologyState.DRAINING, None)
    with pytest.raises(EngineError, match="topology 't' was asked to stop and is ending"):
        running.activate()
    life.coordinator.drained = True
    stopping.join(30)
    view = running.look(0.0)
    assert (view.state, view.why) == (TopologyState.ENDED, None)


def test_second_close_of_a_topology_waits_for_its_end(start: Any) -> None:
    lives = Lives()
    running = start(lives)
    lives.await_begun(1)
    running.kill(0, "killed by alice")
    running.close()
    assert running._closed.is_set()


def test_display_never_waits_for_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    running = idle_running(topology(), monkeypatch)
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with running._changed:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert not running.look(0.0).fresh
    assert not running.look(0.01).fresh
    release.set()
    thread.join()
    assert running.look(0.0).fresh
