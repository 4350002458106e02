"""A database that is away, on real Spark, as the command runs it: nothing is given up, or the run says so."""

from __future__ import annotations

import io
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.display import PlainLines
from sparkbolt.faces.cli.program import RunOutcome, perform
from tests.contract.parts import notes
from tests.contract.storing import ORDERS, storing

pytestmark = [pytest.mark.spark]


def run(spark: Any, topology: Any, **options: Any) -> tuple[RunOutcome, str]:
    out = io.StringIO()
    return perform(topology, PlainLines(out), spark=spark, **options), out.getvalue()


def test_a_database_unavailable_for_two_seconds_drains_no_source(spark: Any, tmp_path: Path) -> None:
    outcome, text = run(spark, storing(str(tmp_path), "away"), checkpoint=str(tmp_path / "checkpoint"))
    assert (outcome.kind, outcome.exit_code) == ("finished", 0), text
    counts = outcome.metrics.of("orders")
    assert (counts.acked, counts.given_up, counts.waiting) == (ORDERS, 0, 0)
    assert Counter(n for [n] in notes(str(tmp_path), "stored")) == dict.fromkeys(range(ORDERS), 1)
    assert not (tmp_path / "checkpoint" / "dead-letters").exists()


def test_a_source_with_only_bad_records_ends_with_exit_code_3_and_replayable_letters(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = storing(str(tmp_path), "refuses", max_attempts=4, outage_patience_secs=2)
    outcome, text = run(spark, topology)  # its checkpoint is temporary, its letters are not
    assert (outcome.kind, outcome.exit_code) == ("finished", 3), text
    counts = outcome.metrics.of("orders")
    assert (counts.acked, counts.given_up, counts.dead_letters) == (0, ORDERS, ORDERS)
    [look, again] = [shlex.split(found) for found in re.findall(r"`(sparkbolt dlq [^`]*)`", text)]
    capsys.readouterr()
    assert main([*look[1:], "--last", "1"]) == 0
    shown = capsys.readouterr().out
    assert "is no order" in shown
    assert f"{ORDERS} dead letter(s), 1 shown, 0 replayed" in shown
    into = tmp_path / "again.jsonl"
    assert main([*again[1:-1], str(into)]) == 0
    lines = into.read_text().splitlines()
    assert Counter(lines) == Counter(f'{{"n":{n}}}' for n in range(ORDERS))
