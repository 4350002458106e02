"""Topologies on Spark are operated: found, followed, steered and killed, by commands and from other threads."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import Topology
from sparkbolt.control.documents import TopologyState
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.display import PlainLines
from sparkbolt.faces.cli.program import RunOutcome, perform
from tests.patience import PATIENCE_SECS
from tests.spark import operated
from tests.spark.asked import Asked

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Command:
    """``sparkbolt`` in this process, with the home of the test."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        self.capsys.readouterr()
        found = main(arguments)
        out, err = self.capsys.readouterr()
        assert found == code, out + err
        return out + err

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("list", "--all", "--json").splitlines()]


@pytest.fixture
def command(home: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def asked(home: Path) -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.end()


class Shown(PlainLines):
    """What a run shows, apart from what commands print."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        super().__init__(self.text)

    def printed(self, text: str) -> None:
        self.text.write(text)


@pytest.fixture
def start(spark: Any, tmp_path: Path, asked: Asked) -> Iterator[Callable[[Topology], tuple[Future[RunOutcome], Shown]]]:
    """Run a topology in a thread, as ``sparkbolt run`` does, with the checkpoint ``state``."""
    with ThreadPoolExecutor() as threads:

        def start(topology: Topology) -> tuple[Future[RunOutcome], Shown]:
            shown = Shown()
            return threads.submit(perform, topology, shown, spark=spark, checkpoint=tmp_path / "state"), shown

        yield start
        asked.end()


class Follower(io.StringIO):
    """The standard output of somebody who presses Ctrl-C when some words come."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.words in text:
            raise KeyboardInterrupt
        return written


def followed(words: str, *arguments: str) -> list[dict[str, Any]]:
    """The lines of the log, as soon as one of them has these words."""
    with contextlib.redirect_stdout(Follower(words)) as out:
        assert main(["tail", "numbers", "-f", "--last", "1000", "--json", *arguments]) == 0
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_detached_topology_is_listed_followed_deactivated_and_killed_with_nothing_left(
    command: Command, asked: Asked, tmp_path: Path
) -> None:
    detach(tmp_path)
    asked.until(lambda found: found["entry"]["state"] == TopologyState.ACTIVE)
    [entry] = command.entries()
    is_listed_and_followed(command, entry, tmp_path)
    assert "It stays inactive after restarts" in command("deactivate", "numbers")
    asked.until(lambda found: found["entry"]["state"] == TopologyState.INACTIVE)
    assert "numbers has ended, and nothing is left" in command("kill", "numbers", "--wait", "60s")
    [ended] = command.entries()
    assert (ended["id"], ended["state"], ended["control"]) == (entry["id"], TopologyState.ENDED, None)
    assert ended["exit_code"] == 3, "a message was given up"
    assert "no topology is running" in command("list")
    assert "does not run" in command("deactivate", "numbers", code=1)


def detach(folder: Path) -> None:
    """Start the topology in a process of its own."""
    run = ["run", "tests.spark.operated:printing", "--master", "local[2]", "--checkpoint", str(folder / "state")]
    done = subprocess.run(
        [sys.executable, "-m", "sparkbolt", *run, "--detach"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "numbers is up; " in done.stdout


def is_listed_and_followed(command: Command, entry: dict[str, Any], folder: Path) -> None:
    assert (entry["name"], entry["checkpoint"]) == ("numbers", str(folder / "state"))
    assert os.getsid(entry["pid"]) == entry["pid"] != os.getsid(0)
    assert f"pid {entry['pid']} on " in command("list")

    lines = followed("number 19")
    assert "the spout opens" in [line["text"] for line in lines]
    [three] = [line for line in lines if line["text"] == "mine: three came"]
    assert (three["level"], three["component"], three["task"]) == ("WARNING", "bolt", 0)
    [printed] = [line for line in lines if line["text"] == "number 4"]
    assert (printed["level"], printed["component"], printed["task"]) == ("PRINT", "bolt", 0)
    given_up = followed("7 is no good", "bolt")[-1]
    assert (given_up["component"], given_up["task"]) == ("bolt", 0)

    peeked = [json.loads(line) for line in command("peek", "numbers", "source", "-n", "3", "--json").splitlines()]
    assert [(one["component"], one["stream"]) for one in peeked] == [("source", "default")] * 3
    matched = command("peek", "numbers", "bolt", "--match", "5", "-n", "1", "--for", "60s")
    assert "bolt[0] from source[0]  {'number': " in matched, "a bolt without streams shows what it gets"

    assert "bolt" in command("stats", "numbers", "--window", "all")
    assert json.loads(command("stats", "numbers", "bolt", "--window", "all", "--json"))["numbers"]["executed"] >= 20
    assert "no component 'blot': did you mean 'bolt'?" in command("stats", "numbers", "blot", code=2)


def test_a_topology_answers_while_a_bolt_sleeps_and_can_be_killed_during_the_sleep(
    asked: Asked, start: Callable[[Topology], tuple[Future[RunOutcome], Shown]], tmp_path: Path
) -> None:
    asleep = tmp_path / "asleep"
    run, _ = start(operated.sleeping(asleep))
    found = asked.until(lambda _: asleep.exists())
    name = found["entry"]["id"]
    assert not asked.operator.change(name, "deactivate", by="alice")["refused"]
    assert not asked.operator.change(name, "set", key="max-spout-pending", value="3", by="alice")["refused"]
    asked.until(lambda found: found["entry"]["state"] == TopologyState.INACTIVE)
    assert not asked.operator.change(name, "kill", wait_secs=0, by="alice")["refused"]
    assert run.result(PATIENCE_SECS).exit_code == 4
    assert asked.operator.find(name)["exit_code"] == 4


def test_a_kill_that_leaves_trees_open_after_its_wait_time_ends_with_exit_code_4(
    command: Command, asked: Asked, start: Callable[[Topology], tuple[Future[RunOutcome], Shown]]
) -> None:
    run, shown = start(operated.holding_first().build())
    name = asked.until(lambda found: found["now"]["open_trees"] > 0)["entry"]["id"]
    said = command("kill", "numbers", "--wait", "1s", code=4)
    assert "open tree(s) have up to 1 s to finish" in said
    assert "left for replay" in said
    assert run.result(PATIENCE_SECS).exit_code == 4
    assert ", killed by " in shown.text.getvalue()
    [entry] = command.entries()
    assert (entry["state"], entry["exit_code"]) == (TopologyState.ENDED, 4)
    ended = asked.operator.document(name)
    assert not ended["live"]
    assert ended["now"]["open_trees"] > 0
    assert asked.operator.stories(name, "open") != []
