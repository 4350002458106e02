"""Dead letters of Kafka: an operator edits one and gives it again, or discards it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.api.dead_letters import RawMessage
from sparkbolt.connectors.kafka.kafka_dead_letters import KafkaDeadLetters
from sparkbolt.control.description import Description
from sparkbolt.control.letters.of_topology import NO_FILTER, TopologyLetters
from sparkbolt.control.letters.topic import LetterTopic
from sparkbolt.driver.ledger.ledger_files import LETTERS_FOLDER
from sparkbolt.layout.lane import lay_out
from sparkbolt.spark.checkpoint_files import open_files
from sparkbolt.spouts import KafkaSpout
from tests.unit.connectors.kafka.test_dead_letters import letter
from tests.unit.control.topologies import Pass

pytestmark = pytest.mark.slow


def described(brokers: str, **options: Any) -> Description:
    builder = TopologyBuilder("orders")
    spout = KafkaSpout(brokers, ["orders"], group="g", value="text", outputs=["line"], **options)
    builder.set_spout("lines", spout)
    builder.set_bolt("pass", Pass()).shuffle_grouping("lines")
    return Description.of(lay_out(builder.build(), 2), {})


def test_a_poison_message_is_corrected_and_returns_to_its_source(kafka: Any, tmp_path: Path) -> None:
    kafka.create("orders")
    (tmp_path / LETTERS_FOLDER).mkdir()
    poison = letter("a" * 32, b"1O")
    (tmp_path / LETTERS_FOLDER / "000000001.jsonl").write_text(poison.to_line() + "\n")
    letters = TopologyLetters(str(tmp_path), described(kafka.brokers), open_files)
    [shown] = letters.newest(NO_FILTER, 10, replayed=False, discarded=False)
    assert json.loads(json.dumps(shown))["raw"]["value"] == {"$bytes": "MU8="}
    answer = letters.replay(["aaaa"], {"line": "10"}, f"kafka:{kafka.brokers}")
    assert answer["done"], answer
    assert "1 letter(s) replayed with edited values" in answer["text"]
    [message] = read(kafka, "orders")
    assert (message.value, message.key) == (b"10", b"k")
    assert letters.newest(NO_FILTER, 10, replayed=False, discarded=False) == []


def read(kafka: Any, topic: str) -> list[RawMessage]:
    """All messages of a topic."""
    from sparkbolt.connectors.kafka.client_settings import ClientSettings, client_library
    from sparkbolt.connectors.kafka.kafka_dead_letters import raw_of

    library = client_library()
    consumer = library.Consumer(ClientSettings(kafka.brokers).consumer("test"))
    numbers = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([library.TopicPartition(topic, number, library.OFFSET_BEGINNING) for number in numbers])
    found: list[RawMessage] = []
    ended: set[int] = set()
    while len(ended) < len(numbers):
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                found.append(raw_of(message))
            elif message.error().code() == library.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


def test_dead_letters_in_a_topic_are_found_and_discarded_there(kafka: Any, tmp_path: Path) -> None:
    kafka.create("orders.dlq")
    sink = KafkaDeadLetters(kafka.brokers, "orders.dlq")
    sink.open(SimpleNamespace())  # type: ignore[arg-type]
    sink.write([letter("a" * 32), letter("b" * 32)])
    description = described(kafka.brokers, dead_letters="orders.dlq")
    assert description.letters == {"lines": f"kafka:{kafka.brokers}/orders.dlq"}
    letters = TopologyLetters(str(tmp_path), description, open_files)
    assert letters.discard(["a" * 32])["done"]
    shown = {one["id"][0]: one["discarded"] for one in letters.newest(NO_FILTER, 10, replayed=True, discarded=True)}
    assert shown == {"a": True, "b": False}
    topic = LetterTopic(f"{kafka.brokers}/orders.dlq")
    assert topic.discarded() == {"a" * 32}
    assert len(topic.letters().letters) == 2


def test_brokers_that_do_not_answer_leave_the_other_stores_readable(tmp_path: Path) -> None:
    (tmp_path / LETTERS_FOLDER).mkdir()
    (tmp_path / LETTERS_FOLDER / "000000001.jsonl").write_text(letter("a" * 32).to_line() + "\n")
    letters = TopologyLetters(
        str(tmp_path), Description(letters={"x": "file:/no/such/file", "lines": "checkpoint:"}), open_files
    )
    assert len(letters.newest(NO_FILTER, 10, replayed=True, discarded=True)) == 1
