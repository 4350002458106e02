"""A checkpoint goes on with a newer version of Spark, and not with an older one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.spark.test_kill import assert_exact, assert_windows_are_whole, write_text
from tests.versions.others import python_of, run

pytestmark = [pytest.mark.spark, pytest.mark.versions]
LINES = 4000


def test_a_checkpoint_goes_from_version_to_version_over_kill_9_and_never_back(tmp_path: Path) -> None:
    """Counts and windows are exact although each version is killed in the midst of a micro-batch."""
    text = write_text(tmp_path, LINES)
    program = "tests.spark.killed", *(str(tmp_path / name) for name in ("text.txt", "out", "checkpoint"))
    for version, moment in (("4.1", "committed:1"), ("4.2", "staged:3")):
        ended = run(python_of(version), *program, moment)
        assert "killed" in ended.stdout, f"{version}: {ended.stdout[-2000:]}{ended.stderr[-4000:]}"
        noted = (tmp_path / "checkpoint/spark-version").read_text()
        assert noted.startswith(f"{version}.")

    back = run(python_of("4.1"), *program, "never")
    assert back.returncode != 0
    assert f"was continued with Spark {noted}, and this is Spark 4.1." in back.stderr
    assert (tmp_path / "checkpoint/spark-version").read_text() == noted

    ended = run(sys.executable, *program, "never")
    assert f"lines {LINES} acked {LINES} failed 0 open 0" in ended.stdout, ended.stderr[-4000:]
    assert (tmp_path / "checkpoint/spark-version").read_text().startswith("4.3.")
    assert_exact(tmp_path, text)
    assert_windows_are_whole(tmp_path, text)
