"""One publisher's connection to RabbitMQ, on the event loop of its bolt.

Which question it answers: has the broker taken this message?
Rule 1: a message counts as published when the broker has confirmed it, and not when it found no queue for it.
Rule 2: what was not confirmed when a connection was lost is published again over the next one, so that a message may
come twice, under the same ``message_id``.
Rule 3: what comes over a connection that was given up is not heard: its tags are those of other messages by now.
Rule 4: the loop stands still between frames, so there are no heartbeats: a connection that died meanwhile is noticed
when it is used.

Read before: ``spouts.rabbitmq_link``.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from sparkbolt.errors import FailedException
from sparkbolt.spouts.rabbitmq_link import parameters_of, pika, place_of, reason_of

log = logging.getLogger(__name__)

BACKOFF_SECS = 0.2


class RefusedError(FailedException):
    """The broker refuses a message, or has no queue for it."""


class LostError(Exception):
    """The connection was lost before the broker confirmed."""


class Publisher:
    """Publishes over one connection, which is made when it is needed, and again when it is lost."""

    def __init__(self, url: str) -> None:
        """Nothing is connected before the first message."""
        self._parameters = parameters_of(url)
        self._parameters.heartbeat = 0
        self._place = place_of(url)
        self._connection: Any = None
        self._channel: Any = None
        self._ready: asyncio.Future[None] | None = None
        """Done when there is a channel; None while nobody waits for one."""
        self._tag = 0
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}
        """By the tag that the broker will name, in the order of the tags."""
        self._tags: dict[str, int] = {}
        """By message id, which is what a message that is returned is known by."""
        self.trouble = "no answer"
        """What went wrong last."""

    async def publish(self, exchange: str, routing_key: str, body: bytes, properties: Any) -> None:
        """Publish a message, and return when the broker has confirmed it.

        Args:
            exchange: its name.
            routing_key: for the exchange.
            body: of the message.
            properties: with a ``message_id`` of its own.

        Raises:
            RefusedError: the broker refuses it, or there is no queue for it.
            AMQPError: the protocol has no form for it, as for a header that is a float.
        """
        while True:
            await self._connected()
            tag = self._tag + 1
            confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._unconfirmed[tag] = confirmed
            self._tags[properties.message_id] = tag
            try:
                self._channel.basic_publish(exchange, routing_key, body, properties, mandatory=True)
                self._tag = tag  # the broker counts what it got: a message that could not be encoded is none
                return await confirmed
            except LostError:
                continue
            finally:
                self._tags.pop(properties.message_id, None)
                if self._unconfirmed.get(tag) is confirmed:
                    del self._unconfirmed[tag]

    def drop(self) -> None:
        """Give the connection up: it does not answer. What else was under way goes over the next one."""
        if self._connection is not None and self._connection.is_open:
            self._connection.close()
        self._channel = None
        self._fail_all(LostError())

    def close(self) -> None:
        """Close the connection; called while the loop stands still."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None and connection.is_open:
            connection.close()
            loop = connection.ioloop
            for _ in range(100):
                if connection.is_closed or loop.is_closed():
                    break
                loop.run_until_complete(asyncio.sleep(0.01))

    async def _connected(self) -> None:
        while self._channel is None or not self._channel.is_open:
            if self._ready is None:
                self._ready = asyncio.get_running_loop().create_future()
                self._connect()
            await asyncio.shield(self._ready)

    def _connect(self) -> None:
        pika()
        from pika.adapters.asyncio_connection import AsyncioConnection

        self._connection = AsyncioConnection(
            self._parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._lost,
            on_close_callback=self._lost,
            custom_ioloop=asyncio.get_running_loop(),
        )

    def _opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(partial(self._confirmed, channel), callback=lambda _: self._use(channel))

    def _use(self, channel: Any) -> None:
        self._channel, self._tag = channel, 0
        ready, self._ready = self._ready, None
        if ready is not None and not ready.done():
            ready.set_result(None)

    def _confirmed(self, channel: Any, frame: Any) -> None:
        if channel.connection is not self._connection:
            return  # its tags are other messages' by now
        method = frame.method
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag]
        for tag in tags:
            waiting = self._unconfirmed.pop(tag, None)
            if waiting is None or waiting.done():
                continue
            if method.NAME == "Basic.Ack":
                waiting.set_result(None)
            else:
                waiting.set_exception(RefusedError("RabbitMQ refused the message (nack): is its queue full?"))

    def _returned(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """The broker has no queue for a message; that it confirms it next means nothing."""
        if channel.connection is not self._connection:
            return
        waiting = self._unconfirmed.pop(self._tags.get(properties.message_id, -1), None)
        if waiting is not None and not waiting.done():
            why = f"no queue for exchange {method.exchange!r}, routing key {method.routing_key!r}"
            waiting.set_exception(RefusedError(f"{why} ({method.reply_text})"))

    def _channel_closed(self, channel: Any, error: Exception) -> None:
        """The broker does so when the exchange does not exist, for one; what was under way is told why."""
        if channel.connection is self._connection and self._connection.is_open:
            self._fail_all(RefusedError(f"RabbitMQ closed the channel: {reason_of(error)}"))
            self._channel = None
            self._connection.close()

    def _lost(self, connection: Any, error: Exception | str) -> None:
        self.trouble = reason_of(error)
        if connection is not self._connection:
            return  # closed by us, and there is another one, or none is wanted
        self._channel = None
        if self._ready is None:  # it was in use
            log.warning(
                "%s: the connection is lost (%s); it is made again when it is needed", self._place, self.trouble
            )
            self._fail_all(LostError())
        else:
            log.warning("%s: no connection (%s); next attempt in %s s", self._place, self.trouble, BACKOFF_SECS)
            asyncio.get_running_loop().call_later(BACKOFF_SECS, self._connect)

    def _fail_all(self, error: Exception) -> None:
        waiting, self._unconfirmed = self._unconfirmed, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
