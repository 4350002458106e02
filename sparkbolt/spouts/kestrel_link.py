"""One connection to a Kestrel server, in the memcache text protocol.

Which question it answers: which item of a queue does this connection hold, and did the server hear that it is done?
Rule 1: a connection holds one item at most: more the protocol does not allow.
Rule 2: what is said of an item is sent at once, and the answer read before the connection is used again, so that many
connections answer in the time of one.

The protocol is that of Kestrel's guide: ``get queue/open`` sets an item aside, ``get queue/close`` forgets it, ``get
queue/abort`` puts it back at the head of its queue, as does the loss of the connection.
Read before: ``queue``.
"""

from __future__ import annotations

import socket

LINE_BYTES_MAX = 4096


class KestrelError(OSError):
    """The server answered what the protocol does not know here; the connection is of no use any more."""


class KestrelConnection:
    """One connection; every method may raise OSError, and the connection is then to be closed."""

    def __init__(self, host: str, port: int, answer_secs: float) -> None:
        """Connect.

        Args:
            host: name or address.
            port: of the memcache protocol, 22133 by custom.
            answer_secs: how long connecting and each answer may take.
        """
        self._socket = socket.create_connection((host, port), answer_secs)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")
        self._owed = 0

    def ask(self, queue: str) -> None:
        """Ask for an item, to be set aside; ``answer`` tells whether there is one."""
        self._send(queue, "open")

    def confirm(self, queue: str) -> None:
        """Let the server forget the item."""
        self._send(queue, "close")

    def abort(self, queue: str) -> None:
        """Have the server put the item back."""
        self._send(queue, "abort")

    def answer(self) -> bytes | None:
        """The item of the last question; None if the queue is empty, or it was no question for one."""
        item = None
        while self._owed:
            item = self._read()
            self._owed -= 1
        return item

    def close(self) -> None:
        """Close; the server reads what was said before it sees the end."""
        self._reader.close()
        self._socket.close()

    def _send(self, queue: str, option: str) -> None:
        self._owed += 1
        self._socket.sendall(f"get {queue}/{option}\r\n".encode())

    def _read(self) -> bytes | None:
        item = None
        line = self._line()
        if line.startswith(b"VALUE "):
            words = line.split()
            if len(words) < 4 or not words[3].isdigit():
                raise KestrelError(f"expected VALUE name flags bytes, got {line[:80]!r}")
            length = int(words[3])
            data = self._reader.read(length + 2)
            if len(data) != length + 2:
                raise KestrelError("the connection ended within an item")
            item = data[:-2]
            line = self._line()
        if line != b"END":
            raise KestrelError(f"expected END, got {line[:80]!r}")
        return item

    def _line(self) -> bytes:
        line = self._reader.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\r\n"):
            raise KestrelError("the server closed the connection" if not line else f"no end of line in {line[:80]!r}")
        return line[:-2]
