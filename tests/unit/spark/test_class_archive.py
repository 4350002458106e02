"""When an archive of classes is used and when it is made; that it can be made and is used is shown on Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkbolt.spark.class_archive import ClassArchive, archive_for
from tests.unit.control.test_home import wait_for

pytest.importorskip("pyspark")


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


def test_each_java_and_spark_version_has_its_own_class_archive(java: str, spark: str, cache: Path) -> None:
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


def test_no_class_archive_is_used_if_the_user_chose_one_or_turned_it_off(
    java: str, spark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=/mine.jsa")
        assert archive_for(java, spark) is None
    with monkeypatch.context() as patch:
        patch.setenv("SPARKBOLT_CACHE", "off")
        assert archive_for(java, spark) is None
    assert archive_for(None, spark) is None
    assert archive_for(java, spark) is not None


def test_class_archive_is_made_once_while_the_process_runs_or_when_it_ends(cache: Path, java: str) -> None:
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
