"""Dead letters as Kafka messages: what does not fit, what cannot be encoded, what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt.api.dead_letters import Attempt, DeadLetter, RawMessage
from sparkbolt.connectors.kafka import kafka_sender
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_dead_letters import (
    KafkaDeadLetters,
    LettersNotTakenError,
    discard,
    letter_of,
    message_of,
    read_topic,
)
from sparkbolt.control.letters.topic import LetterTopic
from sparkbolt.spouts.kafka import MockKafka
from tests.small_broker import SmallBroker


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    with MockKafka() as mock:
        yield mock


def letter(name: str, value: bytes | None = b"be", *, reason: str = "ValueError: no", **other: Any) -> DeadLetter:
    last = Attempt(1, "33c3a78b9b45efb1", "exception", reason, "count", 0, 7, 1000, 1500, "Traceback " * 400)
    raw = RawMessage(value, b"k") if value is not None else None
    tuples = ((value.decode(),),) if value is not None else ()
    known = {"source": "orders/0", "position": 17, "fields": ("line",), "tuples": tuples, "raw": raw, **other}
    return DeadLetter(name, "t", "v", "lines", 0, (last,), **known)


@pytest.mark.slow
def test_a_letter_too_long_for_its_topic_is_shortened_and_blocks_no_other(kafka):
    kafka.create("short.dlq")
    sink = KafkaDeadLetters(kafka.brokers, "short.dlq", client={"message.max.bytes": 20_000})
    sink.open(SimpleNamespace())
    sink.write([letter("fits"), letter("alone", b"x" * 17_000), letter("never", b"x" * 30_000)])
    found = {one.id: one for one in read_topic(ClientSettings(kafka.brokers), "short.dlq").letters}
    assert sorted(found) == ["alone", "fits", "never"]
    assert (found["fits"].raw.value, found["fits"].last.traceback) == (b"be", "Traceback " * 400)
    assert (found["alone"].raw.value, found["alone"].last.traceback) == (b"x" * 17_000, None)
    assert found["never"].raw is None
    assert found["never"].note.startswith("the message of 30000 bytes is not here")
    assert found["never"].last.reason == "ValueError: no"


def test_half_a_character_in_a_reason_keeps_no_letter_from_being_written():
    broken = letter("a", reason="KeyError: '\ud800'")
    message = message_of(broken)
    assert dict(message.headers)["__streams.errors.message"] == b"KeyError: '\\ud800'"
    assert letter_of(message) == broken


@pytest.mark.slow
def test_a_letter_without_its_message_is_not_replayed_as_an_empty_one(kafka):
    kafka.create("gone.dlq")
    kafka.create("orders")
    sink = KafkaDeadLetters(kafka.brokers, "gone.dlq")
    sink.open(SimpleNamespace())
    sink.write([letter("gone", None, note="the record at orders/0@17 is gone")])
    topic = LetterTopic(f"{kafka.brokers}/gone.dlq")
    done = topic.replay(topic.letters().letters, None)
    assert done.ids == []
    assert "is gone" in done.left_out[0]


def test_a_missing_topic_of_dead_letters_is_named(monkeypatch):
    monkeypatch.setattr(kafka_sender, "NEW_TOPIC_SECS", 0.001)
    with (
        SmallBroker() as broker,
        pytest.raises(
            LettersNotTakenError,
            match=r"1 message\(s\) .* topic 'lost' at 127\S+: it does not exist: create it",
        ),
    ):
        discard(ClientSettings(broker.address), "lost", ["ab"])
