"""KafkaBolt and a producer that breaks: a producer of the test's own in the client library's place."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sparkbolt import Config
from sparkbolt.api.components import TopologyContext
from sparkbolt.bolts import KafkaBolt
from sparkbolt.connectors.kafka import kafka_sender
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.errors import ConfigError, Unavailable
from tests.small_broker import SmallBroker

OUT_OF_ORDER = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap", fatal=True)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)


class Producer:
    """As the client's: a fatal error is raised once where something is heard, then nothing is taken any more."""

    def __init__(self) -> None:
        self.taken: list[tuple[bytes, Callable[[Any, Any], None]]] = []
        self.fatal: KafkaError | None = None
        self.said = False

    def break_down(self) -> None:
        self.fatal = OUT_OF_ORDER

    def produce(self, topic: str, *, value: bytes, on_delivery: Callable[[Any, Any], None], **_: Any) -> None:
        if self.fatal is not None:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        self.taken.append((value, on_delivery))

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def poll(self, wait_secs: float) -> int:
        if self.fatal is not None and not self.said:
            self.said = True
            raise KafkaException(self.fatal)
        return 0

    def flush(self, wait_secs: float) -> int:
        taken, self.taken = self.taken, []
        for _, heard in taken:
            heard(PURGED if self.fatal is not None else None, None)
        try:
            return self.poll(0)
        except KafkaException:
            raise SystemError("<built-in method flush> returned NULL without setting an exception") from None


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Producer]:
    producers: list[Producer] = []

    def make(*_: Any) -> Producer:
        producers.append(Producer())
        return producers[-1]

    monkeypatch.setattr(ClientSettings, "new", make)
    return producers


class Heard:
    """A collector that keeps what it is told."""

    def __init__(self) -> None:
        self.acked: list[str] = []
        self.failed: list[str] = []
        self.reasons: list[object] = []

    def ack(self, tup: dict[str, str]) -> None:
        self.acked.append(tup["word"])

    def fail(self, tup: dict[str, str], reason: object) -> None:
        self.failed.append(tup["word"])
        self.reasons.append(reason)


def prepared() -> tuple[KafkaBolt, Heard]:
    bolt = KafkaBolt("localhost:1", "words", value="word")
    bolt.prepare(TopologyContext("t", "out", 0, 1, 1, Config()))
    return bolt, Heard()


@pytest.mark.parametrize("heard_in", ["flush", "produce", "poll"])
def test_another_producer_takes_over_after_a_fatal_error(made, heard_in, monkeypatch):
    bolt, heard = prepared()
    bolt.execute({"word": "before"}, heard)
    bolt.flush()
    bolt.execute({"word": "under way"}, heard)
    if heard_in == "poll":
        monkeypatch.setattr("sparkbolt.connectors.kafka.kafka_sender.POLL_EVERY", 1)
        produce = made[0].produce
        made[0].produce = lambda *told, **more: (produce(*told, **more), made[0].break_down())
        bolt.execute({"word": "as it breaks"}, heard)
    else:
        made[0].break_down()
    if heard_in == "produce":
        bolt.execute({"word": "behind"}, heard)
    bolt.flush()
    bolt.execute({"word": "after"}, heard)
    bolt.flush()
    assert len(made) == 2
    failed = ["under way", "as it breaks"] if heard_in == "poll" else ["under way"]
    assert heard.failed == failed, "each tuple is failed once, and not by an exception of its own besides"
    assert heard.acked == (["before", "behind", "after"] if heard_in == "produce" else ["before", "after"])


def test_a_client_that_reports_errors_alone_is_refused():
    with pytest.raises(ConfigError, match="a tuple is acked when its message is"):
        KafkaBolt("localhost:1", "words", client={"delivery.report.only.error": True})


@pytest.mark.parametrize("by_field", [False, True])
def test_a_topic_that_does_not_exist_is_waited_for_unless_a_field_names_it(by_field, monkeypatch):
    monkeypatch.setattr(kafka_sender, "NEW_TOPIC_SECS", 0.001)
    with SmallBroker() as broker:
        where = {"topic_field": "topic"} if by_field else {"topic": "orders"}
        bolt, heard = KafkaBolt(broker.address, value="word", **where), Heard()
        bolt.prepare(TopologyContext("t", "out", 0, 1, 1, Config()))
        for word in ("a", "b"):
            bolt.execute({"word": word, "topic": "orders"}, heard)
            bolt.flush()
    assert heard.failed == ["a", "b"]
    assert [str(reason) for reason in heard.reasons] == 2 * [
        f"topic 'orders' at {broker.address}: it does not exist: create it"
    ]
    assert [isinstance(reason, Unavailable) for reason in heard.reasons] == 2 * [not by_field]


def test_brokers_that_are_away_cost_no_attempt_and_the_reason_is_their_cause(made):
    bolt, heard = prepared()
    bolt.execute({"word": "a"}, heard)
    (producer,) = made

    def flush(wait_secs: float) -> int:
        refused = (
            "b:9092/bootstrap: Connect to ipv4#10.0.0.7:9092 failed: Connection refused (after 0ms in state CONNECT)"
        )
        bolt._sender._causes.hear(KafkaError(KafkaError._TRANSPORT, refused))
        producer.taken[0][1](KafkaError(KafkaError._MSG_TIMED_OUT), None)
        return 0

    producer.flush = flush
    bolt.flush()
    (reason,) = heard.reasons
    assert isinstance(reason, Unavailable)
    assert str(reason).endswith("10.0.0.7:9092 failed: Connection refused: do they run, and is the port right?")
