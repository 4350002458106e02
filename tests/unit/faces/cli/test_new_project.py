"""``sparkbolt new``: the project that it makes, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sparkbolt.faces.cli import main

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_the_tests_of_a_new_project_pass(tmp_path: Path) -> None:
    project = tmp_path / "word-sums"
    assert main(["new", str(project)]) == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_new_project_has_a_topology_and_says_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "made", "--name", "night-sums"]) == 0
    assert "sparkbolt run night_sums.py --checkpoint state" in capsys.readouterr().out
    project = tomllib.loads(Path("made/pyproject.toml").read_text())
    assert project["project"]["name"] == "night-sums"
    assert project["tool"]["setuptools"]["py-modules"] == ["night_sums"]
    assert main(["check", "made/night_sums.py"]) == 0
    shown = capsys.readouterr().out
    assert "topology night-sums: no mistakes" in shown
    assert "warnings" not in shown


def test_a_directory_with_files_is_refused_and_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".hidden").write_text("mine")
    assert main(["new", str(tmp_path), "--name", "sums"]) == 2
    assert "is not empty: name a new directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".hidden"]


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("mine")
    assert main(["new", str(tmp_path / "taken")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("queue", "already"),
        ("numpy", "already"),
        ("my.app", "cannot be"),
        ("class", "already"),
        ("tests", "already"),
        ("9 lives", "cannot be"),
    ],
)
def test_a_name_that_python_cannot_import_is_refused(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", str(tmp_path / "made"), "--name", name]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
