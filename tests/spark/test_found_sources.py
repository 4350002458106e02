"""Installed data sources of Python: when Spark looks for them. ``test_new_session`` has one installed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.spark import found_sources

pytestmark = [pytest.mark.spark]


def test_spark_skips_the_search_if_no_source_is_installed(spark: Any) -> None:
    assert found_sources.spare_the_search(spark.sparkContext)
    manager = getattr(getattr(spark._jvm, found_sources._MANAGER), "MODULE$")
    assert manager.dataSourceBuilders().get().isEmpty()
    with pytest.raises(Exception, match="answers"):
        spark.read.format("answers").load()


def test_spark_searches_for_sources_if_one_may_be_installed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
