"""When an archive of classes is used and when it is made; that it can be made and is used is shown on Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkbolt import EngineError
from sparkbolt.spark import class_archive
from sparkbolt.spark.class_archive import KEPT_MAX, MAKING, TRIED_SECS, ClassArchive, archive_for
from tests.unit.control.test_home import wait_for

pytest.importorskip("pyspark")

from pyspark import SparkContext

from sparkbolt.spark import class_archive_maker

LIBRARIES = ("lib/server/libjvm.so", "lib/server/classes.jsa", "lib/modules", "bin/java")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SPARKBOLT_CACHE", str(folder))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    return folder


@pytest.fixture
def java(tmp_path: Path) -> str:
    for name in LIBRARIES:
        (tmp_path / "java" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "java" / name).write_text(name)
    return str(tmp_path / "java/bin/java")


@pytest.fixture
def spark(tmp_path: Path) -> str:
    (tmp_path / "spark/jars").mkdir(parents=True)
    (tmp_path / "spark/jars/core.jar").write_text("core")
    return str(tmp_path / "spark")


@pytest.fixture
def archive(cache: Path) -> ClassArchive:
    cache.mkdir(mode=0o700)
    return ClassArchive(str(cache / "classes-1.jsa"))


def put(archive: ClassArchive) -> None:
    """Make an archive of what a JVM would have written."""
    written = Path(archive.folder, "written")
    written.write_text("classes")
    archive.made(str(written))


def test_each_java_and_each_spark_has_its_own(java: str, spark: str, cache: Path) -> None:
    first = archive_for(java, spark)
    assert first is not None
    assert Path(first.path).parent == cache
    again = archive_for(java, spark)
    assert again is not None
    assert again.path == first.path
    Path(spark, "jars/core.jar").write_text("another core")
    other = archive_for(java, spark)
    assert other is not None
    assert other.path != first.path


def test_where_the_user_has_chosen_there_is_none(java: str, spark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/mine.jsa")
        assert archive_for(java, spark) is None
    with monkeypatch.context() as patch:
        patch.setenv("SPARKBOLT_CACHE", "off")
        assert archive_for(java, spark) is None
    assert archive_for(None, spark) is None
    assert archive_for(java, spark) is not None


@pytest.mark.parametrize("missing", LIBRARIES[:3])
def test_a_java_that_is_built_in_another_way_has_none(java: str, spark: str, missing: str) -> None:
    Path(java).parents[1].joinpath(missing).unlink()
    assert archive_for(java, spark) is None


def test_what_others_may_write_to_is_not_used(archive: ClassArchive) -> None:
    assert archive.option() is None
    put(archive)
    assert str(archive.option()).startswith(f'"-XX:SharedArchiveFile={archive.path}" ')
    os.chmod(archive.folder, 0o770)
    assert archive.option() is None
    os.chmod(archive.folder, 0o700)
    assert archive.option() is not None
    os.chmod(archive.path, 0o422)
    assert archive.option() is None


def test_an_archive_whose_end_is_missing_is_not_used(archive: ClassArchive) -> None:
    put(archive)
    assert archive.option() is not None
    whole = Path(archive.path).read_bytes()
    os.chmod(archive.path, 0o600)
    for length in (len(whole) - 1, 3, 0):
        Path(archive.path).write_bytes(whole[:length])
        assert archive.option() is None
        assert archive.is_wanted()


def test_it_is_not_made_where_others_may_write(archive: ClassArchive, cache: Path) -> None:
    assert archive.is_wanted()
    cache.chmod(0o777)
    assert not archive.is_wanted()


def test_what_is_there_or_was_tried_today_is_not_made_again(archive: ClassArchive) -> None:
    Path(archive.log_path).write_text("Java has said no")
    assert not archive.is_wanted()
    before = os.stat(archive.log_path).st_mtime - TRIED_SECS - 1
    os.utime(archive.log_path, (before, before))
    assert archive.is_wanted()
    put(archive)
    assert not archive.is_wanted()


@pytest.mark.parametrize("what", ["DISK_BYTES_MIN", "MEMORY_BYTES_MIN"])
def test_it_is_not_made_without_room(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(class_archive, what, 1 << 60)
    assert not archive.is_wanted()


def test_the_last_ones_that_were_used_are_kept(archive: ClassArchive, cache: Path) -> None:
    for age in range(KEPT_MAX + 2):
        old = cache / f"classes-old{age}.jsa"
        old.write_text("old")
        os.utime(old, (1000 - age, 1000 - age))
    Path(archive.log_path).write_text("said")
    written = cache / "written"
    written.write_text("new")
    archive.made(str(written))
    assert Path(archive.path).read_text().startswith("new")
    assert sorted(path.name for path in cache.iterdir()) == ["classes-1.jsa", "classes-old0.jsa", "classes-old1.jsa"]


def test_a_maker_that_cannot_begin_is_told_to_nobody_and_not_tried_again(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "MAKER", "no.such.module")
    archive.begin()
    assert "no.such" in Path(archive.log_path).read_text()
    assert not archive.is_wanted()


def test_what_a_maker_that_was_killed_has_left_is_removed_a_day_later(archive: ClassArchive, cache: Path) -> None:
    for name, age in (("old", TRIED_SECS + 60), ("new", 60)):
        (cache / f"{MAKING}{name}/state").mkdir(parents=True)
        then = time.time() - age
        os.utime(cache / f"{MAKING}{name}", (then, then))
    archive.make_folder()
    assert [path.name for path in cache.iterdir()] == [f"{MAKING}new"]


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ClassArchive(str(tmp_path / "file/classes-1.jsa")).begin()


def test_it_is_made_once_while_the_process_runs_or_when_it_ends(cache: Path, java: str) -> None:
    """The maker is a module that notes that it was called."""
    cache.mkdir(mode=0o700)
    (cache / "noted.py").write_text("import sys; open(sys.argv[1] + '.noted', 'a').write('once ')")
    program = (
        "import sys; from sparkbolt.spark import class_archive as made; sys.path.append(sys.argv[3]); "
        "made.MAKER = 'noted'; made.BEGIN_SECS = float(sys.argv[2]); "
        "made.ClassArchive(sys.argv[1]).begin_later(); sys.stdin.read()"
    )
    for secs in ("0", "1000"):
        path = cache / f"classes-{secs}.jsa"
        command = [sys.executable, "-c", program, str(path), secs, str(cache)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            noted = Path(f"{path}.noted")
            assert secs == "1000" or wait_for(noted.exists)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait() == 0
        assert noted.read_text() == "once "


@pytest.mark.parametrize(
    ("finishes", "said"),
    [(False, "its topology has not finished in 0 s"), (True, "the JVM has not written its classes in 0 s")],
)
def test_a_maker_that_gets_no_time_ends_with_its_jvm(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch, finishes: bool, said: str
) -> None:
    for name in (class_archive_maker.HOME_ENV, class_archive_maker.CONTROL_ENV, class_archive.CACHE_ENV):
        monkeypatch.setenv(name, "as it was")
    jvm = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"], stdin=subprocess.PIPE)
    nothing = SimpleNamespace(stop=lambda **_: None, await_finished=lambda timeout_secs: finishes)
    monkeypatch.setattr(class_archive_maker, "FINISH_SECS", 0.1)
    monkeypatch.setattr(class_archive_maker, "make_session", lambda *_: nothing)
    monkeypatch.setattr(class_archive_maker, "start", lambda *_, **__: nothing)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm, shutdown=lambda: None))
    with jvm, pytest.raises(EngineError, match=said):
        class_archive_maker.make(archive)
    assert jvm.returncode == -signal.SIGKILL
    assert [path.name for path in Path(archive.folder).iterdir()] == []
