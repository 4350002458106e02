"""The example unit for systemd is one that systemd takes, and fits what the command does."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparkbolt.faces.cli import program
from sparkbolt.faces.cli.parser import parser
from tests.docs.pages import ROOT

UNIT = ROOT / "examples" / "word-count.service"
PROGRAM = "/opt/word-count/.venv/bin/sparkbolt"


def service() -> dict[str, str]:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text().replace("\\\n", ""))
    return dict(unit["Service"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_accepts_the_example_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert PROGRAM in text
    copy.write_text(text.replace(PROGRAM, sys.executable).replace("User=bolts", "User=root"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, timeout=60)
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []
    assert done.returncode == 0, done.stderr


def test_command_of_the_example_unit_is_valid_for_sparkbolt() -> None:
    path, *arguments = service()["ExecStart"].split()
    assert path == PROGRAM
    options = parser().parse_args(arguments)
    assert (options.log_dir, options.detach, options.drain) == ("/var/log/word-count", False, 30.0)


def test_only_a_failure_restarts_the_service_and_wrong_use_does_not() -> None:
    unit = service()
    assert unit["Restart"] == "on-failure"
    well = {program.EXIT_GIVEN_UP, program.EXIT_TIME_OVER, program.EXIT_LEFT}
    assert {int(code) for code in unit["SuccessExitStatus"].split()} == well
    assert int(unit["RestartPreventExitStatus"]) == program.EXIT_WRONG_USE
