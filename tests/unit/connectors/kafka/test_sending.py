"""A sender and a producer whose batches are refused as a whole: a producer of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_sender import Sender

REFUSALS = ["MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "_INVALID_DIFFERENT_RECORD"]


class Producer:
    """Sends in ``flush``; a batch with a bad value is refused."""

    def __init__(self, batch: int, code: int) -> None:
        self.batch, self.code = batch, code
        self.queued: list[tuple[Any, Callable[[Any, Any], None]]] = []
        self.sent = 0

    def produce(self, topic: str, *, value: Any, on_delivery: Callable[[Any, Any], None]) -> None:
        self.queued.append((value, on_delivery))

    def poll(self, wait_secs: float) -> int:
        return len(self.queued)

    def flush(self, wait_secs: float) -> int:
        queued, self.queued = self.queued, []
        for start in range(0, len(queued), self.batch):
            batch = queued[start : start + self.batch]
            self.sent += len(batch)
            error = KafkaError(self.code) if any(value == "bad" for value, _ in batch) else None
            for _, report in batch:
                report(error, None)
        return 0


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[Producer]:
    made: list[Producer] = []

    def make(_: Any, kind: str, properties: dict[str, Any], on_error: Any) -> Producer:
        made.append(Producer(properties.get("batch.num.messages", 10_000), getattr(KafkaError, request.param)))
        return made[-1]

    monkeypatch.setattr(ClientSettings, "new", make)
    return made


def send(values: list[str]) -> list[str]:
    """Which values are acknowledged, and the codes of those that are not."""
    sender, heard = Sender(ClientSettings("localhost:1"), 1.0), {}
    for number, value in enumerate(values):
        sender.send("t", {"value": value}, lambda error, number=number: heard.setdefault(number, error))
    sender.flush()
    return [value if heard[number] is None else heard[number].name() for number, value in enumerate(values)]


@pytest.mark.parametrize("producers", REFUSALS, indirect=True)
def test_a_refused_message_fails_alone_and_few_messages_are_sent_one_by_one(producers):
    values = [f"{number}" for number in range(2500)]
    values[1777] = "bad"
    heard = send(values)
    assert [number for number, value in enumerate(values) if heard[number] != value] == [1777]
    assert [producer.sent for producer in producers] == [2500, 2500, 100]
