"""One connection to a Kestrel server, in the memcache text protocol.

``get queue/open`` reserves an item, ``get queue/close`` deletes it, and ``get queue/abort`` puts it back at the head of
its queue, as does the loss of the connection. A connection holds at most one item. A command is sent at once, and its
answer is read only before the connection is used again, so many connections answer in the time of one.
"""

from __future__ import annotations

import socket

LINE_BYTES_MAX = 4096


class KestrelError(OSError):
    """The server's answer breaks the protocol; the connection is no longer usable."""


class KestrelConnection:
    """One connection; every method may raise OSError, and the caller must then close the connection."""

    def __init__(self, host: str, port: int, answer_secs: float) -> None:
        """Connect.

        Args:
            host: Name or address.
            port: Port of the memcache protocol, by default 22133.
            answer_secs: Limit for connecting and for each answer, in seconds.
        """
        self._socket = socket.create_connection((host, port), answer_secs)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")
        self._owed = 0

    def ask(self, queue: str) -> None:
        """Ask the server to reserve an item; ``answer`` returns it."""
        self._send(queue, "open")

    def confirm(self, queue: str) -> None:
        """Ask the server to delete the item."""
        self._send(queue, "close")

    def abort(self, queue: str) -> None:
        """Ask the server to put the item back."""
        self._send(queue, "abort")

    def answer(self) -> bytes | None:
        """Return the item that the last ``ask`` received; None if the queue is empty or the last command was no ask."""
        item = None
        while self._owed:
            item = self._read()
            self._owed -= 1
        return item

    def close(self) -> None:
        """Close the connection; the server reads the commands that were sent before it sees the end."""
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
