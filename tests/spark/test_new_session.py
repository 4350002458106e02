"""A session of a new JVM: what Spark does not do at its start it does when that is needed. One program shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
from pyspark.ml.functions import array_to_vector, vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.ml.stat import Summarizer

from sparkbolt.spark.session import make_session

spark = make_session("new", "local[2]", {"spark.sql.session.timeZone": "Asia/Tokyo"})
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
print("found", spark.read.format("answers").load().collect())
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of the program, which has a data source installed."""
    directory = tmp_path_factory.mktemp("installed")
    (directory / "pyspark_answers").mkdir()
    (directory / "pyspark_answers/__init__.py").write_text(INSTALLED)
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
        check=False,
    )
    return [*result.stdout.splitlines(), result.stderr[-4000:]]


def test_machine_learning_functions_are_registered_on_first_use_and_work_as_before(
    printed: list[str],
) -> None:
    assert printed[:6] == [
        "at the start {'sparkbolt.MlFunctions'}",
        "arrays [[1.0, 2.0], [3.0, 4.0]]",
        "vectors [[1.0, 2.0], [3.0, 4.0]]",
        "mean [2.0, 3.0]",
        "at the end False",
        "setting ['Asia/Tokyo', 'Asia/Tokyo']",
    ], printed


def test_a_data_source_that_is_installed_is_found(printed: list[str]) -> None:
    assert "found [Row(n=42)]" in printed, printed
