"""RabbitMQ as a source and a sink, against a real node."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest

from sparkbolt import RetryPolicy, TopologyBuilder, bolt
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import RabbitMQSpout
from tests.services import RabbitMQ
from tests.services.filling import fill
from tests.services.proxy import Proxy

pytestmark = pytest.mark.service

POISON_EVERY = 5_000


@pytest.fixture
def channel(rabbitmq: str) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(rabbitmq)) as connection:
        yield connection.channel()


def waiting(channel: Any, queue: str) -> int:
    """How many messages are ready to be given."""
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def declared(channel: Any, queue: str, **arguments: Any) -> str:
    channel.queue_delete(queue)  # of an earlier run against the same server
    channel.queue_declare(queue, arguments=arguments or None)
    return queue


def behind(url: str, proxy: Proxy) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace(str(parts.port), str(proxy.port))).geturl()


@bolt(outputs=["number"])
def refuse_some(tup: Any) -> Iterator[list[int]]:
    if tup["number"] % POISON_EVERY == 0:
        raise ValueError("poison")
    yield [tup["number"]]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("messages", "cuts"),
    [
        pytest.param(20_000, 3, marks=pytest.mark.lesser),
        pytest.param(200_000, 10, marks=pytest.mark.campaign, id="ten times"),
    ],
)
def test_no_message_is_lost_when_the_connection_is_cut_again_and_again(
    rabbitmq: str, channel: Any, spark: Any, tmp_path: Path, messages: int, cuts: int
) -> None:
    dead = declared(channel, "cut-dead")
    queue = declared(channel, "cut", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    fill(rabbitmq, queue, [b"%d" % number for number in range(messages)])
    port = urlsplit(rabbitmq).port
    assert port is not None
    with Proxy(port) as proxy:
        spout = RabbitMQSpout(behind(rabbitmq, proxy), queue, value="json", outputs=["number"])
        builder = TopologyBuilder("cut")
        builder.set_spout("numbers", spout, max_spout_pending=messages // 10, retry=RetryPolicy(max_retries=1))
        builder.set_bolt("refuse_some", refuse_some).shuffle_grouping("numbers")
        builder.set_bolt("write", JsonLinesBolt(tmp_path / "out")).shuffle_grouping("refuse_some")
        running = builder.build().start(spark=spark, checkpoint=str(tmp_path / "checkpoint"))

        poison = set(range(0, messages, POISON_EVERY))
        while True:
            channel.connection.process_data_events(0.3)
            assert running.failure is None, running.failure
            acked = running.metrics().components["numbers"].acked
            if proxy.cuts < cuts and acked >= (proxy.cuts + 1) * messages // (cuts + 1):
                proxy.cut()
            elif acked >= messages - len(poison) and waiting(channel, queue) == 0 and running.await_idle(0.5):
                break
        running.stop()
    assert proxy.cuts == cuts
    parts = (tmp_path / "out").glob("part-*")
    written = {json.loads(line)["number"] for path in parts for line in path.read_text().split()}
    assert written == set(range(messages)) - poison
    assert waiting(channel, queue) == 0, "all was acked or rejected, or closing the connection would have put it back"
    assert {int(channel.basic_get(dead, auto_ack=True)[2]) for _ in poison} == poison


# The spout alone, called as its thread calls it.


class Collector:
    def __init__(self) -> None:
        self.emitted: list[tuple[Any, Any]] = []
        self.reported: list[str] = []

    room = 10_000

    def emit(self, values: list[Any], message_id: Any) -> None:
        self.emitted.append((message_id, values[0]))

    def report_error(self, error: str) -> None:
        self.reported.append(error)

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self.emitted]


class Calls:
    """A spout and what it has emitted; ``until`` calls it until a condition holds."""

    def __init__(self, spout: RabbitMQSpout, **config: Any) -> None:
        self.spout, self.collector = spout, Collector()
        spout.open(TopologyContext("t", "jobs", 0, 1, 1, Config(**config)))

    def until(self, condition: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(2000):
            self.spout.next_tuple(self.collector)  # type: ignore[arg-type]
            if condition():
                return
            pause.wait(0.01)
        raise AssertionError(f"it never came to that: {self.collector.emitted}")

    def until_emitted(self, count: int) -> list[Any]:
        self.until(lambda: len(self.collector.emitted) >= count)
        return [message_id for message_id, _ in self.collector.emitted]


@contextmanager
def opened(url: str, queue: str, **arguments: Any) -> Iterator[Calls]:
    config = arguments.pop("config", {})
    calls = Calls(RabbitMQSpout(url, queue, **arguments), **config)
    try:
        yield calls
    finally:
        calls.spout.close()


def test_no_more_messages_are_open_than_max_spout_pending(rabbitmq: str, channel: Any) -> None:
    queue = declared(channel, "bounded")
    fill(rabbitmq, queue, [b"%d" % number for number in range(20)])
    with opened(rabbitmq, queue, config={"max_spout_pending": 5}) as calls:
        ids = calls.until_emitted(5)
        assert waiting(channel, queue) == 15
        calls.spout.ack(ids[0])
        assert len(calls.until_emitted(6)) == 6
        assert waiting(channel, queue) == 14
    assert waiting(channel, queue) == 19, "only what was acked is gone"


def test_acks_in_any_order_leave_only_the_unacked(rabbitmq: str, channel: Any) -> None:
    queue = declared(channel, "any-order")
    fill(rabbitmq, queue, [b"%d" % number for number in range(10)])
    with opened(rabbitmq, queue) as calls:
        ids = calls.until_emitted(10)
        for number in (7, 1, 0, 9, 2, 4):
            calls.spout.ack(ids[number])
    with opened(rabbitmq, queue) as calls:
        calls.until_emitted(4)
        assert sorted(calls.collector.values) == ["3", "5", "6", "8"]


def test_a_failed_message_goes_back_to_its_queue(rabbitmq: str, channel: Any) -> None:
    queue = declared(channel, "again")
    fill(rabbitmq, queue, [b"a", b"b"])
    with opened(rabbitmq, queue) as calls:
        ids = calls.until_emitted(2)
        calls.spout.fail(ids[0])
        again = calls.until_emitted(3)[2]
        assert calls.collector.values == ["a", "b", "a"]
        assert again not in ids
        calls.spout.ack(ids[1])
        calls.spout.ack(again)
    assert waiting(channel, queue) == 0


def test_given_up_and_undecodable_messages_go_to_the_dead_letter_exchange(rabbitmq: str, channel: Any) -> None:
    dead = declared(channel, "dead")
    queue = declared(channel, "mortal", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    fill(rabbitmq, queue, [b'{"id": 1}', b'{"id": ', b'{"id": 3}'])
    with opened(rabbitmq, queue, value="json", outputs=["id"], config={"retry": RetryPolicy()}) as calls:
        ids = calls.until_emitted(2)
        assert calls.collector.values == [1, 3]
        [reported] = calls.collector.reported
        assert "not json" in reported
        assert "guest" not in reported
        calls.spout.fail(ids[0])
        calls.spout.ack(ids[1])
        calls.until(lambda: waiting(channel, dead) == 2)
    bodies = {channel.basic_get(dead, auto_ack=True)[2] for _ in range(2)}
    assert bodies == {b'{"id": 1}', b'{"id": '}
    assert waiting(channel, queue) == 0


def test_acks_for_deliveries_of_an_old_connection_are_dropped(
    rabbitmq: str, channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = declared(channel, "old")
    fill(rabbitmq, queue, [b"%d" % number for number in range(5)])
    port = urlsplit(rabbitmq).port
    assert port is not None
    with Proxy(port) as proxy, opened(behind(rabbitmq, proxy), queue) as calls:
        old = calls.until_emitted(5)
        proxy.cut()
        new = calls.until_emitted(10)[5:]
        assert sorted(calls.collector.values[5:]) == sorted(calls.collector.values[:5])
        assert "the queue delivers 5 messages again" in caplog.text
        for message_id in old:  # the same tags: an ack that got through would ack the new ones
            calls.spout.ack(message_id)
            calls.spout.confirm(message_id)  # as before the loss is noticed
        calls.spout.fail(old[0])
        assert calls.spout.dropped == 6
        assert calls.spout.open_messages == 5
        calls.spout.ack(new[2])
    assert waiting(channel, queue) == 4


def test_a_connection_stays_alive_while_the_spout_is_not_called(rabbitmq: str, channel: Any) -> None:
    queue = declared(channel, "idle")
    fill(rabbitmq, queue, [b"a"])
    with opened(f"{rabbitmq}%2F?heartbeat=1", queue) as calls:
        [message_id] = calls.until_emitted(1)
        channel.connection.process_data_events(4)  # after two seconds without a heartbeat the broker closes
        calls.spout.next_tuple(calls.collector)  # type: ignore[arg-type]
        assert calls.spout.open_messages == 1
        calls.spout.ack(message_id)
    assert calls.spout.dropped == 0
    assert waiting(channel, queue) == 0


def test_a_spout_waits_for_a_queue_that_does_not_exist_yet(
    rabbitmq: str, channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    channel.queue_delete("later")
    with opened(rabbitmq, "later", backoff_max_secs=0.2) as calls:
        calls.until(lambda: "NOT_FOUND" in caplog.text)
        assert "guest:guest" not in caplog.text
        attempts = calls.spout._link._number
        calls.until(lambda: calls.spout._link._number >= attempts + 3)
        assert len(caplog.records) == 1, "one line a minute, and not two an attempt"
        queue = declared(channel, "later")
        fill(rabbitmq, queue, [b"a"])
        calls.until_emitted(1)


@pytest.mark.campaign
def test_messages_are_delivered_again_after_the_node_is_killed(tmp_path: Path) -> None:
    with RabbitMQ(tmp_path / "rabbitmq") as node:
        with pika.BlockingConnection(pika.URLParameters(node.address)) as connection:
            connection.channel().queue_declare("kept-jobs", durable=True)
        fill(node.address, "kept-jobs", [b"%d" % number for number in range(5)], durable=True)
        node.wait_until_kept("kept-jobs")
        with opened(node.address, "kept-jobs", backoff_max_secs=0.2) as calls:
            before = calls.until_emitted(5)
            calls.spout.ack(before[0])
            node.kill()
            node.start()
            after = calls.until_emitted(9)[5:]
            calls.spout.ack(before[1])
            for message_id in after:
                calls.spout.ack(message_id)
            assert set(calls.collector.values) == set("01234")
