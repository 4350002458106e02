"""SmallBroker: as much of a Kafka broker as a client meets before it may ask for anything.

It speaks the first versions of the protocol: versions, logins, and the metadata of topics, none of which it has. Its
texts are those of Kafka's brokers.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

METADATA, HANDSHAKE, VERSIONS, PRODUCER_ID, LOGIN = 3, 17, 18, 22, 36
_APIS = [
    (0, 0, 7),
    (1, 0, 4),
    (METADATA, 1, 1),
    (HANDSHAKE, 0, 1),
    (VERSIONS, 0, 0),
    (PRODUCER_ID, 0, 0),
    (LOGIN, 0, 0),
]
UNSUPPORTED_MECHANISM, ILLEGAL_STATE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, LOGIN_FAILED = 33, 34, 3, 35, 58
BAD_PASSWORD = "Authentication failed: Invalid username or password"


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class SmallBroker:
    """Listens on loopback until its ``with`` ends."""

    def __init__(self, *, mechanisms: tuple[str, ...] = (), login: str | None = None) -> None:
        """Begin to listen.

        Args:
            mechanisms: the SASL mechanisms; without one a handshake is out of order, as at a port without logins.
            login: why each login is refused; None: none is.
        """
        self._mechanisms, self._login = mechanisms, login
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> SmallBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        with link, contextlib.suppress(OSError, EOFError), link.makefile("rb") as read:
            for request in self._requests(read):
                key, version, number = struct.unpack(">hhi", request[:8])
                body, ends = self._answer(key, version, request)
                link.sendall(struct.pack(">ii", len(body) + 4, number) + body)
                if ends:
                    return

    def _requests(self, read: Any) -> Iterator[bytes]:
        while head := read.read(4):
            (size,) = struct.unpack(">i", head)
            if not 0 < size < 1 << 20:
                return  # TLS at a port without it, for example: a broker closes the connection
            yield read.read(size)

    def _answer(self, key: int, version: int, request: bytes) -> tuple[bytes, bool]:
        """Return the body of an answer, and whether the broker then closes the connection."""
        if key == VERSIONS:
            apis = b"".join(struct.pack(">hhh", *api) for api in _APIS)
            return struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(_APIS)) + apis, False
        if key == HANDSHAKE:
            asked = request[10 + struct.unpack(">h", request[8:10])[0] :][2:].decode()
            error = ILLEGAL_STATE if not self._mechanisms else UNSUPPORTED_MECHANISM
            error = 0 if asked in self._mechanisms else error
            names = b"".join(map(_text, self._mechanisms))
            return struct.pack(">hi", error, len(self._mechanisms)) + names, error != 0
        if key == LOGIN:
            said = b"\xff\xff" if self._login is None else _text(self._login)
            return struct.pack(">h", LOGIN_FAILED if self._login else 0) + said + struct.pack(">i", 0), bool(
                self._login
            )
        if key == PRODUCER_ID:
            return struct.pack(">ihqh", 0, 0, 1, 0), False
        if key == METADATA:
            return self._metadata(request), False
        return b"", True

    def _metadata(self, request: bytes) -> bytes:
        rest = request[10 + struct.unpack(">h", request[8:10])[0] :]
        (count,) = struct.unpack(">i", rest[:4])
        names, at = [], 4
        for _ in range(max(0, count)):
            (length,) = struct.unpack(">h", rest[at : at + 2])
            names.append(rest[at + 2 : at + 2 + length].decode())
            at += 2 + length
        broker = struct.pack(">ii", 1, 1) + _text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        topics = b"".join(
            struct.pack(">h", UNKNOWN_TOPIC) + _text(name) + b"\0" + struct.pack(">i", 0) for name in names
        )
        return broker + struct.pack(">ii", 1, len(names)) + topics
