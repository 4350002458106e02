"""Spark's files on a local disk: written by a class of ours, without processes, or as Spark does it."""

from __future__ import annotations

import os
import runpy
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkbolt.spark import local_disk
from sparkbolt.spark.java_classes import JAR
from sparkbolt.spark.session import make_session
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]
PROCESSES = ("chmod", "readlink")
"""What Hadoop starts for a file."""


@pytest.fixture
def spark() -> SparkSession:
    return make_session("disk", "local[2]").newSession()


def ours(spark: SparkSession) -> Any:
    """The file system of ours, as the query's session gets it."""
    assert local_disk.write_synced(spark)
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    found = spark._jvm.org.apache.hadoop.fs.Path("file:///").getFileSystem(configuration)
    assert found.getClass().getName() == "sparkbolt.SyncedLocalFileSystem"
    return found


def path(spark: SparkSession, place: Path) -> Any:
    return spark._jvm.org.apache.hadoop.fs.Path(f"file://{place}")


def test_the_jar_is_made_of_its_sources(spark: SparkSession) -> None:
    compiled = runpy.run_path(str(Path(__file__).parents[2] / "scripts/_jar.py"))["compiled"]
    assert compiled(spark._jvm) == JAR.read_bytes(), "run scripts/jar"


def test_files_are_as_hadoop_writes_them(spark: SparkSession, tmp_path: Path) -> None:
    files = ours(spark)
    hadoops = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    for folder, system in (("ours", files), ("hadoops", hadoops)):
        assert system.mkdirs(path(spark, tmp_path / folder / "deep"))
        stream = system.create(path(spark, tmp_path / folder / "deep/first"))
        stream.write(bytearray(b"one"))
        stream.close()
        stream.close()
        assert system.rename(path(spark, tmp_path / folder / "deep/first"), path(spark, tmp_path / folder / "second"))
        assert not (tmp_path / folder / "deep/first").exists()
        assert (tmp_path / folder / "second").read_bytes() == b"one"
    for name in ("", "deep", "second"):
        modes = [stat.filemode((tmp_path / folder / name).stat().st_mode) for folder in ("ours", "hadoops")]
        assert modes[0] == modes[1]
    sticky = spark._jvm.org.apache.hadoop.fs.permission.FsPermission("1777")
    files.setPermission(path(spark, tmp_path / "ours/deep"), sticky)
    assert stat.filemode((tmp_path / "ours/deep").stat().st_mode) == "drwxrwxrwt"


def test_user_settings_are_kept(spark: SparkSession) -> None:
    spark.conf.set(local_disk.FILE_MANAGER, "of.ones.own.Manager")
    assert not local_disk.write_synced(spark)
    assert spark.conf.get(local_disk.FILE_SYSTEM, None) is None


def test_default_behaviour_of_spark_remains_without_the_class(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_disk, "_CLASS", "sparkbolt.NotThere")
    assert not local_disk.write_synced(spark)
    assert spark.conf.get(local_disk.FILE_MANAGER, None) is None


def started(directory: Path, *settings: str, master: str = "local[2]") -> list[str]:
    """Which processes a topology's JVM has started for its files."""
    notes, programs = directory / "notes.txt", directory / "programs"
    programs.mkdir(parents=True)
    for name in PROCESSES:
        real = shutil.which(name)
        (programs / name).write_text(f'#!/bin/sh\necho {name} >>{notes}\nexec {real} "$@"\n')
        (programs / name).chmod(0o755)
    run = subprocess.run(
        [sys.executable, "-m", "tests.spark.disk_written", master, str(directory / "checkpoint"), *settings],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SPARKBOLT_HOME": str(directory / "home")},
        capture_output=True, text=True, timeout=PATIENCE_SECS, check=False,
    )  # fmt: skip
    assert "open 0" in run.stdout, run.stdout[-2000:] + run.stderr[-5000:]
    assert "micro-batches 1 " not in run.stdout
    return notes.read_text().split() if notes.exists() else []


@pytest.mark.campaign
@pytest.mark.timeout(2 * PATIENCE_SECS)
def test_a_topology_starts_no_process_for_its_files(tmp_path: Path) -> None:
    manager = f"{local_disk.FILE_MANAGER}=org.apache.spark.sql.execution.streaming.checkpointing"
    assert started(tmp_path / "ours") == []
    assert "chmod" in started(tmp_path / "sparks", f"{manager}.FileContextBasedCheckpointFileManager")


@pytest.mark.campaign
@pytest.mark.timeout(2 * PATIENCE_SECS)
def test_class_is_sent_to_executors(tmp_path: Path) -> None:
    processes = started(tmp_path, master="local-cluster[1,2,1024]")
    assert processes in ([], ["chmod"]), "Spark makes the jar executable that it has fetched, and then none is started"
    assert not list((tmp_path / "checkpoint/spark").rglob(".*.crc"))
