"""KestrelSpout: reads a Kestrel queue.

A connection holds one item, so a task has as many connections as open items. Only a new connection shows whether a
server is down: an old one may be from before the server's restart, even if its last write succeeded.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Annotated, Any, NamedTuple

from sparkbolt.api.arguments import POSITIVE, checked, text, verify, whole
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.connectors.backoff import Backoff
from sparkbolt.connectors.decoder import Decoder
from sparkbolt.connectors.kestrel.kestrel_link import KestrelConnection
from sparkbolt.connectors.queue_spout import RETRY, BadMessage, QueueSpout
from sparkbolt.errors import ConfigError

log = logging.getLogger(__name__)

PORT = 22133
EMPTY_SECS = 0.05
"""How long a server whose queue is empty is not asked, in seconds."""


class ItemId(NamedTuple):
    """Identifies one reading of one item; it is the message id of the item's tuple."""

    server: str
    number: int


class _OldConnectionError(OSError):
    """A connection that is no longer usable; this does not show whether the server is down."""


class _Server:
    """One server with its connections: those that hold an item and those that are free."""

    def __init__(self, name: str, host: str, port: int, backoff_secs_max: float) -> None:
        self.name, self.host, self.port = name, host, port
        self.free: list[KestrelConnection] = []
        self.holding: dict[int, KestrelConnection] = {}
        """Connections by the number of the item that they hold."""
        self.asked_at_once = 1
        """How many connections ask at the same time; it doubles while all of them receive an item."""
        self.not_before = 0.0
        self.backoff = Backoff(f"Kestrel at {name}", backoff_secs_max)
        self.count = 0

    def close_free(self) -> None:
        """Close the connections that hold no item."""
        for connection in self.free:
            connection.close()
        self.free.clear()

    def fail(self, error: OSError) -> None:
        """Leave a server alone for a while that is down or broke the protocol."""
        self.close_free()
        self.not_before = monotonic() + self.backoff.failed(str(error))


class KestrelSpout(QueueSpout):
    """Emits the items of one queue from one or several Kestrel servers, over the memcache protocol.

    Args of the constructor: ``servers`` (``"host:port"`` or a list of them; the default port is 22133), ``queue``,
    ``value``, ``outputs`` and ``backoff_max_secs`` as for ``RabbitMQSpout``, ``connections`` (the most items that one
    task has open, since each needs its own connection; ``max_spout_pending`` may lower it), ``answer_secs`` (how long
    a server may take to answer; acks wait meanwhile).

    Items arrive only roughly in the order of their queue, because several connections ask at once.

    An item whose tuple failed is retried from memory according to ``retry`` (by default five times). An item that is
    given up or cannot be decoded is closed, which Kestrel treats as done; an ERROR line reports it. With
    ``retry=None`` each failure puts the item back at the head of its queue, so it is the next item again, without a
    limit.

    >>> KestrelSpout("localhost", "sentences").servers
    ['localhost:22133']
    """

    @checked
    def __init__(
        self,
        servers: str | Sequence[str],
        queue: Annotated[str, text("the name of a queue")],
        *,
        value: str | Callable[[bytes], Any] = "text",
        outputs: Fields = ("value",),
        connections: Annotated[int, whole()] = 200,
        retry: RetryPolicy | None = RETRY,
        answer_secs: Annotated[float, POSITIVE] = 5.0,
        backoff_max_secs: Annotated[float, POSITIVE] = 30.0,
    ) -> None:
        """Check and store the arguments; no connection is opened yet.

        Raises:
            ConfigError: An argument is invalid.
        """
        names = [servers] if isinstance(servers, str) or not isinstance(servers, Iterable) else list(servers)
        if not names:
            raise ConfigError("servers=[]: expected 'host:port', or a list of those")
        if any(mark in queue for mark in "/~. \r\n"):
            raise ConfigError(f"queue={queue!r}: expected a name without '/', '~', '.' and spaces")
        self.servers = [":".join(map(str, _host_and_port(name))) for name in names]
        self.queue = queue
        self.decoder = Decoder(value, outputs)
        self.outputs = self.decoder.fields
        self.retry = retry
        self.connections = connections
        self.answer_secs = answer_secs
        self.backoff_max_secs = backoff_max_secs

    def open(self, context: TopologyContext) -> None:
        """Start without connections; the first ``next_tuple`` opens one."""
        super().open(context)
        self._open_max = min(self._open_max, self.connections)
        self._servers = {name: _Server(name, *_host_and_port(name), self.backoff_max_secs) for name in self.servers}

    def receive(self, limit: int) -> Iterator[tuple[ItemId, Sequence[Any]] | BadMessage]:
        """Yield at most ``limit`` items, one per connection."""
        for server in self._servers.values():
            if monotonic() < server.not_before or limit < 1:
                continue
            for opened, body in self._read(server, limit):
                limit -= 1
                yield self.decoded(opened, partial(self.decoder, body))

    def confirm(self, message_id: Any) -> None:
        """Close the item."""
        self._settle(message_id, KestrelConnection.confirm)

    def release(self, message_id: Any, *, again: bool) -> None:
        """Put the item back, or close it."""
        self._settle(message_id, KestrelConnection.abort if again else KestrelConnection.confirm)

    def close(self) -> None:
        """Close all connections; the servers put open items back into their queues."""
        for server in self._servers.values():
            for connection in [*server.free, *server.holding.values()]:
                connection.close()

    def _read(self, server: _Server, limit: int) -> list[tuple[ItemId, bytes]]:
        found: list[tuple[ItemId, bytes]] = []
        try:
            try:
                self._ask(server, limit, found)
            except _OldConnectionError:
                server.close_free()
                self._ask(server, limit - len(found), found)
        except OSError as error:
            server.fail(error)
            return found
        server.backoff.connected()
        full = len(found) >= min(limit, server.asked_at_once)
        server.asked_at_once = 2 * server.asked_at_once if full else len(found) + 1
        if not found:
            server.not_before = monotonic() + EMPTY_SECS
        return found

    def _ask(self, server: _Server, limit: int, found: list[tuple[ItemId, bytes]]) -> None:
        """Ask over several connections at the same time, and append the received items to ``found``.

        Raises:
            _OldConnectionError: A connection that was opened for an earlier item failed.
            OSError: A new connection could not be opened or failed.
        """
        asked: deque[tuple[KestrelConnection, bool]] = deque()
        is_old = False
        try:
            while len(asked) < min(limit, server.asked_at_once):
                is_old = bool(server.free)
                connection = (
                    server.free.pop() if is_old else KestrelConnection(server.host, server.port, self.answer_secs)
                )
                asked.append((connection, is_old))
                connection.ask(self.queue)
            while asked:
                is_old = asked[0][1]
                body = asked[0][0].answer()
                connection = asked.popleft()[0]
                if body is None:
                    server.free.append(connection)
                    continue
                server.count += 1
                server.holding[server.count] = connection
                found.append((ItemId(server.name, server.count), body))
        except OSError as error:
            for connection, _ in asked:  # the server puts the items that they may hold back into the queue
                connection.close()
            if is_old:
                raise _OldConnectionError from error
            raise

    def _settle(self, opened: ItemId, say: Callable[[KestrelConnection, str], None]) -> None:
        server = self._servers[opened.server]
        connection = server.holding.pop(opened.number)
        try:
            say(connection, self.queue)
        except OSError as error:  # does not show that the server is down: the connection may be older than its restart
            connection.close()
            log.info("Kestrel at %s: %s; item %d is back in its queue", server.name, error, opened.number)
        else:
            server.free.append(connection)

    def __str__(self) -> str:
        return f"KestrelSpout(queue {self.queue!r} at {', '.join(self.servers)})"


def _host_and_port(server: Any) -> tuple[str, int]:
    verify("servers", server, text("'host:port', or a list of those"))
    host, _, port = server.rpartition(":") if ":" in server else (server, "", str(PORT))
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"servers: {server!r}, expected 'host:port'")
    return host, int(port)
