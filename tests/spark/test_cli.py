"""``sparkbolt run`` on Spark: its output, Ctrl-C, and its exit code.

The tests run it in this process, with the session of all tests; one starts a program, as a shell does.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from sparkbolt.control.documents import TopologyState
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.display import Display, JsonLines, PlainLines
from sparkbolt.faces.cli.program import Limits, perform
from sparkbolt.spark import supervisor
from sparkbolt.worker.activity import Hangs
from tests.spark import operated
from tests.spark.asked import Asked

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class CtrlC(logging.Handler):
    """A stream and a log handler: this process gets Ctrl-C, once, when a line has these words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words, self.lines, self.pressed_at = words, [], ""

    def write(self, text: str) -> None:
        self.lines.append(text)
        if self.words in text and not self.pressed_at:
            self.pressed_at = text
            os.kill(os.getpid(), signal.SIGINT)

    def emit(self, record: logging.LogRecord) -> None:
        self.write(f"{record.levelname} {record.getMessage()}")


def events(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


@pytest.mark.usefixtures("spark")
def test_json_has_a_line_for_each_micro_batch_and_a_summary_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["run", "tests.spark.operated:counting", "--json", "--master", "local[2]"])
    out, err = capsys.readouterr()
    assert code == 0, err
    *batches, summary = events(out.splitlines())
    assert [event["event"] for event in batches] == ["micro_batch"] * len(batches)
    assert [event["micro_batch_id"] for event in batches] == list(range(len(batches)))
    assert all({"elapsed_s", "executed"} <= set(event) for event in batches)
    assert (summary["event"], summary["outcome"], summary["drained"]) == ("summary", "finished", True)
    numbers = {"emitted": 30, "acked": 30, "failed": 0, "pending": 0}
    assert numbers.items() <= summary["components"]["source"].items()
    assert {"emitted": 30, "executed": 30, "acked": 30}.items() <= summary["components"]["bolt"].items()
    printed = err.splitlines()
    assert "a line of my own" in printed
    assert sorted(line for line in printed if line != "a line of my own") == sorted(
        f"bolt[0] {{'remainder': {remainder}, 'count': {count}}}" for remainder in range(3) for count in range(1, 11)
    )


@pytest.mark.usefixtures("spark")
def test_a_failure_is_one_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", "tests.spark.operated:raising", "--json", "--master", "local[2]"])
    out, err = capsys.readouterr()
    assert code == 1, err
    summary = events(out.splitlines())[-1]
    assert summary["outcome"] == "failed"
    assert "'bolt' raised" in summary["failure"]
    assert "is no good" in summary["failure"]
    assert "Traceback" not in err


def test_ctrl_c_drains_the_topology_and_exits_with_code_0(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A micro-batch may take as long as it takes on this machine.
    terminal = CtrlC('"micro_batch_id": 1,')
    outcome = perform(
        operated.endless(), JsonLines(terminal), Limits(drain_secs=3600.0), spark=spark, checkpoint=tmp_path / "state"
    )
    assert outcome.exit_code == 0
    summary = events(terminal.lines)[-1]
    assert (summary["outcome"], summary["drained"], summary["open_trees"]) == ("stopped", True, 0)
    assert summary["components"]["source"]["acked"] == summary["components"]["source"]["emitted"] > 1
    assert "a line of my own" in capsys.readouterr().err.splitlines()


def test_ctrl_c_interrupts_a_hanging_call_and_the_next_run_repeats_its_micro_batch(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "Hangs", lambda: Hangs(hung_secs=3.0))
    go = tmp_path / "go"

    def run(display: Display) -> int:
        options = {"spark": spark, "checkpoint": tmp_path / "state"}
        return perform(operated.hanging(go), display, Limits(drain_secs=1.0), **options).exit_code

    terminal = CtrlC("WARNING bolt[0] has been in execute for")
    logging.getLogger("sparkbolt").addHandler(terminal)
    try:
        code = run(PlainLines(terminal))
    finally:
        logging.getLogger("sparkbolt").removeHandler(terminal)
    assert "with [7] (tuple 8 of 30 of its frame), at operated.py:" in terminal.pressed_at
    assert code == 130
    assert terminal.lines[-1].endswith(
        "micro-batch 0, which was cancelled, left for replay (the next run with this checkpoint)\n"
    )

    terminal = CtrlC("numbers: running")
    assert run(PlainLines(terminal)) == 130, "also before Spark has begun it again"
    assert "left for replay (the next run with this checkpoint)" in terminal.lines[-1]

    go.touch()
    terminal = CtrlC("nobody presses it")
    assert run(JsonLines(terminal)) == 0
    components = events(terminal.lines)[-1]["components"]
    assert {"emitted": 30, "acked": 30, "failed": 0}.items() <= components["source"].items()
    assert components["bolt"]["executed"] == 30


def read_until(stream: IO[str] | None, part: str) -> str:
    assert stream is not None
    for line in stream:
        if part in line:
            return line
    raise AssertionError(f"no line with {part!r} came")


def ctrl_c(process: subprocess.Popen[str]) -> None:
    """What a terminal does: the signal goes to the whole process group."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.usefixtures("home")
def test_a_program_drains_at_ctrl_c_and_at_a_second_one_leaves_trees_for_replay_with_exit_code_130(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "sparkbolt", "run", "tests.spark.operated:holding_first", "--master", "local[2]"]
    process = subprocess.Popen(
        [*command, "--checkpoint", str(tmp_path / "state"), "--drain", "1h"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # the leader of a process group, as a shell starts it
    )
    try:
        asked = Asked()
        asked.until(lambda found: found["now"]["open_trees"] > 0)
        ctrl_c(process)
        said = read_until(process.stderr, "stopping: no new tuples, ")
        assert said.endswith(" being finished; Ctrl-C again leaves them for replay\n")
        # All trees finish but the one that the bolt holds: the signal has not reached Spark's processes.
        asked.until(lambda found: (found["entry"]["state"], found["now"]["open_trees"]) == (TopologyState.INACTIVE, 1))
        ctrl_c(process)
        out, err = process.communicate()
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    left = r"; 1 tree( and micro-batch \d+, which was cancelled,)? left for replay"
    assert re.search(left, err.splitlines()[-1])
    assert out == ""
