"""The private names of Spark that the engine uses are in this version of Spark."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from pyspark import java_gateway

from sparkbolt.spark.checkpoint import module_of
from sparkbolt.spark.versions import (
    NEWEST,
    OLDEST,
    PRIVATE_CLASSES,
    PRIVATE_METHODS,
    PRIVATE_OF_A_DATA_FRAME,
    number_of,
)

pytestmark = [pytest.mark.spark]


def class_of(spark: Any, name: str) -> Any:
    jvm = spark._jvm
    return jvm.java.lang.Class.forName(name, False, jvm.Thread.currentThread().getContextClassLoader())


@pytest.mark.parametrize("name", PRIVATE_CLASSES)
def test_private_classes_of_spark_exist(spark: Any, name: str) -> None:
    assert OLDEST <= number_of(spark.version) <= NEWEST
    if name.endswith("$"):
        module_of(spark._jvm, name)
    else:
        class_of(spark, name)


@pytest.mark.parametrize("name", sorted(PRIVATE_METHODS))
def test_private_methods_of_spark_exist(spark: Any, name: str) -> None:
    there = {method.getName() for method in class_of(spark, name).getMethods()}
    assert set(PRIVATE_METHODS[name]) <= there


@pytest.mark.parametrize("name", PRIVATE_OF_A_DATA_FRAME)
def test_private_methods_of_a_data_frame_exist(spark: Any, name: str) -> None:
    assert callable(getattr(spark.range(1), name))


def test_pyspark_starts_its_jvm_through_a_name_in_its_module() -> None:
    assert java_gateway.Popen is subprocess.Popen
