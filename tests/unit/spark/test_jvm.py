"""What Spark's processes on this machine are told of one another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkbolt.spark import scratch
from sparkbolt.spark.jvm import JvmOutput

ENABLED, FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"


def settings_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of a process whose temporary folders are in this one."""
    made = str(folder / "sparkbolt-12345678")
    os.makedirs(made)
    monkeypatch.setattr(scratch, "make", lambda: made)
    output = JvmOutput()
    output._end()
    return output.environment()


def test_workers_talk_to_the_jvm_over_unix_sockets_in_a_folder_of_this_process(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(os.path.realpath("/tmp")) / f"jvm{os.getpid()}"
    settings = settings_with(folder, monkeypatch)
    folder.rmdir() if folder.exists() and not any(folder.iterdir()) else None
    assert settings[ENABLED] == "true"
    assert settings[FOLDER] == f"{folder}/sparkbolt-12345678"


def test_a_kept_log_is_the_only_thing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkbolt.spark.scratch.tempfile.tempdir", str(tmp_path))
    output = JvmOutput()
    os.makedirs(f"{output.segments}/run/1-2")
    output.keep_log()
    output._end()
    assert not os.path.exists(output.segments)
    assert [path.name.startswith("sparkbolt-") for path in tmp_path.iterdir()] == [True]
