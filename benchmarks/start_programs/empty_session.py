"""A session of PySpark that counts one row."""

from __future__ import annotations

from pyspark.sql import SparkSession

session = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false").getOrCreate()
print("rows", session.range(1).count(), flush=True)
session.stop()
