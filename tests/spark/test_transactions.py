"""A transactional topology on Spark: balances are exact although credits fail and the driver is killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECS
from tests.spark.transacted import FAILS_ALWAYS

pytestmark = [pytest.mark.spark]

TRANSFERS = 1200
MOMENTS = ["repeated:1", "outside:3"]
MORE_MOMENTS = ["aborted:1", "repeated:2", "staged:3", "committing:4", "outside:5", "aborted:7"]


def write_transfers(directory: Path) -> int:
    """Write random transfers; returns how many can never be credited."""
    chance = random.Random(5)
    lines = [
        f"{n} a{chance.randrange(9)} b{chance.randrange(9)} {chance.randrange(1, 99)}" for n in range(1, TRANSFERS)
    ]
    (directory / "transfers.txt").write_text("\n".join(lines) + "\n")
    return (TRANSFERS - 1) // FAILS_ALWAYS


def run(directory: Path, moment: str, *, transactional: bool = True) -> dict[str, float]:
    """Run the program to its end, or to its kill; what it said at its end."""
    arguments = [str(directory / name) for name in ("transfers.txt", "statement.jsonl", "checkpoint")]
    result = subprocess.run(
        [sys.executable, "-m", "tests.spark.transacted", *arguments, moment, str(transactional)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )
    assert ("killed" in result.stdout) == (moment != "never"), (
        f"{moment}: {result.stdout[-2000:]}{result.stderr[-4000:]}"
    )
    return {} if moment != "never" else json.loads(result.stdout.splitlines()[-1])


def rows_of(directory: Path) -> list[dict[str, int]]:
    return [json.loads(line) for line in (directory / "statement.jsonl").read_text().splitlines()]


def mistakes_of(rows: list[dict[str, int]]) -> int:
    """How many balances do not follow from the one before and the amount of exactly one transfer."""
    wrong = 0
    for account, balance in (("source", "paid"), ("target", "got")):
        histories = defaultdict(list)
        for row in rows:
            histories[row[account]].append((row[balance], row["amount"]))
        for history in histories.values():
            before = 0
            for after, amount in sorted(history):
                wrong += after != before + amount
                before = after
    return wrong


@pytest.mark.parametrize("moments", [MOMENTS, pytest.param(MORE_MOMENTS, marks=pytest.mark.campaign)])
def test_balances_are_exact_over_failures_and_kill_9(tmp_path: Path, moments: list[str]) -> None:
    never = write_transfers(tmp_path)
    for moment in moments:
        run(tmp_path, moment)
    said = run(tmp_path, "never")
    rows = rows_of(tmp_path)
    assert sorted(row["number"] for row in rows) == [n for n in range(1, TRANSFERS) if n % FAILS_ALWAYS]
    assert mistakes_of(rows) == 0
    assert said["acked"] == TRANSFERS - 1 - never
    assert said["open"] == 0
    letters = [
        line for file in (tmp_path / "checkpoint/dead-letters").iterdir() for line in file.read_text().splitlines()
    ]
    assert len(letters) == never
    assert not list((tmp_path / "checkpoint/aborts").iterdir())
    assert not list((tmp_path / "checkpoint/commits").iterdir())
    assert [row["txid"] for row in rows] == sorted(row["txid"] for row in rows)


def test_without_transactional_what_failed_stays_in_the_balances(tmp_path: Path) -> None:
    write_transfers(tmp_path)
    run(tmp_path, "never", transactional=False)
    assert mistakes_of(rows_of(tmp_path)) > 0
