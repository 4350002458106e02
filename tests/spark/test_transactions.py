"""A transactional topology on Spark: balances are exact although credits fail and the driver is killed."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest

from tests.spark.killed_programs import run_to
from tests.spark.transacted import FAILS_ALWAYS

pytestmark = [pytest.mark.spark]

FEW, MANY, A_FILE = 1200, 8000, 400
"""A micro-batch reads some 600: moments with numbers need that many micro-batches with new transfers."""
MOMENTS = ["repeated:1", "outside:3"]
MORE_MOMENTS = ["aborted:1", "repeated:2", "staged:3", "committing:4", "outside:5", "aborted:7"]


def write_transfers(directory: Path, count: int) -> int:
    """Write transfers with the numbers 1 to ``count``, random else; returns how many can never be credited."""
    chance = random.Random(5)
    lines = [
        f"{n} a{chance.randrange(9)} b{chance.randrange(9)} {chance.randrange(1, 99)}" for n in range(1, count + 1)
    ]
    (directory / "text").write_text("\n".join(lines) + "\n")
    (directory / "spark").mkdir()
    for start in range(0, count, A_FILE):
        (directory / f"spark/{start}.txt").write_text("\n".join(lines[start : start + A_FILE]) + "\n")
    return count // FAILS_ALWAYS


def run(directory: Path, moment: str, *, source: str = "text", transactional: bool = True) -> dict[str, float]:
    """Run the program to its end, or to its kill; what it said at its end."""
    arguments = [source, *(str(directory / name) for name in (source, "statement.jsonl", "checkpoint"))]
    return run_to(moment, "tests.spark.transacted", *arguments, moment, str(transactional))


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


@pytest.mark.parametrize(
    ("source", "count", "moments"),
    [
        pytest.param("text", FEW, MOMENTS, marks=pytest.mark.lesser),
        pytest.param("spark", FEW, ["repeated:1", "staged:2"], marks=pytest.mark.lesser),
        pytest.param("text", MANY, MORE_MOMENTS, marks=pytest.mark.campaign),
        pytest.param("spark", MANY, MORE_MOMENTS, marks=pytest.mark.campaign),
    ],
)
def test_balances_are_exact_over_failures_and_kill_9(
    tmp_path: Path, source: str, count: int, moments: list[str]
) -> None:
    never = write_transfers(tmp_path, count)
    for moment in moments:
        run(tmp_path, moment, source=source)
    said = run(tmp_path, "never", source=source)
    rows = rows_of(tmp_path)
    assert sorted(row["number"] for row in rows) == [n for n in range(1, count + 1) if n % FAILS_ALWAYS]
    assert mistakes_of(rows) == 0
    assert said["acked"] == count - never
    assert said["open"] == 0
    letters = [
        line for file in (tmp_path / "checkpoint/dead-letters").iterdir() for line in file.read_text().splitlines()
    ]
    assert len(letters) == never
    assert not list((tmp_path / "checkpoint/aborts").iterdir())
    assert not list((tmp_path / "checkpoint/commits").iterdir())
    assert [row["txid"] for row in rows] == sorted(row["txid"] for row in rows)


def test_without_transactional_what_failed_stays_in_the_balances(tmp_path: Path) -> None:
    write_transfers(tmp_path, FEW)
    run(tmp_path, "never", transactional=False)
    assert mistakes_of(rows_of(tmp_path)) > 0
