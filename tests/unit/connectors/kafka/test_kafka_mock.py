"""KafkaBolt against the mock cluster of the client library, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sparkbolt import Config, TopologyBuilder, bolt
from sparkbolt.api.components import TopologyContext
from sparkbolt.bolts import KafkaBolt
from sparkbolt.spouts import KafkaSpout
from tests.kafka import SEEN, run_to_end, spout, topology

pytestmark = pytest.mark.slow


def test_the_bolt_acks_no_tuple_before_the_broker_has_acknowledged_its_message(kafka, name):
    settled: list[tuple[str, int]] = []
    own = KafkaBolt(kafka.brokers, name, value="n", client={"linger.ms": 20_000})
    own.prepare(TopologyContext("t", "out", 0, 1, 1, Config()))
    collector = SimpleNamespace(
        ack=lambda tup: settled.append(("ack", tup["n"])), fail=lambda tup, _: settled.append(("fail", tup["n"]))
    )
    for number in range(600):
        own.execute({"n": number}, collector)
    assert settled == [], "they are in the producer's queue, and not with the broker"
    own.flush()
    assert sorted(settled) == [("ack", number) for number in range(600)]
    assert len(read_back(kafka, name)) == 600
    own.cleanup()


def read_back(kafka, topic):
    """The values of a topic's messages."""
    name = f"{topic}-back"
    SEEN[name] = []
    run_to_end(topology(name, KafkaSpout(kafka.brokers, topic, group=name, outputs=["value"], stop_at_end=True)))
    return [row["value"] for row in SEEN[name]]


@bolt(outputs=["topic", "key", "word", "headers"])
def to_write(tup):
    word = tup["line"]
    yield [f"{word[0]}-words" if word != "bad" else "", word[:1], word, {"length": str(len(word))}]


def test_the_bolt_writes_topic_key_value_and_headers_and_a_bad_tuple_fails_alone(kafka, name):
    kafka.produce(name, ["be", "bad", "or"], kafka_partition=0)
    builder = TopologyBuilder(name, Config(max_attempts=1))
    builder.set_spout("messages", spout(kafka.brokers, name, stop_at_end=True))
    builder.set_bolt("words", to_write).shuffle_grouping("messages")
    writer = KafkaBolt(kafka.brokers, topic_field="topic", key="key", value="word", headers="headers")
    builder.set_bolt("write", writer).shuffle_grouping("words")
    engine = run_to_end(builder.build())
    assert [tree.position for tree in engine.ledger.failed] == [1]
    assert engine.ledger.metrics.of("messages").acked == 2
    read = KafkaSpout(
        kafka.brokers, ["b-words", "o-words"], group="r", outputs=["topic", "key", "value", "headers"], stop_at_end=True
    )
    run_to_end(topology(name + "-read", read))
    assert sorted((row["topic"], row["key"], row["value"], row["headers"]) for row in SEEN[name + "-read"]) == [
        ("b-words", b"b", b"be", [("length", b"2")]),
        ("o-words", b"o", b"or", [("length", b"2")]),
    ]


def test_a_message_that_the_broker_does_not_accept_fails_its_tuple_alone(kafka, name):
    kafka.produce(name, ["short", "long" * 1000, "last"], kafka_partition=0)
    builder = TopologyBuilder(name, Config(max_attempts=1))
    builder.set_spout("messages", spout(kafka.brokers, name, stop_at_end=True))
    writer = KafkaBolt(kafka.brokers, f"{name}-out", client={"message.max.bytes": 1000})
    builder.set_bolt("write", writer).shuffle_grouping("messages")
    engine = run_to_end(builder.build())
    assert [tree.position for tree in engine.ledger.failed] == [1]
    assert engine.ledger.metrics.of("messages").acked == 2
