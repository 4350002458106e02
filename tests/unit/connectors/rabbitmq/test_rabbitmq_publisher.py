"""The publisher against a channel of the test's own: no broker, no socket."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from pika import frame, spec
from pika.exceptions import UnsupportedAMQPFieldException

from sparkbolt.connectors.rabbitmq.rabbitmq_publisher import Publisher, RefusedError


class Channel:
    """Takes what pika can encode, and numbers it as the broker does: by what it got."""

    is_open = True

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.connection = SimpleNamespace(is_open=True, close=lambda: None)

    def basic_publish(self, exchange: str, key: str, body: bytes, properties: Any, *, mandatory: bool) -> None:
        frame.Method(1, spec.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)).marshal()
        frame.Header(1, len(body), properties).marshal()
        self.bodies.append(body)


def connected() -> tuple[Publisher, Channel]:
    publisher = Publisher("amqp://localhost/")
    return publisher, connect(publisher)


def connect(publisher: Publisher) -> Channel:
    channel = Channel()
    publisher._connection = channel.connection
    publisher._use(channel)
    return channel


def confirm(publisher: Publisher, channel: Channel, tag: int, *, taken: bool = True) -> None:
    method = (spec.Basic.Ack if taken else spec.Basic.Nack)(delivery_tag=tag)
    publisher._confirmed(channel, SimpleNamespace(method=method))


def publish(publisher: Publisher, message_id: str, key: str = "q", **headers: Any) -> asyncio.Task[None]:
    properties = pika.BasicProperties(message_id=message_id, headers=headers)
    return asyncio.ensure_future(publisher.publish("", key, message_id.encode(), properties))


@pytest.mark.parametrize("bad", [{"price": 1.5}, {"key": "k" * 300}])
def test_a_message_that_cannot_be_encoded_takes_no_confirm_from_another(bad):
    async def story() -> None:
        publisher, channel = connected()
        with pytest.raises((UnsupportedAMQPFieldException, pika.exceptions.ShortStringTooLong)):
            await publish(publisher, "bad", **bad)
        first, second = publish(publisher, "first"), publish(publisher, "second")
        await asyncio.sleep(0)
        assert channel.bodies == [b"first", b"second"]
        confirm(publisher, channel, 2)  # the broker has the second message, and not yet the first
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (first.done(), second.done()) == (False, True)
        confirm(publisher, channel, 1, taken=False)
        with pytest.raises(Exception, match="refused"):
            await first

    asyncio.run(story())


def test_messages_in_flight_on_an_abandoned_connection_are_sent_over_the_next_one_at_once():
    async def story() -> None:
        publisher, exhausted = connected()
        waiting = publish(publisher, "one")
        await asyncio.sleep(0)
        publisher.drop()
        following = connect(publisher)
        for _ in range(5):
            await asyncio.sleep(0)
        assert following.bodies == [b"one"]
        confirm(publisher, exhausted, 1)  # it answers at last: of what went over it nobody waits any more
        publisher._returned(exhausted, spec.Basic.Return(), pika.BasicProperties(message_id="one"), b"one")
        publisher._channel_closed(exhausted, ConnectionError("closed"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        confirm(publisher, following, 1)
        await waiting

    asyncio.run(story())


@pytest.mark.parametrize("ends", ["channel", "connection"])
def test_a_message_that_makes_the_broker_close_the_channel_is_refused_alone(ends):
    async def story() -> None:
        publisher, channel = connected()
        tasks = {name: publish(publisher, name) for name in ("first", "bad", "last")}
        sent: list[list[bytes]] = []
        for _ in range(20):
            await asyncio.sleep(0)
            if publisher._channel is None:
                channel = connect(publisher)
            unconfirmed = channel.bodies[len(channel.bodies) - len(publisher._unconfirmed) :]
            if len(unconfirmed) == 3 or unconfirmed == [b"bad"]:
                error = pika.exceptions.ChannelClosedByBroker(406, "message size is larger than the maximum")
                end = publisher._channel_closed if ends == "channel" else publisher._lost
                end(channel if ends == "channel" else channel.connection, error)
            elif unconfirmed:
                confirm(publisher, channel, len(channel.bodies))
            sent += [unconfirmed] if unconfirmed else []
        await tasks["first"]
        await tasks["last"]
        with pytest.raises(RefusedError, match="message size is larger"):
            await tasks["bad"]
        assert [len(bodies) for bodies in sent] == [3, 1, 1, 1], "each by itself, and once"

    asyncio.run(story())
