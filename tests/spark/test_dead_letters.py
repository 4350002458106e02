"""Kill -9 between a dead letter that is written and its promotion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkbolt.bolts.dead_letter_files import read_letters
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]

LINES, POISON = 400, (0, 7, 300)


def start(directory: Path, moment: str) -> subprocess.CompletedProcess[str]:
    arguments = [str(directory / name) for name in ("text.txt", "dead.jsonl", "checkpoint")]
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.dying", *arguments, moment],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )


@pytest.mark.campaign
def test_a_letter_that_was_written_before_kill_9_is_there_and_counts_once(tmp_path: Path) -> None:
    lines = [f"{'poison' if number in POISON else 'line'} {number}" for number in range(LINES)]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    killed = start(tmp_path, "written")
    assert "killed" in killed.stdout, killed.stderr[-4000:]
    before = read_letters(tmp_path / "dead.jsonl")
    assert before.letters, "it was written before the kill"

    ended = start(tmp_path, "never")
    said = f"acked {LINES - len(POISON)} failed {2 * len(POISON)} set aside {len(POISON)} letters {len(POISON)}"
    assert said in ended.stdout, ended.stdout + ended.stderr[-4000:]
    read = read_letters(tmp_path / "dead.jsonl")
    assert [letter.id for letter in read.letters[: len(before.letters)]] == [letter.id for letter in before.letters]
    assert sorted(letter.values()[0]["line"] for letter in read.letters) == sorted(f"poison {n}" for n in POISON)
    assert read.repeated >= len(before.letters), "the micro-batch ran again, and wrote its letters again"
    assert read.damaged == []
