"""SocketSpout: reads lines of text from a TCP connection.

Rule 1: a line is kept until it is acked, and is emitted again after a failure, at most ``max_retries`` times. It is
stored only in the driver's memory: lines that are not acked are lost with the driver.
Rule 2: no call blocks: connecting and reading are non-blocking, so acks are not delayed.
Rule 3: memory is bounded: while ``pending_lines_max`` lines are kept, the spout reads nothing, and the sender has to
wait.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections import deque
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

from sparkbolt.api.arguments import ENCODING, POSITIVE, checked, text, whole
from sparkbolt.api.components import Spout, TopologyContext

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import SpoutCollector

log = logging.getLogger(__name__)

READ_BYTES = 1 << 16
EMIT_MAX = 1000
"""The most lines that one call emits."""
CONNECT_SECS = 10.0
"""How long connecting may take, in seconds."""


class SocketSpout(Spout):
    """Emits the lines that a TCP server sends: field ``line`` (str, without its newline).

    Each task has its own connection. If a connection breaks or cannot be opened, the spout tries again after 0.1 s,
    then after twice as long each time, up to ``backoff_max_secs``. A line that failed is emitted again, at most
    ``max_retries`` times. When the server closes the connection, the bytes after its last newline count as a line.
    With ``reconnect=False`` the spout then ends, as soon as every line is acked or given up. A line longer than
    ``line_bytes_max`` bytes is dropped and logged. While ``pending_lines_max`` lines are open, the spout reads nothing.
    A host name is resolved at each attempt, which may block; use an address where that matters.

    >>> SocketSpout("127.0.0.1", 9999).outputs
    ['line']
    """

    outputs = ["line"]
    rehearsable = False

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
        self.max_retries = max_retries
        self.pending_lines_max = pending_lines_max
        self.line_bytes_max = line_bytes_max
        self.backoff_max_secs = backoff_max_secs

    def open(self, context: TopologyContext) -> None:
        """Start without a connection; the first ``next_tuple`` opens one."""
        self._socket: socket.socket | None = None
        self._connected = False
        self._closed = False
        self._deadline = 0.0
        self._backoff_secs = 0.1
        self._partial = bytearray()
        self._skipping = False
        self._lines: deque[str] = deque()
        self._kept: dict[int, tuple[str, int]] = {}
        self._again: deque[int] = deque()
        self._next_id = 0

    def __getstate__(self) -> Mapping[str, Any]:
        """Return the arguments only: nothing that ``open`` creates."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def next_tuple(self, collector: SpoutCollector) -> None:
        """Emit failed lines first, then new ones; if there is no new line, read from the connection."""
        room = EMIT_MAX
        while self._again and room:
            message_id = self._again.popleft()
            collector.emit([self._kept[message_id][0]], message_id=message_id)
            room -= 1
        if not self._lines and len(self._kept) < self.pending_lines_max:
            self._receive()
        while self._lines and room and len(self._kept) < self.pending_lines_max:
            line = self._lines.popleft()
            message_id, self._next_id = self._next_id, self._next_id + 1
            self._kept[message_id] = (line, 0)
            collector.emit([line], message_id=message_id)
            room -= 1

    def ack(self, message_id: Any) -> None:
        """Forget the line."""
        self._kept.pop(message_id, None)

    def fail(self, message_id: Any) -> None:
        """Emit the line again later, or give it up if its retries are used up."""
        line, retries = self._kept.get(message_id, (None, 0))
        if line is None:
            return
        if retries >= self.max_retries:
            del self._kept[message_id]
            log.error("%s: line given up after %d retries: %.200r", self._name, retries, line)
            return
        self._kept[message_id] = (line, retries + 1)
        self._again.append(message_id)

    def close(self) -> None:
        """Close the connection."""
        self._disconnect()

    @property
    def exhausted(self) -> bool:
        """Whether the server closed, ``reconnect`` is False, and every line is acked or given up."""
        return self._closed and not self.reconnect and not self._lines and not self._kept

    @property
    def _name(self) -> str:
        return f"SocketSpout {self.host}:{self.port}"

    def _receive(self) -> None:
        """Read what has arrived, at most ``READ_BYTES``; open a connection first if there is none."""
        try:
            if self._ready():
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

    def _ready(self) -> bool:
        """Whether there is a connection; starts one, or checks whether the started one is established."""
        if self._connected:
            return True
        if self._socket is None:
            if (self._closed and not self.reconnect) or monotonic() < self._deadline:
                return False
            self._begin()
        assert self._socket is not None
        if not select.select([], [self._socket], [], 0)[1]:
            if monotonic() > self._deadline:
                raise TimeoutError(f"no connection within {CONNECT_SECS} s")
            return False
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        self._connected = True
        self._backoff_secs = 0.1
        log.info("%s: connected", self._name)
        return True

    def _begin(self) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._socket.connect_ex(address)
        self._deadline = monotonic() + CONNECT_SECS

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._connected = False

    def _server_closed(self) -> None:
        rest = bytes(self._partial)
        self._partial.clear()
        if rest and not self._skipping:
            self._lines.append(self._text(rest))
        self._skipping = False
        self._closed = True
        self._disconnect()
        self._deadline = monotonic() + self._backoff_secs
        log.info(
            "%s: the server closed; %s",
            self._name,
            "connecting again" if self.reconnect else "that is the end",
        )

    def _lost(self, error: OSError) -> None:
        dropped = len(self._partial)
        self._partial.clear()
        self._skipping = False
        self._disconnect()
        self._deadline = monotonic() + self._backoff_secs
        log.warning(
            "%s: %s; next attempt in %.1f s; %d bytes of an unfinished line are dropped",
            self._name,
            error,
            self._backoff_secs,
            dropped,
        )
        self._backoff_secs = min(2 * self._backoff_secs, self.backoff_max_secs)

    def _text(self, line: bytes) -> str:
        return line.removesuffix(b"\r").decode(self.encoding, "replace")

    def _split(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for line in whole:
            if self._partial:
                line = bytes(self._partial) + line
                self._partial.clear()
            if self._skipping:
                self._skipping = False
            elif len(line) > self.line_bytes_max:
                log.error("%s: a line longer than line_bytes_max=%d is dropped", self._name, self.line_bytes_max)
            else:
                self._lines.append(self._text(line))
        if self._skipping:
            return
        self._partial += rest
        if len(self._partial) > self.line_bytes_max:
            log.error("%s: a line longer than line_bytes_max=%d is dropped", self._name, self.line_bytes_max)
            self._partial.clear()
            self._skipping = True
