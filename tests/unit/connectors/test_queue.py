"""QueueSpout and the decoders: what every spout of a queue does with a message."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pika import BasicProperties

from sparkbolt import RetryPolicy, TopologyBuilder, bolt
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.connectors.decoder import Decoder
from sparkbolt.connectors.rabbitmq.rabbitmq_link import DeliveryId, Disposition, Link, RabbitMQDelivery
from sparkbolt.errors import ConfigError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import BadMessage, QueueSpout, RabbitMQSpout


class Tray(QueueSpout):
    """A queue in memory that notes what it hears."""

    outputs = ["text"]

    def open(self, context: TopologyContext) -> None:
        super().open(context)
        self._heard: list[tuple[str, Any]] = []
        self._waiting: deque[tuple[Hashable, Sequence[Any]] | BadMessage] = deque()
        self._asked: list[int] = []

    def receive(self, limit: int) -> Iterable[tuple[Hashable, Sequence[Any]] | BadMessage]:
        self._asked.append(limit)
        return [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]

    def confirm(self, message_id: Any) -> None:
        self._heard.append(("confirm", message_id))

    def release(self, message_id: Any, *, again: bool) -> None:
        self._heard.append(("again" if again else "given up", message_id))


class Collector:
    def __init__(self) -> None:
        self.emitted: list[Any] = []
        self.reported: list[Any] = []

    room = 10_000

    def emit(self, values: Sequence[Any], message_id: Any) -> None:
        self.emitted.append(message_id)

    def report_error(self, error: Any) -> None:
        self.reported.append(error)


def opened(**config: Any) -> tuple[Tray, Collector, Callable[[], None]]:
    tray, collector = pickle.loads(pickle.dumps(Tray())), Collector()
    tray.open(TopologyContext("t", "tray", 0, 1, 1, Config(**config)))
    return tray, collector, lambda: tray.next_tuple(collector)


def test_reported_failure_with_a_policy_means_that_the_message_is_given_up() -> None:
    tray, _, call = opened(retry=RetryPolicy(max_retries=2))
    tray._waiting.append((1, ["a"]))
    call()
    tray.fail(1)
    assert tray._heard == [("given up", 1)]


def test_a_message_is_retried_from_memory_and_then_given_up() -> None:
    @bolt(outputs=[])
    def refuse(tup: Any) -> None:
        raise ValueError(tup["text"])

    tray = Tray()
    tray.retry = RetryPolicy(max_retries=2, min_backoff=timedelta(0))
    builder = TopologyBuilder("tray")
    builder.set_spout("tray", tray)
    builder.set_bolt("refuse", refuse).shuffle_grouping("tray")
    engine = LocalEngine(builder.build())
    engine.step()
    [task] = engine.spouts.values()
    task.spout._waiting.append((1, ["a"]))
    for _ in range(20):
        engine.step()
        engine.now_ms += 100
    assert task.spout._heard == [("given up", 1)]
    metrics = engine.ledger.metrics.of("tray")
    assert (metrics.retried, metrics.given_up) == (2, 1)
    engine.close()


def test_a_message_is_confirmed_when_it_is_acked_and_given_back_when_it_failed() -> None:
    tray, collector, call = opened()
    tray._waiting.extend([(1, ["a"]), (2, ["b"])])
    call()
    assert (collector.emitted, tray._heard, tray.open_messages) == ([1, 2], [], 2)
    tray.ack(2)
    tray.fail(1)
    assert (tray._heard, tray.open_messages) == ([("confirm", 2), ("again", 1)], 0)


def test_nothing_is_taken_beyond_max_spout_pending() -> None:
    tray, collector, call = opened(max_spout_pending=3)
    tray._waiting.extend((number, ["a"]) for number in range(5))
    call()
    call()
    assert collector.emitted == [0, 1, 2]
    tray.ack(1)
    call()
    assert collector.emitted == [0, 1, 2, 3]
    assert tray._asked == [3, 1]


def test_a_bad_message_is_given_up_at_once_and_blocks_no_other() -> None:
    tray, collector, call = opened()
    tray._waiting.extend([BadMessage(1, "not json"), (2, ["b"])])
    call()
    assert collector.emitted == [2]
    assert tray._heard == [("given up", 1)]
    assert collector.reported == ["Tray: message 1 is given up: not json"]


def test_a_message_that_does_not_fit_the_fields_is_given_up_and_later_ones_are_kept() -> None:
    @bolt(outputs=[])
    def hold(tup: Any) -> None: ...

    builder = TopologyBuilder("tray")
    builder.set_spout("tray", Tray())
    builder.set_bolt("hold", hold).shuffle_grouping("tray")
    engine = LocalEngine(builder.build())
    engine.step()
    [task] = engine.spouts.values()
    task.spout._waiting.extend([(1, ["a"]), (2, ["too", "many"]), (3, ["c"])])
    for _ in range(5):
        engine.step()
        engine.now_ms += 100
    assert task.spout._heard == [("given up", 2), ("confirm", 1), ("confirm", 3)]
    assert task.spout.open_messages == 0
    engine.close()


def test_whatever_values_of_raises_gives_up_one_delivery_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Keyed(RabbitMQSpout):
        outputs = ["value", "tenant"]

        def values_of(self, delivery: RabbitMQDelivery) -> Sequence[Any]:
            return [delivery.body, delivery.properties.headers["tenant"]]

    settled: list[tuple[DeliveryId, Disposition]] = []
    deliveries = [
        RabbitMQDelivery(DeliveryId(0, tag), b"x", "", "jobs", False, BasicProperties(headers=headers))
        for tag, headers in enumerate([{"tenant": "a"}, {}, {"tenant": "c"}], 1)
    ]
    monkeypatch.setattr(Link, "start", lambda link: None)
    monkeypatch.setattr(Link, "take", lambda link, limit: (0, deliveries))
    monkeypatch.setattr(Link, "want", lambda link, count: None)
    monkeypatch.setattr(Link, "settle", lambda link, delivered, verdict: settled.append((delivered, verdict)))
    spout, collector = Keyed("amqp://localhost/", "jobs"), Collector()
    spout.open(TopologyContext("t", "jobs", 0, 1, 1, Config()))
    spout.next_tuple(collector)
    assert [delivered.tag for delivered in collector.emitted] == [1, 3]
    assert settled == [(DeliveryId(0, 2), Disposition.REJECT)]
    assert "KeyError: 'tenant'" in collector.reported[0]


def test_verdicts_for_messages_of_a_lost_connection_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    tray, _, call = opened(max_spout_pending=2)
    tray._waiting.extend([(1, ["a"]), (2, ["b"]), (3, ["a"]), (4, ["b"])])
    call()
    tray.lost()
    assert "the queue delivers 2 messages again, as new ones, and drops the results of the 2 in progress" in caplog.text
    call()
    tray.ack(1)
    tray.fail(2)
    tray.ack(3)
    assert tray._heard == [("confirm", 3)]
    assert (tray.dropped, tray.open_messages) == (2, 1)


def test_a_connection_with_an_ended_thread_does_not_count_as_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "_io_connect", lambda self: 1 / 0)
    spout = RabbitMQSpout("amqp://ann:secret@localhost/", "jobs")
    spout.open(TopologyContext("t", "jobs", 0, 1, 1, Config()))
    thread = spout._link._thread
    assert thread is not None
    thread.join(10)
    with pytest.raises(RuntimeError, match="queue 'jobs' at localhost:5672/: its thread has ended: ZeroDivisionError"):
        spout.next_tuple(Collector())  # type: ignore[arg-type]
    spout.close()


@pytest.mark.parametrize(
    ("value", "outputs", "body", "values"),
    [
        ("bytes", ["raw"], b"\xff", [b"\xff"]),
        ("text", ["line"], "caf\u00e9".encode(), ["caf\u00e9"]),
        ("json", ["b", "a", "c"], b'{"a": 1, "b": [2]}', [[2], 1, None]),
        ("json", ["a", "b"], b"[1, 2]", [1, 2]),
        ("json", ["a"], b"7", [7]),
        (lambda body: {"n": len(body)}, ["n"], b"abc", [3]),
        (lambda body: (body[:1], body[1:]), ["head", "tail"], b"abc", [b"a", b"bc"]),
    ],
)
def test_bytes_become_values(value: Any, outputs: list[str], body: bytes, values: list[Any]) -> None:
    assert Decoder(value, outputs)(body) == values


@pytest.mark.parametrize(
    ("value", "outputs", "body", "why"),
    [
        ("text", ["line"], b"a\xff", "not text: UnicodeDecodeError"),
        ("json", ["a"], b'{"a": ', "not json: JSONDecodeError"),
        ("json", ["a", "b"], b"[1]", "expected 2 value"),
        (lambda body: 1 / len(body), ["n"], b"", "not decodable: ZeroDivisionError"),
    ],
)
def test_decoding_error_says_why(value: Any, outputs: list[str], body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Decoder(value, outputs)(body)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"value": "jsn"}, "did you mean 'json'"),
        ({"outputs": "value"}, r"did you mean outputs = \['value'\]"),
        ({"outputs": {"odd": ["a"]}}, "expected a list of field names"),
        ({"queue": ""}, "the name of a queue"),
        ({"url": "http://ann:secret@x/"}, "neither amqp:// nor amqps://"),
        ({"url": "amqp://ann:secret@x:port/"}, "url: expected"),
        ({"backoff_max_secs": 0}, "backoff_max_secs=0"),
    ],
)
def test_wrong_arguments_are_refused_without_showing_the_password(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        RabbitMQSpout(**{"url": "amqp://ann:secret@localhost/", "queue": "jobs", **arguments})
    assert "secret" not in str(raised.value)


def test_no_more_is_taken_from_a_queue_than_is_needed() -> None:
    tray, collector, call = opened()
    tray._waiting.extend([(number, ["a"]) for number in range(100)])
    collector.room = 7
    call()
    assert (tray.open_messages, tray.wanted) == (7, 7)
    collector.room = 0
    call()
    assert (tray.open_messages, tray.wanted) == (7, 7)
