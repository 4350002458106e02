"""A bank whose driver, workers, broker and database are killed: a program of its own, started by ``test_bank``.

    python -m tests.services.bank BROKERS POSTGRESQL DIRECTORY AT_ONCE TRANSACTIONAL

A message is a transfer, ``number source target amount``. The source is debited before the target is credited. The
credit of one transfer in a hundred fails at its first two attempts, that of one in a thousand at every attempt. Each
debit and each credit is a booking: it changes a balance in the state of a task, is added to the account's row in
PostgreSQL, and becomes a row of a Delta table. ``AT_ONCE`` is how many transfers of a kafka_partition a micro-batch
reads. It ends when Kafka has no more transfers and every tree is finished, and
prints its counts.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path

from sparkbolt import BasicBolt, Bolt, Config, RetryPolicy, Topology, TopologyBuilder
from sparkbolt.bolts import DeltaBolt, SqlBolt
from sparkbolt.spouts import KafkaSpout

TOPIC, GROUP = "transfers", "bank"
FAILS_TWICE, FAILS_ALWAYS = 100, 1000
BOOKING = ["number", "account", "side", "change", "balance"]


def fails_always(number: int) -> bool:
    """Whether no attempt at a transfer ever succeeds."""
    return number % FAILS_ALWAYS == 7


def fails_twice(number: int) -> bool:
    """Whether the first two attempts at a transfer fail."""
    return number % FAILS_TWICE == 3


class Parse(BasicBolt):
    """A transfer of a message."""

    outputs = ["number", "source", "target", "amount"]
    stateless = True

    def execute(self, tup, collector):
        number, source, target, amount = tup["transfer"].split()
        collector.emit([int(number), source, target, int(amount)])


class Debit(Bolt):
    """Takes the amount from the source."""

    outputs = {"default": ["number", "target", "amount"], "bookings": BOOKING}

    def prepare(self, context):
        self.balances = {}

    def execute(self, tup, collector):
        number, source, amount = tup["number"], tup["source"], tup["amount"]
        balance = self.balances[source] = self.balances.get(source, 0) - amount
        collector.emit([number, source, "debit", -amount, balance], stream="bookings", anchors=[tup])
        collector.emit([number, tup["target"], amount], anchors=[tup])
        collector.ack(tup)


class Credit(Bolt):
    """Gives the amount to the target, and finds out only then whether it may."""

    outputs = {"bookings": BOOKING}

    def prepare(self, context):
        self.balances = {}

    def execute(self, tup, collector):
        number, target, amount = tup["number"], tup["target"], tup["amount"]
        balance = self.balances[target] = self.balances.get(target, 0) + amount
        collector.emit([number, target, "credit", amount, balance], stream="bookings", anchors=[tup])
        if fails_always(number) or (fails_twice(number) and tup.attempt < 3):
            raise ValueError(f"account {target} takes nothing now")
        collector.ack(tup)


def build(brokers: str, postgresql: str, directory: Path, at_once: int, *, transactional: bool) -> Topology:
    """From Kafka by debit and credit to a database and a table."""
    config = Config(
        transactional=transactional,
        message_timeout_secs=600,
        retry=RetryPolicy(max_retries=3, min_backoff=timedelta(milliseconds=50)),
        restarts_max=1000,
        restart_backoff_secs=0.1,
        compact_every=4,
        micro_batch_target_ms=60_000,
    )
    builder = TopologyBuilder("bank", config)
    transfers = KafkaSpout(
        brokers,
        TOPIC,
        group=GROUP,
        value="text",
        outputs=["transfer"],
        start="earliest",
        request_secs=5.0,
        max_poll_records=at_once,
    )
    builder.set_spout("transfers", transfers, parallelism=2)
    builder.set_bolt("parse", Parse(), parallelism=2).shuffle_grouping("transfers")
    builder.set_bolt("debit", Debit(), parallelism=2).fields_grouping("parse", ["source"])
    builder.set_bolt("credit", Credit(), parallelism=2).fields_grouping("debit", ["target"])
    rows = SqlBolt(
        postgresql,
        "balances",
        "merge",
        keys=["account"],
        columns={"account": "account", "balance": "change", "bookings": lambda tup: 1},
        combine={"balance": "add", "bookings": "add"},
    )
    schema = "number long not null, account string, side string, change long, balance long"
    table = DeltaBolt(str(directory / "bookings"), schema=schema)
    for name, sink in (("rows", rows), ("table", table)):
        declared = builder.set_bolt(name, sink, parallelism=2)
        declared.shuffle_grouping("debit", "bookings").shuffle_grouping("credit", "bookings")
    return builder.build()


def main() -> None:
    """Run until all is finished."""
    brokers, postgresql, directory, at_once, transactional = sys.argv[1:]
    topology = build(brokers, postgresql, Path(directory), int(at_once), transactional=transactional == "True")
    running = topology.start(checkpoint=f"{directory}/checkpoint", master="local[2,4]")
    print("started", flush=True)
    running.await_idle()
    metrics = running.metrics()
    transfers = metrics.components["transfers"]
    said = {"acked": transfers.acked, "set_aside": transfers.set_aside, "open": metrics.open_trees}
    print(json.dumps(said), flush=True)
    running.stop()


if __name__ == "__main__":
    main()
