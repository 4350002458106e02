"""Spark's functions for machine learning: when Spark registers them itself. See ``test_new_session`` for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt.spark import ml_functions

pytestmark = [pytest.mark.spark]


def test_spark_creates_the_sessions_if_other_extensions_are_present(spark: Any, tmp_path: Path) -> None:
    jvm = spark._jvm
    thread = jvm.java.lang.Thread.currentThread()
    assert ml_functions._only_ml(jvm)
    services = tmp_path / ml_functions._PROVIDERS
    services.parent.mkdir(parents=True)
    services.write_text("of.ones.own.Extensions\n")
    before = thread.getContextClassLoader()
    places = spark.sparkContext._gateway.new_array(jvm.java.net.URL, 1)
    places[0] = jvm.java.io.File(str(tmp_path)).toURI().toURL()
    thread.setContextClassLoader(jvm.java.net.URLClassLoader(places, before))
    try:
        assert not ml_functions._only_ml(jvm)
        assert not ml_functions.session_without(spark.sparkContext)
    finally:
        thread.setContextClassLoader(before)


@pytest.mark.parametrize("name", ["_CLASS", "_SESSION", "_APPLY"])
def test_default_behaviour_of_spark_remains_if_its_internals_differ(
    spark: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(ml_functions, name, "sparkbolt.NotThere")
    assert not ml_functions.session_without(spark.sparkContext)
