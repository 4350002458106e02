"""Kill -9 of a driver whose rows Spark reads: each row is acked or a dead letter, none is lost, none comes twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECS
from tests.spark.spark_rows import FILE_ROWS, ROWS

pytestmark = [pytest.mark.spark]

MOMENTS = ["staged:1", "committed:2", "planned:3", "compacting", "staged:5", "promoted:6", "committed:7"]
ANY_MOMENTS = ["committed:3"]
GIVEN_UP = [100, 200, 300]


def start(directory: Path, moment: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, or to its kill."""
    arguments = [str(directory / name) for name in ("in", "out", "checkpoint")]
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.spark_rows", *arguments, moment],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )


def write_rows(directory: Path) -> None:
    (directory / "in").mkdir()
    for file in range(ROWS // FILE_ROWS):
        numbers = range(file * FILE_ROWS + 1, (file + 1) * FILE_ROWS + 1)
        text = "".join(json.dumps({"id": f"k{n}", "n": n}) + "\n" for n in numbers)
        (directory / f"in/{file:03}.json").write_text(text)


def assert_exact(directory: Path, said: str) -> None:
    numbers = [
        json.loads(line)["n"] for file in (directory / "out").glob("*.jsonl") for line in file.read_text().splitlines()
    ]
    assert Counter(numbers) == {n: 1 for n in range(1, ROWS + 1) if n not in GIVEN_UP}
    letters = {}
    for file in (directory / "checkpoint/dead-letters").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            letter = json.loads(line)
            letters[letter["id"]] = letter["message_id"]
    assert sorted(letters.values()) == sorted(f"'k{n}'" for n in GIVEN_UP)
    assert f"acked {ROWS - 3} set aside 3 letters 3 open 0" in said


@pytest.mark.parametrize(
    "moments",
    [pytest.param(ANY_MOMENTS, marks=pytest.mark.lesser), pytest.param(MOMENTS, marks=pytest.mark.campaign)],
)
def test_rows_that_spark_reads_are_exact_after_kill_9_at_each_step(moments: list[str], tmp_path: Path) -> None:
    write_rows(tmp_path)
    for moment in moments:
        result = start(tmp_path, moment)
        assert "killed" in result.stdout, f"{moment}: {result.stdout[-2000:]}{result.stderr[-4000:]}"
    result = start(tmp_path, "never")
    assert "killed" not in result.stdout
    assert_exact(tmp_path, result.stdout + result.stderr[-3000:])


@pytest.mark.campaign
def test_rows_that_spark_reads_are_exact_after_kill_9_at_random(tmp_path: Path) -> None:
    write_rows(tmp_path)
    chance = random.Random(11)
    kills, pace = 0, 1.0
    for _ in range(8):
        result = start(tmp_path, f"after:{pace * chance.uniform(5.0, 11.0):.2f}")
        if "killed" in result.stdout:
            kills += 1
        else:
            pace *= 0.7  # this machine is done sooner
    assert kills >= 3
    result = start(tmp_path, "never")
    assert_exact(tmp_path, result.stdout + result.stderr[-3000:])
