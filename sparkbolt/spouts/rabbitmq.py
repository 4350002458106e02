"""RabbitMQ as a source.

Which question it answers: how does a delivery of a RabbitMQ queue become a tracked tuple, and what does the broker hear
of it?
Rule 1: a delivery is acked after the micro-batch is committed that completed its tree.
Rule 2: no more deliveries are open than ``max_spout_pending``: that is the most that the prefetch may be. It follows
the topology's pace: about what the next two micro-batches take, besides what is under way.

Read before: ``queue``, ``rabbitmq_link``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sparkbolt.core.model import arguments
from sparkbolt.core.model.components import TopologyContext
from sparkbolt.core.model.retry import RetryPolicy
from sparkbolt.spouts.decoding import Decoder
from sparkbolt.spouts.queue import RETRY, BadMessage, QueueSpout
from sparkbolt.spouts.rabbitmq_link import Delivered, Disposition, Link, RabbitMQDelivery, parameters_of, place_of

PREFETCH_MAX = 65_535
"""The protocol has 16 bits for it."""


class RabbitMQSpout(QueueSpout):
    """Emits the messages of one queue, which must exist; each task has a connection and a consumer of its own.

    Args of the constructor: ``url`` (``amqps://`` for TLS; it is never printed), ``queue``, ``value`` (what a message
    is: ``"bytes"``, ``"text"``, ``"json"``, or a function of its bytes), ``outputs`` (the fields; of a JSON object its
    values under these names). To emit routing keys or headers, override ``values_of``.

    A message whose tuple failed is given again from memory, as ``retry`` says (five times unless told otherwise). One
    that is given up, or cannot be decoded, is rejected: the queue's dead letter exchange takes it if it has one,
    otherwise RabbitMQ drops it; an error line says so. With ``retry=None`` each failure puts the message back into the
    queue, for ever. When a connection is lost the broker gives what was open on it again; the spout connects again and
    goes on.

    >>> jobs = RabbitMQSpout("amqp://ann:secret@localhost:5672/", queue="jobs", value="json", outputs=["id", "task"])
    >>> print(jobs, jobs.outputs)
    RabbitMQSpout(queue 'jobs' at localhost:5672/) ['id', 'task']
    """

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        value: str | Callable[[bytes], Any] = "text",
        outputs: Sequence[str] = ("value",),
        retry: RetryPolicy | None = RETRY,
        backoff_max_secs: float = 30.0,
    ) -> None:
        """Check what was given; nothing is connected yet.

        Raises:
            ConfigError: one of them cannot be meant.
        """
        parameters_of(url)
        self.url = url
        self.queue = arguments.text("queue", queue, "the name of a queue")
        self.decoder = Decoder(value, outputs)
        self.outputs = self.decoder.fields
        self.retry = retry
        self.backoff_max_secs = arguments.positive("backoff_max_secs", backoff_max_secs)

    def open(self, context: TopologyContext) -> None:
        """Begin to connect; the first ``next_tuple`` need not wait for it."""
        super().open(context)
        self._open_max = min(self._open_max, PREFETCH_MAX)
        self._link = Link(self.url, self.queue, self._open_max, self.backoff_max_secs)
        self._connection = 0
        self._link.start()

    def values_of(self, delivery: RabbitMQDelivery) -> Sequence[Any]:
        """The values of stream ``default``: the decoded body. Override it for what else a delivery has.

        Raises:
            Exception: any; the delivery is given up, as one that cannot be decoded.
        """
        return self.decoder(delivery.body)

    def receive(self, limit: int) -> Iterator[tuple[Delivered, Sequence[Any]] | BadMessage]:
        """What has arrived."""
        connection, deliveries = self._link.take(limit)
        self._link.want(self.wanted)
        if connection != self._connection:
            self._connection = connection
            self.lost(come_again=self._link.take_lost())
        for delivery in deliveries:
            try:
                values = self.values_of(delivery)
            except ValueError as error:
                yield BadMessage(delivery.id, str(error))
            except Exception as error:  # noqa: BLE001  what stands behind it in this call must not be forgotten
                yield BadMessage(delivery.id, f"{type(error).__name__}: {error}")
            else:
                yield delivery.id, values

    def confirm(self, message_id: Any) -> None:
        """Ack the delivery."""
        self._link.settle(message_id, Disposition.ACK)

    def release(self, message_id: Any, *, again: bool) -> None:
        """Reject the delivery, back into the queue or for good."""
        self._link.settle(message_id, Disposition.REQUEUE if again else Disposition.REJECT)

    def close(self) -> None:
        """Send the last acks and close the connection."""
        self._link.close()

    def __str__(self) -> str:
        return f"RabbitMQSpout(queue {self.queue!r} at {place_of(self.url)})"
