"""A transactional topology with three sinks that is killed: a program of its own, started by ``test_sinks_killed``.

    python -m tests.services.sinks_killed URL BROKERS TEXT DIRECTORY MOMENT

Each line is a number. Each 50th fails at its first attempt, each 97th at every attempt; the database refuses ``BAD``.
``MOMENT`` says where the driver kills itself with SIGKILL: ``SqlBolt-before:3`` (the rows of a micro-batch from 3 on
are durable in the checkpoint, and are about to be committed) or ``SqlBolt-after:3`` (they are in the database,
and the checkpoint does not know), the same with ``KafkaBolt`` and ``SparkSink``; ``wait:3`` (the commit begins when
there is a file ``go``), or ``never``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from sparkbolt import BasicBolt, Config, RetryPolicy, Topology, TopologyBuilder
from sparkbolt.bolts import KafkaBolt, SparkSink, SqlBolt
from sparkbolt.spark.session import make_session
from sparkbolt.spouts import TextSpout
from tests.docs.pages import recipe
from tests.services.jars import jars

FAILS_ONCE, FAILS_ALWAYS, BAD = 50, 97, 7


class Picky(BasicBolt):
    """Does not take every number, or not at once."""

    outputs = ["n"]
    stateless = True

    def execute(self, tup, collector):
        number = int(tup["line"])
        collector.emit([number])
        if number % FAILS_ALWAYS == 0 or (number % FAILS_ONCE == 0 and tup.attempt == 1):
            raise ValueError(f"{number} cannot be taken now")


def build(url: str, brokers: str, text: str) -> Topology:
    config = Config(transactional=True, micro_batch_bytes_max=1024, compact_every=3, retry=RetryPolicy(max_retries=2))
    builder = TopologyBuilder("sinks", config)
    builder.set_spout("lines", TextSpout(text), parallelism=2)
    builder.set_bolt("picky", Picky(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("rows", SqlBolt(url, "numbers", columns=["n"]), parallelism=2).shuffle_grouping("picky")
    sums = SqlBolt(url, "sums", "merge", keys=["digit"], combine={"total": "add"}, create=True,
                   columns={"digit": lambda tup: tup["n"] % 10, "total": "n"})  # fmt: skip
    builder.set_bolt("sums", sums, parallelism=2).fields_grouping("picky", ["n"])
    builder.set_bolt(
        "messages", KafkaBolt(brokers, "numbers", value="n", deliver_secs=10), parallelism=2
    ).shuffle_grouping("picky")
    append_by_jdbc = recipe("docs/sinks.md", "append_by_jdbc.py")["AppendByJdbc"]
    appended = append_by_jdbc(jdbc_url(url), "appended", {"driver": "org.postgresql.Driver"})
    builder.set_bolt("appended", SparkSink("picky", appended, schema="n long"), parallelism=2)
    return builder.build()


def jdbc_url(url: str) -> str:
    """The same database, as JDBC names it."""
    found = make_url(url)
    return f"jdbc:postgresql://{found.host}:{found.port}/{found.database}?user={found.username}"


def die() -> None:
    """As a machine dies: no handler, no cleanup."""
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def plant(moment: str, directory: Path) -> None:
    """Let the driver die at a moment, or wait."""
    where, _, number = moment.partition(":")
    name, _, side = where.partition("-")
    kind: Any = {"KafkaBolt": KafkaBolt, "SparkSink": SparkSink}.get(name, SqlBolt)
    commit = kind.commit

    def planted(self: Any, txid: int, rows: Any) -> None:
        due = txid >= int(number)
        if due and side == "before":
            die()
        if due and where == "wait":
            (directory / "waits").touch()
            while not (directory / "go").exists():
                threading.Event().wait(0.05)
        commit(self, txid, rows)
        if due and side == "after":
            die()

    kind.commit = planted


def main() -> None:
    url, brokers, text, directory, moment = sys.argv[1:]
    if moment != "never":
        plant(moment, Path(directory))
    drivers = ",".join(str(path) for path in jars("postgresql").glob("*.jar"))
    spark = make_session("sinks", "local[2,4]", {"spark.jars": drivers})
    running = build(url, brokers, text).start(spark=spark, checkpoint=f"{directory}/checkpoint")
    running.await_finished()
    lines = running.metrics().components["lines"]
    print(f"acked {lines.acked} given up {lines.given_up}", flush=True)
    running.stop()


if __name__ == "__main__":
    main()
