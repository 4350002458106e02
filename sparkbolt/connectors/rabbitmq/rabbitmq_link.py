"""Link: one consumer's connection to RabbitMQ, on its own thread.

Only this thread uses the connection: it answers heartbeats between the spout's calls, and no call of the spout waits
for the network. A delivery is identified by the number of its connection and its tag. A verdict on a delivery of an
earlier connection is dropped, because RabbitMQ closes the channel for an unknown tag.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from enum import Enum
from itertools import takewhile
from typing import Any, NamedTuple

from sparkbolt.connectors.backoff import Backoff
from sparkbolt.errors import ConfigError

log = logging.getLogger(__name__)

PREFETCH_MIN = 32
"""A lower prefetch count is used only if the limit itself is lower."""
PREFETCH_FALL = 4
"""The prefetch count falls when it is at least this many times the wanted number."""
CLOSE_SECS_MAX = 4.0


class DeliveryId(NamedTuple):
    """Identifies one delivery of one connection; it is the message id of the delivery's tuple."""

    connection: int
    tag: int


class RabbitMQDelivery(NamedTuple):
    """One delivery as the broker sent it."""

    id: DeliveryId
    body: bytes
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Any
    """pika's ``BasicProperties``: headers, content_type, message_id ..."""


class Disposition(Enum):
    """The broker's action on a delivery."""

    ACK = "ack"
    REJECT = "reject"
    """The message is given up: the queue's dead letter exchange takes it, if there is one; otherwise it is dropped."""
    REQUEUE = "requeue"


def pika() -> Any:
    """Return the client library.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        import pika as library
    except ImportError:
        raise ConfigError("RabbitMQ needs the package pika: pip install 'sparkbolt[rabbitmq]'") from None
    its_log = logging.getLogger("pika")
    if its_log.level == logging.NOTSET:
        its_log.setLevel(logging.CRITICAL)  # it logs eight ERROR lines for one refused connection; we log one line
    return library


def reason_of(error: BaseException | str) -> str:
    """Return the cause of an error that pika wraps in errors without a text."""
    while isinstance(error, BaseException) and error.args and isinstance(error.args[0], BaseException):
        error = error.args[0]
    for inner in getattr(error, "exceptions", ())[-1:]:
        return reason_of(getattr(inner, "exception", inner))
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error


def parameters_of(url: str) -> Any:
    """Return pika's parameters for an AMQP URL.

    Raises:
        ConfigError: The URL is invalid. The message does not show it, since it may hold a password.
    """
    try:
        if not url.startswith(("amqp://", "amqps://")):
            raise ValueError("it begins with neither amqp:// nor amqps://")
        return pika().URLParameters(url)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"url: expected amqp://user:password@host:port/vhost, and {error}") from None


def place_of(url: str) -> str:
    """Return host, port and virtual host of an AMQP URL, which may be printed.

    >>> place_of("amqp://ann:secret@queues:5672/shop")
    'queues:5672/shop'
    """
    parameters = parameters_of(url)
    return f"{parameters.host}:{parameters.port}/{parameters.virtual_host.strip('/')}"


class Link:
    """Consumes from one queue. ``_io`` methods run on the connection's thread, all others on the spout's."""

    def __init__(self, url: str, queue: str, prefetch_max: int, backoff_secs_max: float) -> None:
        """Store the parameters; ``start`` connects."""
        self._parameters = parameters_of(url)
        self._name = f"queue {queue!r} at {place_of(url)}"
        self._queue = queue
        self._prefetch_max = prefetch_max
        self._backoff = Backoff(self._name, backoff_secs_max)
        self._lock = threading.Lock()
        # Guarded by the lock:
        self._number = 0
        self._arrived: deque[RabbitMQDelivery] = deque()
        self._verdicts: list[tuple[DeliveryId, Disposition]] = []
        self._woken = False
        self._wanted = min(PREFETCH_MIN, prefetch_max)
        self._lost = 0
        self._broken: Exception | None = None
        # Used only by the connection's thread:
        self._connection: Any = None
        self._channel: Any = None
        self._unsettled: dict[int, None] = {}
        """Tags of open deliveries, in the order of their arrival."""
        self._prefetch = 0
        """Prefetch count of the consumer; 0 while there is none or it is being replaced."""
        self._consumer = ""
        self._why = ""
        """Why an unusable connection is being closed."""
        self._closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to connect in the background."""
        pika()
        from pika.adapters.select_connection import IOLoop

        self._loop = IOLoop()
        self._thread = threading.Thread(target=self._live, name=f"rabbitmq-{self._queue}", daemon=True)
        self._thread.start()

    def take(self, limit: int) -> tuple[int, list[RabbitMQDelivery]]:
        """Return the connection's number, which rises when one is lost, and up to ``limit`` of its deliveries.

        Raises:
            RuntimeError: The connection's thread has ended, so nothing will arrive any more.
        """
        with self._lock:
            if self._broken is not None:
                raise RuntimeError(f"{self._name}: its thread has ended: {reason_of(self._broken)}") from self._broken
            return self._number, [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]

    def take_lost(self) -> int:
        """Return how many deliveries were open on connections lost since the last call; the queue redelivers them."""
        with self._lock:
            lost, self._lost = self._lost, 0
            return lost

    def want(self, count: int) -> None:
        """Set how many deliveries may be open; the prefetch count follows."""
        wanted = min(self._prefetch_max, max(PREFETCH_MIN, 1 << max(0, count - 1).bit_length()))
        with self._lock:
            changed, self._wanted = wanted != self._wanted, wanted
        if changed:
            self._loop.add_callback_threadsafe(self._io_pace)

    def settle(self, delivered: DeliveryId, verdict: Disposition) -> None:
        """Ack or reject a delivery; it is sent soon, or dropped if the connection is lost."""
        with self._lock:
            self._verdicts.append((delivered, verdict))
            wake, self._woken = not self._woken, True
        if wake:
            self._loop.add_callback_threadsafe(self._io_settle)

    def close(self) -> None:
        """Send pending acks and close the connection; open deliveries go back to the queue."""
        if self._thread is None or not self._thread.is_alive():
            return
        self._loop.add_callback_threadsafe(self._io_close)
        self._thread.join(CLOSE_SECS_MAX)
        if self._thread.is_alive():
            log.warning("%s: the connection was not closed within %s s; it is left behind", self._name, CLOSE_SECS_MAX)
        self._thread = None

    # On the thread of the connection.

    def _live(self) -> None:
        try:
            self._io_connect()
            self._loop.start()
        except Exception as error:  # noqa: BLE001  ``take`` must raise it, whatever it is
            with self._lock:
                self._broken = error
        self._loop.close()

    def _io_connect(self) -> None:
        if self._closing:
            self._loop.stop()
            return
        self._connection = pika().SelectConnection(
            self._parameters,
            on_open_callback=self._io_connected,
            on_open_error_callback=self._io_lost,
            on_close_callback=self._io_lost,
            custom_ioloop=self._loop,
        )

    def _io_connected(self, connection: Any) -> None:
        if self._closing:
            connection.close()
            return
        connection.channel(on_open_callback=self._io_channel)

    def _io_channel(self, channel: Any) -> None:
        channel.add_on_close_callback(self._io_channel_closed)
        channel.add_on_cancel_callback(lambda _: self._io_give_up("RabbitMQ cancelled it: was the queue deleted?"))

        self._io_consume(channel)

    def _io_consume(self, channel: Any) -> None:
        with self._lock:
            prefetch = min(self._wanted, self._prefetch_max - len(self._unsettled))

        def consume(_: Any) -> None:
            self._consumer = channel.basic_consume(
                self._queue, self._io_deliver, callback=lambda _: self._io_consuming(channel, prefetch)
            )

        channel.basic_qos(prefetch_count=prefetch, callback=consume)

    def _io_consuming(self, channel: Any, prefetch: int) -> None:
        if self._channel is None:
            log.info("%s: consuming, with %d messages open and at most %d", self._name, prefetch, self._prefetch_max)
        self._channel, self._prefetch = channel, prefetch
        self._backoff.connected()
        self._io_pace()  # the wanted number may have changed meanwhile

    def _io_pace(self) -> None:
        """Replace the consumer if any higher prefetch count is wanted, or a much lower one."""
        if self._channel is None or not self._channel.is_open or not self._prefetch or self._closing:
            return
        with self._lock:
            wanted = min(self._wanted, self._prefetch_max - len(self._unsettled))
        if wanted > self._prefetch or 0 < PREFETCH_FALL * wanted <= self._prefetch:
            channel, self._prefetch = self._channel, 0
            log.debug("%s: the prefetch becomes %d", self._name, wanted)
            channel.basic_cancel(self._consumer, callback=lambda _: self._io_consume(channel))

    def _io_deliver(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        tag = method.delivery_tag
        self._unsettled[tag] = None
        where = method.exchange, method.routing_key, method.redelivered
        with self._lock:
            self._arrived.append(RabbitMQDelivery(DeliveryId(self._number, tag), body, *where, properties))

    def _io_channel_closed(self, channel: Any, error: Exception) -> None:
        self._io_give_up(str(error))

    def _io_give_up(self, why: str) -> None:
        """Close the connection, because the channel is unusable: only a new connection can go on."""
        if self._connection.is_open:
            self._why = why
            self._connection.close()

    def _io_lost(self, connection: Any, error: Exception | str) -> None:
        self._channel, self._prefetch = None, 0
        with self._lock:
            self._number += 1
            self._lost += len(self._unsettled)
            self._arrived.clear()
            self._verdicts.clear()
        self._unsettled.clear()
        if self._closing:
            self._loop.stop()
            return
        why, self._why = self._why or f"no connection ({reason_of(error)})", ""
        self._loop.call_later(self._backoff.failed(why), self._io_connect)

    def _io_settle(self) -> None:
        with self._lock:
            said, self._verdicts, self._woken = self._verdicts, [], False
            number = self._number
        if self._channel is None or not self._channel.is_open:
            return
        acked = {id_.tag for id_, verdict in said if id_.connection == number and verdict is Disposition.ACK}
        acked &= self._unsettled.keys()
        for id_, verdict in said:
            if id_.connection == number and verdict is not Disposition.ACK and id_.tag in self._unsettled:
                del self._unsettled[id_.tag]
                self._channel.basic_reject(id_.tag, requeue=verdict is Disposition.REQUEUE)
        # One frame acks the oldest tags, as long as all of them are acked; the others are acked one by one.
        run = list(takewhile(acked.__contains__, self._unsettled))
        if run:
            self._channel.basic_ack(run[-1], multiple=True)
        for tag in sorted(acked.difference(run)):
            self._channel.basic_ack(tag)
        for tag in acked:
            del self._unsettled[tag]

    def _io_close(self) -> None:
        self._io_settle()
        self._closing = True
        if self._connection.is_open:
            self._connection.close()
        elif self._connection.is_closed:
            self._loop.stop()
