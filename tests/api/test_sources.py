"""The sources of the public interface are made as they stand there, and read a broker."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.api.dead_letters import stream_of
from sparkbolt.bolts import KafkaBolt
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_dead_letters import read_topic
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import ZooKeeperOffsets
from sparkbolt.spouts.kafka import MockKafka
from tests.kafka import SEEN, Keep, committed, run

PROGRAM = Path(__file__).with_name("sources.py")
ELSEWHERE = ['"file:dead.jsonl"', '"stream:dead"', "print"]


def of(text: str) -> dict[str, object]:
    """What the program defines."""
    names: dict[str, object] = {}
    exec(compile(text, str(PROGRAM), "exec"), names)
    return names


def test_program_of_the_sources_is_created_and_built_unchanged() -> None:
    program = importlib.import_module("tests.api.sources")
    builder = TopologyBuilder("sources")
    builder.set_spout("orders", program.orders, parallelism=2)
    builder.set_spout("jobs", program.jobs)
    builder.set_bolt("keep", Keep("sources")).shuffle_grouping("orders").shuffle_grouping("jobs")
    built = builder.build()
    assert [spout.id for spout in built.spouts] == ["orders", "jobs"]
    assert (program.orders.outputs, program.jobs.outputs) == (["customer", "amount"], ["id", "task"])
    assert program.orders.retry.max_retries == 5


@pytest.mark.slow
def test_the_program_of_the_sources_reads_a_broker_and_writes_its_dead_letters() -> None:
    SEEN["sources"] = []
    with MockKafka() as kafka:
        kafka.create("orders.dlq")
        kafka.produce("orders", ['{"customer": "ann", "amount": 3, "by": "bob"}', "{no json"], kafka_partition=0)
        orders = of(PROGRAM.read_text().replace("localhost:9092", kafka.brokers))["orders"]
        builder = TopologyBuilder("sources")
        builder.set_spout("orders", orders, parallelism=2)
        builder.set_bolt("keep", Keep("sources")).shuffle_grouping("orders")
        builder.set_bolt("write", KafkaBolt(kafka.brokers, topic="billed")).shuffle_grouping("orders")
        engine = LocalEngine(builder.build())
        run(
            engine, lambda: engine.ledger.metrics.of("orders").dead_letters == 1 and engine.coordinator.in_force is None
        )
        for one in engine.coordinator.spouts.values():
            one.close()
        engine.close()
        assert [(row["customer"], row["amount"]) for row in SEEN["sources"]] == [("ann", 3)]
        assert committed(kafka.brokers, "orders", "billing")[0][0] == 2
        (letter,) = read_topic(ClientSettings(kafka.brokers), "orders.dlq").letters
        assert (letter.raw.value, letter.last.cause) == (b"{no json", "unreadable")


def test_other_locations_named_in_comments_of_the_program_are_valid() -> None:
    text = PROGRAM.read_text()
    for place in ELSEWHERE:
        changed = text.replace('dead_letters="orders.dlq"', f"dead_letters={place}")
        assert changed != text
        orders = of(changed)["orders"]
        builder = TopologyBuilder("sources")
        builder.set_spout("orders", orders)
        builder.set_bolt("keep", Keep("sources")).shuffle_grouping("orders")
        if stream_of(orders.dead_letters):
            builder.set_bolt("dead", Keep("dead")).shuffle_grouping("orders", "dead")
        builder.build()
    for store in ('ZooKeeperOffsets("localhost:2181", root="/kafkastorm")', '"file:offsets.json"'):
        changed = text.replace('offsets="group"', f"offsets={store}")
        assert changed != text
        assert isinstance(of(changed)["orders"].offsets, ZooKeeperOffsets | str)
