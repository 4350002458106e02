"""A checkpoint goes on with a newer version of Spark, and not with an older one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.spark.killed_checks import Data, Remains, check_counts, check_messages, check_rows, check_windows
from tests.versions.others import python_of, run

pytestmark = [pytest.mark.spark, pytest.mark.versions]
LINES, FEED = 600, 200


def test_a_checkpoint_survives_upgrades_with_kill_9_and_is_never_downgraded(tmp_path: Path) -> None:
    """Counts and windows are exact although each version is killed in the midst of a micro-batch."""
    data, checkpoint = Data(tmp_path, seed=3, lines=LINES), tmp_path / "tracked/checkpoint"
    program = "tests.spark.killed", str(tmp_path)
    for version, moment in (("4.1", "committed@2"), ("4.2", "staged@2")):
        data.feed(FEED)
        ended = run(python_of(version), *program, f"tracked={moment}")
        assert "killed" in ended.stdout, f"{version}: {ended.stdout[-2000:]}{ended.stderr[-4000:]}"
        noted = (checkpoint / "spark-version").read_text()
        assert noted.startswith(f"{version}.")

    back = run(python_of("4.1"), *program, "tracked")
    assert back.returncode != 0
    assert f"was continued with Spark {noted}, and this is Spark 4.1." in back.stderr
    assert (checkpoint / "spark-version").read_text() == noted

    ended = run(sys.executable, *program, "tracked")
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    assert (checkpoint / "spark-version").read_text().startswith("4.3.")
    remains = Remains("tracked", tmp_path, json.loads(ended.stdout.splitlines()[-1])["tracked"])
    for check in (check_messages, check_counts, check_windows, check_rows):
        check(remains)
