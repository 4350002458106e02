"""Spark's functions for machine learning: registered when they are asked for, and there like in any session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.spark import ml_functions
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]
PROGRAM = """
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.ml.stat import Summarizer

from sparkbolt.spark.session import make_session

spark = make_session("learning", "local[2]", {"spark.sql.session.timeZone": "Asia/Tokyo"})
registries = getattr(spark._jvm, "org.apache.spark.sql.catalyst.analysis.FunctionRegistry$")
registry = getattr(registries, "MODULE$").internal()
identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier


def registered(name):
    return registry.lookupFunctionBuilder(identifier(name)).get().getClass().getName()


names = ("vector_to_array", "array_to_vector", "aggregate_metrics")
print("at the start", {registered(name) for name in names})
rows = spark.createDataFrame([(Vectors.dense(1.0, 2.0),), (Vectors.dense(3.0, 4.0),)], ["v"])
arrays = rows.select(vector_to_array("v").alias("a"))
print("arrays", sorted(row.a for row in arrays.collect()))
print("vectors", sorted(row.v.toArray().tolist() for row in arrays.select(array_to_vector("a").alias("v")).collect()))
print("mean", rows.select(Summarizer.mean(rows.v).alias("m")).first().m.toArray().tolist())
print("at the end", any("sparkbolt" in registered(name) for name in names))
print("setting", [session.conf.get("spark.sql.session.timeZone") for session in (spark, spark.newSession())])
"""


def test_they_are_registered_when_one_is_asked_for_and_work_as_ever() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )
    assert result.stdout.splitlines() == [
        "at the start {'sparkbolt.MlFunctions'}",
        "arrays [[1.0, 2.0], [3.0, 4.0]]",
        "vectors [[1.0, 2.0], [3.0, 4.0]]",
        "mean [2.0, 3.0]",
        "at the end False",
        "setting ['Asia/Tokyo', 'Asia/Tokyo']",
    ], result.stderr[-4000:]


def test_where_others_extend_sessions_too_spark_makes_them(spark: Any, tmp_path: Path) -> None:
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
def test_with_another_spark_all_is_as_spark_does_it(spark: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(ml_functions, name, "sparkbolt.NotThere")
    assert not ml_functions.session_without(spark.sparkContext)
