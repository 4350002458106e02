"""RabbitMQBolt: publishes tuples as RabbitMQ messages.

A micro-batch that runs again publishes its messages again under the same ``message_id``: the guarantee is
at-least-once, and consumers can detect the duplicates.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Annotated, Any

from sparkbolt.api.arguments import PART_OF_TUPLE, POSITIVE, checked, text
from sparkbolt.api.components import AsyncBolt, TopologyContext
from sparkbolt.api.outside import UsesOutside
from sparkbolt.api.tuples import Tuple
from sparkbolt.api.unsent import note_unsent
from sparkbolt.connectors.message_parts import Part, encoded, encoded_part, part_of
from sparkbolt.connectors.rabbitmq.rabbitmq_link import parameters_of, pika, place_of
from sparkbolt.connectors.rabbitmq.rabbitmq_publisher import Publisher
from sparkbolt.errors import ConfigError, FailedException

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import BasicCollector

PERSISTENT, TRANSIENT = 2, 1


class RabbitMQBolt(UsesOutside, AsyncBolt):
    """Publishes each tuple as one message, with publisher confirms.

    ``exchange`` must exist; without it the routing key is the name of a queue. Give either ``routing_key`` or
    ``routing_key_field``, the field that holds the routing key. ``value`` and ``headers`` are each the name of a field
    or a function of the tuple. Without ``value`` the message is a JSON object of all fields. Bytes are published
    unchanged, a str as UTF-8, and anything else as JSON, as ``JsonLinesBolt`` writes it. With ``durable=False``
    messages do not survive a restart of the broker. The URL is never printed.

    A tuple fails if its message cannot be encoded, is refused, is routed to no queue, or is not confirmed within
    ``confirm_secs``. If the connection is lost, the bolt reconnects and publishes unconfirmed messages again. The
    simulator and ``TopologyTestDriver`` record messages instead of publishing them (``TopologyTestDriver.unsent``).

    >>> print(RabbitMQBolt("amqp://ann:secret@localhost/", routing_key="words"))
    RabbitMQBolt(exchange '' at localhost:5672/)
    """

    stateless = True
    ignores_ticks = True
    awaited_in_outage = "its broker"
    concurrency = 1000

    @checked
    def __init__(
        self,
        url: str,
        exchange: Annotated[str, text("the name of an exchange, or ''", blank=True)] = "",
        *,
        routing_key: Annotated[str, text("a routing key")] | None = None,
        routing_key_field: Annotated[str, text("a field's name")] | None = None,
        value: Annotated[Part, PART_OF_TUPLE] | None = None,
        headers: Annotated[Part, PART_OF_TUPLE] | None = None,
        durable: bool = True,
        confirm_secs: Annotated[float, POSITIVE] = 30.0,
    ) -> None:
        """Check and store the arguments.

        Raises:
            ConfigError: The URL is invalid, or not exactly one of ``routing_key`` and ``routing_key_field`` is given.
        """
        parameters_of(url)
        if (routing_key is None) == (routing_key_field is None):
            raise ConfigError(
                f"RabbitMQBolt: routing_key={routing_key!r}, routing_key_field={routing_key_field!r}: expected one of "
                "the two"
            )
        self.url = url
        self.exchange = exchange
        self.routing_key = routing_key
        self.routing_key_field = routing_key_field
        self.value, self.headers = value, headers
        self.durable = durable
        self.confirm_secs = confirm_secs

    def prepare(self, context: TopologyContext) -> None:
        """Create the publisher, which connects when the first tuple arrives."""
        rehearsed = context.rehearsal_directory is not None
        self._publisher: Any = _Notes(context) if rehearsed else Publisher(self.url)
        self._properties = pika().BasicProperties

    async def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Publish the tuple's message; the tuple is acked when the broker has confirmed it."""
        key = self.routing_key if self.routing_key_field is None else tup[self.routing_key_field]
        if not isinstance(key, str):
            raise TypeError(f"field {self.routing_key_field!r} is {key!r:.80}, expected a str to route by")
        properties = self._properties(
            message_id=_message_id(tup),
            headers=part_of(self.headers, tup),
            content_type=None if self.value is not None else "application/json",
            delivery_mode=PERSISTENT if self.durable else TRANSIENT,
        )
        body = encoded(dict(tup)) if self.value is None else encoded_part(self.value, tup)
        try:
            async with asyncio.timeout(self.confirm_secs):
                await self._publisher.publish(self.exchange, key, b"null" if body is None else body, properties)
        except TimeoutError:
            self._publisher.drop()
            why = f"not confirmed within confirm_secs={self.confirm_secs} s ({self._publisher.trouble})"
            raise FailedException(f"{self}: {why}") from None

    def cleanup(self) -> None:
        """Close the connection."""
        self._publisher.close()

    def __str__(self) -> str:
        return f"RabbitMQBolt(exchange {self.exchange!r} at {place_of(self.url)})"


class _Notes:
    """Replaces the publisher in a rehearsal: it records each message that the protocol can encode."""

    trouble = "nothing is sent"

    def __init__(self, context: TopologyContext) -> None:
        self._context = context

    async def publish(self, exchange: str, routing_key: str, body: bytes, properties: Any) -> None:
        properties.encode()
        message = {"exchange": exchange, "routing_key": routing_key, "body": body, "headers": properties.headers}
        note_unsent(self._context, message)

    def drop(self) -> None:
        pass

    def close(self) -> None:
        pass


def _message_id(tup: Tuple) -> str:
    """Return the delivery's edge id, which is the same when the micro-batch runs again; a random id if untracked."""
    return f"{tup.anchors[0][1]:016x}" if tup.anchors else uuid.uuid4().hex
