"""Publisher: one connection to RabbitMQ, on the event loop of its bolt.

Rule 1: a message counts as published when the broker has confirmed it and has not returned it as unroutable.
Rule 2: messages that are unconfirmed when a connection is lost are published again over the next one, under the same
``message_id``. If the broker has closed the channel or the connection because of one message, the unconfirmed messages
are published again one at a time, so that only this message is refused.
Rule 3: events of an abandoned connection are ignored: its delivery tags now belong to other messages.
Rule 4: heartbeats are off, because the event loop does not run between frames. A lost connection is detected at its
next use.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from sparkbolt.connectors.rabbitmq.rabbitmq_link import parameters_of, pika, place_of, reason_of
from sparkbolt.errors import FailedException

log = logging.getLogger(__name__)

BACKOFF_SECS = 0.2
OF_A_MESSAGE = frozenset({311, 406, 501, 502})
"""The reply codes with which a broker closes a channel or a connection because of one message."""


class RefusedError(FailedException):
    """The broker refuses a message, or has no queue for it."""


class LostError(Exception):
    """The connection was lost before the broker confirmed the message."""


class SuspectError(LostError):
    """The broker has refused this message, or another one that was unconfirmed at the same time."""


class Publisher:
    """Publishes over one connection, which is opened on first use and reopened after it was lost."""

    def __init__(self, url: str) -> None:
        """Store the parameters; the first message opens the connection."""
        self._parameters = parameters_of(url)
        self._parameters.heartbeat = 0
        self._place = place_of(url)
        self._connection: Any = None
        self._channel: Any = None
        self._ready: asyncio.Future[None] | None = None
        """Completes when a channel is open; None while no connection is being opened."""
        self._tag = 0
        self._unconfirmed: dict[int, asyncio.Future[None]] = {}
        """Futures by the delivery tag that the broker will confirm, in the order of the tags."""
        self._turn = asyncio.Lock()
        """Held while a message is published, and by one that is published alone until it is confirmed."""
        self._tags: dict[str, int] = {}
        """Delivery tags by message id: a returned message carries its id and no tag."""
        self.trouble = "no answer"
        """The most recent error."""

    async def publish(self, exchange: str, routing_key: str, body: bytes, properties: Any) -> None:
        """Publish a message, and return when the broker has confirmed it.

        Args:
            exchange: The name of the exchange.
            routing_key: The routing key.
            body: The body of the message.
            properties: The message's properties, with a unique ``message_id``.

        Raises:
            RefusedError: The broker refuses the message or has no queue for it.
            AMQPError: The protocol cannot encode the message: a header is a float, for example.
        """
        suspect = False
        while True:
            confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            try:
                async with self._turn:
                    while suspect and self._unconfirmed:
                        await asyncio.wait(self._unconfirmed.values())
                    await self._connected()
                    tag = self._tag + 1
                    self._unconfirmed[tag] = confirmed
                    self._tags[properties.message_id] = tag
                    self._channel.basic_publish(exchange, routing_key, body, properties, mandatory=True)
                    self._tag = tag  # the broker counts received messages; one that cannot be encoded is not sent
                    if suspect:
                        return await confirmed
                return await confirmed
            except LostError as error:
                suspect = suspect or isinstance(error, SuspectError)
            finally:
                tag = self._tags.pop(properties.message_id, -1)
                if self._unconfirmed.get(tag) is confirmed:
                    del self._unconfirmed[tag]

    def drop(self) -> None:
        """Abandon a connection that does not answer; other unconfirmed messages are published over the next one."""
        if self._connection is not None and self._connection.is_open:
            self._connection.close()
        self._channel = None
        self._fail_all(LostError())

    def close(self) -> None:
        """Close the connection; called while the event loop does not run."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is None or connection.is_closed:
            return
        if not connection.is_closing:  # it is where the broker has closed the channel just now
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
            return  # its tags now belong to other messages
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
        """Fail a message that the broker has no queue for; the broker confirms it next, which is ignored."""
        if channel.connection is not self._connection:
            return
        waiting = self._unconfirmed.pop(self._tags.get(properties.message_id, -1), None)
        if waiting is not None and not waiting.done():
            why = f"no queue for exchange {method.exchange!r}, routing key {method.routing_key!r}"
            waiting.set_exception(RefusedError(f"{why} ({method.reply_text})"))

    def _channel_closed(self, channel: Any, error: Exception) -> None:
        """Fail all messages in flight with the reason; the broker closes the channel if the exchange does not exist."""
        if channel.connection is self._connection and self._connection.is_open:
            self._fail_all(self._meaning(error, RefusedError(f"RabbitMQ closed the channel: {reason_of(error)}")))
            self._channel = None
            self._connection.close()

    def _lost(self, connection: Any, error: Exception | str) -> None:
        self.trouble = reason_of(error)
        if connection is not self._connection:
            return  # we closed it, and have another one or need none
        self._channel = None
        if self._ready is None:  # it was in use
            log.warning(
                "%s: the connection is lost (%s); it is made again when it is needed", self._place, self.trouble
            )
            self._fail_all(self._meaning(error, LostError()))
        else:
            log.warning("%s: no connection (%s); next attempt in %s s", self._place, self.trouble, BACKOFF_SECS)
            asyncio.get_running_loop().call_later(BACKOFF_SECS, self._connect)

    def _meaning(self, error: Any, otherwise: Exception) -> Exception:
        """Return the effect of the end of a channel or connection on the messages in flight."""
        if getattr(error, "reply_code", 0) not in OF_A_MESSAGE:
            return otherwise
        if len(self._unconfirmed) > 1:
            return SuspectError()
        return RefusedError(f"RabbitMQ refused the message: {reason_of(error)}")

    def _fail_all(self, error: Exception) -> None:
        waiting, self._unconfirmed = self._unconfirmed, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
