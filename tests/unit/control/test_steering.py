"""Requests to a running topology: what is done, what is remembered, and what is refused."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sparkbolt.control.books import events_in
from sparkbolt.control.documents import ALL_TIME, TopologyState, refused
from sparkbolt.control.intent import TRACES_MAX, Intent, Scale
from sparkbolt.control.steering import Steering
from sparkbolt.driver.overrides import TraceWish
from sparkbolt.errors import ConfigError
from tests.unit.control.test_home import wait_for
from tests.unit.control.topologies import FakeRunning, entry_of, words


@pytest.fixture
def started() -> Iterator[Any]:
    begun: list[Steering] = []

    def start(running: FakeRunning, wait_secs: float = 30.0) -> Steering:
        steering = Steering(running, entry=entry_of, now_ms=lambda: 60_000, wait_secs=wait_secs)
        steering.apply_first()
        steering.begin()
        begun.append(steering)
        return steering

    yield start
    for steering in begun:
        steering.end()


def test_a_deactivated_topology_stays_deactivated_after_a_restart(
    started: Any, caplog: pytest.LogCaptureFixture
) -> None:
    running = FakeRunning()
    answer = started(running).ask("deactivate", {}, "alice")
    assert answer["done"]
    assert "inactive" in answer["text"]
    assert not running.active
    assert json.loads(running.files["control"])["active"] is False
    again = FakeRunning(files=running.files)
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        steering = started(again)
    assert not again.active
    assert "starts inactive, because alice deactivated it" in caplog.text
    assert steering.document()["entry"]["why"] == "deactivated by alice"
    assert steering.ask("activate", {}, "bob")["done"]
    assert again.active
    third = FakeRunning(files=running.files)
    started(third)
    assert third.active


def test_command_that_cannot_be_stored_is_refused(started: Any, caplog: pytest.LogCaptureFixture) -> None:
    running = FakeRunning()
    steering = started(running)
    running.full = True
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        answer = steering.ask("deactivate", {}, "alice")
    assert answer["refused"]
    assert "No space left on device" in answer["text"]
    assert running.active
    assert steering.intent.active


def test_an_answer_does_not_wait_for_a_busy_topology_which_acts_later(started: Any) -> None:
    running = FakeRunning()
    steering = started(running, wait_secs=0.05)
    with running.busy:
        answer = steering.ask("deactivate", {}, "alice")
        assert (answer["done"], answer["refused"]) == (False, False)
        assert answer["text"].startswith("accepted; the topology is busy")
        assert json.loads(running.files["control"])["active"] is False  # but it is remembered already
        assert steering.ask("document", {}, "bob")["live"]
        assert running.active
    assert wait_for(lambda: not running.active)


def test_a_kill_is_accepted_at_once_and_not_remembered(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    answer = steering.ask("kill", {"wait_secs": 5}, "alice")
    assert (answer["done"], answer["refused"]) == (False, False)
    assert "2 open tree(s) have up to 5 s" in answer["text"]
    steering.ask("kill", {}, "alice")
    assert running.killed == [5, 30]  # the message timeout
    assert steering.ask("activate", {}, "bob")["text"] == "the topology was killed and is ending"
    for verb, arguments in {
        "rebalance": {},
        "restart": {},
        "set": {"key": "log-level", "value": "debug"},
        "trace": {"message": "7"},
    }.items():
        assert steering.ask(verb, arguments, "bob") == refused("the topology was killed and is ending"), verb
    assert "control" not in running.files
    with pytest.raises(ConfigError, match="wait_secs must be a number of seconds"):
        steering.ask("kill", {"wait_secs": -1}, "alice")


def test_a_restart_is_carried_out_and_noted(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    steering.ask("restart", {}, "alice")
    assert running.restarts == 1
    assert [(event["kind"], event["by"]) for event in steering.events.all()][-1] == ("restarted", "alice")


def test_a_setting_applies_at_once_and_in_the_next_run(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    for key, value, component in (
        ("max-spout-pending", "7", "lines"),
        ("micro-batch-target", "250", None),
        ("message_timeout_secs", "12.5", None),
        ("max-attempts", "2", None),
    ):
        answer = steering.ask("set", {"key": key, "value": value, "component": component}, "alice")
        assert answer["done"], answer
    applies = running.overridden[-1]
    assert applies.max_spout_pending == {"lines": 7}
    assert (applies.micro_batch_target_ms, applies.message_timeout_secs) == (250, 12.5)
    again = FakeRunning(files=running.files)
    started(again)
    assert again.overridden == [applies]
    settings = steering.document()["settings"]
    assert (settings["max_spout_pending lines"], settings["message_timeout_secs"]) == (7, 12.5)
    assert steering.ask("set", {"key": "max-spout-pending", "value": "default", "component": "lines"}, "a")["done"]
    assert running.overridden[-1].max_spout_pending == {}


def test_log_level_changes_and_is_restored_at_the_end(started: Any) -> None:
    logger, before = logging.getLogger("sparkbolt"), logging.getLogger("sparkbolt").level
    steering = started(FakeRunning())
    assert steering.ask("set", {"key": "log-level", "value": "DEBUG"}, "alice")["done"]
    assert logger.level == logging.DEBUG
    steering.end()
    assert logger.level == before


@pytest.mark.parametrize(
    ("key", "value", "component", "text"),
    [
        (
            "fuse",
            "no",
            None,
            "cannot be changed while the topology runs; those that can are log-level, max-spout-p",
        ),
        ("max-spout-pending", "3", "split", "does not apply to 'split': expected one of lines"),
        ("max-spout-pending", "3", "lnes", "there is no component 'lnes': did you mean 'lines'?"),
        ("message-timeout", "nan", None, "expected a number of seconds from 0.001 to 31,622,400"),
        ("message-timeout", "1e308", None, "from 0.001 to 31,622,400 (a year), got '1e308'"),
        ("max-attempts", "1" + "0" * 10, None, "expected a whole number of at least 1"),
        ("log-level", "loud", None, "expected one of debug, info, warning, error"),
    ],
)
def test_invalid_setting_is_refused_with_the_valid_ones(
    started: Any, key: str, value: str, component: str | None, text: str
) -> None:
    running = FakeRunning()
    answer = started(running).ask("set", {"key": key, "value": value, "component": component}, "alice")
    assert answer["refused"]
    assert text in answer["text"]
    assert "control" not in running.files


def test_a_rebalance_is_remembered_before_it_begins_and_says_what_moves(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    answer = steering.ask("rebalance", {"executors": {"split": 4}, "wait_secs": 10, "spark_partitions": 3}, "alice")
    assert answer["text"].startswith("the topology is being rebalanced: bolt 'split' goes on: it has 4 tasks and had 2")
    assert running.rebalanced == [({"split": 4}, 3, "rebalanced by alice")]
    assert Intent.loads(running.files["control"]).rebalanced(words()).components["split"].parallelism == 4
    assert steering.ask("rebalance", {"executors": {"split": 2}}, "alice")["refused"] is False
    assert "did you mean 'split'" in steering.ask("rebalance", {"executors": {"spilt": 2}}, "alice")["text"]
    assert "Spark sets the number of processes" in steering.ask("rebalance", {"num_workers": 3}, "alice")["text"]


def test_a_savepoint_has_a_name_and_an_event_that_says_how_it_went(started: Any) -> None:
    steering = started(FakeRunning())
    assert steering.ask("savepoint", {"name": "mid"}, "alice")["text"] == "savepoint /state/savepoints/mid"
    assert "No space left on device" in steering.ask("savepoint", {"name": "full"}, "alice")["text"]
    named = steering.ask("savepoint", {}, "alice")["text"]
    assert re.fullmatch(r"savepoint /state/savepoints/\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ", named), named
    events = [(event["kind"], event["by"]) for event in steering.events.all() if event["kind"].startswith("savepoint")]
    assert events == [("savepoint", "alice"), ("savepoint failed", "alice"), ("savepoint", "alice")]


def test_a_rebalance_that_changes_nothing_or_cannot_be_is_not_remembered(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    answer = steering.ask("rebalance", {"executors": {"split": 2}}, "alice")
    assert answer["done"]
    assert answer["text"].startswith("no change is needed")
    assert steering.ask("rebalance", {"executors": {"split": 0}}, "alice")["refused"]
    assert running.rebalanced == []
    assert "control" not in running.files


def test_a_rebalance_can_be_forgotten_until_something_is_committed_with_it(started: Any) -> None:
    running = FakeRunning(files={"control": Intent(executors={"split": 2}).dumps()})
    steering = started(running)

    def remembered() -> Intent:
        return Intent.loads(running.files["control"])

    steering.ask("rebalance", {"executors": {"split": 4}}, "alice")
    assert remembered().before == Scale({"split": 2})
    steering.forget_rebalance()
    assert remembered() == Intent(executors={"split": 2})
    steering.ask("rebalance", {"executors": {"split": 4}}, "alice")
    steering.settle_rebalance()
    assert wait_for(lambda: remembered().before is None, 30)
    steering.forget_rebalance()
    assert remembered() == Intent(executors={"split": 4})
    assert steering.ask("rebalance", {"reset": True}, "alice")["text"].startswith("no change is needed")
    assert remembered() == Intent(), "its code has these numbers"


def test_messages_are_traced_from_now_on_but_not_too_many(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    answer = steering.ask("trace", {"message": "a.txt@40", "component": "lines"}, "alice")
    assert answer["done"]
    assert running.overridden[-1].traces == (TraceWish("a.txt@40", "lines"),)
    for number in range(TRACES_MAX):
        answer = steering.ask("trace", {"message": str(number)}, "alice")
    assert "a.txt@40 is no longer traced, because the limit is 20 messages" in answer["text"]
    assert len(running.overridden[-1].traces) == TRACES_MAX
    assert steering.ask("trace", {"message": "3", "stop": True}, "alice")["done"]
    assert TraceWish("3") not in running.overridden[-1].traces
    assert steering.ask("trace", {"message": "1", "component": "split"}, "a")["refused"]


def test_a_document_has_all_that_is_known_and_is_json(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    steering.errors.add("split", 1, "ValueError: no", "Traceback", 50_000)
    steering.errors.add("split", 0, "ValueError: no", None, 51_000)
    document = json.loads(json.dumps(steering.document()))
    assert document["live"]
    assert document["entry"]["state"] == TopologyState.ACTIVE
    assert document["entry"]["gist"]["acked"] == 3
    kinds = {one["id"]: (one["kind"], one["level"], one["parallelism"]) for one in document["components"]}
    assert kinds == {"lines": ("spout", 0, 1), "split": ("bolt", 1, 2), "__acker": ("system", 2, 2)}
    [into] = document["components"][1]["inputs"]
    own = {"component": "lines", "stream": "default", "grouping": "FIELDS", "fields": ["line"], "feedback": False}
    assert into == own
    assert document["windows"][ALL_TIME]["components"]["split"]["executed"] == 4
    assert document["now"]["pending"] == {"lines": 2}
    [error] = document["errors"]
    assert (error["count"], error["task"], error["traceback"]) == (2, 0, "Traceback")
    assert [event["kind"] for event in document["events"]] == ["started"]


def test_events_are_kept_across_restarts(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    steering.ask("deactivate", {}, "alice")
    steering.end()
    assert wait_for(lambda: "events" in running.files)
    again = started(FakeRunning(files=running.files))
    assert [(event["kind"], event["by"]) for event in again.events.all()] == [
        ("started", None),
        ("deactivated", "alice"),
        ("started", None),
    ]


def kinds_in(running: FakeRunning) -> list[str]:
    return [event["kind"] for event in events_in(running.files.get("events", b""))]


def test_acknowledged_command_is_in_the_checkpoint_and_survives_a_kill(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    assert steering.ask("note", {"kind": "letters", "text": "1 letter(s) replayed"}, "alice")["done"]
    assert kinds_in(running) == ["started", "letters"]
    assert steering.ask("restart", {}, "alice")["text"]
    assert kinds_in(running) == ["started", "letters", "restarted"]


def test_listeners_are_notified_when_a_request_has_changed_something(started: Any) -> None:
    running = FakeRunning()
    steering = started(running)
    told: list[TopologyState] = []
    steering.listeners.append(lambda: told.append(running.look(0.0).state))
    steering.ask("deactivate", {}, "alice")
    assert told[-1] == TopologyState.INACTIVE
    steering.ask("activate", {}, "alice")
    assert told[-1] == TopologyState.ACTIVE


def test_a_topology_that_ends_accepts_no_more_requests(started: Any) -> None:
    steering = started(FakeRunning())
    steering.end()
    assert "is ending" in steering.ask("activate", {}, "alice")["text"]
