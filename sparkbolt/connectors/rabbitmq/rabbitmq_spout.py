"""RabbitMQSpout: reads a RabbitMQ queue.

At most ``max_spout_pending`` deliveries are open. The prefetch count follows the topology's rate: the deliveries in
flight, and about as many as the next two micro-batches take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any

from sparkbolt.api.arguments import POSITIVE, checked, text
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.connectors.decoder import Decoder
from sparkbolt.connectors.queue_spout import RETRY, BadMessage, QueueSpout
from sparkbolt.connectors.rabbitmq.rabbitmq_link import (
    DeliveryId,
    Disposition,
    Link,
    RabbitMQDelivery,
    parameters_of,
    place_of,
)

PREFETCH_MAX = 65_535
"""The protocol encodes the prefetch count in 16 bits."""


class RabbitMQSpout(QueueSpout):
    """Emits the messages of one queue, which must exist; each task has its own connection and consumer.

    Args of the constructor: ``url`` (``amqps://`` for TLS; it is never printed), ``queue``, ``value`` (how to decode a
    message: ``"bytes"``, ``"text"``, ``"json"``, or a function of its bytes), ``outputs`` (the fields; from a JSON
    object each field takes the value under its name), ``retry`` and ``backoff_max_secs`` (the longest pause between
    two attempts to connect). To emit routing keys or headers, override ``values_of``.

    A message whose tuple failed is retried from memory according to ``retry`` (by default five times). A message that
    is given up or cannot be decoded is rejected: the queue's dead letter exchange takes it if there is one, otherwise
    RabbitMQ drops it; an ERROR line reports it. With ``retry=None`` each failure puts the message back into the queue,
    without a limit. When a connection is lost, the broker delivers its open messages again; the spout reconnects and
    continues.

    >>> jobs = RabbitMQSpout("amqp://ann:secret@localhost:5672/", queue="jobs", value="json", outputs=["id", "task"])
    >>> print(jobs, jobs.outputs)
    RabbitMQSpout(queue 'jobs' at localhost:5672/) ['id', 'task']
    """

    @checked
    def __init__(
        self,
        url: str,
        queue: Annotated[str, text("the name of a queue")],
        *,
        value: str | Callable[[bytes], Any] = "text",
        outputs: Fields = ("value",),
        retry: RetryPolicy | None = RETRY,
        backoff_max_secs: Annotated[float, POSITIVE] = 30.0,
    ) -> None:
        """Check and store the arguments; no connection is opened yet.

        Raises:
            ConfigError: An argument is invalid.
        """
        parameters_of(url)
        self.url = url
        self.queue = queue
        self.decoder = Decoder(value, outputs)
        self.outputs = self.decoder.fields
        self.retry = retry
        self.backoff_max_secs = backoff_max_secs

    def open(self, context: TopologyContext) -> None:
        """Start to connect in the background; ``next_tuple`` does not wait for it."""
        super().open(context)
        self._open_max = min(self._open_max, PREFETCH_MAX)
        self._link = Link(self.url, self.queue, self._open_max, self.backoff_max_secs)
        self._connection = 0
        self._link.start()

    def values_of(self, delivery: RabbitMQDelivery) -> Sequence[Any]:
        """Return the values of stream ``default``: the decoded body. Override it to emit other parts of a delivery.

        Raises:
            Exception: Any exception; the delivery is then given up as one that cannot be decoded.
        """
        return self.decoder(delivery.body)

    def receive(self, limit: int) -> Iterator[tuple[DeliveryId, Sequence[Any]] | BadMessage]:
        """Yield the deliveries that have arrived."""
        connection, deliveries = self._link.take(limit)
        self._link.want(self.wanted)
        if connection != self._connection:
            self._connection = connection
            self.lost(come_again=self._link.take_lost())
        for delivery in deliveries:
            yield self.decoded(delivery.id, partial(self.values_of, delivery))

    def confirm(self, message_id: Any) -> None:
        """Ack the delivery."""
        self._link.settle(message_id, Disposition.ACK)

    def release(self, message_id: Any, *, again: bool) -> None:
        """Reject the delivery: requeue it if ``again``, otherwise for good."""
        self._link.settle(message_id, Disposition.REQUEUE if again else Disposition.REJECT)

    def trace_attributes(self, source: str | None, position: int | None) -> dict[str, str | int]:
        """Return the queue."""
        return {"messaging.system": "rabbitmq", "messaging.destination.name": self.queue}

    def close(self) -> None:
        """Send the last acks and close the connection."""
        self._link.close()

    def __str__(self) -> str:
        return f"RabbitMQSpout(queue {self.queue!r} at {place_of(self.url)})"
