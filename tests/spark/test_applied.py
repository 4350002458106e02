"""A topology as a part of a query that is not Sparkbolt's."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkbolt import Committer, Config, TopologyBuilder
from sparkbolt.bolts import SparkSink
from sparkbolt.errors import EngineError
from sparkbolt.spark.applied import _typed
from sparkbolt.spark.session import SQL_SETTINGS, make_session
from sparkbolt.spouts import SparkSpout
from tests.topologies import Count, Split

pytestmark = [pytest.mark.spark]


class Poisoned(Split):
    """The words of a line; one of them is poison."""

    stateless = True

    def execute(self, tup, collector):
        if "poison" in tup["line"]:
            raise ValueError("a poisoned word")
        super().execute(tup, collector)


def words(*, count: bool) -> TopologyBuilder:
    builder = TopologyBuilder("words")
    builder.set_spout("lines", SparkSpout(lambda spark: None, outputs=["line"]))
    builder.set_bolt("split", Poisoned(), parallelism=2).shuffle_grouping("lines")
    if count:
        builder.set_bolt("count", Count(), parallelism=3).fields_grouping("split", ["word"])
    return builder


@pytest.fixture
def spark() -> SparkSession:
    return make_session("applied", "local[2]").newSession()


def lines(spark: SparkSession, *texts: str) -> DataFrame:
    return spark.createDataFrame([(text, 1) for text in texts], "line string, other int")


def test_the_rest_of_a_query_on_a_table_is_sql(spark: SparkSession) -> None:
    df = lines(spark, *["to be or", "not to be"] * 1000)
    result = words(count=False).build().apply(df, schema="word string")
    counts = {row["word"]: row["count"] for row in result.groupBy("word").count().collect()}
    assert counts == {"to": 2000, "be": 2000, "or": 1000, "not": 1000}


def test_state_is_in_the_checkpoint_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    spark.conf.set("spark.sql.shuffle.partitions", "3")  # Spark's own 200 take a minute a query, for the same rows
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass", SQL_SETTINGS["spark.sql.streaming.stateStore.providerClass"]
    )
    for number, text in enumerate(["to be\nor", "not to be"]):
        (tmp_path / "in" / f"{number}.txt").write_text(text)
        df = spark.readStream.text(str(tmp_path / "in")).withColumnRenamed("value", "line")
        result = words(count=True).build().apply(df, schema="word string, count long")
        query = (
            result.where("word <> 'or'")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
    rows = [(row["word"], row["count"]) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(rows) == [("be", 1), ("be", 2), ("not", 1), ("to", 1), ("to", 2)]


def test_a_tuple_that_fails_fails_the_query_or_is_left_out(spark: SparkSession) -> None:
    df = lines(spark, "to be", "or poison", "not")
    topology = words(count=False).build()
    with pytest.raises(Exception, match=r"1 tuples failed \(split\).*a poisoned word"):
        topology.apply(df, schema="word string").collect()
    left = topology.apply(df, schema="word string", failures="drop").collect()
    assert sorted(row["word"] for row in left) == ["be", "not", "to"]


def test_a_value_that_the_schema_does_not_allow_is_named(spark: SparkSession) -> None:
    result = words(count=False).build().apply(lines(spark, "be"), schema="word int")
    with pytest.raises(Exception, match=r"a value of field 'word' is no int32.*: the tuple is \{'word': 'be'\}"):
        result.collect()
    kept = _typed([[1], ["x"], [True], [2]], pa.schema([("n", pa.int32())]), "drop")
    assert kept["n"].to_pylist() == [1, 2]
    day = dt.date(2024, 2, 29)
    dates = _typed([[day], [dt.datetime(2024, 2, 29, 12)]], pa.schema([("n", pa.date32())]), "drop")
    assert dates["n"].to_pylist() == [day]
    longs = words(count=False).build().apply(lines(spark, "be"), schema="word int", failures="drop")
    assert longs.collect() == []


class Out(Committer):
    def commit(self, txid, rows):
        pass


@pytest.mark.parametrize(
    ("changed", "options", "why"),
    [
        (lambda b: b.set_spout("more", SparkSpout(lambda spark: None, outputs=["line"])), {}, "has 2 spouts"),
        (lambda b: b.set_bolt("out", Out()).shuffle_grouping("split"), {"component": "split"}, "'out' is a committer"),
        (lambda b: b.set_bolt("out", SparkSink("split", print)), {"component": "split"}, "'out' is a committer"),
        (lambda b: b.set_bolt("split2", Split()).shuffle_grouping("lines"), {}, "has 2 bolts with outputs"),
        (lambda b: None, {"schema": "wrod string"}, r"schema has the columns \['wrod'\], and 'split' emits \['word'\]"),
        (lambda b: None, {"failures": "ignore"}, "failures is 'ignore', expected 'raise' or 'drop'"),
    ],
)
def test_what_only_its_own_engine_can_do_is_refused(
    spark: SparkSession, changed: Any, options: dict[str, Any], why: str
) -> None:
    builder = words(count=False)
    changed(builder)
    with pytest.raises(EngineError, match=why):
        builder.build().apply(lines(spark, "be"), **{"schema": "word string", **options})


def test_ticks_transactions_and_missing_columns_are_refused(spark: SparkSession) -> None:
    builder = TopologyBuilder("words", Config(transactional=True, tick_tuple_freq_secs=1.0))
    builder.set_spout("lines", SparkSpout(lambda spark: None, outputs=["text"]))
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    with pytest.raises(EngineError, match="'split' wants ticks, which nobody sends; it is transactional, and"):
        builder.build().apply(lines(spark, "be"), schema="word string")
    builder = TopologyBuilder("words")
    builder.set_spout("lines", SparkSpout(lambda spark: None, outputs=["text"]))
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    with pytest.raises(EngineError, match=r"its DataFrame has no column 'text': its columns are \['line', 'other'\]"):
        builder.build().apply(lines(spark, "be"), schema="word string")
