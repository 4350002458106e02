"""SocketSpout: reads lines of text from a TCP connection, without a call that blocks."""

from __future__ import annotations

import logging
import os
import select
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from time import monotonic
from typing import Annotated, Any

from sparkbolt.api.arguments import ENCODING, POSITIVE, checked, text, whole
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.connectors.backoff import BACKOFF_SECS_MIN, Backoff
from sparkbolt.connectors.queue_spout import QueueSpout

log = logging.getLogger(__name__)

READ_BYTES = 1 << 16
CONNECT_SECS = 10.0
"""How long connecting may take, in seconds."""


class SocketSpout(QueueSpout):
    """Emits the lines that a TCP server sends: field ``line`` (str, without its newline).

    Each task has its own connection. If a connection breaks or cannot be opened, the spout tries again after 0.1 s,
    then after twice as long each time, up to ``backoff_max_secs``. A line that failed is retried from memory, at most
    ``max_retries`` times, and then becomes a dead letter; lines that are not acked are lost with the driver. When the
    server closes the connection, the bytes after its last newline count as a line. With ``reconnect=False`` the spout
    then ends, as soon as every line is acked or given up. A line longer than ``line_bytes_max`` bytes is dropped and
    logged. While ``pending_lines_max`` lines are open, the spout reads nothing, and the sender has to wait. A host name
    is resolved at each attempt, which may block; use an address where that matters.

    >>> SocketSpout("127.0.0.1", 9999).outputs
    ['line']
    """

    outputs = ["line"]

    @checked
    def __init__(
        self,
        host: Annotated[str, text("the name or address of a host")],
        port: Annotated[int, whole(1, 65535)],
        *,
        reconnect: bool = True,
        encoding: Annotated[str, ENCODING] = "utf-8",
        max_retries: Annotated[int, whole(0)] = 5,
        pending_lines_max: Annotated[int, whole()] = 100_000,
        line_bytes_max: Annotated[int, whole()] = 1 << 20,
        backoff_max_secs: Annotated[float, POSITIVE] = 30.0,
    ) -> None:
        """Check and store the arguments.

        Raises:
            ConfigError: An argument is invalid, such as a number that is out of range.
        """
        self.host = host
        self.port = port
        self.reconnect = reconnect
        self.encoding = encoding
        self.retry = RetryPolicy(max_retries=max_retries, min_backoff=timedelta(0))
        self.pending_lines_max = pending_lines_max
        self.line_bytes_max = line_bytes_max
        self.backoff_max_secs = backoff_max_secs

    def open(self, context: TopologyContext) -> None:
        """Start without a connection; the first ``next_tuple`` opens one."""
        super().open(context)
        self._open_max = min(context.config.max_spout_pending or self.pending_lines_max, self.pending_lines_max)
        self._socket: socket.socket | None = None
        self._connected = self._closed = False
        self._deadline = 0.0
        """Until when connecting may take; without a connection: when the next attempt begins."""
        self._backoff = Backoff(str(self), self.backoff_max_secs)
        self._partial = b""
        """The beginning of a line whose end has not arrived."""
        self._skips = False
        """Whether the incoming bytes belong to a line that is too long."""
        self._lines: deque[str] = deque()
        self._ids = count()

    def receive(self, limit: int) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield lines that have arrived; if there are none, read from the connection."""
        if not self._lines:
            self._read()
        for _ in range(min(limit, len(self._lines))):
            yield next(self._ids), [self._lines.popleft()]

    def confirm(self, message_id: Any) -> None:
        """Do nothing: the sender expects no answer."""

    def release(self, message_id: Any, *, again: bool) -> None:
        """Do nothing: the engine has retried the line, and keeps its dead letter."""

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._connected = None, False

    @property
    def exhausted(self) -> bool:
        """Whether the server closed, ``reconnect`` is False, and every line is acked or given up."""
        return self._closed and not self.reconnect and not self._lines and not self.open_messages

    def __str__(self) -> str:
        return f"SocketSpout {self.host}:{self.port}"

    def _read(self) -> None:
        """Read the bytes that have arrived, at most ``READ_BYTES``; open a connection first if there is none."""
        try:
            if self._is_ready():
                assert self._socket is not None
                data = self._socket.recv(READ_BYTES)
                if data:
                    self._split(data)
                else:
                    self._server_closed()
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(error)

    def _is_ready(self) -> bool:
        """Whether there is a connection; starts one, or checks whether the started one is established."""
        if self._connected:
            return True
        if self._socket is None:
            if (self._closed and not self.reconnect) or monotonic() < self._deadline:
                return False
            family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setblocking(False)
            self._socket.connect_ex(address)
            self._deadline = monotonic() + CONNECT_SECS
        if not select.select([], [self._socket], [], 0)[1]:
            if monotonic() > self._deadline:
                raise TimeoutError(f"no connection within {CONNECT_SECS} s")
            return False
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        self._connected = True
        self._backoff.connected()
        log.info("%s: connected", self)
        return True

    def _server_closed(self) -> None:
        if self._partial:
            self._split(b"\n")
        self._closed = True
        self._disconnect(BACKOFF_SECS_MIN)
        log.info("%s: the server closed; %s", self, "connecting again" if self.reconnect else "that is the end")

    def _lost(self, error: OSError) -> None:
        dropped = f"; {len(self._partial)} bytes of an unfinished line are dropped" if self._partial else ""
        self._disconnect(self._backoff.failed(f"{error}{dropped}"))

    def _disconnect(self, pause_secs: float) -> None:
        self.close()
        self._partial, self._skips = b"", False
        self._deadline = monotonic() + pause_secs

    def _split(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            if self._skips:
                self._skips = False
            elif not self._is_too_long(line):
                self._lines.append(line.removesuffix(b"\r").decode(self.encoding, "replace"))
        self._skips = self._skips or self._is_too_long(self._partial)
        if self._skips:
            self._partial = b""

    def _is_too_long(self, line: bytes) -> bool:
        if len(line) <= self.line_bytes_max:
            return False
        log.error("%s: a line longer than line_bytes_max=%d is dropped", self, self.line_bytes_max)
        return True
