"""The commands for topologies that run elsewhere, on real Spark: a detached topology is seen, changed and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_SECS

ROOT = Path(__file__).parents[2]
MODULE = """
import logging

from sparkbolt import BasicBolt, Bolt, PartitionedSpout, Range, TopologyBuilder


class Numbers(PartitionedSpout):
    outputs = ["number"]

    def next_ranges(self, progress, budget):
        start = progress.get("n", 0)
        return [Range(0, "n", start, start + 10)] if start < self.end else []

    def __init__(self, end=20):
        self.end = end

    def open(self, context):
        print("the spout opens")

    def read(self, range_):
        for number in range(range_.start, range_.end):
            yield number, [number]


class Printing(BasicBolt):
    def execute(self, tup, collector):
        if tup["number"] == 3:
            logging.getLogger("mine").warning("three came")
        if tup["number"] == 7:
            raise ValueError("seven is no good")
        print("number", tup["number"])


class Holding(Bolt):
    def prepare(self, context):
        self.held = []

    def execute(self, tup, collector):
        self.held.append(tup)


def build(bolt):
    builder = TopologyBuilder("numbers")
    builder.set_spout("source", Numbers(), max_attempts=1)
    builder.set_bolt("bolt", bolt).global_grouping("source")
    return builder


def printing():
    return build(Printing())


def holding():
    return build(Holding())
"""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Command:
    """Runs ``sparkbolt`` with a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SPARKBOLT_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sparkbolt", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECS,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("list", "--all", "--json").splitlines()]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    (tmp_path / "numbered.py").write_text(MODULE)
    found = Command(tmp_path)
    yield found
    for entry in found.entries():
        if entry["control"] is not None:
            os.kill(entry["pid"], signal.SIGKILL)


def await_lines(command: Command, text: str, *arguments: str) -> list[dict[str, Any]]:
    """The lines of the log, as soon as one of them contains ``text``."""
    with subprocess.Popen(
        [sys.executable, "-m", "sparkbolt", "tail", "numbers", "-f", "--last", "1000", "--json", *arguments],
        cwd=command.folder,
        env=command.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        found = []
        for line in follower.stdout:
            found.append(json.loads(line))
            if text in found[-1]["text"]:
                break
        follower.send_signal(signal.SIGINT)
        follower.stdout.read()
        assert follower.wait(PATIENCE_SECS) == 0
    return found


def test_a_detached_topology_is_listed_followed_deactivated_and_killed_with_nothing_left(command: Command) -> None:
    said = command("run", "numbered:printing", "--master", "local[2]", "--checkpoint", "state", "--detach")
    assert "numbers is up; " in said
    while (entry := command.entries()[0])["state"] == "starting":  # a list is up to a beat late
        threading.Event().wait(0.1)
    assert (entry["name"], entry["state"], entry["checkpoint"]) == ("numbers", "active", str(command.folder / "state"))
    assert os.getsid(entry["pid"]) == entry["pid"] != os.getsid(0)
    assert f"pid {entry['pid']} on " in command("list")

    lines = await_lines(command, "number 19")
    assert "the spout opens" in [line["text"] for line in lines]
    [three] = [line for line in lines if line["text"] == "mine: three came"]
    assert (three["level"], three["component"], three["task"]) == ("WARNING", "bolt", 0)
    [printed] = [line for line in lines if line["text"] == "number 4"]
    assert (printed["level"], printed["component"], printed["task"]) == ("PRINT", "bolt", 0)
    given_up = await_lines(command, "seven is no good", "bolt")[-1]
    assert (given_up["component"], given_up["task"]) == ("bolt", 0)

    assert "bolt" in command("stats", "numbers", "--window", "all")
    assert json.loads(command("stats", "numbers", "bolt", "--window", "all", "--json"))["numbers"]["executed"] >= 20
    assert "no component 'blot': did you mean 'bolt'?" in command("stats", "numbers", "blot", code=2)

    command("deactivate", "numbers")
    while command.entries()[0]["state"] != "inactive":
        threading.Event().wait(0.1)
    assert "numbers has ended, and nothing is left" in command("kill", "numbers", "--wait", "60s")
    [entry] = command.entries()
    assert (entry["state"], entry["exit_code"], entry["control"]) == ("ended", 3, None)  # a message was set aside
    assert "no topology runs" in command("list")
    assert "does not run" in command("deactivate", "numbers", code=1)


def test_a_kill_that_leaves_trees_open_ends_with_4(command: Command) -> None:
    command("run", "numbered:holding", "--master", "local[2]", "--checkpoint", "state", "--detach", "--log-format=json")
    while command.entries()[0]["gist"]["open_trees"] < 20:
        pass
    assert "left for replay" in command("kill", "numbers", "--wait", "0", code=4)
    [entry] = command.entries()
    assert (entry["state"], entry["exit_code"]) == ("ended", 4)


def test_a_topology_that_fails_before_it_is_up_shows_the_end_of_its_log(command: Command) -> None:
    (command.folder / "state").mkdir()
    (command.folder / "state" / "topology").write_text("damaged")
    said = command(
        "run",
        "numbered:printing",
        "--master",
        "local[2]",
        "--checkpoint",
        "state",
        "--detach",
        "--log-dir",
        "log",
        code=1,
    )
    assert "numbers did not come up (exit code 1); the end of its log:\n" in said
    assert "ERROR    | failed after " in said
    assert (command.folder / "log" / "numbers.log").exists()
