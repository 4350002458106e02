"""What each test takes is written down, also by several processes, and summed up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.durations import Duration, Stage, summary

CONFTEST = """
from pathlib import Path

from tests.durations import register


def pytest_configure(config):
    register(config, Path(__file__).parent / "durations")
"""
TESTS = """
import pytest


def test_plain():
    pass


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2])
def test_marked(n):
    pass
"""


@pytest.mark.slow
def test_a_run_in_two_processes_writes_the_files_that_its_tests_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKBOLT_STAGE", "small")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_small.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "no:cacheprovider", "-n", "2"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    stage = Stage.read(tmp_path / "durations", "small")
    assert stage.processes == 2
    assert {(duration.test, *duration.marks) for duration in stage.durations} == {
        ("test_small.py::test_plain",),
        ("test_small.py::test_marked[1]", "slow"),
        ("test_small.py::test_marked[2]", "slow"),
    }
    assert all(duration.setup <= duration.seconds for duration in stage.durations)


def test_the_sums_are_by_stage_and_by_folder_and_long_tests_without_a_mark_are_named() -> None:
    durations = [
        Duration("tests/unit/faces/cli/test_a.py::test_long", [], 6.0, 1.0),
        Duration("tests/unit/test_b.py::test_marked", ["slow"], 30.0),
        Duration("tests/sim/test_c.py::test_campaign", ["campaign", "slow"], 40.0),
        Duration("tests/sim/test_c.py::test_short", [], 4.0),
    ]
    assert list(summary([Stage("unit", 2, 45.0, durations)])) == [
        "stage  tests  seconds of tests  in processes  seconds of each  elapsed",
        "unit       4                80             2               40       45",
        "",
        "folder      tests  seconds of tests",
        "tests/sim       2                44",
        "tests/unit      2                36",
        "",
        "more than 5 seconds, and none of the marks campaign, slow:",
        "  6.0 s, of which setup 1.0 s: tests/unit/faces/cli/test_a.py::test_long",
    ]
