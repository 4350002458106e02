"""Kill -9 of the driver at each step of a micro-batch, also where its JVM lives on: counts stay exact."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE_SECS
from tests.spark.killed import WINDOW

pytestmark = [pytest.mark.spark]

MOMENTS = ["planned:1", "staged:2", "committed:4", "promoted:5", "compacting", "staged:9"]
ANY_MOMENTS = ["committed:2", "staged:4"]
"""What every run of the tests looks at; the simulator looks at each of them, thousands of times."""


def start(directory: Path, moment: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, or to its kill."""
    command = [sys.executable, "-m", "tests.spark.killed", "text.txt", "out", "checkpoint", moment]
    root = Path(__file__).parents[2]
    arguments = [str(directory / name) for name in command[3:6]]
    return subprocess.run(
        [*command[:3], *arguments, moment], cwd=root, capture_output=True, text=True, timeout=PATIENCE_SECS, check=False
    )


def run(directory: Path, moment: str) -> str:
    """What the program printed until it ended as it should, or was killed as it should."""
    result = start(directory, moment)
    died = "killed" in result.stdout
    assert died == (moment != "never"), f"{moment}: {result.stdout[-2000:]}{result.stderr[-4000:]}"
    return result.stdout


def write_text(directory: Path, lines: int) -> list[str]:
    words = random.Random(3)
    text = [" ".join(f"w{words.randrange(300)}" for _ in range(6)) for _ in range(lines)]
    (directory / "text.txt").write_text("\n".join(text) + "\n")
    return text


def assert_exact(directory: Path, text: list[str]) -> None:
    """Each count of each word was written once."""
    found: Counter[tuple[str, int]] = Counter()
    for file in (directory / "out").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found[row["word"], row["count"]] += 1
    true = Counter(word for line in text for word in line.split())
    expected = {(word, count): 1 for word, total in true.items() for count in range(1, total + 1)}
    assert found == expected


def assert_windows_are_whole(directory: Path, text: list[str]) -> None:
    """Each line is in one window but for the rest; a window that was given again has the same lines."""
    windows: dict[int, set[tuple[int, ...]]] = {}
    for file in (directory / "out-windows").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            windows.setdefault(row["window"], set()).add(tuple(row["lines"]))
    assert sorted(windows) == list(range(1, len(text) // WINDOW + 1))
    assert {len(contents) for contents in windows.values()} == {1}
    lines = [offset for contents in windows.values() for offset in next(iter(contents))]
    starts = set(itertools.accumulate((len(line) + 1 for line in text[:-1]), initial=0))
    assert len(lines) == len(set(lines)) == len(windows) * WINDOW
    assert set(lines) <= starts


@pytest.mark.parametrize(
    ("moments", "lines"),
    [
        pytest.param(ANY_MOMENTS, 4000, marks=pytest.mark.lesser),
        pytest.param(MOMENTS, 12_000, marks=pytest.mark.campaign),
    ],
)
def test_counts_are_exact_after_kill_9_at_each_step(moments: list[str], lines: int, tmp_path: Path) -> None:
    text = write_text(tmp_path, lines)
    for moment in moments:
        run(tmp_path, moment)
    said = run(tmp_path, "never")

    assert f"lines {lines} acked {lines} failed 0 open 0" in said
    assert_exact(tmp_path, text)
    assert_windows_are_whole(tmp_path, text)


def commits(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory / "checkpoint/spark/commits") if name.isdigit())


@pytest.mark.campaign
def test_a_jvm_that_outlives_its_driver_commits_nothing_and_lets_nobody_in(tmp_path: Path) -> None:
    text = write_text(tmp_path, lines=4000)
    said = run(tmp_path, "outlived:3")
    found = re.search(r"holder (\d+) jvm (\d+)", said)
    assert found is not None, said
    holder, jvm = psutil.Process(int(found[1])), psutil.Process(int(found[2]))
    try:
        assert commits(tmp_path) == ["0", "1", "2"]
        refused = start(tmp_path, "refused")
        assert refused.returncode != 0
        assert "is in use by another driver" in refused.stderr
        assert jvm.is_running(), "it was there all the time"
        assert commits(tmp_path) == ["0", "1", "2"]
    finally:
        holder.kill()
    said = run(tmp_path, "never")
    assert "lines 4000 acked 4000 failed 0 open 0" in said
    assert_exact(tmp_path, text)
