"""The command on real Spark, as a person or a program uses it: a process, its output, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).parents[2]
MODULE = """
import threading
from collections import Counter
from pathlib import Path

from sparkbolt.core.worker.activity import Hangs
from sparkbolt.spark import running
from sparkbolt import BasicBolt, Bolt, PartitionedSpout, Range, TopologyBuilder
from sparkbolt.bolts import PrintBolt


class Numbers(PartitionedSpout):
    outputs = ["number"]

    def __init__(self, count):
        self.count = count

    def next_ranges(self, progress, budget):
        start = progress.get("n", 0)
        end = min(self.count, start + min(budget, 1000))
        return [Range(0, "n", start, end)] if end > start else []

    def finished(self, progress):
        return progress.get("n", 0) >= self.count

    def read(self, range_):
        for number in range(range_.start, range_.end):
            yield number, [number]


class Remainders(BasicBolt):
    outputs = ["remainder", "count"]

    def prepare(self, context):
        self.counts = Counter()

    def execute(self, tup, collector):
        remainder = tup["number"] % 3
        self.counts[remainder] += 1
        if tup["number"] == 0:
            print("a line of my own")
        collector.emit([remainder, self.counts[remainder]])


class Holding(Bolt):
    def prepare(self, context):
        self.held = []

    def execute(self, tup, collector):
        self.held.append(tup)


class Raising(BasicBolt):
    def execute(self, tup, collector):
        raise ValueError(f"{tup['number']} is no good")


def build(count, bolt, **settings):
    builder = TopologyBuilder("remainders")
    builder.set_spout("numbers", Numbers(count))
    builder.set_bolt("bolt", bolt, **settings).global_grouping("numbers")
    return builder


def counting():
    builder = build(30, Remainders())
    builder.set_bolt("print", PrintBolt()).shuffle_grouping("bolt")
    return builder


def endless():
    return build(1 << 40, Remainders())


def holding():
    return build(10, Holding())


class Hanging(Remainders):
    def execute(self, tup, collector):
        if tup["number"] == 7 and not Path("go").exists():
            threading.Event().wait()
        super().execute(tup, collector)


def hanging():
    running.Hangs = lambda: Hangs(hung_secs=3.0)
    return build(30, Hanging())


def raising():
    return build(10, Raising(), on_error="stop")
"""

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "remainders.py").write_text(MODULE)
    return tmp_path


@contextmanager
def sparkbolt(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command, as the leader of a process group of its own, as a shell starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkbolt", "run", *arguments, "--master", "local[2]"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def read_until(stream: IO[str] | None, part: str) -> str:
    assert stream is not None
    for line in stream:
        if part in line:
            return line
    raise AssertionError(f"no line with {part!r} came")


def ctrl_c(process: subprocess.Popen[str]) -> None:
    """What a terminal does: the signal goes to the whole process group."""
    os.killpg(process.pid, signal.SIGINT)


def events(lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.splitlines()]


def test_json_has_a_line_for_each_micro_batch_and_a_summary_and_nothing_else(folder: Path) -> None:
    with sparkbolt(folder, "remainders:counting", "--json") as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    *batches, summary = events(out)
    assert [event["event"] for event in batches] == ["micro_batch"] * len(batches)
    assert [event["micro_batch_id"] for event in batches] == list(range(len(batches)))
    assert all({"elapsed_s", "executed"} <= set(event) for event in batches)
    assert (summary["event"], summary["outcome"], summary["drained"]) == ("summary", "finished", True)
    numbers = {"emitted": 30, "acked": 30, "failed": 0, "pending": 0}
    assert numbers.items() <= summary["components"]["numbers"].items()
    assert {"emitted": 30, "executed": 30, "acked": 30}.items() <= summary["components"]["bolt"].items()
    printed = err.splitlines()
    assert "a line of my own" in printed
    assert sorted(line for line in printed if line != "a line of my own") == sorted(
        f"bolt[0] {{'remainder': {remainder}, 'count': {count}}}" for remainder in range(3) for count in range(1, 11)
    )


def test_ctrl_c_drains_and_is_exit_code_0(folder: Path) -> None:
    # A micro-batch may take as long as it takes on this machine.
    with sparkbolt(folder, "remainders:endless", "--json", "--drain", "1h") as process:
        read_until(process.stdout, '"micro_batch_id": 1,')
        ctrl_c(process)
        out, err = process.communicate()
    assert process.returncode == 0, err
    summary = events(out)[-1]
    assert (summary["outcome"], summary["drained"], summary["open_trees"]) == ("stopped", True, 0)
    assert summary["components"]["numbers"]["acked"] == summary["components"]["numbers"]["emitted"] > 1
    # Spark gives a Python process of its own ten seconds to start: a machine may take longer, and is told of it.
    assert [line for line in err.splitlines() if "failed to connect back" not in line] == ["a line of my own"]


def test_the_second_ctrl_c_leaves_trees_for_replay_and_is_exit_code_130(folder: Path) -> None:
    with sparkbolt(folder, "remainders:holding", "--checkpoint", "state") as process:
        read_until(process.stderr, "open 10")
        ctrl_c(process)
        read_until(process.stderr, "stopping: no new tuples, 10 open trees are being finished")
        ctrl_c(process)
        out, err = process.communicate()
    assert process.returncode == 130, err
    assert "10 trees left for replay" in err.splitlines()[-1]
    assert out == ""


def test_ctrl_c_breaks_off_a_call_that_hangs_and_the_next_run_does_its_micro_batch_again(folder: Path) -> None:
    with sparkbolt(folder, "remainders:hanging", "--checkpoint", "state", "--drain", "1s") as process:
        hung = read_until(process.stderr, "WARNING bolt[0] is in execute for")
        ctrl_c(process)
        out, err = process.communicate()
    assert "with [7] (tuple 8 of 30 of its frame), at remainders.py:" in hung
    assert process.returncode == 130, err
    assert err.splitlines()[-1].endswith(
        "micro-batch 0, which was broken off, left for replay (the next run with this checkpoint)"
    )
    with sparkbolt(folder, "remainders:hanging", "--checkpoint", "state", "--drain", "1s") as process:
        read_until(process.stderr, "remainders: running")
        ctrl_c(process)
        out, err = process.communicate()
    assert process.returncode == 130, "also before Spark has begun it again"
    assert "left for replay (the next run with this checkpoint)" in err.splitlines()[-1]
    (folder / "go").touch()
    with sparkbolt(folder, "remainders:hanging", "--checkpoint", "state", "--json") as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    components = events(out)[-1]["components"]
    assert {"emitted": 30, "acked": 30, "failed": 0}.items() <= components["numbers"].items()
    assert components["bolt"]["executed"] == 30


def test_a_failure_is_one_sentence_and_exit_code_1(folder: Path) -> None:
    with sparkbolt(folder, "remainders:raising", "--json") as process:
        out, err = process.communicate()
    assert process.returncode == 1, err
    summary = events(out)[-1]
    assert summary["outcome"] == "failed"
    assert "'bolt' raised" in summary["failure"]
    assert "is no good" in summary["failure"]
    assert "Traceback" not in err
