"""A topology fed by a connector of Spark's, which is killed: a program of its own, started by ``test_connectors``.

    python -m tests.versions.connectors KIND DIRECTORY JARS MOMENT

It fills a table of Delta or Iceberg, or a topic of Kafka, when ``DIRECTORY`` has no ``filled`` yet, reads it with a
``SparkSpout`` in several micro-batches, fails some rows at first and some always, and writes each row that passes, to
files and to a second table of the same kind. ``KIND`` is ``delta``, ``iceberg`` or ``kafka=HOST:PORT``. ``MOMENT`` is
one of ``tests.chaos.moments`` with the number of a micro-batch, ``written:2`` (the second table has the rows of
micro-batch 2, and the checkpoint does not know it), or ``never``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparkbolt import Config, Topology, TopologyBuilder
from sparkbolt.bolts import JsonLinesBolt, SparkSink
from sparkbolt.spark.session import make_session
from sparkbolt.spouts import SparkSpout
from tests.chaos.moments import plant
from tests.docs.pages import recipe
from tests.spark.killed import die
from tests.spark.spark_rows import Fussy

ROWS, WRITES = 240, 4
"""How many rows there are, and in how many commits they were written."""


def settings(kind: str, directory: str) -> dict[str, str]:
    """What the connector wants of a session."""
    if kind == "delta":
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    if kind == "iceberg":
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": f"{directory}/lake",
        }
    return {}


def fill(spark: Any, kind: str, directory: str) -> None:
    """Write the rows, in several commits."""
    step = ROWS // WRITES
    for start in range(1, ROWS + 1, step):
        rows = spark.range(start, start + step, 1, 1).selectExpr("concat('k', id) as id", "cast(id as int) as n")
        if kind == "delta":
            rows.write.format("delta").mode("append").save(f"{directory}/table")
        elif kind == "iceberg":
            spark.sql("create table if not exists lake.db.rows (id string, n int) using iceberg")
            rows.writeTo("lake.db.rows").append()
        else:
            text = rows.selectExpr("id as key", "cast(n as string) as value")
            options = {"kafka.bootstrap.servers": kind.removeprefix("kafka="), "topic": topic_of(directory)}
            text.write.format("kafka").options(**options).save()


def topic_of(directory: str) -> str:
    return f"rows-{Path(directory).name}"


def reader(kind: str, directory: str) -> Callable[[Any], Any]:
    """What the spout reads: a part of the rows in each micro-batch."""
    if kind == "delta":
        return lambda spark: spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(f"{directory}/table")
    if kind == "iceberg":
        option = "streaming-max-files-per-micro-batch"
        return lambda spark: spark.readStream.format("iceberg").option(option, 1).load("lake.db.rows")
    options = {
        "kafka.bootstrap.servers": kind.removeprefix("kafka="),
        "subscribe": topic_of(directory),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": ROWS // WRITES,
    }
    columns = "cast(key as string) as id", "cast(cast(value as string) as int) as n"
    return lambda spark: spark.readStream.format("kafka").options(**options).load().selectExpr(*columns)


def build(kind: str, directory: str) -> Topology:
    """Rows of the connector; numbers divisible by 7 fail once, those by 100 always."""
    builder = TopologyBuilder("connectors", Config(message_timeout_secs=600, max_attempts=3))
    rows = SparkSpout(reader(kind, directory), outputs=["id", "n"], message_id="id")
    builder.set_spout("rows", rows, parallelism=2)
    builder.set_bolt("fussy", Fussy(), parallelism=2).fields_grouping("rows", ["id"])
    builder.set_bolt("out", JsonLinesBolt(f"{directory}/out")).shuffle_grouping("fussy")
    if kind in ("delta", "iceberg"):
        to_delta = recipe("docs/sinks.md", "append_to_delta.py")["AppendToDelta"]
        to_iceberg = recipe("docs/sinks.md", "append_to_iceberg.py")["AppendToIceberg"]
        target = to_delta(f"{directory}/copy") if kind == "delta" else to_iceberg("lake.db.copy")
        builder.set_bolt("copy", SparkSink("fussy", target, schema="id string, n int"))
    return builder.build()


def main() -> None:
    """Fill, if there is nothing yet; run until all rows are done, or to the kill."""
    kind, directory, jars, moment = sys.argv[1:]
    where, _, number = moment.partition(":")
    if where != "never":
        moment = "written:copy" if where == "written" else where
        plant(moment, lambda reached: die() if reached >= int(number) else None)
    paths = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    spark = make_session("connectors", "local[2]", {"spark.jars": paths, **settings(kind, directory)})
    if not Path(directory, "filled").exists():
        fill(spark, kind, directory)
        Path(directory, "filled").touch()
    running = build(kind, directory).start(spark=spark, checkpoint=f"{directory}/checkpoint")
    assert running.await_idle(300)
    rows = running.metrics().components["rows"]
    print(f"acked {rows.acked} given up {rows.given_up} letters {rows.dead_letters}", flush=True)
    if kind in ("delta", "iceberg"):
        table = spark.read.format("delta").load(f"{directory}/copy") if kind == "delta" else spark.table("lake.db.copy")
        print("copied", sorted(row["n"] for row in table.collect()), flush=True)
    running.stop()


if __name__ == "__main__":
    main()
