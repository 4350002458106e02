"""A topology on Spark that dies without a word, and goes on as it was left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparkbolt.control.documents import ALL_TIME, TopologyDocument, TopologyState
from sparkbolt.control.operator import Operator
from sparkbolt.spark.checkpoint_files import open_files
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MODULE = """
import time

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.spouts import GeneratorSpout


def numbers():
    number = 0
    while True:
        yield [number]
        number += 1


class Pass(BasicBolt):
    def execute(self, tup, collector):
        time.sleep(0.001)


def of(bolt):
    builder = TopologyBuilder("numbers", Config(max_spout_pending=50, message_timeout_secs=600))
    builder.set_spout("numbers", GeneratorSpout(numbers, ["number"]))
    builder.set_bolt("bolt", bolt).shuffle_grouping("numbers")
    return builder.build()


def passes():
    return of(Pass())

"""


class Programs:
    """Starts ``sparkbolt run`` and asks about what it runs."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.directory, self.home = directory, home
        (directory / "operated.py").write_text(MODULE)
        self.operator = Operator(open_files=open_files)
        self.begun: list[subprocess.Popen[bytes]] = []

    def run(self, what: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "sparkbolt", "run", f"operated:{what}", "--master", "local[1]"]
        path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        with (self.directory / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                [*command, "--checkpoint", "state"],
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": path},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.begun.append(process)
        return process

    def document(self, condition: Callable[[TopologyDocument], Any]) -> TopologyDocument:
        """What the topology itself answers, as soon as the condition holds."""
        until, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
        while True:
            entries = self.operator.topologies(ended=False) if self.home.exists() else []
            if entries:
                found = self.operator.document(entries[0]["id"])
                if found["live"] and condition(found):
                    return found
            ended = [process.poll() for process in self.begun]
            assert ended[-1] is None, (self.directory / "output.txt").read_text()
            assert time.monotonic() < until, (entries, (self.directory / "output.txt").read_text())
            pause.wait(0.1)

    def end(self, process: subprocess.Popen[bytes]) -> int:
        return process.wait(PATIENCE_SECS)


@pytest.fixture
def programs(tmp_path: Path, home: Path) -> Iterator[Programs]:
    one = Programs(tmp_path, home)
    yield one
    for process in one.begun:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()


def emitted(document: TopologyDocument) -> int:
    components = document["windows"][ALL_TIME]["components"]
    return components["numbers"]["emitted"] if "numbers" in components else 0


@pytest.mark.campaign
def test_a_topology_that_was_deactivated_stays_so_over_kill_9_and_a_home_that_was_removed_comes_back(
    programs: Programs,
) -> None:
    operator, first = programs.operator, programs.run("passes")
    programs.document(lambda found: emitted(found) > 0)
    shutil.rmtree(programs.home.rename(programs.directory / "removed"))
    programs.document(lambda found: True)
    assert not operator.deactivate("numbers", by="alice")["refused"]
    programs.document(lambda found: found["entry"]["state"] == TopologyState.INACTIVE)
    [entry] = operator.topologies()
    events = programs.directory / "state" / "events"
    programs.document(lambda found: events.exists() and "deactivated" in events.read_text())
    os.kill(first.pid, signal.SIGKILL)
    programs.end(first)
    [dead] = operator.topologies()
    assert (dead["id"], dead["state"]) == (entry["id"], TopologyState.DEAD)
    assert "is gone and has not reported how it ended" in str(dead["why"])

    second = programs.run("passes")
    found = programs.document(lambda found: found["entry"]["state"] == TopologyState.INACTIVE)
    assert found["entry"]["why"] == "deactivated by alice"
    before = emitted(found)
    assert not operator.restart("numbers", by="alice")["refused"]
    found = programs.document(lambda found: "restarted" in {event["kind"] for event in found["events"]})
    assert emitted(found) == before
    assert not operator.activate("numbers", by="bob")["refused"]
    found = programs.document(lambda found: emitted(found) > before)
    # Nobody knows which message comes next, so some are asked for of which one is sure to come.
    for ahead in range(8):
        message = f"generator-0@{emitted(found) + 100 * 2**ahead}"
        assert not operator.trace("numbers", message, by="bob")["refused"]
    programs.document(lambda found: operator.stories("numbers", "acked"))
    [story, *_] = operator.stories("numbers", "acked")
    assert [hop["component"] for hop in story["hops"]] == ["numbers", "bolt"]
    assert not operator.kill("numbers", by="bob")["refused"]
    assert programs.end(second) == 0
    newest, older = operator.topologies()
    assert (newest["state"], newest["why"], newest["exit_code"]) == (TopologyState.ENDED, "killed by bob", 0)
    assert older["state"] == TopologyState.DEAD
    kinds = [event["kind"] for event in operator.document(newest["id"])["events"]]
    assert kinds == [
        "started",
        "deactivated",
        "started",
        "restarted",
        "activated",
        *["traced"] * 8,
        "killed",
        "stopped",
    ]
