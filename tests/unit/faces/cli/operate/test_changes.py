"""``activate``, ``kill``, ``set`` and the like: what is asked of a topology, and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkbolt.control.documents import Answer, TopologyState
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.operate import verb_commands
from tests.unit.control.fake import FakeOperator
from tests.unit.control.shop import gist

ID = "orders-7-1767261600"

REBALANCE = {**dict.fromkeys(("wait_secs", "num_workers", "executors", "spark_partitions")), "reset": False}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeOperator:
    found = FakeOperator()
    monkeypatch.setattr(verb_commands, "operator_of", lambda options: found)
    monkeypatch.setattr(verb_commands, "by", lambda: "ann")
    return found


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["activate", "orders"], {}),
        (["deactivate", ID], {}),
        (["restart", "orders"], {}),
        (["kill", "orders"], {"wait_secs": None}),
        (["set", "orders", "log-level", "debug"], {"key": "log-level", "value": "debug", "component": None}),
        (
            ["set", "orders", "max-spout-pending", "10", "--component", "orders"],
            {"key": "max-spout-pending", "value": "10", "component": "orders"},
        ),
        (
            ["trace", "orders", "--message-id", "orders-0@42"],
            {"message": "orders-0@42", "component": None, "stop": False},
        ),
        (
            ["trace", "orders", "--message-id", "7", "--spout", "orders", "--stop"],
            {"message": "7", "component": "orders", "stop": True},
        ),
        (
            ["rebalance", "orders", "-w", "10", "-n", "2", "-e", "revenue=4", "-e", "validate=3"],
            {**REBALANCE, "wait_secs": 10.0, "num_workers": 2, "executors": {"revenue": 4, "validate": 3}},
        ),
        (["rebalance", "orders", "--reset"], {**REBALANCE, "reset": True}),
        (["rebalance", "orders"], REBALANCE),
    ],
)
def test_a_command_sends_its_request_as_the_user_and_prints_the_answer(
    fake: FakeOperator, capsys: pytest.CaptureFixture[str], arguments: list[str], given: dict[str, Any]
) -> None:
    assert main(arguments) == 0
    assert fake.asked == [(arguments[0], ID, given, "ann")]
    assert capsys.readouterr().out == f"{arguments[0]} of orders\n"


def test_refused_command_exits_with_code_1_and_reports_on_standard_error(
    fake: FakeOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deactivate", "stock"]) == 1
    said = f"sparkbolt: topology 'stock' does not run: {fake.find('stock')['why']}\n"
    assert capsys.readouterr() == ("", said)
    fake.answers["set"] = Answer(done=False, refused=True, text="there is no setting 'log-levle'")
    assert main(["set", "orders", "log-levle", "debug"]) == 1
    fake.answers["kill"] = Answer(done=False, refused=True, text="no")
    assert main(["kill", "orders", "--wait", "3s"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["activate", "x"],
        ["deactivate", "x"],
        ["kill", "x"],
        ["restart", "x"],
        ["set", "x", "k", "v"],
        ["rebalance", "x"],
    ],
)
def test_an_unknown_name_ends_with_exit_code_2(
    fake: FakeOperator, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("sparkbolt: no topology 'x' is registered in /var/lib/sparkbolt")
    assert fake.asked == []


# kill --wait


def ending(fake: FakeOperator, after: int, **how: Any) -> Callable[[float], None]:
    """A sleep during which, after some times, ``orders`` ends."""
    left = [after]

    def sleep(secs: float) -> None:
        left[0] -= 1
        if left[0] == 0:
            fake.known[0].update(how)  # type: ignore[typeddict-item]

    return sleep


ENDED = {"state": TopologyState.ENDED, "why": "killed by ann"}


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ({**ENDED, "exit_code": 0}, 0, "orders has ended, and nothing is left"),
        ({**ENDED, "exit_code": None, "gist": gist()}, 0, "orders has ended, and nothing is left"),
        (
            {**ENDED, "exit_code": None, "checkpoint": None, "gist": gist(open_trees=2)},
            4,
            "orders has ended, and 2 open trees are lost, because it has no checkpoint",
        ),
        (
            {**ENDED, "exit_code": None, "drained": False, "gist": gist()},
            4,
            "orders has ended, and an unfinished micro-batch is left for replay",
        ),
        ({"state": TopologyState.DEAD, "why": None}, 1, "orders has ended with an error (dead)"),
    ],
)
def test_exit_code_of_kill_wait_shows_whether_anything_is_left(
    fake: FakeOperator, capsys: pytest.CaptureFixture[str], how: dict[str, Any], code: int, said: str
) -> None:
    clock = iter(range(1000))
    assert verb_commands.await_end(fake, ID, 30.0, lambda: next(clock), ending(fake, 3, **how)) == code  # type: ignore[arg-type]
    assert capsys.readouterr().out == f"{said}\n"


def test_kill_wait_gives_up_with_exit_code_4_and_says_how_to_end_the_process(
    fake: FakeOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 10))
    assert verb_commands.await_end(fake, ID, 30.0, lambda: next(clock), lambda secs: None) == 4  # type: ignore[arg-type]
    assert "orders has not ended after 30 s" in capsys.readouterr().out


def test_kill_wait_gives_open_trees_the_requested_time(fake: FakeOperator, capsys: pytest.CaptureFixture[str]) -> None:
    change = fake.change

    def killed(topology: str, verb: str, /, **arguments: Any) -> Answer:
        answer = change(topology, verb, **arguments)
        fake.known[0].update(ENDED | {"exit_code": 0})  # type: ignore[typeddict-item]
        return answer

    fake.change = killed  # type: ignore[method-assign]
    assert main(["kill", "orders", "--wait", "0"]) == 0
    assert fake.asked == [("kill", ID, {"wait_secs": 0.0}, "ann")]
    waiting = "waiting until orders has ended, for 30 s at most"
    assert capsys.readouterr().out == f"kill of orders\n{waiting}\norders has ended, and nothing is left\n"
