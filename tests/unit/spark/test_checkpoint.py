"""A driver that was thought dead writes nothing that counts."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from sparkbolt.driver.ledger import ledger_files
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.errors import CheckpointError, FencedError
from sparkbolt.faces.cli import main
from sparkbolt.files.local import LocalFiles
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.checkpoint_lock import lock
from tests.unit.spark.lives import NoLock


def test_a_life_counts_nothing_once_another_one_has_begun(tmp_path: Path) -> None:
    old, new = NoLock(tmp_path), NoLock(tmp_path)
    life = old.begin_life()
    old.tenure.check(life)
    new.tenure.check(new.begin_life())
    with pytest.raises(CheckpointError, match=r"was taken over by another driver \(life 1 began, this one is 0\)"):
        old.tenure.check(life)


def test_lives_that_begin_at_the_same_moment_have_different_numbers(tmp_path: Path) -> None:
    drivers = [NoLock(tmp_path) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        lives = list(pool.map(NoLock.begin_life, drivers))
    assert sorted(lives) == list(range(8))
    fenced = 0
    for driver, life in zip(drivers, lives, strict=True):
        try:
            driver.tenure.check(life)
        except FencedError:
            fenced += 1
    assert fenced == 7, "all but the newest"


def test_a_life_that_cannot_begin_on_a_full_disk_does_not_end_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = NoLock(tmp_path)
    life = driver.begin_life()
    real = os.fsync

    def full(descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.startswith(".1."):  # a temporary file for life 1
            raise OSError(errno.ENOSPC, "no space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        driver.begin_life()
    driver.tenure.check(life)
    monkeypatch.undo()
    assert driver.begin_life() == 1


def test_only_one_of_two_continues_if_the_file_system_cannot_create_exclusively(tmp_path: Path) -> None:
    """Its last writer wins; the other one finds that out before it writes anything that counts."""
    one, two = NoLock(tmp_path), NoLock(tmp_path)
    life = one.begin_life()
    one.files.remove(f"lives/{life}")
    assert two.begin_life() == life
    two.tenure.check(life)
    with pytest.raises(FencedError, match="another driver has begun life 0, too"):
        one.tenure.check(life)


def test_a_checkpoint_that_was_removed_is_not_taken_for_another_drivers(tmp_path: Path) -> None:
    driver = NoLock(tmp_path / "state")
    life = driver.begin_life()
    driver.tenure.check(life)
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(FencedError, match="state was removed while its topology ran"):
        driver.tenure.check(life)


def test_a_checkpoint_has_an_id_of_its_own_which_outlives_its_drivers(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = NoLock(tmp_path / "a").identity()
    assert len(first) == 32
    assert NoLock(tmp_path / "a").identity() == first
    assert NoLock(tmp_path / "b").identity() != first
    NoLock(tmp_path / "a").files.write("identity", b"")
    assert NoLock(tmp_path / "a").identity() not in ("", first), "a damaged one is made anew"


def test_a_driver_wrongly_believed_dead_removes_nothing(tmp_path: Path) -> None:
    old, new = NoLock(tmp_path), NoLock(tmp_path)
    old.begin_life()
    for number in range(4):
        ledger_files.write_entry(old.files, number, b"an entry")
        old.files.write(f"plans/{number}-0", b"a plan")
    new.begin_life()
    with pytest.raises(CheckpointError, match="was taken over by another driver"):
        old.compact(2, b"a snapshot")
    assert sorted(new.files.names("ledger")) == [f"{number}.entry" for number in range(4)]
    new.compact(2, b"a snapshot")
    new.compact(3, b"a snapshot")
    assert sorted(new.files.names("ledger")) == ["2.snapshot", "3.entry", "3.snapshot"]
    assert sorted(new.files.names("plans")) == ["2-0", "3-0"]


@pytest.mark.parametrize(
    ("number", "has"), [(None, "no format number"), (b"0", "format 0"), (b"1", "format 1"), (b"\xff", "format")]
)
def test_a_checkpoint_of_another_format_is_refused_and_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: bytes | None, has: str
) -> None:
    files = LocalFiles(str(tmp_path))
    files.create("lives/0", b"of a driver")
    if number is not None:
        files.write("format", number)
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")}
    says = f"{tmp_path} has {has}.*, and this version of Sparkbolt reads format 2: continue with the version of"
    no_spark: Any = None
    with pytest.raises(CheckpointError, match=says):
        Checkpoint(no_spark, str(tmp_path))
    for command in ("checkpoint verify", "checkpoint repair", "errors", f"explain {'0' * 16} --checkpoint"):
        assert main([*command.split(), str(tmp_path)]) == 1
        assert re.search(says, capsys.readouterr().err)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.rglob("*")} == before


HOLDER = """
import fcntl, os, sys
file = open("lock", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.readline()
open("owner", "w").write(f"another driver (process {os.getpid()}, its JVM is {os.getpid()})")
print("owned", flush=True)
sys.stdin.readline()
"""


def test_a_driver_that_started_at_the_same_moment_is_named_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = MagicMock()
    spark._jvm.java.io.RandomAccessFile().getChannel().tryLock.return_value = None
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLDER], cwd=tmp_path, **pipes) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"

        def sleep(_: float) -> None:  # it has the lock, and has not said yet that it does
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "owned\n"

        monkeypatch.setattr(time, "sleep", sleep)
        with pytest.raises(CheckpointError, match=rf"in use by another driver \(process {other.pid}, .*stop that one"):
            lock(spark, str(tmp_path), "another driver")
        other.communicate("\n")


def test_a_generation_begins_in_an_empty_folder_also_if_one_of_its_number_was_dropped_halfway(tmp_path: Path) -> None:
    checkpoint = NoLock(tmp_path)
    (first,) = checkpoint.generations
    second = Generation(number=1, folder="spark-1")
    checkpoint.files.write("spark-1/state/0/0/1_of-the-dropped-one.changelog", b"old")
    checkpoint.keep(Generations([first, second]))
    assert checkpoint.files.names("spark-1") == []
    checkpoint.files.write("spark-1/offsets/0", b"its own")
    checkpoint.keep(Generations([first, second, Generation(number=2, folder="spark-1")]))
    assert checkpoint.files.names("spark-1/offsets") == ["0"], "a generation that goes on in a folder keeps it"
