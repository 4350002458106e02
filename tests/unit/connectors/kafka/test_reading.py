"""The reader of a kafka_partition and what a consumer may answer: a consumer of the test's own, and a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError

from sparkbolt.connectors.kafka import partition_reader as reading
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.partition_reader import AWAY_SECS, PartitionReader
from sparkbolt.errors import SourceUnavailable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Consumer:
    """Answers each question with what ``answer`` gives, which takes a second."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.answer: Callable[[], list[Any]] = list
        self.asked = 0
        self.log = 0, 1000

    def assign(self, places: Any) -> None: ...

    def seek(self, place: Any) -> None: ...

    def consume(self, count: int, wait_secs: float) -> list[Any]:
        self.asked += 1
        assert self.asked < 1000, "it asks for ever"
        self.clock.now += 1
        return self.answer()

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return self.log


class Message:
    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def __len__(self) -> int:
        return 1


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> tuple[PartitionReader, Consumer]:
    clock = Clock()
    consumer = Consumer(clock)
    monkeypatch.setattr(ClientSettings, "new", lambda *_: consumer)
    settings = ClientSettings("localhost:1")
    return PartitionReader(settings, "g", KafkaPartition("t", 0), read_committed=True, clock=clock), consumer


def test_a_broker_that_keeps_denying_an_offset_that_exists_is_unavailable(reader):
    own, consumer = reader
    consumer.answer = lambda: [Message(-1, KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range"))]
    with pytest.raises(SourceUnavailable, match="t/0@10 to 20"):
        list(own.chunks(10, 20))
    assert AWAY_SECS <= consumer.clock.now <= AWAY_SECS + 2


def test_offsets_are_not_considered_lost_while_the_existing_range_is_unknown(reader):
    own, consumer = reader
    consumer.log = OFFSET_INVALID, OFFSET_INVALID
    consumer.answer = lambda: [Message(-1, KafkaError(KafkaError._AUTO_OFFSET_RESET, "out of range"))]
    with pytest.raises(SourceUnavailable, match="t/0@10 to 20"):
        list(own.chunks(10, 20))


def test_slow_processing_of_a_chunk_does_not_make_the_brokers_unavailable(reader, monkeypatch):
    own, consumer = reader
    monkeypatch.setattr(reading, "CHUNK_MESSAGES", 3)
    answers = iter([[Message(at) for at in (0, 1, 2)], [], [Message(at) for at in (3, 4, 5)]])
    consumer.answer = lambda: next(answers)
    read = []
    for chunk in own.chunks(0, 6):
        read.extend(chunk.offsets.tolist())
        consumer.clock.now += 6 * AWAY_SECS
    assert read == [0, 1, 2, 3, 4, 5]
