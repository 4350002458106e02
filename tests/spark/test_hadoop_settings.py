"""What Spark sends with each stateful micro-batch: all of Hadoop's settings, without where each came from."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkbolt.spark.hadoop_settings import forget_sources
from sparkbolt.spark.session import make_session

pytestmark = [pytest.mark.spark]


def sent(spark: SparkSession) -> tuple[dict[str, str], int]:
    """The settings, and as how many bytes they are broadcast."""
    settings: Any = spark._jsparkSession.sessionState().newHadoopConf()
    buffer = spark._jvm.org.apache.hadoop.io.DataOutputBuffer()
    settings.write(buffer)
    entries = settings.iterator()
    found = {}
    while entries.hasNext():
        entry = entries.next()
        found[entry.getKey()] = entry.getValue()
    return found, buffer.getLength()


def test_settings_stay_unchanged_and_fewer_of_them_are_sent() -> None:
    spark = make_session("settings", "local[2]").newSession()
    spark._jsc.hadoopConfiguration().set("fs.own.setting", "kept")
    before, _ = sent(spark)
    assert forget_sources(spark)
    after, small = sent(spark)
    assert after == before
    assert after["fs.own.setting"] == "kept"
    spark._jsc.hadoopConfiguration().reloadConfiguration()  # as Hadoop does for a further file of defaults
    again, large = sent(spark)
    assert small < large
    assert again.keys() == before.keys()
    assert again["fs.own.setting"] == "kept"


def test_the_jvm_is_asked_a_few_times_and_not_for_each_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = make_session("settings", "local[2]").newSession()
    settings: Any = spark._jsc.hadoopConfiguration()
    settings.reloadConfiguration()
    client: Any = spark._jvm._gateway_client
    send, asked = client.send_command, []

    def noting(command: str, *rest: Any, **options: Any) -> Any:
        if not command.startswith("m\n"):  # py4j lets the JVM forget what other tests have left
            asked.append(command)
        return send(command, *rest, **options)

    many = settings.size()
    monkeypatch.setattr(client, "send_command", noting)
    assert forget_sources(spark)
    assert len(asked) < 50 < many
