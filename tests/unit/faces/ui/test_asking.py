"""Many who ask the same cost as much as one, and one that hangs does not keep others from their answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from sparkbolt.control.documents import TopologyState
from sparkbolt.faces.ui import operator_calls as module
from sparkbolt.faces.ui.operator_calls import FRESH_SECS, AmbiguousTopology, Asking, LateAnswerError, UnknownTopology
from tests.unit.control.fake import FakeOperator
from tests.unit.control.shop import NOW_MS, entry


class Clock:
    def __init__(self) -> None:
        self.secs = 100.0

    def __call__(self) -> float:
        return self.secs


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def asking(operator: FakeOperator, clock: Clock) -> Asking:
    return Asking(operator, clock=clock)  # type: ignore[arg-type]  # a fake


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(coroutine)


async def all_of(*coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*coroutines, return_exceptions=True)


def test_twenty_simultaneous_requests_query_the_topology_once(asking: Asking, operator: FakeOperator) -> None:
    found = run(all_of(*(asking.document("orders") for _ in range(20))))
    assert [each["entry"]["name"] for each in found] == ["orders"] * 20
    assert operator.calls.count(("document", operator.known[0]["id"])) == 1
    assert operator.calls.count(("topologies", "")) == 1


def test_an_answer_is_shared_by_requests_within_a_second_and_not_later(
    asking: Asking, operator: FakeOperator, clock: Clock
) -> None:
    run(asking.document("orders"))
    clock.secs += FRESH_SECS / 2
    run(asking.document("orders"))
    assert len([call for call in operator.calls if call[0] == "document"]) == 1
    clock.secs += FRESH_SECS
    run(asking.document("orders"))
    assert len([call for call in operator.calls if call[0] == "document"]) == 2


def test_the_topology_is_asked_again_after_a_change(asking: Asking, operator: FakeOperator) -> None:
    run(asking.document("orders"))
    answer = run(asking.change("orders", "kill", wait_secs=3.0, by="ann"))
    run(asking.document("orders"))
    assert answer["done"]
    assert operator.asked == [("kill", operator.known[0]["id"], {"wait_secs": 3.0}, "ann")]
    assert len([call for call in operator.calls if call[0] == "document"]) == 2


def test_a_name_means_the_run_that_runs_or_else_the_newest(asking: Asking, operator: FakeOperator) -> None:
    operator.known.append(entry("stock", TopologyState.ENDED, 2, started_ms=NOW_MS - 5000))
    assert run(asking.entry("stock"))["id"] == operator.known[-1]["id"]
    assert run(asking.entry("orders"))["state"] == "active"


def test_a_name_that_two_runs_have_is_refused_with_their_ids(asking: Asking, operator: FakeOperator) -> None:
    operator.known.append(entry("orders", TopologyState.ACTIVE, 2))
    with pytest.raises(AmbiguousTopology, match=operator.known[-1]["id"]):
        run(asking.change("orders", "kill", by="ann"))
    assert operator.asked == []
    assert run(asking.change(operator.known[-1]["id"], "kill", by="ann"))["done"]


def test_a_hanging_topology_is_reported_and_others_answer(
    asking: Asking, operator: FakeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECS", 0.05)
    operator.gate, operator.hangs = threading.Event(), operator.known[0]["id"]
    questions = [asking.ask("orders", "stories", search=str(number)) for number in range(10)]
    found = run(all_of(*questions))
    assert all(isinstance(each, LateAnswerError) for each in found)
    assert len([call for call in operator.calls if call[0] == "stories"]) <= module.TOPOLOGY_CALLS_MAX
    monkeypatch.setattr(module, "ANSWER_SECS", 60.0)
    assert run(asking.document("stock"))["entry"]["name"] == "stock"
    operator.gate.set()


def test_a_question_that_takes_longer_is_given_its_own_time(
    asking: Asking, operator: FakeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECS", 0.05)
    may_answer, state = threading.Event(), operator.state

    def slowly(topology: str, as_of: int | None = None) -> Any:
        may_answer.wait(5)
        return state(topology, as_of)

    monkeypatch.setattr(operator, "state", slowly)
    threading.Timer(0.2, may_answer.set).start()
    assert run(asking.ask("orders", "state"))["micro_batch"] == 7


def test_a_change_that_was_not_answered_is_not_told_as_undone(
    asking: Asking, operator: FakeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHANGE_SECS", 0.05)
    operator.gate = threading.Event()
    with pytest.raises(LateAnswerError, match="the change may still apply"):
        run(asking.change("orders", "activate", by="ann"))
    operator.gate.set()


def test_a_topology_known_only_by_its_checkpoint_has_an_id_that_is_not_a_path(operator: FakeOperator) -> None:
    place = "/data/old orders"
    shown = {**operator.known[0], "id": place, "name": "old"}
    original = operator.document

    def document(topology: str) -> Any:
        return {**original("nightly"), "entry": shown} if topology == place else original(topology)

    operator.document = document  # type: ignore[method-assign]
    asking = Asking(operator, [place])  # type: ignore[arg-type]
    id_ = run(asking.topologies())[-1]["id"]
    assert "/" not in id_
    assert run(asking.document(id_))["entry"]["id"] == id_
    assert run(asking.document("old"))["entry"]["id"] == id_
    with pytest.raises(UnknownTopology):
        run(asking.document(place))


def test_a_checkpoint_that_cannot_be_read_hides_no_other(
    operator: FakeOperator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = operator.document

    def document(topology: str) -> Any:
        if topology == "/data/gone":
            raise OSError("the disk is away")
        return original(topology)

    operator.document = document  # type: ignore[method-assign]
    asking = Asking(operator, ["/data/gone"])  # type: ignore[arg-type]
    for _ in range(3):
        assert len(run(asking.topologies())) == len(operator.known)
    assert [record.getMessage() for record in caplog.records] == [
        "checkpoint /data/gone cannot be read, and is not listed until it can: the disk is away"
    ]


@pytest.mark.parametrize("name", ["nothing", "/etc", "../../etc/passwd", "file:///etc", "", "orders/../orders"])
def test_only_listed_items_are_requested(asking: Asking, operator: FakeOperator, name: str) -> None:
    with pytest.raises(UnknownTopology, match="no topology"):
        run(asking.document(name))
    assert [call for call in operator.calls if call[0] != "topologies"] == []
