"""Word counts as Structured Streaming queries by hand: `spark_words.py DIRECTORY WORDS SHAPE FILES_A_TRIGGER`.

Both shapes split lines in `mapInPandas`. ``aggregation`` leaves the counting to Spark's own `groupBy` and `count`;
``state`` keeps the counts in `transformWithStateInPandas`: a bucket's words come together, pandas adds them up, and all
counts of the bucket are one value of the state store, which is rewritten with each micro-batch. With a value a
word, each access would be a message to the JVM. Prints ``mark SECONDS WORDS`` for each micro-batch that is committed.
"""

import os
import pickle
import sys
import tempfile
import time
from collections import Counter

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

directory, words, shape, files = sys.argv[1:]
BUCKETS = 2
os.environ["PYSPARK_PYTHON"] = sys.executable  # it is what Spark starts its workers with
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.log.level", "ERROR")
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .getOrCreate()
)


def split(frames):
    for frame in frames:
        yield pd.DataFrame({"word": " ".join(frame["value"]).split()})


class Count(StatefulProcessor):
    """The counts of the words of one bucket."""

    def init(self, handle):
        self.counts = handle.getValueState("counts", "pickled binary")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        known = self.counts.get()
        counts = pickle.loads(known[0]) if known else Counter()
        counts.update(pd.concat([frame["word"] for frame in rows]).value_counts().to_dict())
        self.counts.update((pickle.dumps(counts),))
        yield from ()

    def close(self):
        pass


def counted(split_words):
    if shape == "aggregation":
        return split_words.groupBy("word").count()
    bucket = sql.abs(sql.hash("word")) % BUCKETS
    return (
        split_words.withColumn("bucket", bucket)
        .groupBy("bucket")
        .transformWithStateInPandas(
            statefulProcessor=Count(), outputStructType="word string, count long", outputMode="update", timeMode="none"
        )
    )


source = spark.readStream.option("maxFilesPerTrigger", files).text(directory)
split_words = source.mapInPandas(split, "word string").observe("split", sql.count(sql.lit(1)).alias("words"))
query = (
    counted(split_words)
    .writeStream.outputMode("update")
    .format("noop")
    .option("checkpointLocation", tempfile.mkdtemp(prefix="spark-words-"))
    .start()
)
seen, done = -1, 0
print("mark", time.time(), 0, flush=True)
while done < int(words):
    time.sleep(0.02)
    if not query.isActive:
        raise SystemExit(str(query.exception()))
    for progress in query.recentProgress:
        if progress["batchId"] > seen and progress["numInputRows"]:
            seen = progress["batchId"]
            done += progress["observedMetrics"]["split"]["words"]
            print("mark", time.time(), done, flush=True)
query.stop()
spark.stop()
