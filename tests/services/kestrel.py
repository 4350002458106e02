"""A small Kestrel server of the tests, in the test's own process, written from Kestrel's guide.

No registry has a server that speaks Kestrel's protocol, so the spout is tried against this one and against no Kestrel.
It knows ``set``, ``get`` with ``/open``, ``/close``, ``/abort``, ``/peek`` and ``/t=MS``, ``flush`` and ``version``;
items expire; an item that is open goes back to the head of its queue when its connection ends.
"""

from __future__ import annotations

import socketserver
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.services.server import HOST

EXPIRY_IS_A_DATE = 1_000_000
"""A smaller expiration is seconds from now, a larger one seconds since 1970."""


@dataclass
class Item:
    data: bytes
    expires: float | None


@dataclass
class Queues:
    """What the server holds; every method is called under ``changed``."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    waiting: dict[str, deque[Item]] = field(default_factory=lambda: defaultdict(deque))
    open_items: int = 0

    def head(self, name: str) -> Item | None:
        queue = self.waiting[name]
        while queue and queue[0].expires is not None and queue[0].expires <= time.time():
            queue.popleft()
        return queue[0] if queue else None

    def wait_for(self, name: str, wait_secs: float) -> Item | None:
        until = time.monotonic() + wait_secs
        while (item := self.head(name)) is None and (left := until - time.monotonic()) > 0:
            self.changed.wait(left)
        return item


class Connection(socketserver.StreamRequestHandler):
    """One client; it may have one item open."""

    server: Any

    def setup(self) -> None:
        super().setup()
        self.open_item: tuple[str, Item] | None = None
        self.server.clients.append(self.connection)

    def handle(self) -> None:
        try:
            while line := self.rfile.readline():
                command, *words = line.decode().split()
                getattr(self, f"do_{command.lower()}", self.do_unknown)(*words)
        except OSError:
            pass  # the client, or the test, has cut the connection

    def finish(self) -> None:
        with self.server.queues.changed:
            self.put_back()
        try:
            super().finish()
        except OSError:
            pass

    def do_set(self, name: str, flags: str, expiry: str, size: str) -> None:
        data = self.rfile.read(int(size) + 2)[:-2]
        seconds = int(expiry)
        expires = None if seconds == 0 else seconds + (time.time() if seconds < EXPIRY_IS_A_DATE else 0)
        with self.server.queues.changed:
            self.server.queues.waiting[name].append(Item(data, expires))
            self.server.queues.changed.notify_all()
        self.wfile.write(b"STORED\r\n")

    def do_get(self, key: str) -> None:
        name, *options = key.split("/")
        wait_ms = next((int(option[2:]) for option in options if option.startswith("t=")), 0)
        plain = not {"open", "close", "abort", "peek"} & set(options)
        with self.server.queues.changed:
            if "close" in options and self.open_item is not None:
                self.open_item = None
                self.server.queues.open_items -= 1
                self.server.queues.changed.notify_all()
            if "abort" in options:
                self.put_back()
            item = None
            if "open" in options and self.open_item is not None:
                self.wfile.write(b"CLIENT_ERROR another item is open\r\n")
                return
            if plain or "open" in options or "peek" in options:
                item = self.server.queues.wait_for(name, wait_ms / 1000)
            if item is not None and "peek" not in options:
                self.server.queues.waiting[name].popleft()
                if "open" in options:
                    self.open_item = name, item
                    self.server.queues.open_items += 1
                    self.server.queues.changed.notify_all()
        if item is not None:
            self.wfile.write(b"VALUE %s 0 %d\r\n%s\r\n" % (name.encode(), len(item.data), item.data))
        self.wfile.write(b"END\r\n")

    def do_flush(self, name: str) -> None:
        with self.server.queues.changed:
            self.server.queues.waiting[name].clear()
        self.wfile.write(b"END\r\n")

    def do_version(self) -> None:
        self.wfile.write(b"VERSION 0-tests\r\n")

    def do_unknown(self, *words: str) -> None:
        self.wfile.write(b"ERROR\r\n")

    def put_back(self) -> None:
        if self.open_item is not None:
            name, item = self.open_item
            self.open_item = None
            self.server.queues.open_items -= 1
            self.server.queues.waiting[name].appendleft(item)
            self.server.queues.changed.notify_all()


class _Listening(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, port: int, queues: Queues) -> None:
        self.queues = queues
        self.clients: list[Any] = []
        super().__init__((HOST, port), Connection)


class Kestrel:
    """The server: ``with Kestrel() as kestrel``; its queues outlive ``stop`` and ``start``."""

    def __init__(self) -> None:
        self.queues = Queues()
        self.port = 0

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        self._listening = _Listening(self.port, self.queues)
        self.port = self._listening.server_address[1]
        self._thread = threading.Thread(target=self._listening.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """End all connections, and wait until what was open on them is back."""
        for client in self._listening.clients:
            try:
                client.shutdown(2)
            except OSError:
                pass
        self._listening.clients.clear()
        self.wait_until_open(0)

    def wait_until_open(self, count: int) -> None:
        """Wait until so many items are open: what a spout says of an item is heard a little later."""
        with self.queues.changed:
            heard = self.queues.changed.wait_for(lambda: self.queues.open_items == count, 10)
            assert heard, f"{self.queues.open_items} items are open, expected {count}"

    def stop(self) -> None:
        self._listening.shutdown()
        self._thread.join(10)
        self.cut()
        self._listening.server_close()

    def put(self, queue: str, *items: bytes) -> None:
        with self.queues.changed:
            self.queues.waiting[queue].extend(Item(item, None) for item in items)
            self.queues.changed.notify_all()

    def left(self, queue: str) -> list[bytes]:
        """What waits in a queue and is not open."""
        with self.queues.changed:
            return [item.data for item in self.queues.waiting[queue]]

    @property
    def open_items(self) -> int:
        with self.queues.changed:
            return self.queues.open_items

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
