"""Folders for a while: what a dead process has left is removed by the next start, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkbolt.spark import scratch

MAKER = """
import sys
from sparkbolt.spark import scratch
print(scratch.make("x-"), flush=True)
kept = scratch.make()
scratch.keep(kept)
print(kept, flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    for path in list(scratch._held):
        if path.startswith(str(tmp_path)):
            scratch.remove(path)


def test_a_folder_is_private_to_its_creator_and_is_removed_with_it(folder: Path) -> None:
    path = scratch.make("checkpoint-")
    assert path.startswith(f"{folder}/sparkbolt-checkpoint-")
    assert os.stat(path).st_mode & 0o777 == 0o700
    assert scratch.sweep() == []
    scratch.remove(path)
    scratch.remove(path)
    assert list(folder.iterdir()) == []


def test_next_start_removes_leftovers_of_a_dead_process(folder: Path) -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    left, kept = (maker.stdout.readline().strip() for _ in range(2))
    Path(left, "planner.sock").touch()
    assert scratch.sweep() == [], "it lives"
    maker.kill()
    maker.communicate()
    assert scratch.sweep() == [left]
    assert os.path.exists(kept), "somebody was told where the log is"
    long_ago = time.time() - scratch.KEPT_SECS - 60
    os.utime(Path(kept, ".kept"), (long_ago, long_ago))
    assert scratch.sweep() == [kept]
