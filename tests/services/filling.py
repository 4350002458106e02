"""Fills a queue of RabbitMQ quickly: what a blocking connection takes half a minute for takes this some seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pika

AT_ONCE = 2000


def fill(url: str, queue: str, bodies: Sequence[bytes], *, durable: bool = False) -> None:
    """Publish to the queue, and return when the broker has confirmed every message; on its disk if ``durable``."""
    confirmed = 0
    properties = pika.BasicProperties(delivery_mode=2 if durable else 1)

    def opened(channel: Any) -> None:
        channel.confirm_delivery(count, callback=lambda _: publish(channel, 0))

    def publish(channel: Any, start: int) -> None:
        for body in bodies[start : start + AT_ONCE]:
            channel.basic_publish("", queue, body, properties)
        if start + AT_ONCE < len(bodies):  # the broker's answers have their turn in between
            connection.ioloop.call_later(0, lambda: publish(channel, start + AT_ONCE))

    def count(frame: Any) -> None:
        nonlocal confirmed
        assert isinstance(frame.method, pika.spec.Basic.Ack), frame
        confirmed = frame.method.delivery_tag
        if confirmed == len(bodies) and not connection.is_closing:
            connection.close()

    connection = pika.SelectConnection(
        pika.URLParameters(url),
        on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
        on_close_callback=lambda *_: connection.ioloop.stop(),
    )
    connection.ioloop.start()
    connection.ioloop.close()
    assert confirmed == len(bodies), f"{confirmed} of {len(bodies)} messages were confirmed"
