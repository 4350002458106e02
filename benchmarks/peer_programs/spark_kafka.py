"""Spark's own Kafka source: `spark_kafka.py BROKERS TOPIC LINES OFFSETS_A_TRIGGER JARS`.

Splits lines in `mapInPandas`, counts words with Spark's aggregation, in micro-batches; tracks nothing. Prints what
each micro-batch had read by when.
"""

import os
import sys
import tempfile
import time

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

brokers, topic, lines, offsets, jars = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable  # it is what Spark starts its workers with
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)


def split(frames):
    for frame in frames:
        yield pd.DataFrame({"word": [word for line in frame["line"] for word in line.split()]})


source = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", offsets)
    .load()
)
words = source.select(col("value").cast("string").alias("line")).mapInPandas(split, "word string")
counts = words.groupBy("word").count()
query = (
    counts.writeStream.outputMode("update")
    .format("noop")
    .option("checkpointLocation", tempfile.mkdtemp(prefix="spark-kafka-"))
    .start()
)
seen, done = -1, 0
print("mark", time.time(), 0, flush=True)
while done < int(lines):
    time.sleep(0.05)
    if not query.isActive:
        raise SystemExit(str(query.exception()))
    for progress in query.recentProgress:
        if progress["batchId"] > seen and progress["numInputRows"]:
            seen = progress["batchId"]
            done += progress["numInputRows"]
            print("mark", time.time(), done, flush=True)
query.stop()
spark.stop()
