"""Kill -9 of the driver at each step of a micro-batch: counts stay exact, every line is acked once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

LINES = 12_000
MOMENTS = ["planned:1", "staged:2", "committed:4", "promoted:5", "compacting", "staged:9"]


def run(directory: Path, moment: str) -> str:
    """Run the program to its end or to its kill; what it printed."""
    command = [sys.executable, "-m", "tests.spark.killed", "text.txt", "out", "checkpoint", moment]
    root = Path(__file__).parents[2]
    arguments = [str(directory / name) for name in command[3:6]]
    result = subprocess.run(
        [*command[:3], *arguments, moment], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    died = "killed" in result.stdout
    assert died == (moment != "never"), f"{moment}: {result.stdout[-2000:]}{result.stderr[-4000:]}"
    return result.stdout


def test_counts_are_exact_after_kill_9_at_each_step(tmp_path: Path) -> None:
    words = random.Random(3)
    text = [" ".join(f"w{words.randrange(300)}" for _ in range(6)) for _ in range(LINES)]
    (tmp_path / "text.txt").write_text("\n".join(text) + "\n")
    for moment in MOMENTS:
        run(tmp_path, moment)
    said = run(tmp_path, "never")

    assert f"lines {LINES} acked {LINES} failed 0 open 0" in said
    found: Counter[tuple[str, int]] = Counter()
    for file in (tmp_path / "out").glob("*.jsonl"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            found[row["word"], row["count"]] += 1
    true = Counter(word for line in text for word in line.split())
    expected = {(word, count): 1 for word, total in true.items() for count in range(1, total + 1)}
    assert found == expected
