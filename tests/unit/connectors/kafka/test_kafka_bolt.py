"""KafkaBolt and a producer that breaks: a producer of the test's own in the client library's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sparkbolt import Config
from sparkbolt.api.components import TopologyContext
from sparkbolt.bolts import KafkaBolt
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.errors import ConfigError

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

    def ack(self, tup: dict[str, str]) -> None:
        self.acked.append(tup["word"])

    def fail(self, tup: dict[str, str], reason: str) -> None:
        self.failed.append(tup["word"])


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
