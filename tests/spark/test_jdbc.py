"""JdbcAppend on the database that Spark brings: each micro-batch once, if calls are cut off and tables are odd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sparkbolt import Config, TopologyBuilder
from sparkbolt.bolts import JdbcAppend, SparkSink
from sparkbolt.bolts.jdbc_append import _is_away, _with_zones
from sparkbolt.bolts.sql_link import SESSIONS
from sparkbolt.core.model.components import TopologyContext
from sparkbolt.errors import CheckpointError, EngineError, Unavailable
from sparkbolt.spark.session import make_session
from sparkbolt.spouts import GeneratorSpout

pytestmark = [pytest.mark.spark]

DRIVER = {"driver": "org.apache.derby.jdbc.EmbeddedDriver"}


@pytest.fixture
def spark() -> SparkSession:
    return make_session("jdbc", "local[2]")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"jdbc:derby:{tmp_path}/shop;create=true"


def begun(url: str, checkpoint: str = "0123456789abcdef") -> JdbcAppend:
    target = JdbcAppend(url, "orders", DRIVER)
    target.begin(TopologyContext("t", "out", 0, 1, 1, Config(), checkpoint_id=checkpoint))
    return target


def orders(spark: SparkSession, url: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.jdbc(url, "orders", properties=DRIVER).collect())


def rows(spark: SparkSession, *values: tuple[int, str]) -> Any:
    return spark.createDataFrame(values, "id long, name string")


def execute(spark: SparkSession, url: str, text: str) -> None:
    """On a connection of its own, as another program would."""
    connection = spark._jvm.org.apache.derby.jdbc.EmbeddedDriver().connect(url, spark._jvm.java.util.Properties())
    statement = connection.createStatement()
    statement.execute(text)
    statement.close()
    connection.close()


def test_a_repeat_writes_nothing_and_another_checkpoint_begins_anew(spark: SparkSession, url: str) -> None:
    begun(url)(rows(spark, (1, "a"), (2, "b")), 3)
    begun(url)(rows(spark, (1, "a"), (2, "b")), 3)
    target = begun(url)
    target(rows(spark, (3, "c")), 7)
    begun(url, "fedcba9876543210")(rows(spark, (4, "d")), 1)
    assert orders(spark, url) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    with pytest.raises(CheckpointError, match="has txid 7 of this checkpoint, and this is txid 5"):
        target(rows(spark, (9, "x")), 5)


def test_a_call_that_was_cut_off_leaves_nothing_and_its_repeat_writes_all(spark: SparkSession, url: str) -> None:
    target = begun(url)
    target(rows(spark, (1, "a")), 1)
    bad = spark.range(100).selectExpr("id", "if(id = 77, raise_error('no more'), 'n') as name")
    with pytest.raises(Unavailable, match=r"table orders was not written.*no more"):
        target(bad, 2)
    with pytest.raises(Exception, match="no more") as error:  # the second time it is no accident
        target(bad, 2)
    assert not isinstance(error.value, Unavailable)
    assert orders(spark, url) == [(1, "a")]
    target(rows(spark, (2, "b")), 2)
    assert orders(spark, url) == [(1, "a"), (2, "b")]


def test_columns_are_found_in_any_case_and_one_that_lacks_is_named(spark: SparkSession, url: str) -> None:
    execute(spark, url, "create table orders (nr int generated always as identity, NAME varchar(9), Id bigint)")
    target = begun(url)
    target(rows(spark, (5, "a")), 1)
    assert [(row[1], row[2]) for row in orders(spark, url)] == [("a", 5)]
    with pytest.raises(EngineError, match=r"table orders has no column 'town': its columns are \['NR', 'NAME', 'ID'\]"):
        target(rows(spark, (6, "b")).selectExpr("id", "name as town"), 2)
    assert len(orders(spark, url)) == 1


def test_a_database_that_cannot_be_opened_is_told_in_its_own_words(spark: SparkSession, url: str) -> None:
    with pytest.raises(Unavailable, match=r"table orders was not written: .*nowhere.*not found"):
        begun(url.removesuffix(";create=true").replace("shop", "nowhere"))(rows(spark, (1, "a")), 1)


def test_a_driver_that_is_not_there_is_asked_for_and_not_waited_for(spark: SparkSession) -> None:
    for properties in ({}, {"driver": "org.nowhere.Driver"}):
        target = JdbcAppend("jdbc:nowhere://db/shop", "orders", properties)
        target.begin(TopologyContext("t", "out", 0, 1, 1, Config(), checkpoint_id="0123456789abcdef"))
        with pytest.raises(EngineError, match=r"no driver for jdbc:nowhere: .*spark.jars.packages.*'driver'"):
            target(rows(spark, (1, "a")), 1)


def test_a_connection_that_is_lost_is_known_by_its_state(spark: SparkSession, url: str) -> None:
    java = spark._jvm.java
    for state, away in (("08006", True), ("57P01", True), ("22001", False), (None, False)):
        lost = java.sql.SQLException("lost", state)
        error = Py4JJavaError("An error occurred", java.lang.RuntimeException("in a task", lost))
        assert _is_away(error) is away


def test_the_transaction_runs_in_utc(spark: SparkSession, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SESSIONS, "derby", "create table in_utc (n int)")
    begun(url)(rows(spark, (1, "a")), 1)
    assert spark.read.jdbc(url, "in_utc", properties=DRIVER).count() == 0


def test_a_timestamp_without_a_zone_becomes_an_instant_of_utc_whatever_the_zone_of_the_session(
    spark: SparkSession,
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        local = spark.sql("select timestamp_ntz'2026-03-08 02:30:00.000005' as `a``b`, 7 as n")
        found = _with_zones(local)
        assert found.dtypes == [("a`b", "timestamp"), ("n", "int")]
        assert found.selectExpr("unix_micros(`a``b`)", "n").collect() == [(1772937000000005, 7)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_topology_writes_to_a_database(spark: SparkSession, url: str, tmp_path: Path) -> None:
    builder = TopologyBuilder("shop", Config(transactional=True))
    made = [[number, f"name {number}"] for number in range(500)]
    builder.set_spout("rows", GeneratorSpout(lambda: made, outputs=["id", "name"]))
    builder.set_bolt("orders", SparkSink("rows", JdbcAppend(url, "orders", DRIVER), schema="id long, name string"))
    running = builder.build().start(spark=spark, checkpoint=tmp_path / "state")
    running.await_finished()
    assert running.stop()
    assert orders(spark, url) == [tuple(row) for row in made]
