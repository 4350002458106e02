"""Spark's Python processes import PySpark from where it is installed, where it is compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

pytestmark = [pytest.mark.spark]


class Places(DataSource):
    """Where PySpark comes from: in the process that makes a source, in the one that plans it, in a worker."""

    @classmethod
    def name(cls) -> str:
        return "places"

    def schema(self) -> str:
        return "place string"

    def reader(self, schema: object) -> DataSourceReader:
        return PlacesReader(str(pyspark.__file__))


class PlacesReader(DataSourceReader):
    def __init__(self, made: str) -> None:
        self.made = made

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(f"{self.made}\n{pyspark.__file__}")]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        for place in [*partition.value.split("\n"), str(pyspark.__file__)]:
            yield (place,)


def test_no_python_process_of_spark_imports_pyspark_from_a_zip(spark: SparkSession) -> None:
    spark.dataSource.register(Places)
    found = [row["place"] for row in spark.read.format("places").load().collect()]
    assert found == [pyspark.__file__] * 3
