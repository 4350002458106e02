"""RabbitMQBolt against a real node: acked when confirmed, failed alone when not."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest

from sparkbolt import Config, TopologyBuilder
from sparkbolt.bolts import RabbitMQBolt
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver
from tests.services.proxy import Proxy
from tests.services.server import free_port

pytestmark = pytest.mark.service
cuts: dict[int, Proxy] = {}
"""Which proxy is cut while the message of this number is made."""


@pytest.fixture
def channel(rabbitmq: str) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(rabbitmq)) as connection:
        yield connection.channel()


def publishing(bolt: RabbitMQBolt) -> TopologyTestDriver:
    builder = TopologyBuilder("publish", Config(max_attempts=1))
    builder.set_spout("orders", GeneratorSpout(list, outputs=["customer", "amount"], count=0))
    builder.set_bolt("publish", bolt).shuffle_grouping("orders")
    driver = TopologyTestDriver(builder.build())
    driver._engine._environment.rehearsal_directory = None  # else nothing would be sent
    return driver


def taken(channel: Any, queue: str) -> list[tuple[Any, bytes]]:
    found = []
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append((properties, body))


def behind(url: str, port: int) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace(str(parts.port), str(port))).geturl()


def test_a_tuple_is_one_message_and_is_acked_when_the_broker_has_it(rabbitmq: str, channel: Any) -> None:
    channel.queue_delete("orders")
    channel.queue_declare("orders", durable=True)
    with publishing(
        RabbitMQBolt(rabbitmq, routing_key="orders", headers=lambda tup: {"by": tup["customer"]})
    ) as driver:
        for number in range(3000):
            driver.feed("orders", {"customer": "ann", "amount": number}, message_id=number)
        driver.run_until_idle()
        assert sorted(driver.acked("orders")) == list(range(3000))
    messages = taken(channel, "orders")
    assert [json.loads(body) for _, body in messages] == [{"customer": "ann", "amount": n} for n in range(3000)]
    assert len({properties.message_id for properties, _ in messages}) == 3000
    assert {(p.delivery_mode, p.content_type, p.headers["by"]) for p, _ in messages} == {(2, "application/json", "ann")}


def test_a_message_without_a_queue_fails_its_tuple_and_no_other(rabbitmq: str, channel: Any) -> None:
    channel.queue_delete("ann")
    channel.queue_declare("ann")
    bolt = RabbitMQBolt(rabbitmq, routing_key_field="customer", value="amount")
    with publishing(bolt) as driver:
        for number, customer in enumerate(["ann", "nobody", 7, "ann"]):
            driver.feed("orders", {"customer": customer, "amount": b"%d" % number}, message_id=number)
        driver.run_until_idle()
        assert driver.acked("orders") == [0, 3]
        reasons = {failed.message_id: failed.reason for failed in driver.failed("orders")}
    assert "no queue for exchange '', routing key 'nobody'" in reasons[1]
    assert "expected a str to route by" in reasons[2]
    assert [body for _, body in taken(channel, "ann")] == [b"0", b"3"]


def test_a_missing_exchange_fails_the_tuple_with_the_message_of_the_broker(rabbitmq: str) -> None:
    with publishing(RabbitMQBolt(rabbitmq, "no-such-exchange", routing_key="x")) as driver:
        driver.feed("orders", {"amount": 1}, message_id=1)
        driver.run_until_idle()
        driver.feed("orders", {"amount": 2}, message_id=2)
        driver.run_until_idle()
        assert ["NOT_FOUND" in failed.reason for failed in driver.failed("orders")] == [True, True]


def cutting(tup: Any) -> Any:
    if proxy := cuts.pop(tup["amount"], None):
        proxy.cut()
    return str(tup["amount"])


def test_messages_unconfirmed_when_the_connection_is_cut_are_published_again(rabbitmq: str, channel: Any) -> None:
    channel.queue_delete("cut-orders")
    channel.queue_declare("cut-orders")
    port = urlsplit(rabbitmq).port
    assert port is not None
    with Proxy(port) as proxy:
        cuts.update({1500: proxy, 2500: proxy})  # the first thousand wait for the connection
        bolt = RabbitMQBolt(behind(rabbitmq, proxy.port), routing_key="cut-orders", value=cutting)
        with publishing(bolt) as driver:
            for number in range(3000):
                driver.feed("orders", {"amount": number}, message_id=number)
            driver.run_until_idle()
            assert sorted(driver.acked("orders")) == list(range(3000))
        assert proxy.cuts == 2
    messages = taken(channel, "cut-orders")
    assert {int(body) for _, body in messages} == set(range(3000))
    assert len({properties.message_id for properties, _ in messages}) == 3000, "what came twice has its id again"


def test_an_unavailable_broker_fails_tuples_after_confirm_secs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    url = f"amqp://ann:secret@127.0.0.1:{free_port()}/"
    with publishing(RabbitMQBolt(url, routing_key="orders", confirm_secs=0.3)) as driver:
        driver.feed("orders", {"amount": 1}, message_id=1)
        driver.run_until_idle()
        [failed] = driver.failed("orders")
    assert "not confirmed within confirm_secs=0.3 s (ConnectionRefusedError" in failed.reason
    assert "secret" not in caplog.text + failed.story
