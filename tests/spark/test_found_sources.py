"""Installed data sources of Python: found by Spark where there are any, and not looked for where there are none."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.spark import found_sources
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]
INSTALLED = """
from pyspark.sql.datasource import DataSource, DataSourceReader

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "answers"

    def schema(self):
        return "n int"

    def reader(self, schema):
        return Reader()

class Reader(DataSourceReader):
    def read(self, partition):
        yield (42,)
"""
PROGRAM = """
from sparkbolt.spark.session import make_session

print(make_session("found", "local[1]").read.format("answers").load().collect())
"""


def test_a_package_that_is_installed_is_found(tmp_path: Path) -> None:
    package = tmp_path / "pyspark_answers"
    package.mkdir()
    (package / "__init__.py").write_text(INSTALLED)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )
    assert result.stdout == "[Row(n=42)]\n", result.stderr[-4000:]


def test_without_one_spark_is_told_and_does_not_look(spark: Any) -> None:
    assert found_sources.spare_the_search(spark.sparkContext)
    manager = getattr(getattr(spark._jvm, found_sources._MANAGER), "MODULE$")
    assert manager.dataSourceBuilders().get().isEmpty()
    with pytest.raises(Exception, match="answers"):
        spark.read.format("answers").load()


def test_where_one_may_be_spark_looks(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyspark_answers.py").touch()
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("pyspark_more/__init__.py", "")
    assert found_sources.any_installed([str(tmp_path)])
    assert found_sources.any_installed([str(tmp_path / "more.zip")])
    assert not found_sources.any_installed([str(tmp_path / "away"), "", str(Path(__file__).parent)])
    with monkeypatch.context() as changed:
        changed.setenv("PYTHONPATH", str(tmp_path))
        assert not found_sources.spare_the_search(spark.sparkContext)
    with monkeypatch.context() as changed:
        changed.chdir(tmp_path)
        assert not found_sources.spare_the_search(spark.sparkContext)
    with monkeypatch.context() as changed:
        changed.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
        assert not found_sources.spare_the_search(spark.sparkContext)
    with monkeypatch.context() as changed:
        changed.setattr(spark.sparkContext._gateway, "proc", None)  # as under spark-submit
        assert not found_sources.spare_the_search(spark.sparkContext)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/usr/bin/another-python")
    assert not found_sources.spare_the_search(spark.sparkContext)


def test_with_another_spark_it_looks_as_ever(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found_sources, "_MANAGER", "sparkbolt.NotThere$")
    assert not found_sources.spare_the_search(spark.sparkContext)
